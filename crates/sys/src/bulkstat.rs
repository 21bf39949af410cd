//! Reads a whole XFS volume: its geometry, and all its inodes without opening them.

use crate::raw::{KernelRecord, Records, update};
use longrun_layout::{BlockSize, Blocks, Bytes, FileId, InodeNumber, PhysicalBlock};
use rustix::io::Errno;
use std::os::fd::AsFd;

/// How an XFS volume is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct XfsGeometry {
    /// The block size.
    pub block_size: BlockSize,
    /// The size of the volume, realtime devices excepted.
    pub total: Blocks,
    /// The size of every allocation group but perhaps the last.
    pub group_blocks: Blocks,
    /// Whether files can share blocks.
    pub shares_blocks: bool,
}

impl XfsGeometry {
    /// The allocation group that a block lies in.
    #[must_use]
    pub fn group_of_block(&self, block: PhysicalBlock) -> u64 {
        block.0 / self.group_blocks.0.max(1)
    }
}

/// `struct xfs_fsop_geom`.
#[repr(C)]
struct Geometry {
    block_size: u32,
    realtime_extent: u32,
    group_blocks: u32,
    groups: u32,
    log_blocks: u32,
    sector_size: u32,
    inode_size: u32,
    inode_percent: u32,
    blocks: u64,
    realtime_blocks: u64,
    realtime_extents: u64,
    log_start: u64,
    uuid: [u8; 16],
    stripe: [u32; 2],
    version: i32,
    flags: u32,
    sizes: [u32; 4],
    health: [u32; 2],
    reserved: [u64; 17],
}

// SAFETY: repr(C), integers only, 256 bytes without padding.
unsafe impl KernelRecord for Geometry {}

const GEOMETRY: rustix::ioctl::Opcode = rustix::ioctl::opcode::read::<Geometry>(b'X', 126);

/// The geometry of the XFS volume that `file` lies on.
///
/// # Errors
/// `ENOTTY` where the file system is another one; `EINVAL` when its answer is invalid.
pub fn xfs_geometry(file: impl AsFd) -> Result<XfsGeometry, Errno> {
    const SHARES_BLOCKS: u32 = 1 << 20;
    // SAFETY: integers only; all zero is a valid value.
    let mut record: Geometry = unsafe { std::mem::zeroed() };
    // SAFETY: the kernel writes one record, whose size is part of the opcode.
    unsafe { update(file, GEOMETRY, &mut record) }?;
    let block_size = BlockSize::new(record.block_size).ok_or(Errno::INVAL)?;
    if record.group_blocks == 0 || record.inode_size == 0 {
        return Err(Errno::INVAL);
    }
    Ok(XfsGeometry {
        block_size,
        total: Blocks(record.blocks),
        group_blocks: Blocks(u64::from(record.group_blocks)),
        shares_blocks: record.flags & SHARES_BLOCKS != 0,
    })
}

/// What kind of file an inode is, as far as it matters here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InodeKind {
    /// A regular file.
    File,
    /// A directory.
    Directory,
    /// A symbolic link.
    Symlink,
    /// Anything without data: a device, a socket, a pipe.
    Other,
}

/// An inode in use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InodeRecord {
    /// Which.
    pub id: FileId,
    /// What.
    pub kind: InodeKind,
    /// Names that it has; 0 when it was deleted while open.
    pub links: u32,
    /// Its length.
    pub size: Bytes,
    /// Records in its map, holes and what lies behind the end included.
    pub extents: u32,
    flags: u64,
}

impl InodeRecord {
    const REALTIME: u64 = 0x1;
    const IMMUTABLE: u64 = 0x8;
    const APPEND_ONLY: u64 = 0x10;
    const NOT_TO_BE_DEFRAGMENTED: u64 = 0x2000;

    /// Its data lies on the realtime device.
    #[must_use]
    pub fn is_realtime(&self) -> bool {
        self.flags & Self::REALTIME != 0
    }

    /// It must not change, or may only grow.
    #[must_use]
    pub fn is_immutable(&self) -> bool {
        self.flags & (Self::IMMUTABLE | Self::APPEND_ONLY) != 0
    }
}

impl InodeRecord {
    /// Its owner has marked it as not to be defragmented.
    #[must_use]
    pub fn is_unwanted(&self) -> bool {
        self.flags & Self::NOT_TO_BE_DEFRAGMENTED != 0
    }
}

/// `struct xfs_bulk_ireq`.
#[repr(C)]
#[derive(Clone, Copy)]
struct Header {
    inode: u64,
    flags: u32,
    wanted: u32,
    given: u32,
    group: u32,
    reserved: [u64; 5],
}

/// `struct xfs_bulkstat`.
#[repr(C)]
#[derive(Clone, Copy)]
struct Record {
    inode: u64,
    size: u64,
    blocks: u64,
    flags: u64,
    times: [i64; 4],
    generation: u32,
    owners: [u32; 3],
    nanoseconds: [u32; 4],
    block_size: u32,
    device: u32,
    copy_extent_size: u32,
    extent_size: u32,
    links: u32,
    extents: u32,
    attribute_extents: u32,
    version: u16,
    fork_offset: u16,
    health: [u16; 2],
    mode: u16,
    pad: u16,
    extents64: u64,
    reserved: [u64; 6],
}

// SAFETY: repr(C), integers only, 64 bytes without padding.
unsafe impl KernelRecord for Header {}
// SAFETY: repr(C), integers only, 192 bytes without padding.
unsafe impl KernelRecord for Record {}

type Argument = Records<Header, Record, 1024>;

const BULKSTAT: rustix::ioctl::Opcode = rustix::ioctl::opcode::read::<Header>(b'X', 127);

/// Calls `visit` for every inode in use on the XFS volume of `mount`, ascending, until it answers `false`. Needs
/// CAP_SYS_ADMIN.
///
/// # Errors
/// The kernel's.
pub fn for_each_inode(mount: impl AsFd, mut visit: impl FnMut(InodeRecord) -> bool) -> Result<(), Errno> {
    // SAFETY: integers only; all zero is a valid value.
    let (header, empty): (Header, Record) = unsafe { std::mem::zeroed() };
    let mut argument = Box::new(Argument::new(header, empty));
    let mut next = 0;
    loop {
        argument.header =
            Header { inode: next, flags: 0, wanted: Argument::ROOM, given: 0, group: 0, reserved: [0; 5] };
        // SAFETY: the kernel writes the header and at most `wanted` records, which is the length of the array.
        unsafe { update(mount.as_fd(), BULKSTAT, argument.as_mut()) }?;
        let given = argument.given(argument.header.given);
        if given.is_empty() {
            return Ok(());
        }
        if !given.iter().all(|record| visit(decode(record))) {
            return Ok(());
        }
        // An answer that does not advance would loop for ever.
        if argument.header.inode <= next {
            return Err(Errno::UCLEAN);
        }
        next = argument.header.inode;
    }
}

fn decode(record: &Record) -> InodeRecord {
    let kind = match u32::from(record.mode) & libc::S_IFMT {
        libc::S_IFREG => InodeKind::File,
        libc::S_IFDIR => InodeKind::Directory,
        libc::S_IFLNK => InodeKind::Symlink,
        _ => InodeKind::Other,
    };
    InodeRecord {
        id: FileId { inode: InodeNumber(record.inode), generation: record.generation },
        kind,
        links: record.links,
        size: Bytes(record.size),
        extents: record.extents,
        flags: record.flags,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_records_are_as_large_as_the_kernels() {
        let sizes = [size_of::<Geometry>(), size_of::<Header>(), size_of::<Record>()];
        assert_eq!(sizes, [256, 64, 192]);
    }

    #[test]
    fn groups_follow_each_other_at_whatever_size() {
        let uneven = XfsGeometry {
            block_size: BlockSize::new(4096).unwrap(),
            total: Blocks(262_144),
            group_blocks: Blocks(60_000),
            shares_blocks: true,
        };
        let groups = [0, 59_999, 60_000, 179_999].map(|block| uneven.group_of_block(PhysicalBlock(block)));
        assert_eq!(groups, [0, 0, 1, 2]);
    }
}
