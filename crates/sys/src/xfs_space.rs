//! XFS: the number of inodes.

use crate::raw::{KernelRecord, update};
use rustix::io::Errno;
use std::os::fd::AsFd;

/// `struct xfs_fsop_counts`.
#[repr(C)]
struct Counts {
    free_data: u64,
    free_realtime: u64,
    free_inodes: u64,
    allocated_inodes: u64,
}

// SAFETY: repr(C), integers only, 32 bytes without padding.
unsafe impl KernelRecord for Counts {}

const COUNTS: rustix::ioctl::Opcode = rustix::ioctl::opcode::read::<Counts>(b'X', 113);

/// Inodes that are allocated on an XFS volume and not in use: as many files can be made without any further space.
///
/// # Errors
/// `ENOTTY` where it is not XFS.
pub fn xfs_free_inodes(file: impl AsFd) -> Result<u64, Errno> {
    let mut counts = Counts { free_data: 0, free_realtime: 0, free_inodes: 0, allocated_inodes: 0 };
    // SAFETY: the kernel writes 32 bytes, the size of the record.
    unsafe { update(file, COUNTS, &mut counts) }?;
    Ok(counts.free_inodes)
}
