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

/// An argument whose answer is an array behind its header, as several calls have it. A header that ends on the
/// alignment of a record leaves no padding between the two.
#[repr(C)]
pub(crate) struct Records<H, R, const N: usize> {
    /// What is asked, and how many records the answer has.
    pub(crate) header: H,
    records: [R; N],
}

// SAFETY: repr(C) of two kinds of records; neither header nor record has padding, and the assertion in `new` keeps it
// from arising between them or behind the last.
unsafe impl<H: KernelRecord, R: KernelRecord, const N: usize> KernelRecord for Records<H, R, N> {}

impl<H: KernelRecord, R: KernelRecord + Copy, const N: usize> Records<H, R, N> {
    /// The length of the array, as the kernel is to be told it.
    pub(crate) const ROOM: u32 = N as u32;

    /// An argument with empty records.
    pub(crate) fn new(header: H, empty: R) -> Self {
        const { assert!(size_of::<Self>() == size_of::<H>() + N * size_of::<R>()) };
        Self { header, records: [empty; N] }
    }

    /// The first `count` records; all, when the kernel claims to have written more.
    pub(crate) fn given(&self, count: u32) -> &[R] {
        self.records.get(..count as usize).unwrap_or(&self.records)
    }
}

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
