//! The untyped entry points to the kernel. Private: every operation has its own typed function elsewhere.

use rustix::io::Errno;
use rustix::ioctl::Opcode;
use std::os::fd::{AsFd, AsRawFd};

/// Records of the kernel that are plain integers without padding: any bit pattern is a valid value, and the kernel may
/// read or write all of it.
///
/// # Safety
/// The type is `repr(C)` (or a primitive), has no padding and no invalid bit pattern.
pub(crate) unsafe trait KernelRecord {}

/// The type byte of the calls that came with btrfs, some of which every file system knows by now.
pub(crate) const BTRFS_CALLS: u8 = 0x94;

/// Performs ioctl `opcode`, which reads and writes at most one `T`.
///
/// # Safety
/// The kernel must access no more than `size_of::<T>()` bytes at the argument for this opcode and this content of
/// `argument` (counts inside it included), and must not keep the address.
pub(crate) unsafe fn update<T: KernelRecord>(fd: impl AsFd, opcode: Opcode, argument: &mut T) -> Result<(), Errno> {
    // SAFETY: `argument` is exclusively borrowed and alive during the call; the caller answers for the bounds; the
    // kernel may leave any bit pattern, which is valid because `T` is a KernelRecord.
    let rc = unsafe { libc::ioctl(fd.as_fd().as_raw_fd(), opcode as libc::c_ulong as _, std::ptr::from_mut(argument)) };
    if rc < 0 { Err(last_errno()) } else { Ok(()) }
}

/// Performs ioctl `opcode`, which takes a number and no address.
///
/// # Safety
/// The kernel must not use the argument of this opcode as an address.
pub(crate) unsafe fn update_by_value(fd: impl AsFd, opcode: Opcode, argument: i32) -> Result<(), Errno> {
    // SAFETY: no memory is handed over; the caller answers for that.
    let rc = unsafe { libc::ioctl(fd.as_fd().as_raw_fd(), opcode as libc::c_ulong as _, argument) };
    if rc < 0 { Err(last_errno()) } else { Ok(()) }
}

/// The error of the C library call just made by this thread.
pub(crate) fn last_errno() -> Errno {
    std::io::Error::last_os_error().raw_os_error().map_or(Errno::IO, Errno::from_raw_os_error)
}

/// Turns the return value of a raw system call into a result.
pub(crate) fn checked(rc: libc::c_long) -> Result<libc::c_long, Errno> {
    if rc < 0 { Err(last_errno()) } else { Ok(rc) }
}

/// A byte count for calls that take a signed offset; larger ones mean "to the end".
pub(crate) fn offset(bytes: u64) -> i64 {
    i64::try_from(bytes).unwrap_or(i64::MAX)
}
