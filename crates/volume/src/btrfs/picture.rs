//! Builds the layout of the device from the extents of files and the chunks.
//!
//! Owns the translation of extents into runs. Pure.

use super::chunks::ChunkMap;
use super::extents::{DataExtent, DataExtents};
use super::files::Files;
use super::model::{Chunk, Owner, chunk_at};
use longrun_layout::{
    BlockSize, Blocks, Bytes, FileId, FileIndex, LayoutBuilder, LayoutError, LogicalBlock, NO_DIRECTORY, PhysicalBlock,
    Pin, Run, VolumeLayout,
};

/// Puts the layout together.
pub(super) fn layout(files: &Files, map: &ChunkMap, block_size: BlockSize) -> Result<VolumeLayout, LayoutError> {
    let mut builder = LayoutBuilder::new(block_size, map.total).sharing(true);
    let mut runs = Vec::new();
    let mut pins = files.pins.iter().peekable();
    for (index, owner) in (0..).map(FileIndex).zip(&files.owners) {
        let mut pin = None;
        while let Some((_, reason)) = pins.next_if(|(pinned, _)| *pinned == index) {
            pin = pin.or(Some(*reason));
        }
        runs.clear();
        let mapped = runs_of(owner, &files.extents, index, &map.chunks, block_size, &mut runs);
        let pin = pin.or(pin_of(owner)).or((!mapped).then_some(Pin::DamagedMap));
        // A subvolume's id always fits: others were refused.
        let (id, pin) = match owner.file_id() {
            Some(id) => (id, pin),
            None => (FileId { inode: owner.inode, generation: 0 }, Some(Pin::NoGeneration)),
        };
        builder.push_file(id, NO_DIRECTORY, owner.traits.is_directory(), pin, &mut runs);
    }
    for chunk in map.chunks.iter().filter(|chunk| chunk.kind.holds_data()) {
        chunk.free.iter().for_each(|piece| builder.push_free(*piece));
    }
    map.unallocated.iter().for_each(|piece| builder.push_free(*piece));
    builder.build()
}

fn pin_of(owner: &Owner) -> Option<Pin> {
    let traits = owner.traits;
    [(traits.is_immutable(), Pin::Immutable), (traits.has_verity(), Pin::Verity), (traits.is_swap(), Pin::Swap)]
        .into_iter()
        .find_map(|(applies, pin)| applies.then_some(pin))
}

/// The runs of a file up to its end; false when some of it lies where no chunk is.
fn runs_of(
    owner: &Owner,
    extents: &DataExtents,
    index: FileIndex,
    chunks: &[Chunk],
    block_size: BlockSize,
    runs: &mut Vec<Run>,
) -> bool {
    let end = block_size.to_blocks(owner.size);
    let inside = |extent: &DataExtent| block_size.to_blocks(extent.logical) < end;
    let mut previous: Option<DataExtent> = None;
    let (mut mapped, mut stored) = (true, LogicalBlock(0));
    for extent in extents.of(index).take_while(inside) {
        // What is compressed is read as a whole, also for a part of it: the next part lies in the same place.
        let again = previous.is_some_and(|before| before.is_compressed && before.disk == extent.disk);
        previous = Some(extent);
        let (address, bytes) = extent.read();
        let Some(place) = place(chunks, block_size, address, bytes) else {
            mapped = false;
            continue;
        };
        let logical = LogicalBlock(block_size.to_blocks(extent.logical).0);
        let length = block_size.to_blocks(bytes);
        if !owner.traits.is_compressed() {
            runs.push(Run { logical, physical: place, length: length.min(Blocks(end.0 - logical.0)) });
        } else if !again {
            runs.push(Run { logical: stored, physical: place, length });
            stored = stored + length;
        }
    }
    mapped
}

/// Where on the device `bytes` from `address` lie; they must not reach beyond their chunk.
fn place(chunks: &[Chunk], block_size: BlockSize, address: super::Address, bytes: Bytes) -> Option<PhysicalBlock> {
    let chunk = chunk_at(chunks, address).filter(|chunk| address.plus(bytes) <= chunk.end())?;
    chunk.position_of(block_size, address)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::btrfs::{Address, ChunkKind, OwnerTraits, Profile, SubvolumeId};
    use longrun_layout::{Extent, InodeNumber};

    const START: u64 = 1 << 30;

    fn map() -> ChunkMap {
        let chunk = |start: u64, blocks: u64, position: u64, kind| Chunk {
            start: Address(start),
            length: Bytes(blocks << 12),
            kind,
            profile: Profile::Single,
            position: PhysicalBlock(position),
            copies: Vec::new(),
            superblocks: Vec::new(),
            used: Bytes(0),
            free: Vec::new(),
        };
        // The second chunk follows the first by address, but lies before it on the device.
        let mut first = chunk(START, 100, 2000, ChunkKind::Data);
        first.free = vec![Extent::new(2050, 50)];
        let mut trees = chunk(START + (200 << 12), 100, 4000, ChunkKind::Metadata);
        trees.free = vec![Extent::new(4000, 100)];
        let chunks = vec![first, chunk(START + (100 << 12), 100, 1000, ChunkKind::Data), trees];
        let (devices, data_profile) = (Vec::new(), Profile::Single);
        ChunkMap { chunks, unallocated: vec![Extent::new(5000, 1000)], devices, data_profile, total: Blocks(6000) }
    }

    /// Logical, length, place in the address space, length there, offset; in blocks.
    fn files(all: &[(u64, u16, &[[u64; 5]])]) -> Files {
        let block_size = BlockSize::new(4096).unwrap();
        let mut files = Files::new(block_size);
        for (number, (size, traits, extents)) in (257..).zip(all) {
            let mut owner = Owner {
                subvolume: SubvolumeId(5),
                inode: InodeNumber(number),
                generation: 7,
                size: Bytes(*size),
                traits: OwnerTraits::default(),
            };
            owner.traits.add(*traits);
            files.owners.push(owner);
            assert!(files.extents.begin_file());
            for [logical, length, disk, disk_length, offset] in *extents {
                assert!(files.extents.push(&DataExtent {
                    logical: Bytes(logical << 12),
                    length: Bytes(length << 12),
                    disk: Address(START + (disk << 12)),
                    disk_length: Bytes(disk_length << 12),
                    offset: Bytes(offset << 12),
                    is_compressed: length > disk_length,
                    is_preallocated: false,
                }));
            }
        }
        files
    }

    fn runs(layout: &VolumeLayout, file: u32) -> Vec<Run> {
        layout.file(FileIndex(file)).unwrap().runs().collect()
    }

    #[test]
    fn places_are_those_on_the_device_and_chunk_borders_count_where_they_lie_apart() {
        let all = files(&[
            (20 << 12, 0, &[[0, 10, 0, 20, 5], [10, 10, 90, 10, 0]]),
            (15 << 12, 0, &[[0, 10, 20, 10, 0], [10, 10, 30, 10, 0]]),
            (20 << 12, 0, &[[0, 10, 90, 10, 0], [10, 10, 100, 10, 0]]),
        ]);
        let layout = layout(&all, &map(), BlockSize::new(4096).unwrap()).unwrap();
        assert_eq!(runs(&layout, 0), [Run::new(0, 2005, 10), Run::new(10, 2090, 10)]);
        assert_eq!(runs(&layout, 1), [Run::new(0, 2020, 15)], "joined, and cut off at the end of the file");
        assert_eq!(layout.file(FileIndex(2)).unwrap().fragments(), 2);
        assert_eq!(layout.free(), [Extent::new(2050, 40), Extent::new(5000, 1000)], "metadata has its own");
    }

    #[test]
    fn compressed_extents_follow_each_other_where_the_stored_ones_do() {
        let compressed = OwnerTraits::COMPRESSED;
        let all = files(&[
            (96 << 12, compressed, &[[0, 32, 0, 5, 0], [32, 32, 5, 3, 0], [64, 32, 10, 4, 0]]),
            (64 << 12, compressed, &[[0, 16, 20, 5, 0], [16, 16, 20, 5, 16], [32, 32, 25, 5, 0]]),
        ]);
        let layout = layout(&all, &map(), BlockSize::new(4096).unwrap()).unwrap();
        assert_eq!(runs(&layout, 0), [Run::new(0, 2000, 8), Run::new(8, 2010, 4)]);
        assert_eq!(layout.file(FileIndex(0)).unwrap().size(), Blocks(12));
        assert_eq!(runs(&layout, 1), [Run::new(0, 2020, 10)], "two parts of one extent lie in one place");
    }

    #[test]
    fn files_that_share_are_not_pinned_while_those_without_a_place_are() {
        let all = files(&[
            (10 << 12, 0, &[[0, 10, 0, 10, 0]]),
            (10 << 12, 0, &[[0, 10, 0, 10, 0]]),
            (10 << 12, 0, &[[0, 10, 95, 10, 0]]),
            (10 << 12, 0, &[[0, 10, 500, 10, 0]]),
            (10 << 12, OwnerTraits::IMMUTABLE, &[]),
        ]);
        let layout = layout(&all, &map(), BlockSize::new(4096).unwrap()).unwrap();
        let pins: Vec<_> = layout.files().map(|file| file.record.pin).collect();
        let damaged = Some(Pin::DamagedMap);
        assert_eq!(pins, [None, None, damaged, damaged, Some(Pin::Immutable)]);
        assert_eq!(layout.shared(), [Extent::new(2000, 10)]);
        let id = layout.file(FileIndex(1)).unwrap().id();
        assert_eq!(Owner::of_file_id(id), (SubvolumeId(5), InodeNumber(258)));
    }
}
