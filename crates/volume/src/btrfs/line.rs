//! Where chunks lie in the layout, which is one line of blocks: that of the device, or, on several devices, one chunk after
//! the other.
//!
//! Owns the choice of the line, the checks of chunk items against the devices, and the blocks that superblocks take. Pure.

use super::address::Address;
use super::items::ChunkItem;
use super::model::{Chunk, Profile};
use crate::survey::DeviceSpace;
use longrun_layout::{BlockSize, Blocks, Bytes, Extent, PhysicalBlock};

/// btrfs leaves the start of each device alone.
pub(super) const RESERVED: u64 = 1 << 20;
/// The superblock and its copies, each with what is kept free of anything else.
pub(super) const SUPERBLOCKS: [u64; 3] = [64 << 10, 64 << 20, 256 << 30];
/// What btrfs keeps free around each; and the unit by which chunks are dealt out to devices.
pub(super) const STRIPE_UNIT: u64 = 64 << 10;

/// The chunks in the layout.
#[derive(Debug)]
pub(super) struct Line {
    /// Ascending by address.
    pub(super) chunks: Vec<Chunk>,
    /// The first block behind all of them; on one device that behind the device.
    pub(super) end: PhysicalBlock,
    /// It is that of the only device.
    pub(super) is_of_device: bool,
}

/// A chunk item that no device can have.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Nonsense(pub(super) Address);

/// Finds places for `items`, which ascend by address.
pub(super) fn lay(
    items: &[(Address, ChunkItem)],
    devices: &[DeviceSpace],
    block_size: BlockSize,
) -> Result<Line, Nonsense> {
    let size = u64::from(block_size.bytes());
    // Striped over a single device, a chunk lies there in one piece.
    let in_one_piece =
        |item: &ChunkItem| matches!(item.profile, Profile::Single | Profile::Dup) || item.stripes.len() == 1;
    let by_place = devices.len() == 1 && items.iter().all(|(_, item)| in_one_piece(item));
    let mut chunks = Vec::with_capacity(items.len());
    let mut end = PhysicalBlock(0);
    for (start, item) in items {
        check(*start, item, devices, size)?;
        let places = item.stripes.iter().map(|(_, at)| PhysicalBlock(at.0 / size));
        let copies: Vec<PhysicalBlock> = if by_place { places.collect() } else { vec![end] };
        let Some((position, copies)) = copies.split_first() else { return Err(Nonsense(*start)) };
        let mut chunk = Chunk {
            start: *start,
            length: item.length,
            kind: item.kind,
            profile: item.profile,
            position: *position,
            copies: copies.to_vec(),
            superblocks: Vec::new(),
            used: Bytes(0),
            free: Vec::new(),
        };
        chunk.superblocks = superblocks(item, &chunk, block_size);
        end = chunk.extent(block_size).end() + Blocks(1);
        chunks.push(chunk);
    }
    let device = devices.first().filter(|_| by_place);
    let end = device.map_or(end, |device| PhysicalBlock(device.bytes.0 / size));
    Ok(Line { chunks, end, is_of_device: by_place })
}

/// Whether the devices can have a chunk.
fn check(start: Address, item: &ChunkItem, devices: &[DeviceSpace], size: u64) -> Result<(), Nonsense> {
    let aligned = [start.0, item.length.0].iter().all(|bytes| bytes.is_multiple_of(size)) && item.length.0 > 0;
    let on_each = Dealt::of(item).map_or(0, |dealt| dealt.bytes_on_each(item.length));
    let is_on_device = |(on, at): &(u64, Bytes)| {
        let bytes = devices.iter().find(|device| device.id == *on).map_or(0, |device| device.bytes.0);
        at.0.is_multiple_of(size) && at.0.checked_add(on_each).is_some_and(|end| end <= bytes)
    };
    let is_there = on_each > 0 && item.stripes.iter().all(is_on_device);
    if aligned && is_there { Ok(()) } else { Err(Nonsense(start)) }
}

/// How the units of a chunk are dealt out to its stripes (the kernel's stripe_nr and rmap_block).
struct Dealt {
    /// Different units that lie beside each other, each on another stripe.
    across: u64,
    /// Stripes with the same content in a row.
    alike: u64,
    /// Which units lie on a stripe turns from row to row.
    turning: bool,
}

impl Dealt {
    /// None for a chunk without stripes, or with too few.
    fn of(item: &ChunkItem) -> Option<Self> {
        let stripes = item.stripes.len() as u64;
        let (across, alike, turning) = match item.profile {
            Profile::Single | Profile::Dup | Profile::Mirrored(_) => (1, stripes, false),
            Profile::Raid0 => (stripes, 1, false),
            Profile::Raid10 => (stripes / 2, 2, false),
            Profile::Parity(parity) => (stripes.saturating_sub(u64::from(parity)), 1, true),
        };
        (across > 0 && alike > 0).then_some(Self { across, alike, turning })
    }

    /// What each stripe has of a chunk of `length`.
    fn bytes_on_each(&self, length: Bytes) -> u64 {
        length.0 / self.across
    }

    /// The bytes of the chunk at `inside` the stripe numbered `stripe`: one unit, or, where it turns, all of the row.
    fn unit_at(&self, stripe: u64, inside: u64) -> (u64, u64) {
        let row = inside / STRIPE_UNIT;
        let whole = self.across * STRIPE_UNIT;
        if self.turning {
            return (row * whole, whole);
        }
        (row * whole + stripe / self.alike * STRIPE_UNIT, STRIPE_UNIT)
    }
}

/// The blocks of a chunk where a superblock lies on any of its devices: the address is then lost to all copies.
fn superblocks(item: &ChunkItem, chunk: &Chunk, block_size: BlockSize) -> Vec<Extent> {
    let size = u64::from(block_size.bytes());
    let Some(dealt) = Dealt::of(item) else { return Vec::new() };
    let on_each = dealt.bytes_on_each(item.length);
    let whole = chunk.extent(block_size);
    let mut lost: Vec<Extent> = Vec::new();
    for (stripe, (_, start)) in (0..).zip(&item.stripes) {
        for at in SUPERBLOCKS {
            let Some(inside) = at.checked_sub(start.0).filter(|inside| *inside < on_each) else { continue };
            let (from, length) = dealt.unit_at(stripe, inside);
            let unit = Extent { start: chunk.position + Blocks(from / size), length: Blocks(length.div_ceil(size)) };
            lost.extend(unit.intersection(&whole));
        }
    }
    lost.sort_by_key(|extent| extent.start);
    lost.dedup();
    lost
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::btrfs::ChunkKind;

    const MIB: u64 = 1 << 20;

    fn block_size() -> BlockSize {
        BlockSize::new(4096).unwrap()
    }

    fn devices(count: u64) -> Vec<DeviceSpace> {
        (1..=count).map(|id| DeviceSpace { id, bytes: Bytes(1 << 30), unallocated: Bytes(0) }).collect()
    }

    fn item(profile: Profile, mib: u64, stripes: &[(u64, u64)]) -> ChunkItem {
        let stripes = stripes.iter().map(|(device, at)| (*device, Bytes(*at))).collect();
        ChunkItem { length: Bytes(mib * MIB), kind: ChunkKind::Data, profile, stripes }
    }

    fn laid(items: Vec<ChunkItem>, count: u64) -> Result<Line, Nonsense> {
        let items: Vec<_> = (1..).map(|gib: u64| Address(gib << 30)).zip(items).collect();
        lay(&items, &devices(count), block_size())
    }

    #[test]
    fn on_one_device_a_chunk_lies_where_its_first_stripe_does() {
        let doubled = item(Profile::Dup, 8, &[(1, 16 * MIB), (1, 32 * MIB)]);
        let line = laid(vec![doubled, item(Profile::Raid0, 8, &[(1, 60 * MIB)])], 1).unwrap();
        let chunk = &line.chunks[0];
        assert_eq!(chunk.extent(block_size()), Extent::new(4096, 2048));
        assert_eq!(chunk.copies, [PhysicalBlock(8192)]);
        assert_eq!(chunk.address_of(block_size(), PhysicalBlock(4097)), Some(Address((1 << 30) + 4096)));
        assert_eq!(chunk.address_of(block_size(), PhysicalBlock(4096 + 2048)), None);
        let striped = &line.chunks[1];
        assert_eq!((striped.position, line.end), (PhysicalBlock(15360), PhysicalBlock(1 << 18)));
        assert_eq!(striped.superblocks, [Extent::new(16384, 16)], "at 64 MiB");
    }

    #[test]
    fn on_several_devices_chunks_follow_each_other_and_none_touches_the_next() {
        let mirrored = item(Profile::Mirrored(2), 8, &[(1, 16 * MIB), (2, MIB)]);
        let line = laid(vec![mirrored.clone(), item(Profile::Single, 4, &[(2, 32 * MIB)]), mirrored], 2).unwrap();
        let places: Vec<_> = line.chunks.iter().map(|chunk| chunk.extent(block_size())).collect();
        assert_eq!(places, [Extent::new(0, 2048), Extent::new(2049, 1024), Extent::new(3074, 2048)]);
        assert!(line.chunks.iter().all(|chunk| chunk.copies.is_empty()));
        assert_eq!(line.end, PhysicalBlock(5123));
    }

    #[test]
    fn a_superblock_on_any_device_is_lost_to_all_copies() {
        let lost = |profile, stripes: &[(u64, u64)]| {
            let line = laid(vec![item(profile, 16, stripes)], 4).unwrap();
            line.chunks[0]
                .superblocks
                .iter()
                .map(|extent| (extent.start.0 / 16, extent.length.0 / 16))
                .collect::<Vec<_>>()
        };
        // 64 KiB are 16 blocks. The superblock lies 1 MiB, or 16 units, into a stripe that begins at 63 MiB.
        let (with, without) = (63 * MIB, 100 * MIB);
        assert_eq!(lost(Profile::Mirrored(2), &[(1, with), (2, without)]), [(16, 1)]);
        assert_eq!(lost(Profile::Mirrored(2), &[(1, with), (2, with)]), [(16, 1)]);
        assert_eq!(lost(Profile::Raid0, &[(1, without), (2, with)]), [(33, 1)], "row 16, second column");
        assert_eq!(lost(Profile::Raid10, &[(1, without), (2, without), (3, without), (4, with)]), [(33, 1)]);
        assert_eq!(lost(Profile::Parity(1), &[(1, without), (2, with), (3, without)]), [(32, 2)], "the whole row");
        assert_eq!(lost(Profile::Single, &[(1, without)]), []);
    }

    #[test]
    fn what_lies_nowhere_is_nonsense() {
        let beyond = item(Profile::Single, 8, &[(1, (1 << 30) - 4096)]);
        let nowhere = item(Profile::Single, 8, &[(9, 0)]);
        let half = item(Profile::Raid10, 8, &[(1, MIB)]);
        let all = [item(Profile::Single, 8, &[]), beyond, nowhere, half, item(Profile::Single, 8, &[(1, 77)])];
        for nonsense in all {
            assert_eq!(laid(vec![nonsense], 2).unwrap_err(), Nonsense(Address(1 << 30)));
        }
    }
}
