//! Leases: ensure that no other process has a file open, and delay openers for a moment.

use crate::raw::last_errno;
use rustix::io::Errno;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};

/// `F_SETSIG`, which the libc crate does not name.
const SET_SIGNAL: libc::c_int = 10;

/// Held, no other process has the file open, by whatever way (mappings and inherited descriptors count); a process that
/// opens it waits until it is given up, or is told to try again if he does not want to wait.
///
/// Hold it for microseconds. The kernel takes it by force after `lease-break-time` (45 s).
#[derive(Debug)]
pub struct ExclusiveLease<'file> {
    file: BorrowedFd<'file>,
}

impl<'file> ExclusiveLease<'file> {
    /// Takes the lease of a file open for reading and writing; `None` when another process has the file open, too.
    ///
    /// A process whose lease another process waits for gets a signal, SIGIO, which kills it. It is told here to get
    /// SIGURG instead, which does nothing.
    ///
    /// # Errors
    /// The kernel's, `EINVAL` where there are no leases.
    pub fn take(file: &'file impl AsFd) -> Result<Option<Self>, Errno> {
        let file = file.as_fd();
        // SAFETY: these commands take an integer, not an address.
        if unsafe { libc::fcntl(file.as_raw_fd(), SET_SIGNAL, libc::SIGURG) } < 0 {
            return Err(last_errno());
        }
        // SAFETY: as above.
        if unsafe { libc::fcntl(file.as_raw_fd(), libc::F_SETLEASE, libc::F_WRLCK) } < 0 {
            return match last_errno() {
                Errno::AGAIN | Errno::BUSY => Ok(None),
                other => Err(other),
            };
        }
        Ok(Some(Self { file }))
    }

    /// Whether it is held still, and no one waits for it: as soon as another process does, the kernel's time for giving
    /// it up runs.
    #[must_use]
    pub fn is_held(&self) -> bool {
        // SAFETY: this command takes no argument.
        unsafe { libc::fcntl(self.file.as_raw_fd(), libc::F_GETLEASE) == libc::F_WRLCK }
    }
}

impl Drop for ExclusiveLease<'_> {
    fn drop(&mut self) {
        // SAFETY: the command takes an integer. An error leaves a lease that ends with the descriptor.
        unsafe { libc::fcntl(self.file.as_raw_fd(), libc::F_SETLEASE, libc::F_UNLCK) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::{self, File};
    use std::os::unix::fs::OpenOptionsExt as _;

    fn open(path: &std::path::Path) -> File {
        File::options().read(true).write(true).custom_flags(libc::O_NONBLOCK).open(path).unwrap()
    }

    #[test]
    fn the_lease_is_had_only_when_nobody_else_has_the_file_open() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("file");
        fs::write(&path, "content").unwrap();
        let file = open(&path);
        assert!(ExclusiveLease::take(&file).unwrap().is_some_and(|lease| lease.is_held()));
        for other in [File::open(&path).unwrap(), open(&path)] {
            assert!(ExclusiveLease::take(&file).unwrap().is_none());
            // An open-file description that another process inherited counts as well.
            let inherited = other.try_clone().unwrap();
            drop(other);
            assert!(ExclusiveLease::take(&file).unwrap().is_none());
            drop(inherited);
        }
        // SAFETY: a fresh mapping of one page at an address that the kernel chooses.
        let map = unsafe {
            let other = File::open(&path).unwrap();
            libc::mmap(std::ptr::null_mut(), 1, libc::PROT_READ, libc::MAP_SHARED, other.as_raw_fd(), 0)
        };
        assert!(ExclusiveLease::take(&file).unwrap().is_none(), "the mapping of a closed file is forgotten");
        // SAFETY: it was mapped just now, and nothing refers to it.
        unsafe { libc::munmap(map, 1) };
        assert!(ExclusiveLease::take(&file).unwrap().is_some());
    }

    #[test]
    fn somebody_who_wants_the_file_does_not_kill_who_holds_the_lease() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("file");
        fs::write(&path, "content").unwrap();
        let file = open(&path);
        let lease = ExclusiveLease::take(&file).unwrap().unwrap();
        let waiting = std::thread::spawn({
            let path = path.clone();
            move || File::open(path).unwrap()
        });
        // Without the change of the signal the process ends here.
        while lease.is_held() {
            std::thread::yield_now();
        }
        drop(lease);
        waiting.join().unwrap();
    }
}
