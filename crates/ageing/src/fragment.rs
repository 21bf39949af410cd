//! One existing file in as many fragments as wanted: its blocks are exchanged, by the kernel and atomically, with free
//! blocks that are chosen so that no two pieces touch.

use crate::AgeError;
use longrun_layout::{BlockSize, Blocks, Bytes, LogicalBlock, PhysicalBlock, Run, count_fragments};
use longrun_sys::{ByteRange, Errno, Exchange, Mapping};
use serde::Serialize;
use std::collections::VecDeque;
use std::fs::File;
use std::path::Path;

/// Blocks exchanged by one call at most.
const EXCHANGE_AT_ONCE: u64 = 256;
/// Tries for a range that somebody else is writing to.
const TRIES: u32 = 8;
/// The donor's length: more than any file needs, and within what ext4 can map.
const DONOR_LENGTH: Bytes = Bytes(1 << 42);

/// What was made of the file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Fragmented {
    /// Fragments before.
    pub fragments_before: u64,
    /// Fragments now: as many as asked for, unless the free space itself lies in smaller pieces.
    pub fragments_after: u64,
    /// Bytes that were moved.
    pub bytes_moved: u64,
}

/// Lays the data of the file at `path` into `fragments` fragments of about equal size. Content, size, times and
/// attributes stay. Needs free space for a whole copy of the data while it runs, and a file system that can exchange
/// blocks (ext4).
///
/// # Errors
/// [`AgeError::TooManyFragments`] and [`AgeError::Unsuitable`] before anything is changed; [`AgeError::Io`] at any
/// time: every block then has its old or its new place.
pub fn fragment_file(path: &Path, fragments: u64) -> Result<Fragmented, AgeError> {
    let unsuitable = |reason| AgeError::Unsuitable { path: path.to_owned(), reason };
    let file = File::options().read(true).write(true).open(path).map_err(|e| AgeError::io("open", path, e))?;
    let meta = file.metadata().map_err(|e| AgeError::io("stat", path, e))?;
    if !meta.is_file() {
        return Err(unsuitable("it is not a regular file"));
    }
    let block_size =
        longrun_sys::capacity(&file).map_err(|e| AgeError::io("read the block size of", path, e))?.block_size;
    longrun_sys::sync_file(&file).map_err(|e| AgeError::io("sync", path, e))?;
    let length = ByteRange { start: Bytes(0), length: Bytes(meta.len()) };
    let before = map(&file, length, block_size, path)?;
    let blocks = before.iter().map(|r| r.length.0).sum::<u64>();
    if fragments == 0 || fragments > blocks {
        return Err(AgeError::TooManyFragments { path: path.to_owned(), blocks, asked: fragments });
    }

    // One block between any two pieces, and as much again where the free space itself is cut.
    let wanted = Blocks(blocks + 2 * fragments);
    let donor = donor(path, block_size, wanted)?;
    let range = ByteRange::of_blocks(block_size, LogicalBlock(0), wanted);
    let places = choose_places(&map(&donor, range, block_size, path)?, blocks, fragments);
    for (at, place) in pair(&before, &places) {
        exchange(&file, &donor, at, place, path)?;
    }
    longrun_sys::sync_volume(&file).map_err(|e| AgeError::io("sync the volume of", path, e))?;
    let after = map(&file, length, block_size, path)?;
    Ok(Fragmented {
        fragments_before: count_fragments(before),
        fragments_after: count_fragments(after),
        bytes_moved: block_size.to_bytes(Blocks(blocks)).0,
    })
}

/// The runs of `range`, cut at its end.
fn map(file: &File, range: ByteRange, block_size: BlockSize, path: &Path) -> Result<Vec<Run>, AgeError> {
    let unsuitable = |reason| AgeError::Unsuitable { path: path.to_owned(), reason };
    let end = LogicalBlock(range.length.0.div_ceil(u64::from(block_size.bytes())));
    let extents =
        longrun_sys::map_file(file, range, Mapping::Synced).map_err(|e| AgeError::io("map the blocks of", path, e))?;
    let mut runs = Vec::with_capacity(extents.len());
    for extent in extents {
        if extent.flags.is_inline() {
            return Err(unsuitable("its data lies inside its inode"));
        }
        if extent.flags.is_shared() {
            return Err(unsuitable("it shares blocks with other files"));
        }
        let run =
            extent.run(block_size).ok_or_else(|| unsuitable("the file system does not tell where its blocks are"))?;
        // Space preallocated behind the end cannot be exchanged and is not asked for.
        let length = run.logical_end().min(end).0.saturating_sub(run.logical.0);
        if length > 0 {
            runs.push(Run { length: Blocks(length), ..run });
        }
    }
    Ok(runs)
}

/// A nameless file beside `path` that owns `wanted` free blocks.
fn donor(path: &Path, block_size: BlockSize, wanted: Blocks) -> Result<File, AgeError> {
    let directory = path.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let handle = File::open(directory).map_err(|e| AgeError::io("open", directory, e))?;
    let donor: File = longrun_sys::temporary_file(&handle)
        .map_err(|e| AgeError::io("make a temporary file in", directory, e))?
        .into();
    longrun_sys::set_length(&donor, DONOR_LENGTH)
        .map_err(|e| AgeError::io("size a temporary file in", directory, e))?;
    longrun_sys::allocate(&donor, ByteRange::of_blocks(block_size, LogicalBlock(0), wanted))
        .map_err(|e| AgeError::io("allocate free space beside", path, e))?;
    Ok(donor)
}

/// Chooses from the donor's runs the places for `blocks` blocks in `fragments` pieces, of which no two touch. A piece
/// that fits into no run is cut, and costs a fragment more.
fn choose_places(donor: &[Run], blocks: u64, fragments: u64) -> Vec<Run> {
    let mut room: VecDeque<Run> = donor.to_vec().into();
    let (mut places, mut missing, mut pieces) = (Vec::new(), blocks, fragments);
    while missing > 0 {
        let size = missing.div_ceil(pieces.max(1));
        let fitting = room.iter().position(|r| r.length.0 >= size);
        let largest = (0..room.len()).max_by_key(|i| room.get(*i).map(|r| r.length));
        let Some(mut run) = fitting.or(largest).and_then(|i| room.remove(i)) else { break };
        let taken = size.min(run.length.0);
        places.push(Run { length: Blocks(taken), ..run });
        missing -= taken;
        pieces = pieces.saturating_sub(1);
        if run.length.0 > taken + 1 {
            run.logical = run.logical + Blocks(taken + 1);
            run.physical = run.physical + Blocks(taken + 1);
            run.length = Blocks(run.length.0 - taken - 1);
            room.push_front(run);
        }
    }
    places
}

/// Pairs the file's blocks with the places in order: exchanges of at most [`EXCHANGE_AT_ONCE`] blocks.
fn pair(file: &[Run], places: &[Run]) -> Vec<(LogicalBlock, Run)> {
    let mut pairs = Vec::new();
    let mut places = places.iter().copied();
    let mut place = Run { logical: LogicalBlock(0), physical: PhysicalBlock(0), length: Blocks(0) };
    for run in file {
        let mut at = run.logical;
        while at < run.logical_end() {
            if place.length.0 == 0 {
                let Some(next) = places.next() else { return pairs };
                place = next;
            }
            let length = (run.logical_end() - at).0.min(place.length.0).min(EXCHANGE_AT_ONCE);
            pairs.push((at, Run { length: Blocks(length), ..place }));
            at = at + Blocks(length);
            place.logical = place.logical + Blocks(length);
            place.physical = place.physical + Blocks(length);
            place.length = Blocks(place.length.0 - length);
        }
    }
    pairs
}

/// Exchanges the blocks of `file` from `at` with those of the donor at `place`.
fn exchange(file: &File, donor: &File, at: LogicalBlock, place: Run, path: &Path) -> Result<(), AgeError> {
    let unsuitable = |reason| AgeError::Unsuitable { path: path.to_owned(), reason };
    let (mut done, mut tries) = (Blocks(0), 0);
    while done < place.length {
        let step = Exchange {
            file_start: at + done,
            donor_start: place.logical + done,
            length: Blocks(place.length.0 - done.0),
        };
        let (moved, failure) = match longrun_sys::exchange_with_donor(file, donor, step) {
            Ok(moved) => (moved.0, None),
            Err(failure) => (failure.moved.0, Some(failure.errno)),
        };
        done += moved;
        match failure {
            None if moved.0 > 0 => {}
            Some(Errno::OPNOTSUPP | Errno::NOTTY) => {
                return Err(unsuitable("its file system cannot exchange its blocks (ext4 files with extents only)"));
            }
            Some(errno) if !matches!(errno, Errno::BUSY | Errno::NODATA) => {
                return Err(AgeError::io("exchange blocks of", path, errno));
            }
            _ => {
                // Somebody wrote meanwhile: what is dirty must reach the disk before it can be exchanged.
                tries += 1;
                if tries > TRIES {
                    return Err(unsuitable("another process keeps changing it"));
                }
                longrun_sys::sync_file(file).map_err(|e| AgeError::io("sync", path, e))?;
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_as_many_as_asked_and_never_touch() {
        for (blocks, fragments) in [(1, 1), (10, 10), (100, 7), (1000, 3), (997, 500)] {
            let donor = [Run::new(0, 5000, blocks + 2 * fragments)];
            let places = choose_places(&donor, blocks, fragments);
            assert_eq!(places.len() as u64, fragments);
            assert_eq!(places.iter().map(|r| r.length.0).sum::<u64>(), blocks);
            assert_eq!(count_fragments(places), fragments);
        }
    }

    #[test]
    fn free_space_in_small_pieces_cuts_more_often_but_loses_nothing() {
        let donor: Vec<Run> = (0..40).map(|i| Run::new(i * 10, 1000 + i * 20, 10)).collect();
        let places = choose_places(&donor, 200, 2);
        assert_eq!(places.iter().map(|r| r.length.0).sum::<u64>(), 200);
        assert_eq!(places.len(), 20);
    }

    #[test]
    fn pairs_cover_the_file_in_order_and_pass_over_its_holes() {
        let file = [Run::new(0, 10, 300), Run::new(400, 900, 100)];
        let pairs = pair(&file, &[Run::new(0, 2000, 350), Run::new(360, 3000, 50)]);
        let covered: Vec<(u64, u64, u64)> = pairs.iter().map(|(at, p)| (at.0, p.logical.0, p.length.0)).collect();
        assert_eq!(covered, [(0, 0, 256), (256, 256, 44), (400, 300, 50), (450, 360, 50)]);
    }
}
