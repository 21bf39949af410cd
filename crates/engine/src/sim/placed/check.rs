//! The invariants of a simulated volume: every block of every file reads back correctly, and every block has exactly
//! one owner.

use super::content::Content;
use super::file::logical_range;
use super::state::State;
use longrun_layout::{Blocks, Extent, FileIndex, LogicalBlock, PhysicalBlock};
use std::fmt;

/// A violated invariant of the volume.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Violation {
    /// A reader of the file would find something else than was written there.
    WrongContent {
        /// The file's number.
        file: u32,
        /// The first wrong block of the file.
        logical: LogicalBlock,
        /// Where it lies.
        place: PhysicalBlock,
        /// What it should hold, if anything was ever written there.
        expected: Option<Content>,
        /// What it holds.
        found: Content,
    },
    /// A file has content where its map has a hole.
    LostRange {
        /// The file's number.
        file: u32,
        /// How many blocks have no place.
        blocks: Blocks,
    },
    /// The file does not lie in the blocks of the one that it shares them with any more.
    Unshared(u32),
    /// Blocks that two owners claim.
    ClaimedTwice(Extent),
    /// Blocks without an owner: lost space.
    Lost(Extent),
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::WrongContent { file, logical, place, expected, found } => {
                write!(f, "file {file}, block {logical} at {place}: {expected:?} expected, {found:?} found")
            }
            Self::LostRange { file, blocks } => write!(f, "file {file}: {blocks} blocks of content have no place"),
            Self::Unshared(file) => write!(f, "file {file} shares its blocks no more"),
            Self::ClaimedTwice(e) => write!(f, "blocks {} to {} have two owners", e.start, e.end()),
            Self::Lost(e) => write!(f, "blocks {} to {} have no owner", e.start, e.end()),
        }
    }
}

impl std::error::Error for Violation {}

/// Checks every file that was ever touched, and that nothing was written over one that was not.
pub(super) fn contents(state: &State) -> Result<(), Violation> {
    for number in state.numbers() {
        if let Some(leader) = state.base.leader_of(FileIndex(number)) {
            let runs = |number| state.view(number).map(|file| file.runs);
            if runs(number) != runs(leader.0) {
                return Err(Violation::Unshared(number));
            }
        }
        let touched = state.live.files.get(&number);
        match touched {
            Some(file) if file.deleted => {}
            Some(file) => {
                let mut mapped = Blocks(0);
                for run in &file.runs {
                    mapped += run.length;
                    for (range, expected) in file.expected.parts(logical_range(run.logical, run.length)) {
                        let place = run.physical + Blocks(range.start.0 - run.logical.0);
                        same(state, number, LogicalBlock(range.start.0), (place, range.length), expected)?;
                    }
                }
                let everything = Extent::new(0, u64::MAX);
                let content: Blocks = file.expected.overlapping(everything).map(|(range, _)| range.length).sum();
                if content != mapped {
                    return Err(Violation::LostRange { file: number, blocks: content.saturating_sub(mapped) });
                }
            }
            None => {
                let Some(file) = state.base.file(FileIndex(number)) else { continue };
                for run in file.runs() {
                    let expected = Some(Content::Original(run.physical));
                    same(state, number, run.logical, (run.physical, run.length), expected)?;
                }
            }
        }
    }
    Ok(())
}

fn same(
    state: &State,
    file: u32,
    logical: LogicalBlock,
    (place, length): (PhysicalBlock, Blocks),
    expected: Option<Content>,
) -> Result<(), Violation> {
    use crate::range_map::Slide;
    for (part, found) in state.live.disk.read(Extent { start: place, length }) {
        let offset = part.start - place;
        let expected = expected.map(|e| e.slide(offset.0));
        let logical = logical + offset;
        if expected == Some(found) || is_loose(state, file, logical, part.length, found) {
            continue;
        }
        return Err(Violation::WrongContent { file, logical, place: part.start, expected, found });
    }
    Ok(())
}

/// Whether a user wrote there without syncing before a crash: then any of that user's own versions may be found, torn
/// ones included, but never another file's content.
fn is_loose(state: &State, file: u32, logical: LogicalBlock, length: Blocks, found: Content) -> bool {
    let own = match found {
        Content::Garbage => true,
        Content::Written { file: writer, logical: at, .. } => writer == file && at == logical,
        Content::Original(_) => false,
    };
    own && state.loose.get(&file).is_some_and(|ranges| ranges.covers(logical_range(logical, length)))
}

/// Checks that files, free space and owned space tile the volume around its obstacles.
pub(super) fn space(state: &State) -> Result<(), Violation> {
    let mut claims: Vec<Extent> =
        [&state.free, &state.freed, &state.owned].into_iter().flat_map(|s| s.iter()).collect();
    claims.extend(state.live_files().iter().flat_map(|f| f.runs.iter().map(|r| r.extent())));
    claims.extend(state.base.obstacles());
    claims.sort_unstable();
    let mut at = PhysicalBlock(0);
    for claim in claims.into_iter().chain([Extent { start: state.base.whole().end(), length: Blocks(0) }]) {
        if claim.start < at {
            let end = claim.end().min(at);
            return Err(Violation::ClaimedTwice(Extent::between(claim.start, end)));
        }
        if claim.start > at {
            return Err(Violation::Lost(Extent::between(at, claim.start)));
        }
        at = claim.end();
    }
    Ok(())
}
