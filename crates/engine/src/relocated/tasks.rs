//! Divides a unit into tasks: all of it, or parts of a large file, are written again.
//!
//! Owns the division. Never decides which task is worthwhile.

use super::traits::{Picture, UnitOfFiles};
use crate::file_map::FileMap;
use crate::share::MOVED_AT_ONCE;
use crate::share::unit::{Member, UnitPlan};
use longrun_layout::{Blocks, Extent, FileIndex, LogicalRange, Run, count_fragments};
use longrun_planner::Mode;

/// A unit, or a part of a unit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Task {
    /// The files, by the last scan.
    pub members: Vec<FileIndex>,
    /// Which blocks of the only file, ascending; all of them when there are none.
    pub parts: Vec<LogicalRange>,
}

/// What comes of a task.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Prospect {
    pub(super) task: Task,
    /// Fragments less.
    pub(super) excess: u64,
    /// What is written.
    pub(super) written: Blocks,
    /// What becomes free.
    pub(super) vacated: Vec<Extent>,
    /// Whether a part of it can be moved without the rest.
    pub(super) divisible: bool,
}

impl Prospect {
    /// What of it begins in `areas`, ascending, if anything does.
    pub(super) fn within(&self, picture: &Picture, areas: &[Extent]) -> Option<Self> {
        let file = self.task.members.first().copied();
        let all = file.map(|file| runs_of(picture, file)).unwrap_or_default();
        let chosen = FileMap::new(all);
        let within = if self.task.parts.is_empty() { vec![LogicalRange::ALL] } else { self.task.parts.clone() };
        let runs: Vec<Run> = within
            .iter()
            .flat_map(|part| chosen.within(*part).collect::<Vec<_>>())
            .filter(|run| {
                let area = areas.partition_point(|area| area.end() <= run.physical);
                areas.get(area).is_some_and(|area| area.start <= run.physical)
            })
            .collect();
        // Ranges that follow each other end up side by side.
        let joins = runs.windows(2).filter(|pair| matches!(pair, [a, b] if a.logical_end() == b.logical)).count();
        // No parts would mean all of the file.
        (!runs.is_empty()).then(|| Self {
            task: Task { members: self.task.members.clone(), parts: runs.iter().map(Run::logical_range).collect() },
            excess: joins as u64,
            written: runs.iter().map(|run| run.length).sum(),
            vacated: runs.iter().map(Run::extent).collect(),
            divisible: false,
        })
    }
}

/// A part of a chunk that one task fills at most: larger ones find no place.
const CHUNK_PART: u64 = 4;

/// In efficient mode, runs that are longer than these stay where they are: the fewest bytes that give up less than a
/// hundredth of the excess.
const KEPT_EXCESS: u64 = 50;

/// All tasks: those that are a gain, and what may be moved to make room.
pub(super) fn prospects(picture: &Picture, mode: Mode) -> Vec<Prospect> {
    let kept = if mode == Mode::Efficient { kept_length(picture) } else { Blocks(u64::MAX) };
    let most = Blocks((picture.chunk_length.0 / CHUNK_PART).max(1));
    let mut found = Vec::new();
    for unit in &picture.units {
        match unit.members.as_slice() {
            &[(file, _)] if unit.divisible => parts(picture, file, kept, most, &mut found),
            _ => found.extend(whole(picture, unit)),
        }
    }
    found
}

fn runs_of(picture: &Picture, file: FileIndex) -> Vec<Run> {
    picture.layout.file(file).map(|file| file.runs().collect()).unwrap_or_default()
}

/// The members of a unit as they lie.
pub(super) fn members_of(picture: &Picture, unit: &UnitOfFiles) -> Vec<Member> {
    unit.members.iter().map(|(file, size)| Member::plain(runs_of(picture, *file), *size)).collect()
}

fn whole(picture: &Picture, unit: &UnitOfFiles) -> Option<Prospect> {
    let members = members_of(picture, unit);
    let size = picture.layout.block_size();
    let plan = UnitPlan::new(&members, size, size.to_blocks(MOVED_AT_ONCE))?;
    let before: u64 = members.iter().map(|member| count_fragments(member.runs.iter().copied())).sum();
    let task = Task { members: unit.members.iter().map(|(file, _)| *file).collect(), parts: Vec::new() };
    let excess = before.saturating_sub(plan.fragments_at_best(&members));
    let vacated = crate::share::unit::blocks_of(&members).iter().collect();
    let worse = plan.fragments_at_best(&members) > before;
    (!worse).then(|| Prospect { task, excess, written: plan.written(), vacated, divisible: false })
}

/// A file that shares nothing, cut where runs stay and where a part becomes too long for one place.
fn parts(picture: &Picture, file: FileIndex, kept: Blocks, most: Blocks, found: &mut Vec<Prospect>) {
    let runs = runs_of(picture, file);
    let mut open: Vec<Run> = Vec::new();
    let mut length = Blocks(0);
    let only = runs.iter().map(|run| run.length).sum::<Blocks>() <= most;
    let mut close = |open: &mut Vec<Run>, length: &mut Blocks| {
        let excess = count_fragments(open.iter().copied()).saturating_sub(1);
        // A part that is whole moves only when all of the file is.
        if let (Some(first), Some(last), true) = (open.first(), open.last(), excess > 0 || runs.len() == 1) {
            let is_whole = open.len() == runs.len();
            let part = LogicalRange::between(first.logical, last.logical_end());
            found.push(Prospect {
                task: Task { members: vec![file], parts: if is_whole { Vec::new() } else { vec![part] } },
                excess,
                written: *length,
                vacated: open.iter().map(Run::extent).collect(),
                divisible: true,
            });
        }
        open.clear();
        *length = Blocks(0);
    };
    for run in &runs {
        // A run as long as a place can be gains nothing by moving; what lies on its two sides is apart then.
        let stays = run.length >= kept || run.length >= most && !only;
        if stays || length + run.length > most {
            close(&mut open, &mut length);
        }
        if !stays {
            open.push(*run);
            length += run.length;
        }
    }
    close(&mut open, &mut length);
}

/// The length from which on runs stay, so that at most a [`KEPT_EXCESS`]th of the excess is given up for it: each run inside
/// a file that stays costs two fragments.
fn kept_length(picture: &Picture) -> Blocks {
    let mut lengths: Vec<u64> = Vec::new();
    let mut excess = 0;
    for unit in &picture.units {
        if let ([(file, _)], true) = (unit.members.as_slice(), unit.divisible) {
            let runs = runs_of(picture, *file);
            excess += runs.len().saturating_sub(1) as u64;
            lengths.extend(runs.iter().map(|run| run.length.0));
        }
    }
    lengths.sort_unstable_by(|a, b| b.cmp(a));
    let stay = (excess / KEPT_EXCESS / 2) as usize;
    lengths.get(stay).map_or(Blocks(u64::MAX), |longest| Blocks(longest + 1))
}
#[cfg(test)]
mod tests {
    use super::*;
    use longrun_layout::{BlockSize, Bytes, FileId, InodeNumber, LayoutBuilder, NO_DIRECTORY};

    #[test]
    fn of_a_file_that_only_reaches_into_an_area_nothing_is_written_anew_there() {
        let mut builder = LayoutBuilder::new(BlockSize::new(4096).unwrap(), Blocks(1000));
        let mut runs = vec![Run::new(0, 10, 20), Run::new(20, 100, 5)];
        builder.push_file(FileId { inode: InodeNumber(257), generation: 1 }, NO_DIRECTORY, false, None, &mut runs);
        let picture = Picture {
            layout: builder.build().unwrap(),
            chunks: Vec::new(),
            unallocated: Blocks(0),
            chunk_length: Blocks(1000),
            units: vec![UnitOfFiles { divisible: true, members: vec![(FileIndex(0), Bytes(25 * 4096))] }],
            staying: Vec::new(),
            only_files: None,
        };
        let found = prospects(&picture, Mode::Full);
        let [whole] = found.as_slice() else { panic!("{found:?}") };
        let parts = |area| whole.within(&picture, &[area]).map(|prospect| (prospect.task.parts, prospect.written));
        assert_eq!(parts(Extent::new(100, 50)), Some((vec![Run::new(20, 0, 5).logical_range()], Blocks(5))));
        assert_eq!(parts(Extent::new(20, 50)), None, "without parts it would be all of the file");
    }
}
