//! MOVE_EXT: exchanges blocks of a file with blocks of a donor, atomically and checked by the kernel.

use crate::raw::{KernelRecord, update};
use longrun_layout::{Blocks, LogicalBlock};
use rustix::io::Errno;
use std::os::fd::{AsFd, AsRawFd};

/// What to exchange.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Exchange {
    /// First block in the file.
    pub file_start: LogicalBlock,
    /// First block in the donor.
    pub donor_start: LogicalBlock,
    /// Number of blocks, not 0.
    pub length: Blocks,
}

/// How many blocks were exchanged: holes of either file are passed over and not counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Moved(
    /// The blocks exchanged.
    pub Blocks,
);

/// The kernel stopped with an error, having exchanged `moved` blocks before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("exchanging blocks failed after {moved} blocks: {errno}", moved = moved.0)]
pub struct MoveFailure {
    /// The blocks exchanged before the error.
    pub moved: Moved,
    /// Why it stopped.
    pub errno: Errno,
}

#[repr(C)]
struct Argument {
    reserved: u32,
    donor_fd: u32,
    file_start: u64,
    donor_start: u64,
    length: u64,
    moved_length: u64,
}

// SAFETY: repr(C), integers only, 40 bytes without padding.
unsafe impl KernelRecord for Argument {}

const OPCODE: rustix::ioctl::Opcode = rustix::ioctl::opcode::read_write::<Argument>(b'f', 15);

/// Exchanges blocks of `file` with blocks of `donor`; both open for reading and writing, on one ext4 volume.
///
/// The donor must be a file of ours that no one reads: written donor data is destroyed.
///
/// # Errors
/// [`MoveFailure`], with what was exchanged all the same. Length 0 is refused here (`EINVAL`): to the kernel it means
/// "to the end of the file".
pub fn exchange_with_donor(file: impl AsFd, donor: impl AsFd, exchange: Exchange) -> Result<Moved, MoveFailure> {
    let refused = |errno| MoveFailure { moved: Moved(Blocks(0)), errno };
    if exchange.length.0 == 0 {
        return Err(refused(Errno::INVAL));
    }
    let donor = donor.as_fd();
    let mut argument = Argument {
        reserved: 0,
        donor_fd: donor.as_raw_fd().unsigned_abs(),
        file_start: exchange.file_start.0,
        donor_start: exchange.donor_start.0,
        length: exchange.length.0,
        moved_length: 0,
    };
    // SAFETY: the opcode's argument is exactly this record; `donor` is borrowed, thus open, during the call.
    let result = unsafe { update(file, OPCODE, &mut argument) };
    let moved = Moved(Blocks(argument.moved_length));
    result.map(|()| moved).map_err(|errno| MoveFailure { moved, errno })
}
