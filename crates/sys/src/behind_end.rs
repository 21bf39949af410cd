//! Gives back the space that is allocated beyond the end of a file, wherever that end is at the moment.
//!
//! If a caller read the length first and then gave back the space beyond it, the file could grow in between. Here the
//! kernel itself determines the end of the file.

use crate::raw::{KernelRecord, checked, offset, update};
use longrun_layout::Bytes;
use rustix::fs::{AtFlags, OFlags, StatxFlags, fcntl_getfl, fcntl_setfl, statx};
use rustix::io::Errno;
use rustix::mm::{MapFlags, ProtFlags, mmap_anonymous, munmap};
use rustix::process::{Resource, getrlimit};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};

/// `struct space_resv`.
#[repr(C)]
struct Space {
    kind: i16,
    whence: i16,
    padding: u32,
    start: i64,
    length: i64,
    unused: [u32; 6],
}

// SAFETY: repr(C), integers only, 48 bytes; the kernel's own padding is a field.
unsafe impl KernelRecord for Space {}

const UNRESERVE: rustix::ioctl::Opcode = rustix::ioctl::opcode::write::<Space>(b'X', 43);

/// Gives back `length` bytes of a file from `gap` bytes behind its end on, as XFS and btrfs can. ext4 does nothing.
///
/// The kernel reads the end when it is called: what others have appended before is safe. What is appended between
/// that and the lock of the file is not. Nothing in user space lies between the two, but the call waits there while
/// the volume is frozen.
///
/// # Errors
/// The kernel's.
pub fn punch_behind_end(file: impl AsFd, gap: Bytes, length: Bytes) -> Result<(), Errno> {
    let whence = i16::try_from(libc::SEEK_END).map_err(|_| Errno::INVAL)?;
    let (start, length) = (offset(gap.0), offset(length.0));
    let mut space = Space { kind: 0, whence, padding: 0, start, length, unused: [0; 6] };
    // SAFETY: the kernel reads one record.
    unsafe { update(file, UNRESERVE, &mut space) }
}

/// Whether [`free_behind_end`] works on `file`: it can be written past the page cache, and the kernel says so.
///
/// # Errors
/// The kernel's.
pub fn can_free_behind_end(file: impl AsFd) -> Result<bool, Errno> {
    let stat = statx(file, "", AtFlags::EMPTY_PATH, StatxFlags::DIOALIGN)?;
    Ok(stat.stx_mask & StatxFlags::DIOALIGN.bits() != 0 && stat.stx_dio_offset_align != 0)
}

/// The write that is refused begins on such a border behind the end: no page that holds data reaches beyond one.
const BORDER: u64 = 2 << 20;
/// A multiple of every block of ext4.
const LENGTH: usize = 64 << 10;

/// Has ext4 give back all that is allocated behind the end of `file`, which is `end` as far as the caller knows.
///
/// ext4 has no call for that. It does it when a direct write that would make the file longer fails, to be rid of the
/// blocks that the write has had allocated: under the lock of the file, and from the length on that the file has
/// then (`ext4_truncate_failed_write`). So this is such a write, of memory that cannot be read: not a byte of it
/// gets to the file. When the file has grown beyond `end` far enough, the write is none that makes it longer, fails
/// too, and nothing is given back.
///
/// A write through the page cache would fail likewise, but ext4 makes the file longer by it (Linux 6.18). So a file that
/// [`can_free_behind_end`] does not vouch for is refused.
///
/// # Errors
/// `EOPNOTSUPP` when the file cannot be written past the page cache, or the kernel (before Linux 6.1) does not tell.
pub fn free_behind_end(file: impl AsFd, end: Bytes) -> Result<(), Errno> {
    let file = file.as_fd();
    let at = end.0.checked_add(1).and_then(|end| end.checked_next_multiple_of(BORDER)).ok_or(Errno::FBIG)?;
    // Beyond this limit a write is answered by a signal that ends the process.
    if getrlimit(Resource::Fsize).current.is_some_and(|most| most < at + LENGTH as u64) {
        return Err(Errno::FBIG);
    }
    let flags = fcntl_getfl(file)?;
    fcntl_setfl(file, flags | OFlags::DIRECT)?;
    let refused =
        can_free_behind_end(file).and_then(|can| if can { write_nothing(file, at) } else { Err(Errno::OPNOTSUPP) });
    fcntl_setfl(file, flags)?;
    match refused {
        // The last two when there was no space for the write itself: that fails it as well.
        Err(Errno::FAULT | Errno::NOSPC | Errno::DQUOT) => Ok(()),
        Err(other) => Err(other),
        // Unreadable memory was written: no kernel does that.
        Ok(()) => Err(Errno::IO),
    }
}

/// Writes memory that cannot be read: fails with `EFAULT`.
fn write_nothing(file: BorrowedFd<'_>, at: u64) -> Result<(), Errno> {
    let at = i64::try_from(at).map_err(|_| Errno::FBIG)?;
    // SAFETY: no address is asked for, so the kernel chooses one that nothing else uses.
    let unreadable = unsafe { mmap_anonymous(std::ptr::null_mut(), LENGTH, ProtFlags::empty(), MapFlags::PRIVATE) }?;
    // SAFETY: the kernel reads from a mapping of that length, and finds that it may not.
    let rc = unsafe { libc::pwrite(file.as_raw_fd(), unreadable, LENGTH, at) };
    let result = checked(rc as libc::c_long).map(drop);
    // SAFETY: mapped just now, and nothing refers to it.
    let _ = unsafe { munmap(unreadable, LENGTH) };
    result
}
