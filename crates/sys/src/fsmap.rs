//! GETFSMAP: the use of each part of a volume, free space included.

use crate::device::device_number_of_file;
use crate::raw::{KernelRecord, Records, update};
use longrun_layout::{BlockSize, Blocks, Extent, PhysicalBlock};
use rustix::io::Errno;
use std::os::fd::AsFd;

/// What a part of the volume is used for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum SpaceOwner {
    /// No one: it can be allocated.
    Free,
    /// File data or anything that the file system does not name.
    Unknown,
    /// Metadata that is not named further.
    Metadata,
    /// Superblocks and other metadata at fixed places.
    FixedMetadata,
    /// The journal.
    Journal,
    /// Inode tables.
    Inodes,
    /// Group descriptors.
    GroupDescriptors,
    /// Room for more group descriptors.
    ReservedGroupDescriptors,
    /// Block bitmaps.
    BlockBitmaps,
    /// Inode bitmaps.
    InodeBitmaps,
    /// A code that this list does not have.
    Other(u64),
}

const fn special(kind: u8, code: u32) -> u64 {
    (kind as u64) << 32 | code as u64
}

impl SpaceOwner {
    fn decode(owner: u64) -> Self {
        const FREE: u64 = special(0, 1);
        const UNKNOWN: u64 = special(0, 2);
        const METADATA: u64 = special(0, 3);
        const FIXED: u64 = special(b'X', 1);
        const LOG: u64 = special(b'X', 2);
        const INODES: u64 = special(b'X', 5);
        const DESCRIPTORS: u64 = special(b'f', 1);
        const RESERVED_DESCRIPTORS: u64 = special(b'f', 2);
        const BLOCK_BITMAP: u64 = special(b'f', 3);
        const INODE_BITMAP: u64 = special(b'f', 4);
        match owner {
            FREE => Self::Free,
            UNKNOWN => Self::Unknown,
            METADATA => Self::Metadata,
            FIXED => Self::FixedMetadata,
            LOG => Self::Journal,
            INODES => Self::Inodes,
            DESCRIPTORS => Self::GroupDescriptors,
            RESERVED_DESCRIPTORS => Self::ReservedGroupDescriptors,
            BLOCK_BITMAP => Self::BlockBitmaps,
            INODE_BITMAP => Self::InodeBitmaps,
            other => Self::Other(other),
        }
    }
}

/// A part of the volume and its use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SpaceRecord {
    /// Which blocks.
    pub extent: Extent,
    /// Whose.
    pub owner: SpaceOwner,
}

#[repr(C)]
#[derive(Clone, Copy)]
struct Record {
    device: u32,
    flags: u32,
    physical: u64,
    owner: u64,
    offset: u64,
    length: u64,
    reserved: [u64; 3],
}

#[repr(C)]
#[derive(Clone, Copy)]
struct Header {
    iflags: u32,
    oflags: u32,
    count: u32,
    entries: u32,
    reserved: [u64; 6],
    keys: [Record; 2],
}

// SAFETY: repr(C), integers only, 192 bytes without padding.
unsafe impl KernelRecord for Header {}
// SAFETY: repr(C), integers only, 64 bytes without padding.
unsafe impl KernelRecord for Record {}

type Argument = Records<Header, Record, 1024>;

const SPECIAL_OWNER: u32 = 0x10;
const LAST: u32 = 0x20;
const OPCODE: rustix::ioctl::Opcode = rustix::ioctl::opcode::read_write::<Header>(b'X', 59);

/// The free pieces that touch `within`, ascending and as the kernel tells them: each lies in one allocation group,
/// where the file system has such, and may go on in the next. As [`map_space`] otherwise.
///
/// # Errors
/// As [`map_space`].
pub fn free_extents(file: impl AsFd, block_size: BlockSize, within: Extent) -> Result<Vec<Extent>, Errno> {
    let records = map_space(file, block_size, within)?;
    Ok(records.into_iter().filter(|record| record.owner == SpaceOwner::Free).map(|record| record.extent).collect())
}

/// The free pieces of the whole volume, to whatever end it has, as [`free_extents`] tells them.
///
/// # Errors
/// As [`map_space`].
pub fn all_free_extents(file: impl AsFd, block_size: BlockSize) -> Result<Vec<Extent>, Errno> {
    free_extents(file, block_size, Extent::new(0, u64::MAX / u64::from(block_size.bytes())))
}

/// The records that touch `within`, ascending. `file` is any open file of the volume. Space freed since the last journal
/// commit does not show as free: sync the volume first where that matters.
///
/// # Errors
/// The kernel's; `ENOTTY` or `EOPNOTSUPP` where the file system has no GETFSMAP.
pub fn map_space(file: impl AsFd, block_size: BlockSize, within: Extent) -> Result<Vec<SpaceRecord>, Errno> {
    let device = device_number_of_file(file.as_fd())?.encoded();
    let size = u64::from(block_size.bytes());
    let zero = Record { device: 0, flags: 0, physical: 0, owner: 0, offset: 0, length: 0, reserved: [0; 3] };
    let low = Record { device, physical: within.start.0.saturating_mul(size), ..zero };
    // The kernel wants length and reserved fields of the high key to be 0.
    let high = Record {
        device,
        flags: u32::MAX,
        physical: within.end().0.saturating_mul(size).saturating_sub(1),
        owner: u64::MAX,
        offset: u64::MAX,
        ..zero
    };
    let header =
        Header { iflags: 0, oflags: 0, count: Argument::ROOM, entries: 0, reserved: [0; 6], keys: [low, high] };
    let mut argument = Box::new(Argument::new(header, zero));
    let mut found = Vec::new();
    loop {
        // SAFETY: the kernel writes the header and at most `count` records, which is the length of the array.
        unsafe { update(file.as_fd(), OPCODE, argument.as_mut()) }?;
        let records = argument.given(argument.header.entries);
        found.extend(records.iter().map(|r| SpaceRecord {
            extent: Extent { start: PhysicalBlock(r.physical / size), length: Blocks(r.length / size) },
            owner: if r.flags & SPECIAL_OWNER == 0 { SpaceOwner::Other(r.owner) } else { SpaceOwner::decode(r.owner) },
        }));
        match records.last() {
            // The kernel goes on behind the low key when that has a length.
            Some(last) if last.flags & LAST == 0 => argument.header.keys = [*last, high],
            _ => return Ok(found),
        }
    }
}
