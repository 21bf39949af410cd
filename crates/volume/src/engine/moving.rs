//! Moving one unit: map, compare, exchange in chunks, verify; and what becomes of a file that stays half-way.

use super::batch::{BatchRun, Unit};
use super::ledger::Standing;
use super::observer::Phase;
use super::pass::{Halt, Pass};
use super::report::Stop;
use super::settings::Rule;
use crate::{MoveError, SkipReason};
use longrun_layout::{Blocks, Extent, FileMove, LogicalBlock, PhysicalBlock, Run, count_fragments};

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
enum Break {
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

impl From<crate::VolumeError> for Break {
    fn from(error: crate::VolumeError) -> Self {
        Self::Halt(Halt::Fatal(error))
    }
}

/// A piece of a move: what is asked of one exchange.
#[derive(Clone, Copy)]
struct Chunk {
    logical: LogicalBlock,
    source: PhysicalBlock,
    target: PhysicalBlock,
    length: Blocks,
}

impl Pass<'_> {
    /// Carries out the moves of one unit.
    pub(super) fn move_unit(&mut self, batch: &mut BatchRun<'_>, at: usize, unit: &Unit) -> Result<End, Halt> {
        let moves: Vec<FileMove> = batch.moves_of(unit).into_iter().map(|(_, planned)| planned.step).collect();
        if self.hopeless.contains(&unit.id) {
            return Ok(End::Skipped(self.tally.reason(unit.id).unwrap_or(SkipReason::NotExchangeable)));
        }
        self.affordable(moves.iter().map(|m| m.length).sum())?;
        let mut runs = match self.known_runs(unit, &moves) {
            Ok(runs) => runs,
            Err(MoveError::Skip(reason)) => return Ok(End::Skipped(reason)),
            Err(MoveError::Fatal(error)) => return Err(error.into()),
        };
        let before = count_fragments(runs.iter().copied());
        let moved_before = self.tally.bytes_moved;
        let carried_out = self.carry_out(batch, at, unit, &moves, &mut runs, true);
        if self.tally.bytes_moved == moved_before {
            return match carried_out {
                Ok(()) => Ok(End::Done),
                Err(Break::Skip(reason)) => Ok(End::Skipped(reason)),
                Err(Break::Halt(halt)) => Err(halt),
            };
        }
        match carried_out {
            Ok(()) => self.verify(unit, &moves, runs, before),
            Err(Break::Skip(reason)) => {
                self.settle(batch, at, unit, &moves, before, None)?;
                Ok(End::Skipped(reason))
            }
            Err(Break::Halt(Halt::Stop(stop))) => {
                self.settle(batch, at, unit, &moves, before, Some(stop))?;
                Err(Halt::Stop(stop))
            }
            Err(Break::Halt(fatal)) => Err(fatal),
        }
    }

    /// The file's map as it is now: a plan is a hint.
    fn known_runs(&mut self, unit: &Unit, moves: &[FileMove]) -> Result<Vec<Run>, MoveError> {
        if !self.settings.obeys(Rule::MapFirst) {
            let believed = |m: &FileMove| Run { logical: m.logical, physical: m.source, length: m.length };
            return Ok(moves.iter().map(believed).collect());
        }
        self.volume.map(unit.id)
    }

    /// Maps the file after its moves: does it lie where it should?
    fn verify(&mut self, unit: &Unit, moves: &[FileMove], runs: Vec<Run>, before: u64) -> Result<End, Halt> {
        let runs = if self.settings.obeys(Rule::Verify) {
            match self.volume.map(unit.id) {
                Ok(runs) => runs,
                Err(MoveError::Skip(reason)) => return Ok(End::Skipped(reason)),
                Err(MoveError::Fatal(error)) => return Err(error.into()),
            }
        } else {
            runs
        };
        self.note_fragments(before, &runs);
        let arrived = |m: &FileMove| lies(&runs, m.logical, m.target) >= m.length;
        // A unit may move a range more than once: only its last place counts.
        let last = |at: usize, m: &FileMove| moves.iter().skip(at + 1).all(|later| !same_range(m, later));
        if moves.iter().enumerate().all(|(at, m)| !last(at, m) || arrived(m)) {
            self.tally.moves += moves.len() as u64;
            return Ok(End::Done);
        }
        Ok(End::Skipped(SkipReason::Changed))
    }

    fn note_fragments(&mut self, before: u64, runs: &[Run]) {
        self.tally.fragments += count_fragments(runs.iter().copied()) as i64 - before as i64;
    }

    /// The moves, chunk by chunk; what lies at its target already is done. `stoppable` unless the pass is stopping anyway.
    fn carry_out(
        &mut self,
        batch: &mut BatchRun<'_>,
        at: usize,
        unit: &Unit,
        moves: &[FileMove],
        runs: &mut Vec<Run>,
        stoppable: bool,
    ) -> Result<(), Break> {
        for step in moves {
            let (mut done, mut stalls) = (Blocks(0), 0);
            while done < step.length {
                let left = step.length - done;
                let arrived = lies(runs, step.logical + done, step.target + done).min(left);
                if arrived.0 > 0 {
                    done += arrived;
                    stalls = 0;
                    continue;
                }
                let chunk = self.chunk(step, done);
                if stoppable {
                    self.checkpoint(chunk.length)?;
                }
                if lies(runs, chunk.logical, chunk.source) < chunk.length {
                    // Left behind by an earlier unit of the same file that was skipped, or changed by somebody.
                    return Err(Break::Skip(self.tally.reason(unit.id).unwrap_or(SkipReason::Changed)));
                }
                self.secure(batch, at, chunk)?;
                if !self.exchange(unit, chunk, runs)? {
                    stalls += 1;
                    if stalls >= MOST_STALLS {
                        return Err(Break::Skip(self.why_stalled(batch, at, chunk)?));
                    }
                }
                if self.since_barrier >= self.policy.epoch {
                    self.commit()?;
                }
            }
        }
        Ok(())
    }

    fn chunk(&self, step: &FileMove, done: Blocks) -> Chunk {
        let most = Blocks((self.settings.chunk.0 / u64::from(self.block_size.bytes())).max(1));
        Chunk {
            logical: step.logical + done,
            source: step.source + done,
            target: step.target + done,
            length: (step.length - done).min(most),
        }
    }

    /// Makes sure that the target is AVAILABLE.
    fn secure(&mut self, batch: &mut BatchRun<'_>, at: usize, chunk: Chunk) -> Result<(), Break> {
        let target = Extent { start: chunk.target, length: chunk.length };
        if self.ledger.standing(target) == Standing::NotOurs && batch.crises != self.crises {
            // Everything was given back since the window was opened.
            self.open_window(batch, at)?;
        }
        match self.ledger.standing(target) {
            Standing::Available => Ok(()),
            Standing::AfterBarrier if !self.settings.obeys(Rule::Barrier) => Ok(()),
            Standing::AfterBarrier => Ok(self.commit()?),
            Standing::NotOurs => Err(Break::Skip(batch.why_not_ours(&self.ledger, target, at))),
        }
    }

    /// One exchange, entered in the books. False when it did not do all that it was asked; then `runs` was read anew.
    fn exchange(&mut self, unit: &Unit, chunk: Chunk, runs: &mut Vec<Run>) -> Result<bool, Break> {
        let done = self.volume.exchange(unit.id, chunk.logical, chunk.target, chunk.length)?;
        let moved = done.blocks.min(chunk.length);
        let planned = Extent { start: chunk.source, length: moved };
        let vacated = if self.settings.obeys(Rule::AskVacated) { done.vacated } else { vec![planned] };
        self.ledger.exchanged(Extent { start: chunk.target, length: moved }, &vacated);
        self.tally.bytes_moved += self.bytes(moved);
        self.since_barrier += moved;
        self.show(Phase::Move);
        if moved == chunk.length && is_exactly(&vacated, planned) {
            relocate(runs, chunk);
            return Ok(true);
        }
        *runs = self.volume.map(unit.id)?;
        Ok(false)
    }

    /// Exchanges do nothing: either the target was taken from us, or the file cannot be exchanged there.
    fn why_stalled(&mut self, batch: &BatchRun<'_>, at: usize, chunk: Chunk) -> Result<SkipReason, Break> {
        let owned = self.volume.owned()?;
        self.ledger.reconcile(&owned);
        let target = Extent { start: chunk.target, length: chunk.length };
        Ok(match self.ledger.standing(target) {
            Standing::NotOurs => batch.why_not_ours(&self.ledger, target, at),
            Standing::Available | Standing::AfterBarrier => SkipReason::NotExchangeable,
        })
    }

    /// A unit was broken off half-way. If that left the file in more fragments than it had, it is brought back, or when
    /// the pass is being stopped and that is shorter, finished. A stopped pass whose moves have gained more than that
    /// costs leaves the file as it is, to end at once.
    fn settle(
        &mut self,
        batch: &mut BatchRun<'_>,
        at: usize,
        unit: &Unit,
        moves: &[FileMove],
        before: u64,
        stop: Option<Stop>,
    ) -> Result<(), Halt> {
        let Some(mut runs) = self.map_again(unit)? else { return Ok(()) };
        let worse = count_fragments(runs.iter().copied()) as i64 - before as i64;
        let tolerable = stop.is_some() && self.tally.fragments + worse <= 0;
        if worse > 0 && !tolerable && self.settings.obeys(Rule::Settle) {
            let total: Blocks = moves.iter().map(|m| m.length).sum();
            let arrived: Blocks = moves.iter().map(|m| arrived_blocks(&runs, m)).sum();
            let settled = if stop.is_some() && total.saturating_sub(arrived) <= arrived {
                self.carry_out(batch, at, unit, moves, &mut runs, false)
            } else {
                self.bring_back(unit, moves, &mut runs)
            };
            match settled {
                Ok(()) | Err(Break::Skip(_) | Break::Halt(Halt::Stop(_))) => {}
                Err(Break::Halt(fatal)) => return Err(fatal),
            }
            let Some(settled) = self.map_again(unit)? else { return Ok(()) };
            runs = settled;
        }
        self.note_fragments(before, &runs);
        Ok(())
    }

    fn map_again(&mut self, unit: &Unit) -> Result<Option<Vec<Run>>, Halt> {
        match self.volume.map(unit.id) {
            Ok(runs) => Ok(Some(runs)),
            Err(MoveError::Skip(_)) => Ok(None),
            Err(MoveError::Fatal(error)) => Err(error.into()),
        }
    }

    /// Moves what has arrived back to where it came from, provided that all of that is still held.
    fn bring_back(&mut self, unit: &Unit, moves: &[FileMove], runs: &mut Vec<Run>) -> Result<(), Break> {
        let mut back = Vec::new();
        for step in moves.iter().rev() {
            let mut done = Blocks(0);
            while done < step.length {
                let arrived = lies(runs, step.logical + done, step.target + done).min(step.length - done);
                if arrived.0 == 0 {
                    break;
                }
                let chunk = self.chunk(step, done);
                let length = chunk.length.min(arrived);
                back.push(Chunk { logical: chunk.logical, source: chunk.target, target: chunk.source, length });
                done += length;
            }
        }
        let place = |chunk: &Chunk| Extent { start: chunk.target, length: chunk.length };
        if back.iter().any(|chunk| self.ledger.standing(place(chunk)) == Standing::NotOurs) {
            return Ok(());
        }
        self.commit()?;
        for chunk in back {
            let available = self.ledger.standing(place(&chunk)) == Standing::Available;
            if !available || !self.exchange(unit, chunk, runs)? {
                break;
            }
        }
        Ok(())
    }
}

/// How many blocks of the file lie from `physical` on, contiguously, starting with `logical`.
fn lies(runs: &[Run], logical: LogicalBlock, physical: PhysicalBlock) -> Blocks {
    let run = runs.iter().find(|r| r.logical <= logical && logical < r.logical_end());
    match run {
        Some(run) if run.physical + (logical - run.logical) == physical => run.logical_end() - logical,
        _ => Blocks(0),
    }
}

/// How many blocks of a move, from its start, lie at its target.
fn arrived_blocks(runs: &[Run], step: &FileMove) -> Blocks {
    lies(runs, step.logical, step.target).min(step.length)
}

fn same_range(a: &FileMove, b: &FileMove) -> bool {
    a.logical < b.logical + b.length && b.logical < a.logical + a.length
}

/// Whether the parts, in order, make up `whole`.
fn is_exactly(parts: &[Extent], whole: Extent) -> bool {
    let mut at = whole.start;
    for part in parts {
        if part.start != at {
            return false;
        }
        at = part.end();
    }
    at == whole.end()
}

/// Enters a completed exchange into a file's map.
fn relocate(runs: &mut Vec<Run>, chunk: Chunk) {
    let end = chunk.logical + chunk.length;
    let Some(at) = runs.iter().position(|r| r.logical <= chunk.logical && end <= r.logical_end()) else { return };
    let Some(&whole) = runs.get(at) else { return };
    let before = chunk.logical - whole.logical;
    let after = whole.logical_end() - end;
    let parts = [
        Run { length: before, ..whole },
        Run { logical: chunk.logical, physical: chunk.target, length: chunk.length },
        Run { logical: end, physical: whole.physical + before + chunk.length, length: after },
    ];
    runs.splice(at..=at, parts.into_iter().filter(|part| part.length.0 > 0));
    runs.dedup_by(|next, kept| {
        let joined = kept.continues_into(next);
        if joined {
            kept.length += next.length;
        }
        joined
    });
}
