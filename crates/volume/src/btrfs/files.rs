//! All files of a subvolume, with their extents.
//!
//! Owns the reading of the trees of subvolumes. All items are checked before use. A file with invalid items is recorded
//! as immovable.

use super::address::SubvolumeId;
use super::extents::{DataExtent, DataExtents};
use super::items::{FilePart, Inode, kind};
use super::model::{Owner, OwnerTraits, Subvolume};
use super::trees::Trees;
use longrun_engine::{Progress, VolumeError};
use longrun_layout::{BlockSize, Bytes, FileIndex, InodeNumber, Pin};
use longrun_sys::{TreeId, TreeItem, TreeKey, Visit};

/// Between two reports.
const ITEMS_BETWEEN_REPORTS: u64 = 16384;
/// What an item's place in its tree takes besides the item.
const KEY_BYTES: u64 = 25;
const TOO_MANY: &str = "a volume with more than 4 billion files or extents";

/// All files and directories that were found so far.
#[derive(Debug)]
pub(super) struct Files {
    pub(super) owners: Vec<Owner>,
    pub(super) extents: DataExtents,
    /// What must stay for reasons that its traits do not tell.
    pub(super) pins: Vec<(FileIndex, Pin)>,
}

impl Files {
    pub(super) fn new(block_size: BlockSize) -> Self {
        Self { owners: Vec::new(), extents: DataExtents::new(block_size), pins: Vec::new() }
    }

    /// Adds `other` behind these; false when there are more than can be numbered.
    fn append(&mut self, other: Self) -> bool {
        let base = self.owners.len();
        let fits = base.saturating_add(other.owners.len()) < u32::MAX as usize;
        if !fits || !self.extents.append(other.extents) {
            return false;
        }
        self.owners.extend(other.owners);
        self.pins.extend(other.pins.into_iter().map(|(index, pin)| (FileIndex(index.0 + base as u32), pin)));
        true
    }
}

/// Reads the files of all `subvolumes`.
pub(super) fn read(
    trees: &mut Trees<'_>,
    subvolumes: &[Subvolume],
    block_size: BlockSize,
) -> Result<Files, VolumeError> {
    let mut files = Files::new(block_size);
    let mut meter = Meter::new(trees.progress, subvolumes.iter().map(|subvolume| subvolume.tree_bytes.0).sum());
    for subvolume in subvolumes {
        let parts = trees.parts(subvolume)?;
        let count = parts.len() as u64;
        let found = trees.visit_parts(
            TreeId(subvolume.id.0),
            &parts,
            || Reading::new(subvolume, block_size),
            |reading, item| reading.take(item),
            // The others are about as far.
            |item| meter.add((item.bytes.len() as u64 + KEY_BYTES) * count),
        )?;
        for reading in found {
            if reading.too_many || !files.append(reading.files) {
                return Err(trees.unsupported(TOO_MANY));
            }
        }
        meter.finish(subvolume.tree_bytes.0);
    }
    files.owners.shrink_to_fit();
    files.extents.shrink();
    Ok(files)
}

/// Reads these files alone, as far as they are still there.
pub(super) fn read_some(
    trees: &mut Trees<'_>,
    subvolumes: &[Subvolume],
    files: impl Iterator<Item = (SubvolumeId, InodeNumber)>,
    block_size: BlockSize,
) -> Result<Files, VolumeError> {
    let mut found = Files::new(block_size);
    for (id, inode) in files {
        let Some(subvolume) = subvolumes.iter().find(|subvolume| subvolume.id == id) else { continue };
        let mut reading = Reading::new(subvolume, block_size);
        let (first, last) = (TreeKey::first_of(inode.0), TreeKey::last_of(inode.0));
        trees.visit(TreeId(id.0), first, last, |item| reading.take(&item))?;
        if !found.append(reading.files) {
            return Err(trees.unsupported(TOO_MANY));
        }
    }
    Ok(found)
}

/// Tells how far it is, by what the trees take.
struct Meter<'a> {
    progress: &'a dyn Progress,
    total: u64,
    finished: u64,
    present: u64,
    items: u64,
}

impl<'a> Meter<'a> {
    fn new(progress: &'a dyn Progress, total: u64) -> Self {
        Self { progress, total, finished: 0, present: 0, items: 0 }
    }

    fn add(&mut self, bytes: u64) {
        self.items += 1;
        self.present += bytes;
        if self.items.is_multiple_of(ITEMS_BETWEEN_REPORTS) {
            self.progress.at((self.finished + self.present).min(self.total), self.total);
        }
    }

    fn finish(&mut self, tree_bytes: u64) {
        self.finished += tree_bytes;
        self.present = 0;
        self.progress.at(self.finished, self.total);
    }
}

/// What was read of a part of a subvolume's tree.
struct Reading<'a> {
    files: Files,
    block_size: BlockSize,
    subvolume: &'a Subvolume,
    /// The inode whose extents are being taken in, and where the last one of them ended.
    current: Option<(u64, Bytes)>,
    too_many: bool,
}

impl<'a> Reading<'a> {
    fn new(subvolume: &'a Subvolume, block_size: BlockSize) -> Self {
        Self { files: Files::new(block_size), block_size, subvolume, current: None, too_many: false }
    }

    fn take(&mut self, item: &TreeItem<'_>) -> Visit {
        match item.key.kind {
            kind::INODE => self.take_inode(item),
            kind::FILE_EXTENT => {
                if let Some((object, reached)) = self.current
                    && object == item.key.object
                {
                    self.take_part(Bytes(item.key.offset), reached, item.bytes);
                }
                Visit::Next
            }
            // Names have no blocks of their own: the rest of a directory is passed over.
            kind::DIRECTORY_ENTRY | kind::DIRECTORY_INDEX => behind(item.key.object),
            _ => Visit::Next,
        }
    }

    fn take_inode(&mut self, item: &TreeItem<'_>) -> Visit {
        self.current = None;
        let inode = Inode::decode(item.bytes);
        // What was deleted while open must not be moved. Links and devices have no blocks.
        let Some(inode) = inode.filter(|inode| inode.links > 0 && (inode.is_file() || inode.is_directory())) else {
            return behind(item.key.object);
        };
        let fits = u32::try_from(self.files.owners.len()).is_ok_and(|index| index < u32::MAX);
        if !fits || !self.files.extents.begin_file() {
            self.too_many = true;
            return Visit::Stop;
        }
        self.files.owners.push(Owner {
            subvolume: self.subvolume.id,
            inode: InodeNumber(item.key.object),
            generation: inode.generation,
            size: inode.size,
            traits: traits_of(&inode, self.subvolume),
        });
        if inode.is_directory() {
            return behind(item.key.object);
        }
        self.current = Some((item.key.object, Bytes(0)));
        Visit::Next
    }

    fn take_part(&mut self, logical: Bytes, reached: Bytes, bytes: &[u8]) {
        let index = FileIndex(self.files.owners.len().saturating_sub(1) as u32);
        let Some(owner) = self.files.owners.last_mut() else { return };
        let part = match FilePart::decode(bytes) {
            Some(FilePart::Extent(part)) => part,
            Some(FilePart::Inline) => {
                owner.traits.add(OwnerTraits::INLINE);
                return;
            }
            Some(FilePart::Hole) => return,
            Some(FilePart::Strange) => {
                self.files.pins.push((index, Pin::Encrypted));
                return;
            }
            None => {
                self.files.pins.push((index, Pin::DamagedMap));
                return;
            }
        };
        let extent = DataExtent {
            logical,
            length: part.length,
            disk: part.disk,
            disk_length: part.disk_length,
            offset: part.offset,
            is_compressed: part.is_compressed,
            is_preallocated: part.is_preallocated,
        };
        // Of what is not compressed no more can be used than there is.
        let within = part.offset.0.checked_add(part.length.0).is_some_and(|end| end <= part.data_length.0);
        let sound = within && logical >= reached && part.length.0 > 0 && part.disk_length.0 > 0;
        if !sound || !self.files.extents.push(&extent) {
            self.files.pins.push((index, Pin::DamagedMap));
            return;
        }
        owner.traits.add(traits_of_extent(&extent, part.data_length, owner.size, self.block_size));
        if let Some((_, reached)) = &mut self.current {
            *reached = extent.logical_end();
        }
    }
}

/// On behind everything that belongs to `object`.
fn behind(object: u64) -> Visit {
    object.checked_add(1).map_or(Visit::Stop, |next| Visit::SkipTo(TreeKey::first_of(next)))
}

fn traits_of(inode: &Inode, subvolume: &Subvolume) -> OwnerTraits {
    let mut traits = OwnerTraits::default();
    for (applies, bit) in [
        (inode.flags & Inode::IN_PLACE != 0, OwnerTraits::IN_PLACE),
        (inode.flags & (Inode::IMMUTABLE | Inode::APPEND_ONLY) != 0, OwnerTraits::IMMUTABLE),
        (inode.flags & Inode::VERITY != 0, OwnerTraits::VERITY),
        (subvolume.read_only, OwnerTraits::READ_ONLY),
        (inode.is_directory(), OwnerTraits::DIRECTORY),
    ] {
        traits.add(if applies { bit } else { 0 });
    }
    traits
}

fn traits_of_extent(extent: &DataExtent, data_length: Bytes, size: Bytes, block_size: BlockSize) -> u16 {
    let end = size.0.checked_next_multiple_of(u64::from(block_size.bytes())).unwrap_or(u64::MAX);
    let is_inside = extent.logical.0 < end;
    [
        (extent.is_compressed, OwnerTraits::COMPRESSED),
        (extent.is_preallocated && is_inside, OwnerTraits::PREALLOCATED),
        (extent.logical_end().0 > end, OwnerTraits::BEYOND_END),
        (extent.length != data_length, OwnerTraits::PARTS),
    ]
    .into_iter()
    .filter_map(|(applies, bit)| applies.then_some(bit))
    .sum()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::btrfs::chunks::ChunkMap;
    use crate::btrfs::{Address, Chunk, ChunkKind, Profile, SubvolumeId, picture};
    use longrun_layout::{Blocks, Extent, PhysicalBlock};
    use proptest::prelude::*;

    const START: u64 = 1 << 30;

    fn subvolume() -> Subvolume {
        Subvolume { id: SubvolumeId(256), place: None, read_only: true, is_snapshot: true, tree_bytes: Bytes(0) }
    }

    fn inode(mode: u32, links: u32, size: u64, flags: u64) -> Vec<u8> {
        let mut item = vec![0; 160];
        item[0] = 9;
        item[16..24].copy_from_slice(&size.to_le_bytes());
        item[40..44].copy_from_slice(&links.to_le_bytes());
        item[52..56].copy_from_slice(&mode.to_le_bytes());
        item[64..72].copy_from_slice(&flags.to_le_bytes());
        item
    }

    /// An extent of `kind`, compressed or not: data in it, place, length there, offset, length.
    fn part(kind: u8, compression: u8, numbers: [u64; 5]) -> Vec<u8> {
        let mut item = vec![0; 53];
        (item[16], item[20]) = (compression, kind);
        for (place, number) in [8, 21, 29, 37, 45].into_iter().zip(numbers) {
            item[place..place + 8].copy_from_slice(&number.to_le_bytes());
        }
        item
    }

    fn read(subvolume: &Subvolume, items: &[(u64, u8, u64, Vec<u8>)]) -> (Files, Vec<Visit>) {
        let block_size = BlockSize::new(4096).unwrap();
        let mut reading = Reading::new(subvolume, block_size);
        let go = |(object, kind, offset, bytes): &(u64, u8, u64, Vec<u8>)| {
            reading.take(&TreeItem { key: TreeKey { object: *object, kind: *kind, offset: *offset }, bytes })
        };
        let visits = items.iter().map(go).collect();
        (reading.files, visits)
    }

    #[test]
    fn files_have_their_extents_and_directories_are_passed_over() {
        const FILE: u32 = 0o100_644;
        let snapshot = subvolume();
        let (files, visits) = read(
            &snapshot,
            &[
                (256, 1, 0, inode(0o040_755, 1, 10, 0)),
                (257, 1, 0, inode(FILE, 1, 10_000, 0)),
                (257, 108, 0, part(1, 0, [8192, 1 << 20, 8192, 4096, 4096])),
                (257, 108, 4096, part(1, 0, [0, 0, 0, 0, 4096])),
                (257, 108, 8192, part(2, 0, [1 << 20, 2 << 20, 1 << 20, 0, 1 << 20])),
                (258, 1, 0, inode(0o120_777, 1, 10, 0)),
                (259, 1, 0, inode(FILE, 0, 4096, 0)),
                (259, 108, 0, part(1, 0, [4096, 3 << 20, 4096, 0, 4096])),
                (260, 1, 0, inode(FILE, 2, 131_072, 0b11)),
                (260, 108, 0, part(1, 3, [131_072, 4 << 20, 8192, 0, 131_072])),
                (261, 1, 0, inode(FILE, 1, 5, 0)),
                (261, 108, 0, vec![0; 26]),
            ],
        );
        assert_eq!(visits[0], Visit::SkipTo(TreeKey::first_of(257)));
        let numbers: Vec<u64> = files.owners.iter().map(|owner| owner.inode.0).collect();
        assert_eq!(numbers, [256, 257, 260, 261]);
        let traits = |at: usize| files.owners[at].traits;
        assert!(traits(0).is_directory() && traits(0).is_in_read_only_subvolume());
        assert!(traits(1).is_preallocated() && traits(1).reaches_beyond_end() && traits(1).refers_to_parts());
        assert!(traits(2).is_compressed() && traits(2).is_written_in_place() && !traits(2).refers_to_parts());
        assert!(traits(3).is_inline() && files.extents.of(FileIndex(3)).len() == 0);
        let places: Vec<_> =
            files.extents.of(FileIndex(1)).map(|e| (e.logical.0, e.disk.0, e.is_preallocated)).collect();
        assert_eq!(places, [(0, 1 << 20, false), (8192, 2 << 20, true)]);
        assert_eq!(files.extents.of(FileIndex(2)).next().unwrap().read(), (Address(4 << 20), Bytes(8192)));
        assert!(files.pins.is_empty());
    }

    #[test]
    fn a_file_that_makes_no_sense_must_stay() {
        const FILE: u32 = 0o100_644;
        let snapshot = subvolume();
        for wrong in [
            part(1, 0, [8192, 1 << 20, 8192, 4096, 8192]),
            part(1, 0, [8192, 77, 8192, 0, 8192]),
            part(1, 0, [0, 1 << 20, 8192, u64::MAX, 8192]),
            part(1, 0, [8192, 1 << 20, 8192, 0, 0]),
            part(1, 0, [8192, 1 << 20, 8192, 0, 8192])[..52].to_vec(),
        ] {
            let (files, _) = read(&snapshot, &[(257, 1, 0, inode(FILE, 1, 8192, 0)), (257, 108, 0, wrong)]);
            assert_eq!(files.pins, [(FileIndex(0), Pin::DamagedMap)]);
        }
        let twice = part(1, 0, [8192, 1 << 20, 8192, 0, 8192]);
        let items = [(257, 1, 0, inode(FILE, 1, 8192, 0)), (257, 108, 0, twice.clone()), (257, 108, 4096, twice)];
        assert_eq!(read(&snapshot, &items).0.pins, [(FileIndex(0), Pin::DamagedMap)], "parts overlap");
    }

    #[test]
    fn parts_are_put_together_in_their_order() {
        let snapshot = subvolume();
        let broken = part(1, 0, [8192, 77, 8192, 0, 8192]);
        let items = [(257, 1, 0, inode(0o100_644, 1, 8192, 0)), (257, 108, 0, broken)];
        let (mut files, _) = read(&snapshot, &items);
        assert!(files.append(read(&snapshot, &items).0));
        assert_eq!(files.pins, [(FileIndex(0), Pin::DamagedMap), (FileIndex(1), Pin::DamagedMap)]);
        assert_eq!((files.owners.len(), files.extents.files()), (2, 2));
    }

    /// Items that files could be made of, were they consistent: an inode, or a part of its data.
    fn plausible() -> impl Strategy<Value = (u64, u8, u64, Vec<u8>)> {
        let numbers = (0u64..20, 0u64..20, 0u64..20, 0u64..20, 0u64..20);
        (257u64..262, 0u8..6, 0u8..2, numbers).prop_map(|(object, kind, compression, (a, b, c, d, e))| {
            let [a, b, c, d, e] = [a, b, c, d, e].map(|blocks| blocks << 12);
            match kind {
                0 => (object, 1, 0, inode(0o100_644, 1, a + b, 0)),
                kind => (object, 108, e, part(kind % 3, compression, [a, START + b, c, d % (a + 1), c])),
            }
        })
    }

    proptest! {
        #[test]
        fn whatever_files_say_they_lie_in_chunks_and_not_in_free_blocks(
            mut items in prop::collection::vec(plausible(), 0..40),
        ) {
            items.sort();
            let snapshot = subvolume();
            let (files, _) = read(&snapshot, &items);
            let chunk = Chunk {
                start: Address(START),
                length: Bytes(24 << 12),
                kind: ChunkKind::Data,
                profile: Profile::Single,
                position: PhysicalBlock(500),
                copies: Vec::new(),
                superblocks: Vec::new(),
                used: Bytes(0),
                free: vec![Extent::new(508, 4)],
            };
            let (place, free) = (Extent::new(500, 24), Extent::new(508, 4));
            let (devices, data_profile) = (Vec::new(), Profile::Single);
            let map =
                ChunkMap { chunks: vec![chunk], unallocated: Vec::new(), devices, data_profile, total: Blocks(600) };
            let layout = picture::layout(&files, &map, BlockSize::new(4096).unwrap()).unwrap();
            prop_assert_eq!(layout.file_count(), files.owners.len());
            for file in layout.files().filter(|file| file.record.pin.is_none()) {
                for run in file.runs() {
                    prop_assert!(place.contains(&run.extent()) && free.intersection(&run.extent()).is_none());
                }
            }
        }

        #[test]
        fn no_items_make_reading_panic(items in prop::collection::vec(
            (250u64..260, prop::sample::select(vec![1u8, 12, 84, 96, 108, 200]), any::<u64>(), prop::collection::vec(any::<u8>(), 0..170)),
            0..30,
        )) {
            let snapshot = subvolume();
            let (files, _) = read(&snapshot, &items);
            prop_assert_eq!(files.owners.len(), files.extents.files());
            prop_assert!(files.pins.iter().all(|(index, _)| (index.0 as usize) < files.owners.len()));
        }
    }
}
