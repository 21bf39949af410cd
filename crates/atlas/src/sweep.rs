//! Goes over a volume from its first block to its last, and cuts what files, file system and free space have into
//! pieces that do not overlap.
//!
//! Owns the order of precedence: of several files that have a block the first one of the layout, then the free
//! space, then the areas of the file system. Holds four and a half bytes for each run of the layout, and nothing else in proportion to it.

use crate::piece::{Owner, Piece, Traits};
use longrun_layout::{Extent, FileIndex, PhysicalBlock, Run, VolumeLayout, in_order};
use std::iter::Peekable;

/// The files' pieces, ascending.
pub(crate) struct Claims<'a, F> {
    layout: &'a VolumeLayout,
    /// What is to be told of a file's pieces.
    traits: F,
    /// The runs in the order of their places.
    runs: Peekable<std::vec::IntoIter<u32>>,
    /// Those that hold the block `at`, or hold some block behind it and begin before.
    active: Vec<(FileIndex, u32, Run)>,
    at: PhysicalBlock,
}

/// All pieces of files. `traits` says what kind of file it is.
pub(crate) fn claims<'a, F: Fn(FileIndex) -> Traits + 'a>(
    layout: &'a VolumeLayout,
    traits: F,
) -> impl Iterator<Item = Piece> + 'a {
    let count = u32::try_from(layout.run_count()).unwrap_or(u32::MAX);
    let start = |run: u32| layout.run(run).map_or(u64::MAX, |run| run.physical.0);
    let runs = in_order(|| 0..count, layout.total_blocks().0, start).into_iter().peekable();
    Claims { layout, traits, runs, active: Vec::new(), at: PhysicalBlock(0) }
}

impl<F: Fn(FileIndex) -> Traits> Claims<'_, F> {
    /// The next run in order, if it begins not behind `end`.
    fn next_run(&mut self, end: PhysicalBlock) -> Option<(FileIndex, u32, Run)> {
        let (number, run) = self.peek()?;
        if run.physical > end {
            return None;
        }
        self.runs.next();
        Some((self.layout.owner_of_run(number)?, number, run))
    }

    fn peek(&mut self) -> Option<(u32, Run)> {
        let layout = self.layout;
        self.runs.peek().and_then(|number| Some((*number, layout.run(*number)?)))
    }
}

impl<F: Fn(FileIndex) -> Traits> Iterator for Claims<'_, F> {
    type Item = Piece;

    fn next(&mut self) -> Option<Piece> {
        if self.active.is_empty() {
            self.at = self.peek()?.1.physical;
        }
        while let Some(run) = self.next_run(self.at) {
            self.active.push(run);
        }
        let first = self.active.iter().min_by_key(|(file, number, _)| (*file, *number)).copied();
        let (file, _, run) = first?;
        let mut end = self.active.iter().map(|(.., run)| run.extent().end()).min()?;
        if let Some((_, next)) = self.peek() {
            end = end.min(next.physical);
        }
        let traits = Traits { shared: self.active.len() > 1, ..(self.traits)(file) };
        let extent = Extent::between(self.at, end);
        let piece =
            Piece { extent, owner: Owner::File { file, logical: run.logical + (self.at - run.physical), traits } };
        self.at = end;
        self.active.retain(|(.., run)| run.extent().end() > end);
        Some(piece)
    }
}

/// Joins pieces that continue each other.
pub(crate) fn joined(pieces: impl Iterator<Item = Piece>) -> impl Iterator<Item = Piece> {
    let mut pieces = pieces.peekable();
    std::iter::from_fn(move || {
        let mut piece = pieces.next()?;
        while let Some(next) = pieces.next_if(|next| {
            let both = Extent::between(piece.extent.start, next.extent.end());
            piece.extent.end() == next.extent.start && Piece { extent: both, ..piece }.part(next.extent) == *next
        }) {
            piece.extent.length += next.extent.length;
        }
        Some(piece)
    })
}

/// The pieces of `above`, and where there is none those of `below`. Both are ascending; `above` does not overlap itself.
pub(crate) fn beneath(
    above: impl Iterator<Item = Piece>,
    below: impl Iterator<Item = Piece>,
) -> impl Iterator<Item = Piece> {
    let (mut above, mut below) = (above.peekable(), below.peekable());
    let mut at = PhysicalBlock(0);
    std::iter::from_fn(move || {
        while below.next_if(|lower| lower.extent.end() <= at).is_some() {}
        let lower =
            below.peek().map(|lower| lower.part(Extent::between(lower.extent.start.max(at), lower.extent.end())));
        let border = above.peek().map(|upper| upper.extent.start);
        let piece = match lower {
            Some(lower) if border.is_none_or(|border| lower.extent.start < border) => {
                let end = border.map_or(lower.extent.end(), |border| lower.extent.end().min(border));
                lower.part(Extent::between(lower.extent.start, end))
            }
            _ => above.next()?,
        };
        at = piece.extent.end();
        Some(piece)
    })
}
