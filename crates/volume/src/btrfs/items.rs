//! The items of the btrfs trees: decodes their bytes.
//!
//! Owns the record layouts, each written once. Pure. No input causes a panic, and items that are too short are refused.
//! Values are not checked here: the code that uses them checks them.

use super::address::Address;
use super::model::{ChunkKind, Profile};
use crate::bytes::{byte, le16, le32, le64};
use longrun_layout::{Bytes, InodeNumber};

/// The kinds of items.
pub(super) mod kind {
    pub(crate) const INODE: u8 = 1;
    pub(crate) const DIRECTORY_ENTRY: u8 = 84;
    pub(crate) const DIRECTORY_INDEX: u8 = 96;
    pub(crate) const FILE_EXTENT: u8 = 108;
    pub(crate) const ROOT: u8 = 132;
    pub(crate) const ROOT_BACK_REFERENCE: u8 = 144;
    pub(crate) const EXTENT: u8 = 168;
    pub(crate) const NODE: u8 = 169;
    pub(crate) const BLOCK_GROUP: u8 = 192;
    pub(crate) const FREE_EXTENT: u8 = 199;
    pub(crate) const FREE_BITMAP: u8 = 200;
    pub(crate) const DEVICE_EXTENT: u8 = 204;
    pub(crate) const DEVICE: u8 = 216;
    pub(crate) const CHUNK: u8 = 228;
}

/// The objects that a subvolume's own numbers begin and end with: inodes, and subvolumes among trees.
pub(super) const FIRST_OBJECT: u64 = 256;
pub(super) const LAST_OBJECT: u64 = 256u64.wrapping_neg();

/// What of an inode matters here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Inode {
    pub(super) generation: u64,
    pub(super) size: Bytes,
    pub(super) links: u32,
    pub(super) mode: u32,
    pub(super) flags: u64,
}

impl Inode {
    const BYTES: usize = 160;
    const KIND: u32 = 0o170_000;

    pub(super) const IN_PLACE: u64 = 1 << 1;
    pub(super) const IMMUTABLE: u64 = 1 << 6;
    pub(super) const APPEND_ONLY: u64 = 1 << 7;
    pub(super) const VERITY: u64 = 1 << 32;

    pub(super) fn decode(item: &[u8]) -> Option<Self> {
        (item.len() >= Self::BYTES).then(|| Self {
            generation: le64(item, 0),
            size: Bytes(le64(item, 16)),
            links: le32(item, 40),
            mode: le32(item, 52),
            flags: le64(item, 64),
        })
    }

    pub(super) fn is_file(&self) -> bool {
        self.mode & Self::KIND == 0o100_000
    }

    pub(super) fn is_directory(&self) -> bool {
        self.mode & Self::KIND == 0o040_000
    }
}

/// A part of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FilePart {
    /// Its data lies in the item.
    Inline,
    /// A hole.
    Hole,
    /// Its data lies in an extent.
    Extent(ExtentPart),
    /// Encrypted, or in a way that this program does not know.
    Strange,
}

/// A part of a file that lies in an extent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ExtentPart {
    pub(super) disk: Address,
    pub(super) disk_length: Bytes,
    pub(super) offset: Bytes,
    pub(super) length: Bytes,
    /// How much data there is in the extent, when it is not compressed any more.
    pub(super) data_length: Bytes,
    pub(super) is_compressed: bool,
    pub(super) is_preallocated: bool,
}

impl FilePart {
    const INLINE: u8 = 0;
    const REGULAR: u8 = 1;
    const PREALLOCATED: u8 = 2;
    const HEADER: usize = 21;
    const BYTES: usize = 53;

    pub(super) fn decode(item: &[u8]) -> Option<Self> {
        if item.len() < Self::HEADER {
            return None;
        }
        let (compression, encryption, other) = (byte(item, 16), byte(item, 17), le16(item, 18));
        if encryption != 0 || other != 0 {
            return Some(Self::Strange);
        }
        let kind = byte(item, 20);
        match kind {
            Self::INLINE => return Some(Self::Inline),
            Self::REGULAR | Self::PREALLOCATED if item.len() >= Self::BYTES => {}
            Self::REGULAR | Self::PREALLOCATED => return None,
            _ => return Some(Self::Strange),
        }
        let disk = le64(item, 21);
        if disk == 0 {
            return Some(Self::Hole);
        }
        Some(Self::Extent(ExtentPart {
            disk: Address(disk),
            disk_length: Bytes(le64(item, 29)),
            offset: Bytes(le64(item, 37)),
            length: Bytes(le64(item, 45)),
            data_length: Bytes(le64(item, if compression == 0 { 29 } else { 8 })),
            is_compressed: compression != 0,
            is_preallocated: kind == Self::PREALLOCATED,
        }))
    }
}

/// What the tree of trees tells of a subvolume.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Root {
    pub(super) tree_bytes: Bytes,
    pub(super) is_read_only: bool,
    pub(super) is_snapshot: bool,
    /// 0 when it was deleted and waits for being taken apart.
    pub(super) references: u32,
}

impl Root {
    /// Before there were UUIDs.
    const LEAST_BYTES: usize = 239;

    pub(super) fn decode(item: &[u8]) -> Option<Self> {
        const READ_ONLY: u64 = 1;
        let parent = item.get(263..279).unwrap_or_default();
        (item.len() >= Self::LEAST_BYTES).then(|| Self {
            tree_bytes: Bytes(le64(item, 192)),
            is_read_only: le64(item, 208) & READ_ONLY != 0,
            is_snapshot: parent.iter().any(|byte| *byte != 0),
            references: le32(item, 216),
        })
    }
}

/// Directory and name of a subvolume in the one that it lies in.
pub(super) fn root_place(item: &[u8]) -> Option<(InodeNumber, &[u8])> {
    const HEADER: usize = 18;
    let length = usize::from(le16(item, 16));
    Some((InodeNumber(le64(item, 0)), item.get(HEADER..)?.get(..length)?))
}

/// How a chunk lies on devices.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ChunkItem {
    pub(super) length: Bytes,
    pub(super) kind: ChunkKind,
    pub(super) profile: Profile,
    /// Device and place on it, in bytes.
    pub(super) stripes: Vec<(u64, Bytes)>,
}

impl ChunkItem {
    const HEADER: usize = 48;
    const STRIPE: usize = 32;

    pub(super) fn decode(item: &[u8]) -> Option<Self> {
        let flags = le64(item, 24);
        let count = usize::from(le16(item, 44));
        let stripes = item.get(Self::HEADER..)?.get(..count.checked_mul(Self::STRIPE)?)?;
        let places = stripes.chunks_exact(Self::STRIPE).map(|stripe| (le64(stripe, 0), Bytes(le64(stripe, 8))));
        Some(Self {
            length: Bytes(le64(item, 0)),
            kind: kind_of(flags)?,
            profile: profile_of(flags),
            stripes: places.collect(),
        })
    }
}

fn kind_of(flags: u64) -> Option<ChunkKind> {
    const DATA: u64 = 1;
    const SYSTEM: u64 = 2;
    const METADATA: u64 = 4;
    match flags & (DATA | SYSTEM | METADATA) {
        DATA => Some(ChunkKind::Data),
        METADATA => Some(ChunkKind::Metadata),
        kind if kind & SYSTEM != 0 => Some(ChunkKind::System),
        0 => None,
        _ => Some(ChunkKind::Mixed),
    }
}

fn profile_of(flags: u64) -> Profile {
    let has = |bit: u32| flags & 1 << bit != 0;
    match () {
        () if has(8) => Profile::Parity(2),
        () if has(7) => Profile::Parity(1),
        () if has(6) => Profile::Raid10,
        () if has(3) => Profile::Raid0,
        () if has(10) => Profile::Mirrored(4),
        () if has(9) => Profile::Mirrored(3),
        () if has(4) => Profile::Mirrored(2),
        () if has(5) => Profile::Dup,
        () => Profile::Single,
    }
}

/// The size of a device.
pub(super) fn device_bytes(item: &[u8]) -> Option<Bytes> {
    (item.len() >= 16).then(|| Bytes(le64(item, 8)))
}

/// The length of a part of a device that belongs to a chunk.
pub(super) fn device_extent_length(item: &[u8]) -> Option<Bytes> {
    (item.len() >= 32).then(|| Bytes(le64(item, 24)))
}

/// How much of a chunk is used.
pub(super) fn block_group_used(item: &[u8]) -> Option<Bytes> {
    (item.len() >= 8).then(|| Bytes(le64(item, 0)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn no_bytes_make_decoding_panic(bytes in prop::collection::vec(any::<u8>(), 0..600)) {
            for item in [&bytes[..], bytes.get(..53).unwrap_or_default(), bytes.get(..160).unwrap_or_default()] {
                let _ = (Inode::decode(item), FilePart::decode(item), Root::decode(item), root_place(item));
                let _ = (device_bytes(item), device_extent_length(item), block_group_used(item));
                if let Some(chunk) = ChunkItem::decode(item) {
                    prop_assert!(chunk.stripes.len() * ChunkItem::STRIPE <= item.len(), "no allocation by their word");
                }
            }
        }
    }

    #[test]
    fn items_that_are_cut_off_are_refused() {
        let item = [1; 512];
        for (least, decodes) in [
            (Inode::BYTES, &(|i: &[u8]| Inode::decode(i).is_some()) as &dyn Fn(&[u8]) -> bool),
            (Root::LEAST_BYTES, &|i: &[u8]| Root::decode(i).is_some()),
            (16, &|i: &[u8]| device_bytes(i).is_some()),
            (32, &|i: &[u8]| device_extent_length(i).is_some()),
        ] {
            assert!(decodes(&item[..least]) && !decodes(&item[..least - 1]), "{least}");
        }
        let mut part = [0; 53];
        part[20] = 1;
        part[21] = 1;
        assert!(matches!(FilePart::decode(&part), Some(FilePart::Extent(_))));
        assert_eq!(FilePart::decode(&part[..52]), None);
    }

    #[test]
    fn parts_of_files_are_told_apart() {
        let part = |kind: u8, disk: u64, compression: u8, encryption: u8| {
            let mut item = vec![0; 53];
            (item[16], item[17], item[20]) = (compression, encryption, kind);
            item[8..16].copy_from_slice(&131_072u64.to_le_bytes());
            item[21..29].copy_from_slice(&disk.to_le_bytes());
            item[29..37].copy_from_slice(&8192u64.to_le_bytes());
            item[37..45].copy_from_slice(&4096u64.to_le_bytes());
            item[45..53].copy_from_slice(&12288u64.to_le_bytes());
            FilePart::decode(&item)
        };
        let extent = ExtentPart {
            disk: Address(1 << 20),
            disk_length: Bytes(8192),
            offset: Bytes(4096),
            length: Bytes(12288),
            data_length: Bytes(131_072),
            is_compressed: true,
            is_preallocated: false,
        };
        assert_eq!(part(1, 1 << 20, 3, 0), Some(FilePart::Extent(extent)));
        let prepared = ExtentPart { data_length: Bytes(8192), is_compressed: false, is_preallocated: true, ..extent };
        assert_eq!(part(2, 1 << 20, 0, 0), Some(FilePart::Extent(prepared)));
        assert_eq!(part(0, 1, 1, 0), Some(FilePart::Inline));
        assert_eq!(part(1, 0, 0, 0), Some(FilePart::Hole));
        assert_eq!([part(1, 1, 0, 1), part(9, 1, 0, 0)], [Some(FilePart::Strange); 2]);
    }

    #[test]
    fn profiles_are_told_apart() {
        let of = |flags: u64| (kind_of(flags), profile_of(flags));
        assert_eq!(of(0x1), (Some(ChunkKind::Data), Profile::Single));
        assert_eq!(of(0x24), (Some(ChunkKind::Metadata), Profile::Dup));
        assert_eq!(of(0x12), (Some(ChunkKind::System), Profile::Mirrored(2)));
        assert_eq!(of(0x5 | 1 << 3), (Some(ChunkKind::Mixed), Profile::Raid0));
        assert_eq!(of(0x1 | 1 << 8), (Some(ChunkKind::Data), Profile::Parity(2)));
        assert_eq!(of(0x1 | 1 << 10), (Some(ChunkKind::Data), Profile::Mirrored(4)));
        assert_eq!(of(0), (None, Profile::Single));
    }
}
