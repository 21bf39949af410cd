//! The result of a scan of a btrfs volume.
//!
//! Owns the types, and the only translation from btrfs addresses to places on the device. Never makes a system call.

use super::address::{Address, SubvolumeId};
use super::extents::DataExtents;
use super::sharing::SharingSets;
use crate::survey::DeviceSpace;
use longrun_layout::{BlockSize, Blocks, Bytes, Extent, FileId, FileIndex, InodeNumber, PhysicalBlock, VolumeLayout};

/// The content of a chunk.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ChunkKind {
    /// Data of files.
    Data,
    /// Trees.
    Metadata,
    /// The tree of chunks itself.
    System,
    /// Data and trees together (mkfs --mixed).
    Mixed,
}

impl ChunkKind {
    /// Whether files' data lies in it.
    #[must_use]
    pub fn holds_data(self) -> bool {
        matches!(self, Self::Data | Self::Mixed)
    }
}

/// How a chunk is stored on devices.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Profile {
    /// One copy.
    Single,
    /// Two copies on one device.
    Dup,
    /// One copy striped over devices.
    Raid0,
    /// Copies on this many devices.
    Mirrored(u8),
    /// Copies striped over devices.
    Raid10,
    /// Striped, with this many blocks of parity to each stripe.
    Parity(u8),
}

impl Profile {
    /// The name that btrfs-progs uses.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Single => "single",
            Self::Dup => "DUP",
            Self::Raid0 => "RAID0",
            Self::Mirrored(2) => "RAID1",
            Self::Mirrored(3) => "RAID1C3",
            Self::Mirrored(_) => "RAID1C4",
            Self::Raid10 => "RAID10",
            Self::Parity(1) => "RAID5",
            Self::Parity(_) => "RAID6",
        }
    }

    /// How many bytes of content new chunks could take, where `unallocated` is free on each of the devices: about, since a
    /// chunk takes parts of equal length of several devices.
    #[must_use]
    pub fn room_in(self, unallocated: &[Bytes]) -> Bytes {
        let sum: u64 = unallocated.iter().map(|bytes| bytes.0).sum();
        // What no other device has a counterpart for is lost to those that need one.
        let most = unallocated.iter().map(|bytes| bytes.0).max().unwrap_or(0);
        let on_copies = |copies: u64| match copies {
            2 => (sum / 2).min(sum - most),
            copies => sum / copies,
        };
        let count = unallocated.len() as u64;
        Bytes(match self {
            Self::Single | Self::Raid0 => sum,
            Self::Dup => sum / 2,
            Self::Mirrored(copies) => on_copies(u64::from(copies).max(1)),
            Self::Raid10 => on_copies(2),
            Self::Parity(parity) => sum / count.max(1) * count.saturating_sub(u64::from(parity)),
        })
    }
}

/// A part of the address space that is allocated to one kind of content; btrfs calls its content a block group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Chunk {
    /// Its first address.
    pub start: Address,
    /// Its size, of one copy.
    pub length: Bytes,
    /// What it holds.
    pub kind: ChunkKind,
    /// How it lies on the devices.
    pub profile: Profile,
    /// Where its first copy starts in the layout. What lies in a chunk lies in one piece there.
    pub position: PhysicalBlock,
    /// Where further copies start; none in a layout of several devices.
    pub copies: Vec<PhysicalBlock>,
    /// Its blocks where a superblock lies on a device: never to be had. In the layout; ascending, disjoint.
    pub superblocks: Vec<Extent>,
    /// Bytes in use, of one copy.
    pub used: Bytes,
    /// Its free parts by place in the layout (first copy); ascending, disjoint, not adjacent.
    pub free: Vec<Extent>,
}

impl Chunk {
    /// The first address behind it.
    #[must_use]
    pub fn end(&self) -> Address {
        self.start.plus(self.length)
    }

    /// The blocks of its first copy.
    #[must_use]
    pub fn extent(&self, block_size: BlockSize) -> Extent {
        Extent { start: self.position, length: Blocks(self.length.0 / u64::from(block_size.bytes())) }
    }

    /// The address of a block of its first copy.
    #[must_use]
    pub fn address_of(&self, block_size: BlockSize, block: PhysicalBlock) -> Option<Address> {
        let inside = block.0.checked_sub(self.position.0)?.checked_mul(u64::from(block_size.bytes()))?;
        (inside < self.length.0).then(|| self.start.plus(Bytes(inside)))
    }

    /// Where `address`, which lies in the chunk, lies in its first copy.
    #[must_use]
    pub fn position_of(&self, block_size: BlockSize, address: Address) -> Option<PhysicalBlock> {
        let inside = address.0.checked_sub(self.start.0).filter(|inside| *inside < self.length.0)?;
        Some(self.position + Blocks(inside / u64::from(block_size.bytes())))
    }

    /// Its free blocks, of one copy.
    #[must_use]
    pub fn free_blocks(&self) -> Blocks {
        self.free.iter().map(|extent| extent.length).sum()
    }
}

/// The source of the free space.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FreeSpaceSource {
    /// The free-space tree.
    Tree,
    /// The gaps between extents: the volume has no free-space tree, or one that must not be trusted.
    Gaps,
}

/// The parameters of a volume.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BtrfsGeometry {
    /// The unit of allocation (btrfs' sector size), and the layout's block size.
    pub block_size: BlockSize,
    /// Bytes of a tree node.
    pub node_bytes: Bytes,
    /// Its devices, at least one.
    pub devices: Vec<DeviceSpace>,
    /// Where the free space was read from.
    pub free_space: FreeSpaceSource,
    /// How new chunks for files' data are stored.
    pub data_profile: Profile,
}

impl BtrfsGeometry {
    /// The bytes of all devices.
    #[must_use]
    pub fn device_bytes(&self) -> Bytes {
        self.devices.iter().map(|device| device.bytes).sum()
    }
}

/// A subvolume or snapshot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Subvolume {
    /// Which.
    pub id: SubvolumeId,
    /// Where its name is: in which subvolume, in which directory of that, and which name. The top one has none.
    pub place: Option<(SubvolumeId, InodeNumber, Vec<u8>)>,
    /// No one can write to its files.
    pub read_only: bool,
    /// It was made as a copy of another.
    pub is_snapshot: bool,
    /// What its tree takes.
    pub tree_bytes: Bytes,
}

/// The properties of a file that determine how it can be moved.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OwnerTraits(pub(super) u16);

macro_rules! traits {
    ($($(#[$doc:meta])* $name:ident = $bit:expr, $constant:ident;)*) => {
        impl OwnerTraits {
            $(pub(super) const $constant: u16 = 1 << $bit;)*
            $($(#[$doc])*
            #[must_use]
            pub fn $name(self) -> bool {
                self.0 & Self::$constant != 0
            })*
        }
    };
}

traits! {
    /// Some of its data is stored compressed.
    is_compressed = 0, COMPRESSED;
    /// Some or all of its data lies in the tree itself, and has no blocks.
    is_inline = 1, INLINE;
    /// It has preallocated space before its end that was never written.
    is_preallocated = 2, PREALLOCATED;
    /// It has space behind its end.
    reaches_beyond_end = 3, BEYOND_END;
    /// It is written in place (nodatacow).
    is_written_in_place = 4, IN_PLACE;
    /// Immutable or append-only.
    is_immutable = 5, IMMUTABLE;
    /// fs-verity protects its content.
    has_verity = 6, VERITY;
    /// It is in use as swap space.
    is_swap = 7, SWAP;
    /// Its subvolume is read-only.
    is_in_read_only_subvolume = 8, READ_ONLY;
    /// A part of it refers to less than the whole of an extent.
    refers_to_parts = 9, PARTS;
    /// It shares an extent with another file, or has one twice itself.
    is_shared = 10, SHARED;
    /// It is a directory.
    is_directory = 11, DIRECTORY;
}

impl OwnerTraits {
    pub(super) fn add(&mut self, bits: u16) {
        self.0 |= bits;
    }
}

/// The identity of a file of the layout. Inode numbers repeat in each subvolume.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Owner {
    /// Which subvolume it lies in.
    pub subvolume: SubvolumeId,
    /// Its number there.
    pub inode: InodeNumber,
    /// The transaction that made it: tells it from a later file of the same number. Its low 32 bits are the generation of file
    /// handles.
    pub generation: u64,
    /// Its length.
    pub size: Bytes,
    /// What decides how it can be moved.
    pub traits: OwnerTraits,
}

/// The state of a volume at one moment.
///
/// The layout uses places on the device; for a chunk with two copies, those of the first copy. Free space is the free
/// space in data chunks, and space that is not allocated to a chunk. Everything else without a file is an obstacle:
/// metadata chunks with their free space, second copies, superblocks, and unreferenced parts of extents.
///
/// On several devices a chunk lies in several places at once, with its blocks in turn on this and that device. The layout
/// then has the chunks one after the other in the order of their addresses, an obstacle of one block between any two, since
/// nothing is allocated across their border; and behind them, in one piece, what new chunks could take.
///
/// The [`FileId`] of a file has the ID of its subvolume as the generation, so it is unique on the volume and the same
/// in the next scan. Files that share blocks are not a contradiction here: see [`VolumeLayout::shared`].
///
/// The runs of a file with compressed extents are numbered by consecutive blocks on the device instead of the file's
/// own blocks. Fragments and bytes are then correct, and [`DataExtents`] has the parts of the file with their places.
#[derive(Clone, Debug)]
pub struct BtrfsScan {
    /// Files, directories, free space, obstacles.
    pub layout: VolumeLayout,
    /// How the volume is made.
    pub geometry: BtrfsGeometry,
    /// All chunks, ascending by address.
    pub chunks: Vec<Chunk>,
    /// What in the layout belongs to no chunk and could be made one. Ascending.
    pub unallocated: Vec<Extent>,
    /// All subvolumes and snapshots, ascending by id.
    pub subvolumes: Vec<Subvolume>,
    /// By [`FileIndex`]: who it is.
    pub owners: Vec<Owner>,
    /// The extents of each file.
    pub extents: DataExtents,
    /// Which files share extents.
    pub sets: SharingSets,
}

impl BtrfsScan {
    /// The chunk that holds `address`.
    #[must_use]
    pub fn chunk_at(&self, address: Address) -> Option<&Chunk> {
        chunk_at(&self.chunks, address)
    }

    /// Where `address` lies on the device.
    #[must_use]
    pub fn position_of(&self, address: Address) -> Option<PhysicalBlock> {
        self.chunk_at(address)?.position_of(self.geometry.block_size, address)
    }

    /// The chunk that has `block` in one of its copies, and whether it is the first copy.
    #[must_use]
    pub fn chunk_of_block(&self, block: PhysicalBlock) -> Option<(&Chunk, bool)> {
        let size = self.geometry.block_size;
        self.chunks.iter().find_map(|chunk| {
            let holds = |start: PhysicalBlock| start <= block && block < start + chunk.extent(size).length;
            if holds(chunk.position) {
                return Some((chunk, true));
            }
            chunk.copies.iter().any(|copy| holds(*copy)).then_some((chunk, false))
        })
    }

    /// Who the file at `index` is.
    #[must_use]
    pub fn owner(&self, index: FileIndex) -> Option<&Owner> {
        self.owners.get(index.0 as usize)
    }

    /// A subvolume by its id.
    #[must_use]
    pub fn subvolume(&self, id: SubvolumeId) -> Option<&Subvolume> {
        let at = self.subvolumes.binary_search_by_key(&id, |subvolume| subvolume.id).ok()?;
        self.subvolumes.get(at)
    }
}

impl Owner {
    /// The identity of the file in layouts; `None` where the id of its subvolume needs more than 32 bits.
    #[must_use]
    pub fn file_id(&self) -> Option<FileId> {
        Some(FileId { inode: self.inode, generation: u32::try_from(self.subvolume.0).ok()? })
    }

    /// The subvolume and number that a layout's [`FileId`] stands for.
    #[must_use]
    pub fn of_file_id(id: FileId) -> (SubvolumeId, InodeNumber) {
        (SubvolumeId(u64::from(id.generation)), id.inode)
    }
}

/// The chunk of `chunks` (ascending) that holds `address`.
pub(super) fn chunk_at(chunks: &[Chunk], address: Address) -> Option<&Chunk> {
    chunks.get(chunk_index_at(chunks, address)?)
}

/// Which of `chunks` (ascending) holds `address`.
pub(super) fn chunk_index_at(chunks: &[Chunk], address: Address) -> Option<usize> {
    let at = chunks.partition_point(|chunk| chunk.start <= address).checked_sub(1)?;
    chunks.get(at).is_some_and(|chunk| address < chunk.end()).then_some(at)
}
