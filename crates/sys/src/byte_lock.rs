//! Locks on single bytes of a file that belong to an open file (OFD locks): how QEMU marks an image that is in use.
//!
//! Owns the kernel's record of them. Never waits, never knows what a byte stands for. Locks that belong to a process
//! (POSIX) conflict with these.

use crate::ByteRange;
use crate::raw::{last_errno, offset};
use rustix::io::Errno;
use std::os::fd::{AsFd, AsRawFd};

fn call(file: impl AsFd, command: libc::c_int, kind: libc::c_int, range: ByteRange) -> Result<libc::flock, Errno> {
    let mut lock = libc::flock {
        l_type: kind as libc::c_short,
        l_whence: libc::SEEK_SET as libc::c_short,
        l_start: offset(range.start.0),
        l_len: offset(range.length.0),
        l_pid: 0,
    };
    // SAFETY: these commands read one record and may write it; it is exclusively borrowed and lives during the call.
    let rc = unsafe { libc::fcntl(file.as_fd().as_raw_fd(), command, &raw mut lock) };
    if rc < 0 { Err(last_errno()) } else { Ok(lock) }
}

/// Locks `range` of a file that is open for writing, for this open file alone. False when another open file, or
/// another process, has any lock there.
///
/// The lock ends with [`unlock_bytes`], or when the last descriptor of the open file is closed.
///
/// # Errors
/// The kernel's; `EINVAL` and `ENOLCK` where the file system has no locks.
pub fn lock_bytes(file: impl AsFd, range: ByteRange) -> Result<bool, Errno> {
    match call(file, libc::F_OFD_SETLK, libc::F_WRLCK, range) {
        Ok(_) => Ok(true),
        Err(Errno::AGAIN | Errno::ACCESS) => Ok(false),
        Err(errno) => Err(errno),
    }
}

/// Ends the locks of this open file on `range`.
///
/// # Errors
/// The kernel's.
pub fn unlock_bytes(file: impl AsFd, range: ByteRange) -> Result<(), Errno> {
    call(file, libc::F_OFD_SETLK, libc::F_UNLCK, range).map(drop)
}

/// Whether another open file, or another process, has any lock on `range`. Takes none.
///
/// # Errors
/// The kernel's.
pub fn are_bytes_locked(file: impl AsFd, range: ByteRange) -> Result<bool, Errno> {
    conflicts(file, libc::F_WRLCK, range)
}

/// As [`are_bytes_locked`], of locks that keep others from reading alone: those who write take them.
///
/// # Errors
/// The kernel's.
pub fn are_bytes_locked_for_writing(file: impl AsFd, range: ByteRange) -> Result<bool, Errno> {
    conflicts(file, libc::F_RDLCK, range)
}

/// Whether a lock of this kind could not be had.
fn conflicts(file: impl AsFd, kind: libc::c_int, range: ByteRange) -> Result<bool, Errno> {
    let found = call(file, libc::F_OFD_GETLK, kind, range)?;
    Ok(libc::c_int::from(found.l_type) != libc::F_UNLCK)
}

#[cfg(test)]
mod tests {
    use super::*;
    use longrun_layout::Bytes;

    #[test]
    fn two_open_files_exclude_each_other_on_the_same_bytes_even_in_one_process() {
        let named = tempfile::NamedTempFile::new().unwrap();
        let [first, second] = [(); 2].map(|()| named.reopen().unwrap());
        let range = |start, length| ByteRange { start: Bytes(start), length: Bytes(length) };
        assert!(!are_bytes_locked(&second, range(100, 5)).unwrap());
        assert!(lock_bytes(&first, range(100, 5)).unwrap());
        assert!(lock_bytes(&first, range(100, 5)).unwrap(), "our own do not hinder us");
        assert!(!lock_bytes(&second, range(104, 1)).unwrap());
        assert!(are_bytes_locked(&second, range(104, 1)).unwrap());
        assert!(are_bytes_locked_for_writing(&second, ByteRange::ALL).unwrap());
        assert!(lock_bytes(&second, range(105, 1)).unwrap());
        let of_a_child = first.try_clone().unwrap();
        unlock_bytes(&first, ByteRange::ALL).unwrap();
        assert!(lock_bytes(&second, range(100, 5)).unwrap(), "the lock outlives its end in another descriptor");
        drop(of_a_child);
    }
}
