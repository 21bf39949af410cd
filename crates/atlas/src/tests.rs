//! A map agrees with a naive reading of the layout, block by block; and whatever is done to its bytes is an error, never a panic.

use crate::format::{HEAD, Head, Tables};
use crate::{Atlas, BYTES_PER_CELL, Owner, Piece, Place, Subject, encode, levels, write};
use longrun_layout::{
    BlockSize, Blocks, Extent, FileId, FileIndex, InodeNumber, LayoutBuilder, LogicalBlock, NO_DIRECTORY,
    PhysicalBlock, Pin, Run, VolumeLayout,
};
use proptest::prelude::*;
use std::collections::BTreeSet;
use std::io::Cursor;

const AREAS: [&str; 3] = ["inode table", "journal", "superblock"];

fn bytes_of(layout: &VolumeLayout, areas: &[(Extent, &'static str)]) -> Vec<u8> {
    let mut bytes = Cursor::new(Vec::new());
    let areas = Box::new(areas.iter().copied());
    let size = encode(Subject { layout, areas, uuid: [7; 16], number: 42, at: 1_700_000_000 }, &mut bytes).unwrap();
    assert_eq!(size, bytes.get_ref().len() as u64);
    bytes.into_inner()
}

/// Extents of blocks `0..total`, in turn free, of an area, unknown, or of one of `files` files, in random lengths. Of shared volumes some
/// runs are put over others'.
fn volume(
    total: u64,
    files: usize,
    longest: u64,
    shared: bool,
    seed: u64,
) -> (VolumeLayout, Vec<(Extent, &'static str)>) {
    let mut random = fastrand::Rng::with_seed(seed);
    let mut builder = LayoutBuilder::new(BlockSize::new(4096).unwrap(), Blocks(total)).sharing(shared);
    let (mut runs, mut areas) = (vec![Vec::<Run>::new(); files], Vec::new());
    let mut at = 1;
    while at < total {
        let length = random.u64(1..=longest).min(total - at);
        match random.u32(0..10) {
            0..2 => builder.push_free(Extent::new(at, length)),
            2 => areas.push((Extent::new(at, length), AREAS[random.usize(0..3)])),
            3 => {}
            _ => {
                let file = random.choice(&mut runs).unwrap();
                let logical = file.last().map_or(0, |run| run.logical_end().0) + random.u64(0..2) * random.u64(0..9);
                file.push(Run::new(logical, at, length));
                if shared && random.u32(0..4) == 0 {
                    let other = random.choice(&mut runs).unwrap();
                    let logical = other.last().map_or(0, |run| run.logical_end().0);
                    other.push(Run::new(logical, at + length / 2, length - length / 2));
                }
            }
        }
        at += length;
    }
    for (mut runs, number) in runs.into_iter().zip(11..) {
        let id = FileId { inode: InodeNumber(number / 2 + number % 2 * 1000), generation: random.u32(..) };
        let pin = (random.u32(0..6) == 0).then_some(Pin::Immutable);
        let is_directory = random.u32(0..9) == 0;
        builder.push_file(id, if random.bool() { NO_DIRECTORY } else { random.u32(..) }, is_directory, pin, &mut runs);
    }
    (builder.build().unwrap(), areas)
}

/// What a block is by looking at everything in turn.
fn naive(layout: &VolumeLayout, areas: &[(Extent, &'static str)], block: u64) -> Option<Owner> {
    let one = Extent::new(block, 1);
    if let Some((file, run)) = layout.owner_of(PhysicalBlock(block)) {
        let of = layout.file(file).unwrap();
        let traits = crate::Traits {
            fixed: !of.is_movable(),
            fragmented: of.fragments() > 1,
            shared: layout.shared().iter().any(|extent| extent.contains(&one)),
            directory: of.record.is_directory,
        };
        return Some(Owner::File { file, logical: run.logical + (PhysicalBlock(block) - run.physical), traits });
    }
    if let Some((_, word)) = areas.iter().find(|(extent, _)| extent.contains(&one)) {
        return Some(Owner::Area(AREAS.iter().position(|known| known == word).unwrap() as u16));
    }
    layout.free().iter().any(|extent| extent.contains(&one)).then_some(Owner::Free)
}

fn word_for_word(piece: Piece, words: &[String]) -> Owner {
    match piece.owner {
        Owner::Area(word) => {
            let position = AREAS.iter().position(|known| *known == words[usize::from(word)]);
            Owner::Area(position.unwrap() as u16)
        }
        other => other,
    }
}

fn agrees_with_the_layout(layout: &VolumeLayout, areas: &[(Extent, &'static str)]) {
    let bytes = bytes_of(layout, areas);
    let atlas = Atlas::open(&bytes[..]).unwrap();
    let total = layout.total_blocks();
    let owners: Vec<Option<Owner>> = (0..total.0).map(|block| naive(layout, areas, block)).collect();
    for (block, expected) in (0..).zip(&owners) {
        let (extent, found) = match atlas.place_of(PhysicalBlock(block)).unwrap() {
            Place::Piece(piece) => {
                let part = piece.part(Extent::new(block, 1));
                (piece.extent, Some(word_for_word(part, atlas.words())))
            }
            Place::Unknown(extent) => (extent, None),
        };
        assert_eq!(found, *expected, "block {block}");
        assert!(extent.contains(&Extent::new(block, 1)), "{extent:?} of block {block}");
    }
    let pieces = atlas.pieces(layout.whole(), usize::MAX).unwrap();
    assert_eq!(pieces.len() as u64, atlas.summary().pieces);
    assert!(pieces.windows(2).all(|pair| pair[0].extent.end() <= pair[1].extent.start));
    // The cells of every level, counted block by block.
    let begins = |block: u64| pieces.binary_search_by_key(&PhysicalBlock(block), |piece| piece.extent.start).is_ok();
    for (number, level) in levels(total).into_iter().enumerate() {
        let cells = atlas.cells(number, 0, u64::MAX).unwrap();
        assert_eq!(cells.len() as u64, level.cells * BYTES_PER_CELL as u64);
        for (cell, bytes) in (0..).zip(cells.chunks(BYTES_PER_CELL)) {
            let blocks = cell * level.cell.0..((cell + 1) * level.cell.0).min(total.0);
            let count = |is: &dyn Fn(Option<Owner>) -> bool| {
                let counted = blocks.clone().filter(|block| is(owners[*block as usize])).count() as u64;
                let whole = blocks.end - blocks.start;
                if counted == 0 {
                    0
                } else if counted == whole {
                    255
                } else {
                    (counted * 255 / whole).clamp(1, 254)
                }
            };
            let of_file =
                |owner, is: fn(crate::Traits) -> bool| matches!(owner, Some(Owner::File { traits, .. }) if is(traits));
            let expected = [
                count(&|owner| owner != Some(Owner::Free)),
                count(&|owner| of_file(owner, |traits| traits.fragmented)),
                count(&|owner| matches!(owner, None | Some(Owner::Area(_))) || of_file(owner, |traits| traits.fixed)),
                (16.0 * (1.0 + blocks.clone().filter(|block| begins(*block)).count() as f64).log2()).round() as u64,
            ];
            assert_eq!(bytes, expected.map(|byte| byte as u8), "cell {cell} of level {number}");
        }
    }
    for file in layout.files() {
        let entry = atlas.file(file.index).unwrap().unwrap();
        assert_eq!((entry.id, entry.directory), (file.id(), file.record.directory));
        assert_eq!((entry.fragments, entry.blocks), (file.fragments(), file.size()));
        let fixed = entry.fixed.map(|word| atlas.words()[usize::from(word)].as_str());
        assert_eq!(fixed, file.record.pin.map(Pin::phrase));
        assert_eq!(atlas.runs(&entry, 0, usize::MAX).unwrap(), file.runs().collect::<Vec<_>>());
        assert_eq!(atlas.runs(&entry, 1, 2).unwrap(), file.runs().skip(1).take(2).collect::<Vec<_>>());
        let found = atlas.find(file.record.inode, |found| found.id == file.id()).unwrap();
        assert_eq!(found, Some((file.index, entry)));
    }
    assert_eq!(atlas.file(FileIndex(layout.file_count() as u32)).unwrap(), None);
    let wanted: BTreeSet<FileId> = layout.files().step_by(2).map(|file| file.id()).collect();
    let expected = layout.files().filter(|file| wanted.contains(&file.id()) && file.runs().len() > 0);
    let expected: Vec<(FileId, Vec<Run>)> = expected.map(|file| (file.id(), file.runs().collect())).collect();
    assert_eq!(visited(&atlas, &wanted, u64::MAX), expected);
    // Whole files only, as long as they fit.
    let first = expected.first().map_or(0, |(_, runs)| runs.len() as u64);
    assert_eq!(visited(&atlas, &wanted, first), expected.iter().take(1).cloned().collect::<Vec<_>>());
}

fn visited(atlas: &Atlas<&[u8]>, wanted: &BTreeSet<FileId>, most: u64) -> Vec<(FileId, Vec<Run>)> {
    let mut found: Vec<(FileId, Vec<Run>)> = Vec::new();
    let each = |file: &crate::FileEntry, runs: &[Run]| match found.last_mut() {
        Some((id, all)) if *id == file.id => all.extend(runs),
        _ => found.push((file.id, runs.to_vec())),
    };
    atlas.visit(wanted, most, each).unwrap();
    found
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]
    #[test]
    fn a_map_agrees_with_its_layout(total in 1u64..3000, files in 1usize..20, longest in 1u64..40, shared: bool, seed: u64) {
        let (layout, areas) = volume(total, files, longest, shared, seed);
        agrees_with_the_layout(&layout, &areas);
    }

    #[test]
    fn no_changed_byte_goes_unnoticed_and_no_lost_one(at in any::<prop::sample::Index>(), bit in 0u8..8, cut: bool) {
        let (layout, areas) = volume(2000, 8, 10, false, 1);
        let mut bytes = bytes_of(&layout, &areas);
        let at = at.index(bytes.len());
        if cut { bytes.truncate(at) } else { bytes[at] ^= 1 << bit }
        prop_assert!(read_everything(&bytes).is_err());
    }

    /// What no checksum can notice: the writer itself was wrong.
    #[test]
    fn bytes_with_right_checksums_never_cause_a_panic(
        seed: u64, changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..6),
    ) {
        let (layout, areas) = volume(2000, 8, 10, seed.is_multiple_of(2), seed);
        let mut bytes = bytes_of(&layout, &areas);
        for (at, value) in changes {
            let at = at.index(bytes.len() - HEAD) + HEAD;
            bytes[at] = value;
        }
        seal(&mut bytes);
        let _ = read_everything(&bytes);
    }
}

/// Corrects the checksums, as far as the tables still can be read.
fn seal(bytes: &mut [u8]) {
    let mut head = Head::decode(bytes.first_chunk().unwrap(), bytes.len() as u64).unwrap();
    let tables_at = head.tables_at as usize;
    if let Some(mut tables) = Tables::decode(&bytes[tables_at..]) {
        for group in [&mut tables.pieces, &mut tables.files, &mut tables.runs, &mut tables.cells].into_iter().flatten()
        {
            let range =
                (group.offset as usize).checked_add(group.length as usize).map(|end| group.offset as usize..end);
            group.checksum = range.and_then(|range| bytes.get(range)).map_or(0, crc32c::crc32c);
        }
        bytes[tables_at..].copy_from_slice(&tables.encode());
    }
    head.tables_checksum = crc32c::crc32c(&bytes[tables_at..]);
    bytes[..HEAD].copy_from_slice(&head.encode());
}

fn read_everything(bytes: &[u8]) -> Result<(), crate::AtlasError> {
    let atlas = Atlas::open(bytes)?;
    let total = atlas.summary().total.0;
    for level in 0..atlas.levels().len() {
        atlas.cells(level, 0, u64::MAX)?;
    }
    atlas.pieces(Extent::new(0, total), usize::MAX)?;
    for block in (0..total.min(5000)).step_by(7) {
        atlas.place_of(PhysicalBlock(block))?;
    }
    for index in 0..atlas.summary().files.min(5000) as u32 {
        let entry = atlas.file(FileIndex(index))?.unwrap();
        atlas.runs(&entry, 0, usize::MAX)?;
        atlas.find(entry.id.inode, |found| found.id == entry.id)?;
        atlas.visit(&BTreeSet::from([entry.id]), u64::MAX, |_, _| {})?;
    }
    Ok(())
}

#[test]
fn a_map_replaces_the_one_before_and_what_is_left_of_an_interrupted_one() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("volume.map");
    std::fs::write(directory.path().join("volume.map.new"), "rest").unwrap();
    let (layout, _) = volume(500, 3, 10, false, 3);
    for number in [1, 2] {
        write(&path, Subject { layout: &layout, areas: Box::new(std::iter::empty()), uuid: [0; 16], number, at: 5 })
            .unwrap();
        let atlas = Atlas::open(std::fs::File::open(&path).unwrap()).unwrap();
        assert_eq!((atlas.summary().number, atlas.summary().at), (number, 5));
    }
    assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 1);
    let nowhere = directory.path().join("none/volume.map");
    write(&nowhere, Subject { layout: &layout, areas: Box::new(std::iter::empty()), uuid: [0; 16], number: 3, at: 5 })
        .unwrap_err();
}

/// A million extents: groups of all kinds, read at random.
#[test]
fn a_large_map_is_small_and_its_groups_are_found() {
    let (layout, areas) = volume(30_000_000, 50_000, 45, false, 9);
    assert!(layout.run_count() > 750_000, "{}", layout.run_count());
    let bytes = bytes_of(&layout, &areas);
    let atlas = Atlas::open(&bytes[..]).unwrap();
    assert!(bytes.len() < 20 * atlas.summary().pieces as usize + (6 << 20), "{} bytes", bytes.len());
    let mut random = fastrand::Rng::with_seed(5);
    for _ in 0..2000 {
        let file = layout.file(FileIndex(random.u32(0..50_000))).unwrap();
        let Some(run) = file.runs().nth(random.usize(0..file.runs().len().max(1))) else { continue };
        let inside = random.u64(0..run.length.0);
        let Place::Piece(piece) = atlas.place_of(run.physical + Blocks(inside)).unwrap() else { panic!("{run:?}") };
        let Owner::File { file: found, logical, .. } = piece.owner else { panic!("{piece:?}") };
        let expected = LogicalBlock(run.logical.0 + piece.extent.start.0 - run.physical.0);
        assert_eq!((found, logical), (file.index, expected));
        let entry = atlas.file(found).unwrap().unwrap();
        assert_eq!(atlas.runs(&entry, 0, usize::MAX).unwrap(), file.runs().collect::<Vec<_>>());
    }
    // Files with runs in many groups, and many files with runs in one.
    let wanted: BTreeSet<FileId> = layout.files().step_by(7).map(|file| file.id()).collect();
    let expected = layout.files().filter(|file| wanted.contains(&file.id()) && file.runs().len() > 0);
    assert_eq!(
        visited(&atlas, &wanted, u64::MAX),
        expected.map(|file| (file.id(), file.runs().collect())).collect::<Vec<_>>()
    );
}
