//! Divides one existing file into a given number of fragments: the kernel atomically exchanges its blocks with free
//! blocks that are chosen so that no two pieces touch.

use crate::{AgeError, precautions};
use longrun_layout::{BlockSize, Blocks, Bytes, LogicalBlock, Run, count_fragments};
use longrun_sys::{ByteRange, Errno, Exchange, Mapping, OFlags};
use serde::Serialize;
use std::collections::{BTreeMap, VecDeque};
use std::fs::File;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;

/// Blocks exchanged by one call at most.
const EXCHANGE_AT_ONCE: u64 = 256;
/// Attempts for a range that another process is writing to.
const TRIES: u32 = 8;

/// The result for the file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Fragmented {
    /// Fragments before.
    pub fragments_before: u64,
    /// Fragments now: as many as asked for, unless the free space itself lies in smaller pieces.
    pub fragments_after: u64,
    /// Bytes that were moved.
    pub bytes_moved: u64,
}

/// The order of the fragments on the device.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Order {
    /// In the order of the file, so that a reader never goes back.
    #[default]
    AsInTheFile,
    /// In random order from this seed, as far as fragments have equal sizes of at most one MiB.
    Shuffled(u64),
}

/// As [`fragment_file_in`], the fragments in the order of the file.
///
/// # Errors
/// As [`fragment_file_in`].
pub fn fragment_file(path: &Path, fragments: u64) -> Result<Fragmented, AgeError> {
    fragment_file_in(path, fragments, Order::AsInTheFile)
}

/// Divides the data of the file at `path` into `fragments` fragments of about equal size. Content, size, times and
/// attributes stay. Needs to be the owner or root, free space for a whole copy of the data and a reserve for others while
/// it runs, and ext4 that writes data before it commits (data=ordered).
///
/// # Errors
/// [`AgeError::TooManyFragments`] and [`AgeError::Unsuitable`] before anything is changed; [`AgeError::Io`] at any
/// time: every block then has its old or its new place.
pub fn fragment_file_in(path: &Path, fragments: u64, order: Order) -> Result<Fragmented, AgeError> {
    let unsuitable = |reason| AgeError::Unsuitable { path: path.to_owned(), reason };
    // Reading it must not change its time of access.
    let mut options = File::options();
    let file = options.read(true).write(true).custom_flags(OFlags::NOATIME.bits().cast_signed()).open(path);
    let file = file.map_err(|e| AgeError::io("open", path, e))?;
    let meta = file.metadata().map_err(|e| AgeError::io("stat", path, e))?;
    if !meta.is_file() {
        return Err(unsuitable("it is not a regular file"));
    }
    precautions::require_ordered_data(&file, path)?;
    let block_size =
        longrun_sys::capacity(&file).map_err(|e| AgeError::io("read the block size of", path, e))?.block_size;
    longrun_sys::sync_file(&file).map_err(|e| AgeError::io("sync", path, e))?;
    let length = ByteRange { start: Bytes(0), length: Bytes(meta.len()) };
    let before = map(&file, length, block_size, path)?;
    let blocks = before.iter().map(|r| r.length.0).sum::<u64>();
    if fragments == 0 || fragments > blocks {
        return Err(AgeError::TooManyFragments { path: path.to_owned(), blocks, asked: fragments });
    }

    let alignment = Blocks((rustix::param::page_size() as u64 / u64::from(block_size.bytes())).max(1));
    // Between two pieces one block stays free, and as many as alignment may cost.
    let wanted = Blocks(blocks + (fragments + before.len() as u64) * (1 + alignment.0));
    precautions::keep_reserve(&file, path, wanted)?;
    let donor = donor(path, block_size, wanted)?;
    let range = ByteRange::of_blocks(block_size, LogicalBlock(0), wanted);
    let mut room = Room { runs: map(&donor, range, block_size, path)?.into(), alignment };
    // Cached in large folios, a file costs a journal commit for every page exchanged; read page by page, it does not.
    longrun_sys::drop_cache(&file, ByteRange::ALL).map_err(|e| AgeError::io("drop the cache of", path, e))?;
    longrun_sys::expect_random_reads(&file).map_err(|e| AgeError::io("advise on", path, e))?;
    let mut buffer = vec![0; block_size.to_bytes(Blocks(EXCHANGE_AT_ONCE)).0 as usize];
    let mut places = choose_places(&before, &mut room, fragments);
    if let Order::Shuffled(seed) = order {
        shuffle(&mut places, room.alignment, seed);
    }
    for (at, place) in places {
        let wanted = block_size.to_bytes(place.length).0 as usize;
        file.read_at(buffer.get_mut(..wanted).unwrap_or_default(), block_size.to_bytes(Blocks(at.0)).0)
            .map_err(|e| AgeError::io("read", path, e))?;
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
            return Err(unsuitable("its data is inside its inode"));
        }
        if extent.flags.is_shared() {
            return Err(unsuitable("it shares blocks with other files"));
        }
        let run = extent
            .run(block_size)
            .ok_or_else(|| unsuitable("its file system does not report the location of blocks"))?;
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
        .map_err(|e| AgeError::io("create a temporary file in", directory, e))?
        .into();
    longrun_sys::set_length(&donor, block_size.to_bytes(wanted))
        .map_err(|e| AgeError::io("set the size of a temporary file in", directory, e))?;
    longrun_sys::allocate(&donor, ByteRange::of_blocks(block_size, LogicalBlock(0), wanted))
        .map_err(|e| AgeError::io("allocate free space beside", path, e))?;
    Ok(donor)
}

/// The donor's blocks that are not yet given to the file.
struct Room {
    runs: VecDeque<Run>,
    /// File and donor addresses of an exchange must agree modulo a page.
    alignment: Blocks,
}

impl Room {
    /// Takes at most `length` contiguous blocks (fewer only when no run has as many) whose donor address agrees with the
    /// file address `at`. The block behind them stays free, so that the next piece does not touch this one.
    fn take(&mut self, at: LogicalBlock, length: Blocks) -> Option<Run> {
        let room = |run: &Run| run.length.0.saturating_sub(self.skip(run, at));
        let fitting = self.runs.iter().position(|run| room(run) >= length.0);
        let largest = || (0..self.runs.len()).max_by_key(|i| self.runs.get(*i).map(room));
        let mut run = self.runs.remove(fitting.or_else(largest)?)?;
        let skipped = self.skip(&run, at);
        drop_front(&mut run, skipped);
        let taken = Run { length: length.min(run.length), ..run };
        drop_front(&mut run, taken.length.0);
        self.give_back(Some(run));
        (taken.length.0 > 0).then_some(taken)
    }

    /// Blocks at the front of `run` that must be passed over for the addresses to agree.
    fn skip(&self, run: &Run, at: LogicalBlock) -> u64 {
        let modulus = self.alignment.0;
        (at.0 % modulus + modulus - run.logical.0 % modulus) % modulus
    }

    /// Takes the rest of a place back, but for the block next to what was used.
    fn give_back(&mut self, rest: Option<Run>) {
        if let Some(mut rest) = rest {
            drop_front(&mut rest, 1);
            self.runs.push_front(rest);
        }
    }
}

/// Takes `blocks` blocks off the front of a run; all of it when it has fewer.
fn drop_front(run: &mut Run, blocks: u64) {
    let blocks = Blocks(blocks.min(run.length.0));
    *run = Run { logical: run.logical + blocks, physical: run.physical + blocks, length: run.length - blocks };
}

/// Chooses a place for every block of the file, so that it lies in `fragments` pieces of which no two touch. A piece that
/// fits nowhere is cut, and costs a fragment more. Each place has at most [`EXCHANGE_AT_ONCE`] blocks.
fn choose_places(file: &[Run], room: &mut Room, fragments: u64) -> Vec<(LogicalBlock, Run)> {
    let mut missing = file.iter().map(|r| r.length.0).sum::<u64>();
    let (mut pieces, mut left_in_piece, mut place) = (fragments, 0, None::<Run>);
    let mut places = Vec::new();
    for run in file {
        let mut at = run.logical;
        while at < run.logical_end() {
            if left_in_piece == 0 {
                left_in_piece = missing.div_ceil(pieces.max(1));
                pieces = pieces.saturating_sub(1);
                place = None;
            }
            let here = match place.take() {
                Some(rest) if rest.length.0 > 0 && room.skip(&rest, at) == 0 => Some(rest),
                rest => {
                    room.give_back(rest);
                    room.take(at, Blocks(left_in_piece))
                }
            };
            let Some(mut here) = here else { return places };
            let length = here.length.0.min((run.logical_end() - at).0).min(EXCHANGE_AT_ONCE);
            places.push((at, Run { length: Blocks(length), ..here }));
            drop_front(&mut here, length);
            place = Some(here);
            at = at + Blocks(length);
            left_in_piece -= length;
            missing -= length;
        }
    }
    places
}

/// Gives the places of equal length to other blocks of the file. Between any two places a block is free, so that
/// none touch in their new order either.
fn shuffle(places: &mut [(LogicalBlock, Run)], alignment: Blocks, seed: u64) {
    let mut alike: BTreeMap<(u64, u64), Vec<usize>> = BTreeMap::new();
    for (index, (at, place)) in places.iter().enumerate() {
        // What continues at the next place is part of a longer piece, which stays as it is.
        let touches = |other: Option<&(LogicalBlock, Run)>| {
            other.is_some_and(|(_, o)| {
                o.physical + o.length == place.physical || place.physical + place.length == o.physical
            })
        };
        let before = index.checked_sub(1).and_then(|i| places.get(i));
        if !touches(before) && !touches(places.get(index + 1)) {
            alike.entry((place.length.0, at.0 % alignment.0.max(1))).or_default().push(index);
        }
    }
    let mut random = fastrand::Rng::with_seed(seed);
    for indices in alike.into_values() {
        let mut runs: Vec<Run> = indices.iter().filter_map(|i| places.get(*i)).map(|(_, run)| *run).collect();
        random.shuffle(&mut runs);
        for (index, run) in indices.into_iter().zip(runs) {
            if let Some((_, place)) = places.get_mut(index) {
                *place = run;
            }
        }
    }
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

    /// Chooses, checks what must always hold, and returns the number of fragments.
    fn check(file: &[Run], donor: &[Run], alignment: u64, fragments: u64) -> u64 {
        let mut room = Room { runs: donor.to_vec().into(), alignment: Blocks(alignment) };
        let places = choose_places(file, &mut room, fragments);
        let blocks = file.iter().flat_map(|r| r.logical.0..r.logical_end().0);
        let covered = places.iter().flat_map(|(at, p)| at.0..at.0 + p.length.0);
        assert!(covered.eq(blocks), "every block once, in order, holes passed over");
        let mut used: Vec<u64> = places.iter().flat_map(|(_, p)| p.physical.0..(p.physical + p.length).0).collect();
        used.sort_unstable();
        assert!(used.windows(2).all(|w| w[0] < w[1]), "no block given twice");
        assert!(places.iter().all(|(at, p)| at.0 % alignment == p.logical.0 % alignment));
        count_fragments(places.into_iter().map(|(at, p)| Run { logical: at, ..p }))
    }

    #[test]
    fn a_file_gets_exactly_the_fragments_asked_for() {
        for (blocks, fragments) in [(1, 1), (10, 10), (100, 7), (1000, 3), (997, 500)] {
            for alignment in [1, 2, 4] {
                let donor = [Run::new(0, 5000, blocks + (fragments + 1) * (1 + alignment))];
                assert_eq!(check(&[Run::new(3, 100, blocks)], &donor, alignment, fragments), fragments);
            }
        }
    }

    #[test]
    fn shuffled_places_are_the_same_places_in_another_order_and_none_touch() {
        let donor = [Run::new(0, 5000, 1200)];
        let mut room = Room { runs: donor.to_vec().into(), alignment: Blocks(1) };
        let ordered = choose_places(&[Run::new(0, 100, 1000)], &mut room, 100);
        let mut shuffled = ordered.clone();
        shuffle(&mut shuffled, Blocks(1), 3);
        assert_ne!(shuffled, ordered);
        assert_eq!(count_fragments(shuffled.iter().map(|(at, p)| Run { logical: *at, ..*p })), 100);
        shuffled.sort_by_key(|(_, place)| place.physical);
        assert!(shuffled.iter().map(|(_, place)| place).eq(ordered.iter().map(|(_, place)| place)));
        // Pieces that are longer than one exchange stay as they are.
        let mut room = Room { runs: vec![Run::new(0, 5000, 1200)].into(), alignment: Blocks(1) };
        let long = choose_places(&[Run::new(0, 100, 1000)], &mut room, 2);
        let mut same = long.clone();
        shuffle(&mut same, Blocks(1), 3);
        assert_eq!(same, long);
    }

    #[test]
    fn free_space_in_small_pieces_cuts_more_often_but_loses_nothing() {
        let donor: Vec<Run> = (0..40).map(|i| Run::new(i * 10, 1000 + i * 20, 10)).collect();
        assert_eq!(check(&[Run::new(0, 10, 200)], &donor, 1, 2), 20);
    }

    #[test]
    fn holes_are_passed_over_and_cost_a_fragment_only_where_they_break_the_alignment() {
        let file = [Run::new(0, 10, 300), Run::new(402, 900, 100)];
        let donor = [Run::new(0, 2000, 420), Run::new(420, 9000, 120)];
        assert_eq!(check(&file, &donor, 1, 2), 2);
        assert_eq!(check(&file, &donor, 4, 1), 2);
    }
}
