//! The chunks of a volume, and the unallocated parts of its device.
//!
//! Owns the reading of the chunk tree, the block groups and the device tree. Refuses volumes whose chunks are not
//! contiguous on one device.

use super::address::Address;
use super::items::{ChunkItem, FIRST_OBJECT, block_group_used, device_bytes, device_extent_length, kind};
use super::model::{Chunk, Profile};
use super::trees::Trees;
use longrun_engine::VolumeError;
use longrun_layout::{BlockSize, Blocks, Bytes, Extent, ExtentSet, PhysicalBlock};
use longrun_sys::{BtrfsInfo, TreeId, TreeKey, Visit};

/// btrfs leaves the start of each device alone.
const RESERVED: u64 = 1 << 20;
/// The superblock and its copies, each with what is kept free of anything else.
pub(super) const SUPERBLOCKS: [u64; 3] = [64 << 10, 64 << 20, 256 << 30];
pub(super) const SUPERBLOCK_BYTES: u64 = 64 << 10;
/// No chunk is made of less.
const LEAST_CHUNK: u64 = 64 << 10;

/// The one device of a volume and the chunks on it.
#[derive(Debug)]
pub(super) struct ChunkMap {
    pub(super) chunks: Vec<Chunk>,
    pub(super) unallocated: Vec<Extent>,
    pub(super) device: u64,
    pub(super) device_bytes: Bytes,
}

/// Why a volume as a whole cannot be told in places on one device, if so.
pub(super) fn refusal(info: &BtrfsInfo) -> Option<String> {
    if info.is_strange() {
        return Some("btrfs with zones or with a feature that this version does not know".to_owned());
    }
    (info.devices != 1).then(|| format!("reading btrfs on {} devices as a whole", info.devices))
}

/// Reads them, without free space.
pub(super) fn read(trees: &mut Trees<'_>, info: &BtrfsInfo) -> Result<ChunkMap, VolumeError> {
    let (mut devices, mut found, mut strange) = (Vec::new(), Vec::new(), false);
    let last = TreeKey::last_of(u64::MAX);
    trees.visit(TreeId::CHUNKS, TreeKey::first_of(0), last, |item| {
        match (item.key.kind, item.key.object) {
            (kind::DEVICE, _) => devices.extend(device_bytes(item.bytes).map(|bytes| (item.key.offset, bytes))),
            (kind::CHUNK, FIRST_OBJECT) => match ChunkItem::decode(item.bytes) {
                Some(chunk) => found.push((Address(item.key.offset), chunk)),
                None => strange = true,
            },
            _ => {}
        }
        Visit::Next
    })?;
    let &[(device, device_bytes)] = devices.as_slice() else {
        return Err(trees.unsupported(format!("reading btrfs on {} devices as a whole", devices.len())));
    };
    if strange {
        return Err(trees.damaged("a chunk item is invalid"));
    }
    let mut chunks = Vec::with_capacity(found.len());
    for (start, item) in found {
        let placed = place(start, &item, info.block_size, device, device_bytes);
        chunks.push(placed.map_err(|problem| match problem {
            Misplaced::Elsewhere => trees.unsupported("reading btrfs with striped or mirrored data as a whole"),
            Misplaced::Nonsense => trees.damaged(format!("the chunk at {} is invalid", start.0)),
        })?);
    }
    if chunks.windows(2).any(|pair| matches!(pair, [a, b] if a.end() > b.start)) {
        return Err(trees.damaged("chunks overlap"));
    }
    read_used(trees, info, &mut chunks)?;
    let mut taken = ExtentSet::new();
    let (first, last) = (
        TreeKey { object: device, kind: kind::DEVICE_EXTENT, offset: 0 },
        TreeKey { object: device, kind: kind::DEVICE_EXTENT, offset: u64::MAX },
    );
    trees.visit(TreeId::DEVICES, first, last, |item| {
        let length = device_extent_length(item.bytes).unwrap_or_default();
        taken.insert(outer(info.block_size, item.key.offset, length.0));
        Visit::Next
    })?;
    let unallocated = unallocated(&taken, device_bytes, info.block_size);
    Ok(ChunkMap { chunks, unallocated, device, device_bytes })
}

enum Misplaced {
    /// On another device, or not in one piece.
    Elsewhere,
    Nonsense,
}

fn place(
    start: Address,
    item: &ChunkItem,
    block_size: BlockSize,
    device: u64,
    device_bytes: Bytes,
) -> Result<Chunk, Misplaced> {
    let size = u64::from(block_size.bytes());
    let mut places = Vec::with_capacity(item.stripes.len());
    for (on, at) in &item.stripes {
        if *on != device {
            return Err(Misplaced::Elsewhere);
        }
        let inside = at.0.checked_add(item.length.0).is_some_and(|end| end <= device_bytes.0);
        if !inside || !at.0.is_multiple_of(size) {
            return Err(Misplaced::Nonsense);
        }
        places.push(PhysicalBlock(at.0 / size));
    }
    // Striped over a single device, it lies there in one piece.
    let in_one_piece = matches!(item.profile, Profile::Single | Profile::Dup) || places.len() == 1;
    if !in_one_piece {
        return Err(Misplaced::Elsewhere);
    }
    let aligned = start.0.is_multiple_of(size) && item.length.0.is_multiple_of(size) && item.length.0 > 0;
    let (Some((position, copies)), true) = (places.split_first(), aligned) else { return Err(Misplaced::Nonsense) };
    Ok(Chunk {
        start,
        length: item.length,
        kind: item.kind,
        profile: item.profile,
        position: *position,
        copies: copies.to_vec(),
        used: Bytes(0),
        free: Vec::new(),
    })
}

/// Notes how much of each chunk is used.
fn read_used(trees: &mut Trees<'_>, info: &BtrfsInfo, chunks: &mut [Chunk]) -> Result<(), VolumeError> {
    let group = |object, offset| TreeKey { object, kind: kind::BLOCK_GROUP, offset };
    if info.has_block_group_tree() {
        trees.visit(TreeId::BLOCK_GROUPS, TreeKey::first_of(0), TreeKey::last_of(u64::MAX), |item| {
            let at = chunks.binary_search_by_key(&item.key.object, |chunk| chunk.start.0);
            if let Ok(at) = at
                && item.key.kind == kind::BLOCK_GROUP
                && let Some(chunk) = chunks.get_mut(at)
            {
                chunk.used = block_group_used(item.bytes).unwrap_or_default();
            }
            Visit::Next
        })?;
        return Ok(());
    }
    // In the tree of extents they lie among millions of others: each is asked for.
    for chunk in chunks {
        let (first, last) = (group(chunk.start.0, 0), group(chunk.start.0, u64::MAX));
        trees.visit(TreeId::EXTENTS, first, last, |item| {
            chunk.used = block_group_used(item.bytes).unwrap_or_default();
            Visit::Stop
        })?;
    }
    Ok(())
}

/// The blocks that a range of bytes touches.
pub(super) fn outer(block_size: BlockSize, start: u64, length: u64) -> Extent {
    let size = u64::from(block_size.bytes());
    Extent::between(PhysicalBlock(start / size), PhysicalBlock(start.saturating_add(length).div_ceil(size)))
}

/// What of a device belongs to no chunk and can be made one.
fn unallocated(taken: &ExtentSet, device_bytes: Bytes, block_size: BlockSize) -> Vec<Extent> {
    let size = u64::from(block_size.bytes());
    let usable = Extent::between(PhysicalBlock(RESERVED.div_ceil(size)), PhysicalBlock(device_bytes.0 / size));
    let mut gaps: ExtentSet = taken.gaps(usable).into_iter().filter(|gap| gap.length.0 * size >= LEAST_CHUNK).collect();
    for at in SUPERBLOCKS {
        gaps.remove(outer(block_size, at, SUPERBLOCK_BYTES));
    }
    gaps.iter().collect()
}

/// The parts of a chunk's first copy where btrfs keeps superblocks.
pub(super) fn superblocks_in(chunk: &Chunk, block_size: BlockSize) -> impl Iterator<Item = Extent> {
    let size = u64::from(block_size.bytes());
    let (length, starts) = (chunk.length.0, std::iter::once(chunk.position).chain(chunk.copies.iter().copied()));
    let (first, whole) = (chunk.position, chunk.extent(block_size));
    // Whichever copy a superblock lies in, the address is lost to all.
    starts.collect::<Vec<_>>().into_iter().flat_map(move |start| {
        SUPERBLOCKS.into_iter().filter_map(move |at| {
            let inside = at.checked_sub(start.0 * size).filter(|inside| *inside < length)?;
            let unit = inside - inside % SUPERBLOCK_BYTES;
            let lost = Extent { start: first + Blocks(unit / size), length: Blocks(SUPERBLOCK_BYTES.div_ceil(size)) };
            lost.intersection(&whole)
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::btrfs::ChunkKind;

    fn block_size() -> BlockSize {
        BlockSize::new(4096).unwrap()
    }

    fn item(profile: Profile, stripes: &[(u64, u64)]) -> ChunkItem {
        let stripes = stripes.iter().map(|(device, at)| (*device, Bytes(*at))).collect();
        ChunkItem { length: Bytes(8 << 20), kind: ChunkKind::Data, profile, stripes }
    }

    fn placed(item: &ChunkItem) -> Result<Chunk, Misplaced> {
        place(Address(1 << 30), item, block_size(), 1, Bytes(1 << 30))
    }

    #[test]
    fn a_chunk_lies_where_its_first_stripe_does() {
        let chunk = placed(&item(Profile::Dup, &[(1, 16 << 20), (1, 32 << 20)])).ok().unwrap();
        assert_eq!(chunk.extent(block_size()), Extent::new(4096, 2048));
        assert_eq!(chunk.copies, [PhysicalBlock(8192)]);
        assert_eq!(chunk.address_of(block_size(), PhysicalBlock(4097)), Some(Address((1 << 30) + 4096)));
        assert_eq!(chunk.address_of(block_size(), PhysicalBlock(4096 + 2048)), None);
        let one = placed(&item(Profile::Raid0, &[(1, 16 << 20)]));
        assert!(one.is_ok(), "striped over one device");
    }

    #[test]
    fn what_lies_on_several_devices_or_nowhere_is_refused() {
        for elsewhere in [item(Profile::Raid0, &[(1, 0), (1, 16 << 20)]), item(Profile::Single, &[(2, 0)])] {
            assert!(matches!(placed(&elsewhere), Err(Misplaced::Elsewhere)));
        }
        let beyond = item(Profile::Single, &[(1, (1 << 30) - 4096)]);
        for nonsense in [item(Profile::Single, &[]), beyond, item(Profile::Single, &[(1, 77)])] {
            assert!(matches!(placed(&nonsense), Err(Misplaced::Nonsense)));
        }
    }

    #[test]
    fn the_start_of_the_device_superblocks_and_slivers_are_not_unallocated() {
        let taken: ExtentSet = [Extent::new(512, 4096), Extent::new(4608 + 8, 100)].into_iter().collect();
        let gaps = unallocated(&taken, Bytes(128 << 20), block_size());
        // 64 MiB is block 16384; 64 KiB are 16 blocks.
        assert_eq!(gaps, [Extent::new(256, 256), Extent::new(4716, 11668), Extent::new(16400, 16368)]);
    }

    #[test]
    fn a_superblock_in_a_chunk_is_no_free_space_of_it() {
        let chunk = placed(&item(Profile::Dup, &[(1, 16 << 20), (1, 60 << 20)])).ok().unwrap();
        let lost: Vec<Extent> = superblocks_in(&chunk, block_size()).collect();
        assert_eq!(lost, [Extent::new(4096 + 1024, 16)], "4 MiB into the second copy");
    }
}
