//! What is read from a map, in the types of the API.

use jiff::Timestamp;
use longrun_api::map::{
    BlockOwner, FileExtents, MOST_EXTENTS, MapExtents, MapFile, MapLevel, MapLevels, MapScan, OwnerKind,
};
use longrun_atlas::{Atlas, AtlasError, FileEntry, Owner, Place, Source, Summary};
use longrun_layout::{Extent, FileIndex, PhysicalBlock};
use longrun_sys::FileSystem;

/// A time in seconds since 1970, as it is written.
pub(super) fn time(seconds: i64) -> String {
    Timestamp::from_second(seconds).unwrap_or(Timestamp::UNIX_EPOCH).to_string()
}

fn scan(summary: &Summary) -> MapScan {
    let age = Timestamp::now().as_second().saturating_sub(summary.at);
    MapScan { number: summary.number, at: time(summary.at), age_seconds: u64::try_from(age).unwrap_or(0) }
}

/// What a map consists of.
#[must_use]
pub fn levels(atlas: &Atlas<impl Source>) -> MapLevels {
    let summary = atlas.summary();
    let level = |(level, found): (u32, &longrun_atlas::Level)| MapLevel {
        level,
        cells: found.cells,
        cell_blocks: found.cell.0,
        cell_bytes: summary.block_size.to_bytes(found.cell).0,
    };
    MapLevels {
        scan: scan(summary),
        block_size: summary.block_size.bytes(),
        total_blocks: summary.total.0,
        files: summary.files,
        file_extents: summary.runs,
        pieces: summary.pieces,
        levels: (0..).zip(atlas.levels()).map(level).collect(),
        pass: None,
    }
}

/// The pieces of `within`.
///
/// # Errors
/// [`AtlasError`].
pub fn extents(atlas: &Atlas<impl Source>, within: Extent) -> Result<MapExtents, AtlasError> {
    let mut pieces = atlas.pieces(within, MOST_EXTENTS + 1)?;
    let next = pieces.get(MOST_EXTENTS).map(|piece| piece.extent.start.0);
    pieces.truncate(MOST_EXTENTS);
    let mut found =
        MapExtents { scan: scan(atlas.summary()), next, areas: atlas.words().to_vec(), ..MapExtents::default() };
    for piece in pieces {
        let bit = |is: bool, bit: u8| if is { bit } else { 0 };
        let (kind, flags, owner, logical) = match piece.owner {
            Owner::Free => (0, 0, 0, 0),
            Owner::Area(word) => (3, 1, u32::from(word), 0),
            Owner::File { file, logical, traits } => {
                let flags = bit(traits.fixed, 1) | bit(traits.fragmented, 2) | bit(traits.shared, 4);
                (1 + u8::from(traits.directory), flags, file.0, logical.0)
            }
        };
        found.start.push(piece.extent.start.0);
        found.blocks.push(piece.extent.length.0);
        found.kind.push(kind);
        found.flags.push(flags);
        found.owner.push(owner);
        found.logical.push(logical);
    }
    Ok(found)
}

/// The owner of `block`, which lies on the volume, and if it is a file that one's entry, of which the path is to be found yet.
///
/// # Errors
/// [`AtlasError`].
pub fn block_owner(
    atlas: &Atlas<impl Source>,
    block: PhysicalBlock,
) -> Result<(BlockOwner, Option<(FileIndex, FileEntry)>), AtlasError> {
    let mut found = BlockOwner { scan: scan(atlas.summary()), block: block.0, ..BlockOwner::default() };
    let piece = match atlas.place_of(block)? {
        Place::Unknown(extent) => {
            (found.start, found.blocks) = (extent.start.0, extent.length.0);
            return Ok((found, None));
        }
        Place::Piece(piece) => piece,
    };
    (found.start, found.blocks) = (piece.extent.start.0, piece.extent.length.0);
    match piece.owner {
        Owner::Free => found.kind = OwnerKind::Free,
        Owner::Area(word) => {
            found.kind = OwnerKind::Metadata;
            found.area = atlas.words().get(usize::from(word)).cloned();
        }
        Owner::File { file, logical, traits } => {
            found.kind = if traits.directory { OwnerKind::Directory } else { OwnerKind::File };
            found.logical = Some((logical + (block - piece.extent.start)).0);
            found.shared = traits.shared;
            return Ok((found, atlas.file(file)?.map(|entry| (file, entry))));
        }
    }
    Ok((found, None))
}

/// A file, of which the path is `path`, or could not be found for a reason.
#[must_use]
pub fn map_file(
    atlas: &Atlas<impl Source>,
    filesystem: FileSystem,
    (index, entry): (FileIndex, FileEntry),
    path: Result<String, String>,
) -> MapFile {
    let (path, no_path) = match path {
        Ok(path) => (Some(path), None),
        Err(reason) => (None, Some(reason)),
    };
    MapFile {
        number: index.0,
        path,
        no_path,
        inode: entry.id.inode.0,
        subvolume: (filesystem == FileSystem::Btrfs).then(|| u64::from(entry.id.generation)),
        directory: entry.is_directory,
        fixed: entry.fixed.and_then(|word| atlas.words().get(usize::from(word)).cloned()),
        extents: entry.runs,
        fragments: entry.fragments,
        blocks: entry.blocks.0,
    }
}

/// The extents of `file`, whose entry is `entry`, from the one numbered `from` on.
///
/// # Errors
/// [`AtlasError`].
pub fn file_extents(
    atlas: &Atlas<impl Source>,
    file: MapFile,
    entry: &FileEntry,
    from: u64,
) -> Result<FileExtents, AtlasError> {
    let runs = atlas.runs(entry, from, MOST_EXTENTS)?;
    let next = Some(from.saturating_add(runs.len() as u64)).filter(|next| *next < entry.runs);
    Ok(FileExtents {
        scan: scan(atlas.summary()),
        file,
        from,
        next,
        logical: runs.iter().map(|run| run.logical.0).collect(),
        start: runs.iter().map(|run| run.physical.0).collect(),
        blocks: runs.iter().map(|run| run.length.0).collect(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use longrun_atlas::{Subject, encode};
    use longrun_layout::{BlockSize, Blocks, FileId, InodeNumber, LayoutBuilder, NO_DIRECTORY, Run};
    use std::io::Cursor;

    /// Two files of 2000 extents each, with free space between them, and numbers as long as they can be.
    fn large_numbers() -> Vec<u8> {
        let first = (1_u64 << 48) - (1 << 44);
        let mut builder = LayoutBuilder::new(BlockSize::new(4096).unwrap(), Blocks(1 << 48));
        for number in 0..2 {
            let place = |run: u64| first + (2 * run + number) * 4_000_000_000;
            let run = |run| Run::new((1 << 47) + run * 1_000_000_000, place(run), 999_999_999);
            let id = FileId { inode: InodeNumber(u64::MAX - number), generation: u32::MAX };
            builder.push_file(id, NO_DIRECTORY, false, None, &mut (0..2000).map(run).collect());
        }
        (0..4000)
            .for_each(|n| builder.push_free(Extent::new(first + n * 4_000_000_000 + 1_500_000_000, 1_000_000_000)));
        let layout = builder.build().unwrap();
        let mut bytes = Cursor::new(Vec::new());
        let areas = Box::new(std::iter::empty());
        encode(Subject { layout: &layout, areas, uuid: [0; 16], number: u64::MAX, at: 0 }, &mut bytes).unwrap();
        bytes.into_inner()
    }

    #[test]
    fn the_largest_answers_have_at_most_256_kibibytes_and_go_on_where_they_end() {
        let bytes = large_numbers();
        let atlas = Atlas::open(&bytes[..]).unwrap();
        let (mut from, mut seen, mut answers) = (Some(0), 0, 0);
        while let Some(start) = from {
            let within = Extent::between(PhysicalBlock(start), PhysicalBlock(1 << 48));
            let answer = extents(&atlas, within).unwrap();
            let size = serde_json::to_vec(&answer).unwrap().len();
            assert!(size <= 256 << 10, "{size}");
            (seen, answers, from) = (seen + answer.start.len(), answers + 1, answer.next);
        }
        assert_eq!((seen, answers), (8000, 2));
        let entry = atlas.file(FileIndex(0)).unwrap().unwrap();
        let file = map_file(&atlas, FileSystem::Btrfs, (FileIndex(0), entry), Err("none".to_owned()));
        let answer = file_extents(&atlas, file, &entry, 1).unwrap();
        assert_eq!((answer.start.len(), answer.next), (1999, None));
        assert_eq!(file_extents(&atlas, answer.file, &entry, u64::MAX).unwrap().start, [] as [u64; 0]);
    }
}
