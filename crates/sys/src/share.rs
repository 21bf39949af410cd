//! FIDEDUPERANGE: a file takes over the blocks of another file where the kernel finds the same bytes in both. Callers use
//! [`crate::share_if_same`], which keeps the moments from mapped files in which the bare call shows zeros.

use crate::ByteRange;
use crate::raw::{BTRFS_CALLS, KernelRecord, update};
use longrun_layout::Bytes;
use rustix::io::Errno;
use std::os::fd::{AsFd, AsRawFd};

/// What came of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shared {
    /// So many bytes hold the same, and lie in the donor's blocks now. An unaligned last block counts although it is left
    /// behind where file and donor do not both end with it: look at the map.
    Same(Bytes),
    /// The bytes differ: nothing was changed.
    Differs,
}

/// One range of the donor, one file: what the kernel calls an array of one.
#[repr(C)]
struct Argument {
    donor_start: u64,
    length: u64,
    files: u16,
    reserved: u16,
    reserved_too: u32,
    file_fd: i64,
    file_start: u64,
    shared: u64,
    status: i32,
    reserved_last: u32,
}

// SAFETY: repr(C), integers only, 56 bytes without padding.
unsafe impl KernelRecord for Argument {}

#[repr(C)]
struct Header([u64; 3]);

const OPCODE: rustix::ioctl::Opcode = rustix::ioctl::opcode::read_write::<Header>(BTRFS_CALLS, 54);

/// The bare call of [`crate::share_if_same`], of the same meaning and with the same errors.
pub(crate) fn compare_and_share(
    donor: impl AsFd,
    donor_start: Bytes,
    file: impl AsFd,
    range: ByteRange,
) -> Result<Shared, Errno> {
    const SAME: i32 = 0;
    const DIFFERS: i32 = 1;
    let file = file.as_fd();
    let mut argument = Argument {
        donor_start: donor_start.0,
        length: range.length.0,
        files: 1,
        reserved: 0,
        reserved_too: 0,
        file_fd: i64::from(file.as_raw_fd()),
        file_start: range.start.0,
        shared: 0,
        status: 0,
        reserved_last: 0,
    };
    // SAFETY: the kernel reads the header and, as `files` says, one record behind it, and writes that one; `file` is
    // borrowed, thus open, during the call.
    unsafe { update(donor, OPCODE, &mut argument) }?;
    match argument.status {
        SAME => Ok(Shared::Same(Bytes(argument.shared))),
        DIFFERS => Ok(Shared::Differs),
        errno => Err(Errno::from_raw_os_error(errno.saturating_neg())),
    }
}

/// `struct file_clone_range`.
#[repr(C)]
struct CloneArgument {
    source_fd: i64,
    source_start: u64,
    length: u64,
    start: u64,
}

// SAFETY: repr(C), integers only, 32 bytes without padding.
unsafe impl KernelRecord for CloneArgument {}

const CLONE: rustix::ioctl::Opcode = rustix::ioctl::opcode::write::<CloneArgument>(BTRFS_CALLS, 13);

/// Maps a range of `ours`, a file that no other process reads, from `start` on to the blocks that `range` of
/// `source` lies in: both share them then. Nothing of the source changes.
///
/// # Errors
/// `EINVAL` when range or start are not made of whole blocks; `EOPNOTSUPP` where the file system cannot share blocks.
pub fn share_blocks_of(source: impl AsFd, range: ByteRange, ours: impl AsFd, start: Bytes) -> Result<(), Errno> {
    // To the kernel a length of 0 means "to the end".
    if range.length.0 == 0 {
        return Err(Errno::INVAL);
    }
    let source = source.as_fd();
    let mut argument = CloneArgument {
        source_fd: i64::from(source.as_raw_fd()),
        source_start: range.start.0,
        length: range.length.0,
        start: start.0,
    };
    // SAFETY: the kernel reads one record; `source` is borrowed, thus open, during the call.
    unsafe { update(ours, CLONE, &mut argument) }
}
