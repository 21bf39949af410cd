//! Moves one unit: maps, compares, exchanges in chunks, verifies. Also decides what happens to a file that was moved
//! only in part.

use super::batch_plan::{Cursor, Unit};
use super::holdings::Standing;
use super::pass::Pass;
use crate::file_map::FileMap;
use crate::observer::Phase;
use crate::pacer::Halt;
use crate::report::Stop;
use crate::settings::Rule;
use crate::{MoveError, SkipReason, VolumeError};
use longrun_layout::{Blocks, Bytes, Extent, FileMove, LogicalBlock, LogicalRange, PhysicalBlock, Run};

/// Exchanges without progress at one place before a file is given up.
const MOST_STALLS: u32 = 3;

/// How an attempt at a unit ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum End {
    /// Everything is where the plan wants it.
    Done,
    /// It was left alone, or brought back.
    Skipped(SkipReason),
}

/// Why the moves of a unit were broken off.
pub(super) enum Break {
    Skip(SkipReason),
    Halt(Halt),
}

impl From<MoveError> for Break {
    fn from(error: MoveError) -> Self {
        match error {
            MoveError::Skip(reason) => Self::Skip(reason),
            MoveError::Fatal(error) => Self::Halt(Halt::Fatal(error)),
        }
    }
}

impl From<Halt> for Break {
    fn from(halt: Halt) -> Self {
        Self::Halt(halt)
    }
}

impl From<VolumeError> for Break {
    fn from(error: VolumeError) -> Self {
        Self::Halt(Halt::Fatal(error))
    }
}

/// What is asked of one exchange: a logical range that lies in one or more pieces and is to lie in one.
pub(super) struct Chunk {
    pub(super) logical: LogicalBlock,
    target: PhysicalBlock,
    pub(super) length: Blocks,
    /// Where the range lies now, in logical order.
    sources: Vec<Extent>,
}

impl Chunk {
    fn occupies(&self) -> Extent {
        Extent { start: self.target, length: self.length }
    }

    /// Makes it at most so long.
    fn cut(&mut self, most: Blocks) {
        self.length = self.length.min(most);
        let mut left = self.length;
        self.sources.retain_mut(|source| {
            source.length = source.length.min(left);
            left -= source.length;
            source.length.0 > 0
        });
    }

    /// What it is made of now, in logical order.
    pub(super) fn pieces(&self) -> Vec<Run> {
        let mut logical = self.logical;
        let piece = |source: &Extent| {
            let run = Run { logical, physical: source.start, length: source.length };
            logical = logical + source.length;
            run
        };
        self.sources.iter().map(piece).collect()
    }
}

/// The moves that bring the same parts of the file to the same targets, wherever they are now; `None` when some of them are gone.
pub(super) fn from_where_they_lie(steps: &[FileMove], mut map: FileMap) -> Option<Vec<FileMove>> {
    let mut moves = Vec::new();
    for step in steps {
        let part = LogicalRange { start: step.logical, length: step.length };
        let mut found = Blocks(0);
        for run in map.within(part).collect::<Vec<Run>>() {
            let Run { logical, physical: source, length } = run;
            let target = step.target + (logical - step.logical);
            moves.push(FileMove { file: step.file, logical, source, target, length });
            // A unit can have a part of the file twice.
            map.put(logical, target, length);
            found += length;
        }
        if found < step.length {
            return None;
        }
    }
    Some(moves)
}

impl Pass<'_> {
    /// Carries out the moves of one unit. One that is `displaced` begins where it lies, wherever the plan believes it.
    pub(super) fn move_unit(
        &mut self,
        batch: &mut Cursor,
        at: usize,
        unit: &Unit,
        displaced: bool,
    ) -> Result<End, Halt> {
        let mut moves = batch.plan.steps_of(unit);
        if displaced && let Some(map) = self.map_again(unit, span(&moves))? {
            match from_where_they_lie(&moves, map) {
                Some(found) => moves = found,
                None => return Ok(End::Skipped(SkipReason::Changed)),
            }
        }
        if self.hopeless.contains(&unit.id) {
            return Ok(End::Skipped(self.tally.reason(unit.id).unwrap_or(SkipReason::NotExchangeable)));
        }
        self.affordable(moves.iter().map(|m| m.length).sum())?;
        let end = self.move_along(batch, at, unit, &moves)?;
        if displaced && end == End::Done {
            let vacated = moves.iter().flat_map(|step| batch.plan.unused_from(step.vacates(), unit.moves.end));
            vacated.for_each(|part| self.holdings.not_needed(part));
        }
        Ok(end)
    }

    pub(super) fn move_along(
        &mut self,
        batch: &mut Cursor,
        at: usize,
        unit: &Unit,
        moves: &[FileMove],
    ) -> Result<End, Halt> {
        let mut map = match self.first_map(unit, moves) {
            Ok(map) => map,
            Err(MoveError::Skip(reason)) => return Ok(End::Skipped(reason)),
            Err(MoveError::Fatal(error)) => return Err(error.into()),
        };
        let before = map.fragments();
        if self.would_harm(unit, &map, moves, before) {
            return Ok(End::Skipped(SkipReason::Blocked));
        }
        let moved_before = self.pacer.written;
        let carried_out = self.carry_out(batch, at, unit, moves, &mut map, true);
        let untouched = self.pacer.written == moved_before;
        match carried_out {
            Ok(()) => self.verify(unit, moves, before),
            Err(Break::Skip(reason)) => {
                if !untouched {
                    self.settle(batch, at, unit, moves, before, None)?;
                }
                Ok(End::Skipped(reason))
            }
            Err(Break::Halt(Halt::Stop(stop))) => {
                if !untouched {
                    self.settle(batch, at, unit, moves, before, Some(stop))?;
                }
                Err(Halt::Stop(stop))
            }
            Err(Break::Halt(fatal)) => Err(fatal),
        }
    }

    /// A plan may split a file for a while, within the excess that it has saved by then. Where some of that saving
    /// did not come about, the split must wait: an interrupted pass never leaves more excess than it found.
    pub(super) fn would_harm(&self, unit: &Unit, map: &FileMap, moves: &[FileMove], before: u64) -> bool {
        let mut after = map.clone();
        for step in moves {
            after.put(step.logical, step.target, step.length);
        }
        let change = unit.owners * (after.fragments() as i64 - before as i64);
        let as_planned = moves.iter().all(|m| map.lies(m.logical, m.source, m.length) == m.length);
        as_planned && change > 0 && self.tally.fragments + change > 0 && self.settings.obeys(Rule::NeverWorse)
    }

    /// The map of the part of the file that the moves touch, as it is now: a plan is a hint.
    fn first_map(&mut self, unit: &Unit, moves: &[FileMove]) -> Result<FileMap, MoveError> {
        if !self.settings.obeys(Rule::MapFirst) {
            let believed = |m: &FileMove| Run { logical: m.logical, physical: m.source, length: m.length };
            return Ok(FileMap::new(moves.iter().map(believed)));
        }
        self.map(unit, span(moves))
    }

    fn map(&mut self, unit: &Unit, range: LogicalRange) -> Result<FileMap, MoveError> {
        Ok(FileMap::around(&self.volume.map_around(unit.id, range)?, range))
    }

    /// The map once more; `None` when the file cannot be mapped any more, and so cannot be moved either.
    pub(super) fn map_again(&mut self, unit: &Unit, range: LogicalRange) -> Result<Option<FileMap>, Halt> {
        match self.map(unit, range) {
            Ok(map) => Ok(Some(map)),
            Err(MoveError::Skip(_)) => Ok(None),
            Err(MoveError::Fatal(error)) => Err(error.into()),
        }
    }

    /// Maps the file after its moves: does it lie where it should?
    fn verify(&mut self, unit: &Unit, moves: &[FileMove], before: u64) -> Result<End, Halt> {
        if self.settings.obeys(Rule::Verify) {
            let map = match self.map(unit, span(moves)) {
                Ok(map) => map,
                Err(MoveError::Skip(reason)) => return Ok(End::Skipped(reason)),
                Err(MoveError::Fatal(error)) => return Err(error.into()),
            };
            self.note_fragments(unit, before, &map);
            if !has_arrived(&map, moves) {
                return Ok(End::Skipped(SkipReason::Changed));
            }
        }
        self.tally.moves += moves.len() as u64;
        Ok(End::Done)
    }

    fn note_fragments(&mut self, unit: &Unit, before: u64, map: &FileMap) {
        self.tally.fragments += unit.owners * (map.fragments() as i64 - before as i64);
    }

    /// The moves, chunk by chunk; what lies at its target already is done. `stoppable` unless the pass is stopping
    /// anyway.
    fn carry_out(
        &mut self,
        batch: &mut Cursor,
        at: usize,
        unit: &Unit,
        moves: &[FileMove],
        map: &mut FileMap,
        stoppable: bool,
    ) -> Result<(), Break> {
        let range = span(moves);
        // What has been read ahead of its exchange.
        let mut read = LogicalBlock(0)..LogicalBlock(0);
        for (position, step) in moves.iter().enumerate() {
            let (mut done, mut stalls) = (Blocks(0), 0);
            while done < step.length {
                let arrived = map.lies(step.logical + done, step.target + done, step.length - done);
                if arrived.0 > 0 {
                    done += arrived;
                    stalls = 0;
                    continue;
                }
                if stoppable {
                    self.checkpoint((step.length - done).min(self.most_at_once()))?;
                }
                let begin = step.logical + done;
                let shall_be_read = stoppable && !read.contains(&begin);
                let most = if shall_be_read {
                    self.most_ahead()
                } else if stoppable {
                    self.most_at_once().min(read.end - begin)
                } else {
                    self.most_at_once()
                };
                let Some(mut chunk) = self.chunk(step, done, map, most) else {
                    // Left behind by an earlier unit of the same file that was skipped, or changed by another process.
                    return Err(Break::Skip(self.tally.reason(unit.id).unwrap_or(SkipReason::Changed)));
                };
                self.secure(batch, at, chunk.occupies(), stoppable)?;
                self.extend(&mut chunk, moves.get(position + 1..).unwrap_or_default(), map, most);
                if shall_be_read && self.read_in_turns(unit, &chunk)? {
                    read = begin..begin + chunk.length;
                    chunk.cut(self.most_at_once());
                    // While permission was waited for, everything may have been given back.
                    self.secure(batch, at, chunk.occupies(), stoppable)?;
                }
                let complete = match self.exchange(unit, &chunk, range, map) {
                    // The volume itself gave our space to others; once they have enough, this chunk is tried again.
                    Err(Break::Skip(SkipReason::SpaceNeeded)) if stoppable && stalls + 1 < MOST_STALLS => {
                        self.make_way()?;
                        false
                    }
                    Err(Break::Skip(SkipReason::TargetTaken)) => {
                        let owned = self.volume.owned()?;
                        self.holdings.reconcile(&owned);
                        return Err(Break::Skip(SkipReason::TargetTaken));
                    }
                    other => other?,
                };
                if !complete {
                    stalls += 1;
                    if stalls >= MOST_STALLS {
                        return Err(Break::Skip(self.why_stalled(batch, at, &chunk)?));
                    }
                }
                if self.since_barrier >= self.policy.epoch {
                    if stoppable {
                        self.checkpoint(Blocks(0))?;
                    }
                    self.commit()?;
                }
            }
        }
        Ok(())
    }

    /// The most that one exchange takes.
    fn most_at_once(&self) -> Blocks {
        self.whole_blocks(self.settings.chunk.min(self.pacer.observer.turn().bytes))
    }

    /// The most that is looked at together. Where one piece is read at a time it may be several exchanges: the more
    /// pieces, the shorter the arm's ways between them. Elsewhere the next chunk is read while the last is being
    /// written.
    fn most_ahead(&self) -> Blocks {
        if self.pacer.observer.turn().pieces > 1 {
            return self.most_at_once();
        }
        self.whole_blocks(self.settings.chunk)
    }

    /// As many as fit in, and at least one.
    fn whole_blocks(&self, bytes: Bytes) -> Blocks {
        Blocks((bytes.0 / u64::from(self.block_size.bytes())).max(1))
    }

    /// The next part of a move, of `most` blocks; `None` when it does not lie where the plan believes.
    fn chunk(&self, step: &FileMove, done: Blocks, map: &FileMap, most: Blocks) -> Option<Chunk> {
        let length = (step.length - done).min(most);
        let (logical, source) = (step.logical + done, step.source + done);
        let there = map.lies(logical, source, length) == length;
        let sources = vec![Extent { start: source, length }];
        there.then_some(Chunk { logical, target: step.target + done, length, sources })
    }

    /// Adds the following moves as long as they go on where the chunk ends, in the file and at the target: a file in a
    /// thousand pieces is not moved by a thousand exchanges.
    fn extend(&self, chunk: &mut Chunk, following: &[FileMove], map: &FileMap, most: Blocks) {
        for step in following {
            let left = most.saturating_sub(chunk.length);
            let length = step.length.min(left);
            let target = Extent { start: step.target, length };
            let goes_on = step.logical == chunk.logical + chunk.length && step.target == chunk.target + chunk.length;
            let ready = goes_on && left.0 > 0 && self.holdings.standing(target) == Standing::Available;
            if !ready || map.lies(step.logical, step.source, length) < length {
                return;
            }
            chunk.sources.push(Extent { start: step.source, length });
            chunk.length += length;
        }
    }

    /// Makes sure that a target is AVAILABLE. A commit that this takes writes much at once, others' data too: unless the
    /// pass is stopping anyway (not `patient`), it waits for its permission.
    fn secure(&mut self, batch: &mut Cursor, at: usize, target: Extent, patient: bool) -> Result<(), Break> {
        let commits = self.holdings.standing(target) == Standing::AfterBarrier && self.settings.obeys(Rule::Barrier);
        if commits && patient {
            self.checkpoint(Blocks(0))?;
        }
        if self.holdings.standing(target) == Standing::NotOurs && batch.crises != self.crises {
            // Everything was given back since the window was opened.
            self.open_window(batch, at)?;
        }
        match self.holdings.standing(target) {
            Standing::Available => Ok(()),
            Standing::AfterBarrier if !self.settings.obeys(Rule::Barrier) => Ok(()),
            Standing::AfterBarrier => Ok(self.commit()?),
            Standing::NotOurs => Err(Break::Skip(batch.why_not_ours(&self.holdings, target, at))),
        }
    }

    /// One exchange, with its accounting. Returns false if it was incomplete; `map`, of that
    /// range of the file, was then read again.
    fn exchange(&mut self, unit: &Unit, chunk: &Chunk, range: LogicalRange, map: &mut FileMap) -> Result<bool, Break> {
        let done = self.volume.exchange(unit.id, chunk.logical, chunk.target, chunk.length)?;
        let moved = done.blocks.min(chunk.length);
        let as_planned = moved == chunk.length && joined(&done.vacated) == joined(&chunk.sources);
        let vacated = if self.settings.obeys(Rule::AskVacated) { &done.vacated } else { &chunk.sources };
        self.holdings.exchanged(Extent { start: chunk.target, length: moved }, vacated);
        self.pacer.written += self.bytes(moved);
        self.since_barrier += moved;
        self.show(Phase::Move);
        if as_planned {
            map.put(chunk.logical, chunk.target, chunk.length);
        } else {
            *map = self.map(unit, range)?;
        }
        Ok(as_planned)
    }

    /// Exchanges do nothing: either the target was taken from us, or the file cannot be exchanged there.
    fn why_stalled(&mut self, batch: &Cursor, at: usize, chunk: &Chunk) -> Result<SkipReason, Break> {
        let owned = self.volume.owned()?;
        self.holdings.reconcile(&owned);
        Ok(match self.holdings.standing(chunk.occupies()) {
            Standing::NotOurs => batch.why_not_ours(&self.holdings, chunk.occupies(), at),
            Standing::Available | Standing::AfterBarrier => SkipReason::NotExchangeable,
        })
    }

    /// A unit was broken off half-way. If that left the file in more fragments than it had, it is brought back, or when
    /// the pass is being stopped and that is shorter, finished. A stopped pass whose moves have gained more than that
    /// costs leaves the file as it is, to end at once.
    fn settle(
        &mut self,
        batch: &mut Cursor,
        at: usize,
        unit: &Unit,
        moves: &[FileMove],
        before: u64,
        stop: Option<Stop>,
    ) -> Result<(), Halt> {
        let Some(mut map) = self.map_again(unit, span(moves))? else { return Ok(()) };
        let worse = unit.owners * (map.fragments() as i64 - before as i64);
        let tolerable = stop.is_some() && self.tally.fragments + worse <= 0;
        if worse > 0 && !tolerable && self.settings.obeys(Rule::Settle) {
            let total: Blocks = moves.iter().map(|m| m.length).sum();
            let arrived: Blocks = moves.iter().map(|m| map.lies(m.logical, m.target, m.length)).sum();
            let settled = if stop.is_some() && total.saturating_sub(arrived) <= arrived {
                self.carry_out(batch, at, unit, moves, &mut map, false)
            } else {
                self.bring_back(unit, moves, &mut map)
            };
            match settled {
                Ok(()) | Err(Break::Skip(_) | Break::Halt(Halt::Stop(_))) => {}
                Err(Break::Halt(fatal)) => return Err(fatal),
            }
            let Some(settled) = self.map_again(unit, span(moves))? else { return Ok(()) };
            map = settled;
            if has_arrived(&map, moves) {
                self.tally.moves += moves.len() as u64;
            }
        }
        self.note_fragments(unit, before, &map);
        Ok(())
    }

    /// Moves what has arrived back to where it came from, provided that all of that is still held.
    fn bring_back(&mut self, unit: &Unit, moves: &[FileMove], map: &mut FileMap) -> Result<(), Break> {
        let (most, range) = (self.most_at_once(), span(moves));
        let mut back = Vec::new();
        for step in moves.iter().rev() {
            let mut left = map.lies(step.logical, step.target, step.length);
            while left.0 > 0 {
                let length = left.min(most);
                left -= length;
                let sources = vec![Extent { start: step.target + left, length }];
                back.push(Chunk { logical: step.logical + left, target: step.source + left, length, sources });
            }
        }
        if back.iter().any(|chunk| self.holdings.standing(chunk.occupies()) == Standing::NotOurs) {
            return Ok(());
        }
        self.commit()?;
        for chunk in back {
            let available = self.holdings.standing(chunk.occupies()) == Standing::Available;
            if !available || !self.exchange(unit, &chunk, range, map)? {
                break;
            }
        }
        Ok(())
    }
}

/// The range of the file that the moves touch, with what lies between.
pub(super) fn span(moves: &[FileMove]) -> LogicalRange {
    let ranges = moves.iter().map(|m| LogicalRange { start: m.logical, length: m.length });
    ranges.reduce(LogicalRange::with).unwrap_or(LogicalRange::between(LogicalBlock(0), LogicalBlock(0)))
}

/// Whether every range lies at the last place that the moves give it.
fn has_arrived(map: &FileMap, moves: &[FileMove]) -> bool {
    let mut wanted = FileMap::default();
    moves.iter().for_each(|m| wanted.put(m.logical, m.target, m.length));
    wanted.runs().all(|run| map.lies(run.logical, run.physical, run.length) == run.length)
}

/// The same blocks in the same order, in as few extents as possible.
fn joined(extents: &[Extent]) -> Vec<Extent> {
    let mut joined: Vec<Extent> = Vec::with_capacity(extents.len());
    for extent in extents {
        match joined.last_mut() {
            Some(last) if last.end() == extent.start => last.length += extent.length,
            _ => joined.push(*extent),
        }
    }
    joined
}
