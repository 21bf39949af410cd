//! btrfs: empties chunks, and finds the files that share an extent.

use crate::TreeId;
use crate::raw::{BTRFS_CALLS, KernelRecord, update, update_by_value};
use longrun_layout::{Bytes, InodeNumber};
use rustix::io::Errno;
use std::os::fd::AsFd;

/// `struct btrfs_balance_args`.
#[repr(C)]
#[derive(Clone, Copy)]
struct Filter {
    profiles: u64,
    usage: u64,
    device: u64,
    device_range: [u64; 2],
    range: [u64; 2],
    target: u64,
    flags: u64,
    limit: u64,
    stripes: [u32; 2],
    unused: [u64; 6],
}

impl Filter {
    const RANGE: u64 = 1 << 4;
    const NOTHING: Self = Self {
        profiles: 0,
        usage: 0,
        device: 0,
        device_range: [0; 2],
        range: [0; 2],
        target: 0,
        flags: 0,
        limit: 0,
        stripes: [0; 2],
        unused: [0; 6],
    };
}

/// `struct btrfs_ioctl_balance_args`.
#[repr(C)]
struct Balance {
    flags: u64,
    state: u64,
    data: Filter,
    metadata: Filter,
    system: Filter,
    expected: u64,
    considered: u64,
    completed: u64,
    unused: [u64; 72],
}

// SAFETY: repr(C), integers only, 1024 bytes without padding.
unsafe impl KernelRecord for Balance {}

impl Balance {
    const DATA: u64 = 1;
    /// Which kinds of chunks are balanced: data, system, metadata.
    const KINDS: u64 = 0b111;

    /// Of the chunks for data that have an address from `first` on, `length` bytes far.
    fn of_data(first: u64, length: Bytes) -> Self {
        let mut balance = Self::new();
        balance.flags = Self::DATA;
        balance.data.flags = Filter::RANGE;
        // The kernel takes a chunk when it begins before the end and ends behind the start.
        balance.data.range = [first, first.saturating_add(length.0)];
        balance
    }

    fn new() -> Self {
        Self {
            flags: 0,
            state: 0,
            data: Filter::NOTHING,
            metadata: Filter::NOTHING,
            system: Filter::NOTHING,
            expected: 0,
            considered: 0,
            completed: 0,
            unused: [0; 72],
        }
    }
}

const BALANCE: rustix::ioctl::Opcode = rustix::ioctl::opcode::read_write::<Balance>(BTRFS_CALLS, 32);
const CONTROL: rustix::ioctl::Opcode = rustix::ioctl::opcode::write::<i32>(BTRFS_CALLS, 33);
const PROGRESS: rustix::ioctl::Opcode = rustix::ioctl::opcode::read::<Balance>(BTRFS_CALLS, 34);

/// Has btrfs move everything out of the chunks for data that have an address from `first` on, `length` bytes far,
/// and give them up. Returns when that is done. Answers how many there were, and how many of them were given up.
/// Needs CAP_SYS_ADMIN.
///
/// # Errors
/// `ENOSPC` when there is no place elsewhere, `EINPROGRESS` while another exclusive operation is under way, `ECANCELED` after
/// [`cancel_balance`].
pub fn balance_data(volume: impl AsFd, first: u64, length: Bytes) -> Result<(u64, u64), Errno> {
    let mut balance = Balance::of_data(first, length);
    // SAFETY: the kernel reads and writes one record, whose size is part of the opcode.
    unsafe { update(volume, BALANCE, &mut balance) }?;
    Ok((balance.considered, balance.completed))
}

/// Whether the balance that is under way, or waits to be resumed, is that of [`balance_data`] for these chunks.
///
/// # Errors
/// `ENOTTY` where the file system is another one.
pub fn is_balancing(volume: impl AsFd, first: u64, length: Bytes) -> Result<bool, Errno> {
    let of = |balance: &Balance| (balance.flags & Balance::KINDS, balance.data.flags, balance.data.range);
    Ok(progress(volume)?.is_some_and(|found| of(&found) == of(&Balance::of_data(first, length))))
}

/// Ends any balance, one that is paused included, and returns when it has ended; nothing of it stays paused.
///
/// # Errors
/// `ENOTCONN` when there is none.
pub fn cancel_balance(volume: impl AsFd) -> Result<(), Errno> {
    const CANCEL: i32 = 2;
    // SAFETY: this call takes its argument by value: the kernel does not use it as an address.
    unsafe { update_by_value(volume, CONTROL, CANCEL) }
}

/// What a balance is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BalanceState {
    /// There is none.
    None,
    /// One is under way.
    Running,
    /// One waits to be resumed.
    Paused,
}

/// Whether a balance is under way.
///
/// # Errors
/// `ENOTTY` where the file system is another one.
pub fn balance_state(volume: impl AsFd) -> Result<BalanceState, Errno> {
    const RUNNING: u64 = 1;
    Ok(match progress(volume)? {
        None => BalanceState::None,
        Some(balance) if balance.state & RUNNING != 0 => BalanceState::Running,
        Some(_) => BalanceState::Paused,
    })
}

/// The balance that is under way, or waits to be resumed.
fn progress(volume: impl AsFd) -> Result<Option<Balance>, Errno> {
    let mut balance = Balance::new();
    // SAFETY: the kernel writes one record, whose size is part of the opcode.
    match unsafe { update(volume, PROGRESS, &mut balance) } {
        Ok(()) => Ok(Some(balance)),
        Err(Errno::NOTCONN) => Ok(None),
        Err(errno) => Err(errno),
    }
}

/// A file that refers to an extent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Reference {
    /// Which subvolume or snapshot.
    pub subvolume: TreeId,
    /// Which file of it.
    pub inode: InodeNumber,
    /// Where in the file the reference is.
    pub offset: Bytes,
}

const REFERENCE_BYTES: usize = 1 << 16;

/// `struct btrfs_data_container`, with room for 2730 references.
#[repr(C)]
struct References {
    bytes_left: u32,
    bytes_missing: u32,
    count: u32,
    missed: u32,
    values: [u64; REFERENCE_BYTES / 8],
}

/// `struct btrfs_ioctl_logical_ino_args`.
#[repr(C)]
struct Question {
    address: u64,
    bytes: u64,
    reserved: [u64; 3],
    flags: u64,
    answer: u64,
}

// SAFETY: repr(C), integers only, 56 bytes without padding.
unsafe impl KernelRecord for Question {}

const WHO_REFERS: rustix::ioctl::Opcode = rustix::ioctl::opcode::read_write::<Question>(BTRFS_CALLS, 59);

/// Calls `found` for each reference to any part of the extent that holds `address`. Needs CAP_SYS_ADMIN.
///
/// # Errors
/// `ENOENT` when there is no extent; `EOVERFLOW` when there are more than 2730 references.
pub fn for_each_reference(volume: impl AsFd, address: u64, mut found: impl FnMut(Reference)) -> Result<(), Errno> {
    const WHOLE_EXTENT: u64 = 1;
    // SAFETY: integers only, so that all zero is a valid value. On the heap from the start: it is large.
    let mut answer: Box<References> = unsafe { Box::<References>::new_zeroed().assume_init() };
    let mut question = Question {
        address,
        bytes: size_of::<References>() as u64,
        reserved: [0; 3],
        flags: WHOLE_EXTENT,
        answer: std::ptr::from_mut(answer.as_mut()) as u64,
    };
    // SAFETY: the kernel reads one record, and writes to the address in it as many bytes as it says at most: those of
    // `answer`, which no other process refers to during the call.
    unsafe { update(volume, WHO_REFERS, &mut question) }?;
    if answer.missed > 0 || answer.bytes_missing > 0 {
        return Err(Errno::OVERFLOW);
    }
    let count = answer.count as usize;
    for triple in answer.values.get(..count).ok_or(Errno::OVERFLOW)?.chunks_exact(3) {
        let &[inode, offset, subvolume] = triple else { continue };
        found(Reference { subvolume: TreeId(subvolume), inode: InodeNumber(inode), offset: Bytes(offset) });
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_records_are_as_large_as_the_kernels() {
        let sizes = [size_of::<Filter>(), size_of::<Balance>(), size_of::<Question>(), size_of::<References>()];
        assert_eq!(sizes, [136, 1024, 56, 16 + REFERENCE_BYTES]);
    }
}
