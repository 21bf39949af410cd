//! The chunks of a volume, and the unallocated parts of its devices.
//!
//! Owns the reading of the chunk tree, the block groups and the device tree. Where chunks lie in the layout is said in
//! [`super::line`].

use super::address::Address;
use super::items::{ChunkItem, FIRST_OBJECT, block_group_used, device_bytes, device_extent_length, kind};
use super::line::{Nonsense, RESERVED, STRIPE_UNIT, SUPERBLOCKS, lay};
use super::model::{Chunk, Profile};
use super::trees::Trees;
use crate::survey::DeviceSpace;
use longrun_engine::VolumeError;
use longrun_layout::{BlockSize, Blocks, Bytes, Extent, ExtentSet, PhysicalBlock};
use longrun_sys::{BtrfsInfo, TreeId, TreeKey, Visit};

/// No chunk is made of less.
const LEAST_CHUNK: u64 = 64 << 10;

/// The chunks of a volume, and what else its devices have.
#[derive(Debug)]
pub(super) struct ChunkMap {
    pub(super) chunks: Vec<Chunk>,
    /// In the layout.
    pub(super) unallocated: Vec<Extent>,
    pub(super) devices: Vec<DeviceSpace>,
    /// How new chunks for data are stored.
    pub(super) data_profile: Profile,
    /// The blocks of the layout.
    pub(super) total: Blocks,
}

/// Why no volume that is made like this can be read, if so.
pub(super) fn refusal(info: &BtrfsInfo) -> Option<String> {
    info.is_strange().then(|| "btrfs with zones or with a feature that this version does not know".to_owned())
}

/// Reads them, without free space.
pub(super) fn read(trees: &mut Trees<'_>, info: &BtrfsInfo) -> Result<ChunkMap, VolumeError> {
    let (mut devices, mut found, mut strange) = (Vec::new(), Vec::new(), false);
    let last = TreeKey::last_of(u64::MAX);
    trees.visit(TreeId::CHUNKS, TreeKey::first_of(0), last, |item| {
        match (item.key.kind, item.key.object) {
            (kind::DEVICE, _) => {
                let device = |bytes| DeviceSpace { id: item.key.offset, bytes, unallocated: Bytes(0) };
                devices.extend(device_bytes(item.bytes).map(device));
            }
            (kind::CHUNK, FIRST_OBJECT) => match ChunkItem::decode(item.bytes) {
                Some(chunk) => found.push((Address(item.key.offset), chunk)),
                None => strange = true,
            },
            _ => {}
        }
        Visit::Next
    })?;
    if strange || devices.is_empty() {
        return Err(trees.damaged("the chunk tree is invalid"));
    }
    let line = lay(&found, &devices, info.block_size)
        .map_err(|Nonsense(at)| trees.damaged(format!("the chunk at {} is invalid", at.0)))?;
    let mut chunks = line.chunks;
    if chunks.windows(2).any(|pair| matches!(pair, [a, b] if a.end() > b.start)) {
        return Err(trees.damaged("chunks overlap"));
    }
    read_used(trees, info, &mut chunks)?;
    let mut gaps = Vec::new();
    for device in &mut devices {
        let taken = allocated(trees, info, device.id)?;
        let found = unallocated(&taken, device.bytes, info.block_size);
        device.unallocated = found.iter().map(|gap| info.block_size.to_bytes(gap.length)).sum();
        gaps.push(found);
    }
    let data_profile = chunks.iter().rfind(|chunk| chunk.kind.holds_data()).map_or(Profile::Single, |c| c.profile);
    let (unallocated, total) = match gaps.as_mut_slice() {
        [of_one] if line.is_of_device => (std::mem::take(of_one), Blocks(line.end.0)),
        _ => {
            let room: Vec<Bytes> = devices.iter().map(|device| device.unallocated).collect();
            let room = data_profile.room_in(&room).0 / u64::from(info.block_size.bytes());
            let room = Extent { start: line.end, length: Blocks(room) };
            ((!room.is_empty()).then_some(room).into_iter().collect(), Blocks(room.end().0))
        }
    };
    Ok(ChunkMap { chunks, unallocated, devices, data_profile, total })
}

/// What of a device belongs to chunks.
fn allocated(trees: &mut Trees<'_>, info: &BtrfsInfo, device: u64) -> Result<ExtentSet, VolumeError> {
    let mut taken = ExtentSet::new();
    let key = |offset| TreeKey { object: device, kind: kind::DEVICE_EXTENT, offset };
    trees.visit(TreeId::DEVICES, key(0), key(u64::MAX), |item| {
        let length = device_extent_length(item.bytes).unwrap_or_default();
        taken.insert(outer(info.block_size, item.key.offset, length.0));
        Visit::Next
    })?;
    Ok(taken)
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
        gaps.remove(outer(block_size, at, STRIPE_UNIT));
    }
    gaps.iter().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn block_size() -> BlockSize {
        BlockSize::new(4096).unwrap()
    }

    #[test]
    fn the_start_of_the_device_superblocks_and_slivers_are_not_unallocated() {
        let taken: ExtentSet = [Extent::new(512, 4096), Extent::new(4608 + 8, 100)].into_iter().collect();
        let gaps = unallocated(&taken, Bytes(128 << 20), block_size());
        // 64 MiB is block 16384; 64 KiB are 16 blocks.
        assert_eq!(gaps, [Extent::new(256, 256), Extent::new(4716, 11668), Extent::new(16400, 16368)]);
    }
}
