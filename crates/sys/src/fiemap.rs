//! FIEMAP: the extent map of a file.

use crate::ByteRange;
use crate::raw::{KernelRecord, Records, update};
use longrun_layout::{BlockSize, Blocks, Bytes, LogicalBlock, PhysicalBlock, Run};
use rustix::io::Errno;
use std::os::fd::AsFd;

/// What FIEMAP says about an extent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ExtentFlags(u32);

impl ExtentFlags {
    const LAST: u32 = 0x1;
    const UNKNOWN: u32 = 0x2;
    const DELALLOC: u32 = 0x4;
    const ENCODED: u32 = 0x8;
    const ENCRYPTED: u32 = 0x80;
    const NOT_ALIGNED: u32 = 0x100;
    const INLINE: u32 = 0x200;
    const UNWRITTEN: u32 = 0x800;
    const SHARED: u32 = 0x2000;

    /// The last extent of the file.
    #[must_use]
    pub fn is_last(self) -> bool {
        self.0 & Self::LAST != 0
    }

    /// Allocated, never written: reads as zeros.
    #[must_use]
    pub fn is_unwritten(self) -> bool {
        self.0 & Self::UNWRITTEN != 0
    }

    /// Written to memory only: no blocks have been chosen yet.
    #[must_use]
    pub fn is_delayed(self) -> bool {
        self.0 & Self::DELALLOC != 0
    }

    /// The data lies inside the inode.
    #[must_use]
    pub fn is_inline(self) -> bool {
        self.0 & Self::INLINE != 0
    }

    /// Other files or snapshots own the blocks too.
    #[must_use]
    pub fn is_shared(self) -> bool {
        self.0 & Self::SHARED != 0
    }

    /// The physical address is that of whole blocks holding this data as it is (encrypted data included).
    #[must_use]
    pub fn has_address(self) -> bool {
        self.0 & (Self::UNKNOWN | Self::DELALLOC | Self::NOT_ALIGNED | Self::INLINE) == 0
            && (self.0 & Self::ENCODED == 0 || self.0 & Self::ENCRYPTED != 0)
    }
}

/// One extent of a file, in bytes as the kernel reports it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileExtent {
    /// Offset in the file.
    pub logical: Bytes,
    /// Offset on the volume; meaningless without [`ExtentFlags::has_address`].
    pub physical: Bytes,
    /// Length.
    pub length: Bytes,
    /// What is known about it.
    pub flags: ExtentFlags,
}

impl FileExtent {
    /// The extent in blocks; `None` when it has no address of its own (inline, delayed, …) or is not made of whole
    /// blocks.
    #[must_use]
    pub fn run(&self, block_size: BlockSize) -> Option<Run> {
        let size = u64::from(block_size.bytes());
        let aligned = [self.logical.0, self.physical.0, self.length.0].iter().all(|bytes| bytes % size == 0);
        (self.flags.has_address() && aligned).then_some(Run {
            logical: LogicalBlock(self.logical.0 / size),
            physical: PhysicalBlock(self.physical.0 / size),
            length: Blocks(self.length.0 / size),
        })
    }
}

/// Whether the file is written back before it is mapped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mapping {
    /// As it is; delayed allocations show as such.
    AsIs,
    /// After write-back (costs I/O when dirty).
    Synced,
}

#[repr(C)]
#[derive(Clone, Copy)]
struct Header {
    start: u64,
    length: u64,
    flags: u32,
    mapped_extents: u32,
    extent_count: u32,
    reserved: u32,
}

#[repr(C)]
#[derive(Clone, Copy)]
struct Record {
    logical: u64,
    physical: u64,
    length: u64,
    reserved64: [u64; 2],
    flags: u32,
    reserved: [u32; 3],
}

// SAFETY: repr(C), integers only, 32 bytes without padding.
unsafe impl KernelRecord for Header {}
// SAFETY: repr(C), integers only, 56 bytes without padding.
unsafe impl KernelRecord for Record {}

/// Large enough that nearly every file takes one call, small enough for the stack.
type Argument = Records<Header, Record, 256>;

const SYNC: u32 = 1;
const OPCODE: rustix::ioctl::Opcode = rustix::ioctl::opcode::read_write::<Header>(b'f', 11);

/// Calls `visit` for each extent that touches `range`, ascending, until it answers `false`.
///
/// # Errors
/// The kernel's; `EOPNOTSUPP` where the file system has no FIEMAP.
pub fn for_each_extent(
    file: impl AsFd,
    range: ByteRange,
    mapping: Mapping,
    mut visit: impl FnMut(FileExtent) -> bool,
) -> Result<(), Errno> {
    let end = range.start.0.saturating_add(range.length.0);
    let empty = Record { logical: 0, physical: 0, length: 0, reserved64: [0; 2], flags: 0, reserved: [0; 3] };
    let header = Header { start: 0, length: 0, flags: 0, mapped_extents: 0, extent_count: 0, reserved: 0 };
    let mut argument = Argument::new(header, empty);
    let mut at = range.start.0;
    while at < end {
        argument.header = Header {
            start: at,
            length: end - at,
            flags: if mapping == Mapping::Synced { SYNC } else { 0 },
            mapped_extents: 0,
            extent_count: Argument::ROOM,
            reserved: 0,
        };
        // SAFETY: the kernel writes the header and at most `extent_count` records, which is the length of the array.
        unsafe { update(file.as_fd(), OPCODE, &mut argument) }?;
        let mapped = argument.given(argument.header.mapped_extents);
        for record in mapped {
            let flags = ExtentFlags(record.flags);
            let extent = FileExtent {
                logical: Bytes(record.logical),
                physical: Bytes(record.physical),
                length: Bytes(record.length),
                flags,
            };
            if !visit(extent) || flags.is_last() {
                return Ok(());
            }
        }
        // An extent that does not advance would loop for ever; a file system that reports one is not to be trusted.
        let next = mapped.last().map(|r| r.logical.saturating_add(r.length));
        match next {
            Some(next) if next > at => at = next,
            Some(_) => return Err(Errno::UCLEAN),
            None => return Ok(()),
        }
    }
    Ok(())
}

/// All extents of `range`.
///
/// # Errors
/// As [`for_each_extent`].
pub fn map_file(file: impl AsFd, range: ByteRange, mapping: Mapping) -> Result<Vec<FileExtent>, Errno> {
    let mut extents = Vec::new();
    for_each_extent(file, range, mapping, |extent| {
        extents.push(extent);
        true
    })?;
    Ok(extents)
}
