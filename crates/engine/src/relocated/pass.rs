//! A pass: it scans, plans a stage, executes it, and repeats this while there is a gain.

use super::model::{Experience, Model, TRIES};
use super::tasks::Prospect;
use super::traits::{Evacuated, Picture, Relocated};
use crate::observer::computed;
use crate::{
    Halt, Observer, Pacer, PassEnd, PassError, Phase, Report, Round, RoundEnd, ScanProgress, Settings, Status, Stop,
    Tally, Work,
};
use crate::{Scope, SkipReason, VolumeError};
use longrun_layout::{BlockSize, Blocks, Bytes, Extent, FileId, Fragmentation};
use longrun_planner::chunks::{ChunkIndex, ChunkLimits, Consolidation, Portion, Stage, next_stage};
use longrun_planner::{Mode, Why};
use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

/// A pass writes at most this many tenths of the used bytes: with what btrfs writes for its trees, not three times as much.
const MOST_WRITTEN_TENTHS: u64 = 24;
/// To bring files together, a pass writes at most so many times what these files hold: with little room others make way.
const MOST_FOR_FILES: u64 = 3;
/// So many stages in a row may lower neither the excess nor the number of free pieces: those that make room.
const MOST_FRUITLESS: u32 = 4;
/// Until half of the excess is gone, each such part of the used bytes that is written must take a hundredth off the sum of excess
/// fragments and free pieces: passes that come to something take off five times that. Else the free space comes first.
const PART_TO_JUDGE: u64 = 8;
/// Free space that is left while a chunk is emptied, whose own free space cannot be used meanwhile.
const RESERVE_BESIDE: Bytes = Bytes(4 << 20);
/// Between two looks at whether there is space again.
const PAUSE: Duration = Duration::from_millis(250);

/// What a stage was to do for the free space.
#[derive(Clone, Copy, Debug)]
struct Promise {
    pieces_before: u64,
    pieces_less: u64,
}

impl Promise {
    fn of(pieces_before: u64, pieces_less: u64) -> Option<Self> {
        (pieces_less > 0).then_some(Self { pieces_before, pieces_less })
    }

    /// Whether at least half of it was.
    fn is_kept(self, pieces_now: u64) -> bool {
        self.pieces_before.saturating_sub(pieces_now) * 2 >= self.pieces_less
    }
}

/// What was done of one kind.
pub(super) type Done = BTreeMap<Why, crate::ExpectedMoves>;

/// Optimizes a volume. Whatever happens, no file is in between two places.
///
/// # Errors
/// [`PassError`] when the volume failed; being stopped is no error but a [`Report`] that says so.
pub fn optimize(
    volume: &mut dyn Relocated,
    settings: &Settings,
    observer: &mut dyn Observer,
) -> Result<Report, PassError> {
    let pacer = Pacer::new(settings, observer);
    let picture = volume.scan(&ScanProgress::new(pacer.observer, 1))?;
    run(volume, picture, pacer, settings).map(|ended| ended.report)
}

/// As [`optimize`], with `picture` for its first scan. Time runs since `begun`. Answers with the last picture too.
///
/// # Errors
/// As [`optimize`].
pub fn carry_out(
    volume: &mut dyn Relocated,
    picture: Picture,
    begun: Instant,
    settings: &Settings,
    observer: &mut dyn Observer,
) -> Result<(Report, Picture), PassError> {
    let pacer = Pacer::since(begun, settings, observer);
    run(volume, picture, pacer, settings).map(|ended| (ended.report, ended.picture))
}

/// What came of a pass.
pub(super) struct Ended {
    pub(super) report: Report,
    pub(super) done: Done,
    /// The volume as it was left.
    pub(super) picture: Picture,
}

pub(super) fn run<'a>(
    volume: &'a mut (dyn Relocated + 'a),
    picture: Picture,
    pacer: Pacer<'a>,
    settings: &'a Settings,
) -> Result<Ended, PassError> {
    let mut pass = Pass {
        volume,
        settings,
        pacer,
        experience: Experience::default(),
        tally: Tally::default(),
        done: Done::new(),
        stage: 1,
        best: None,
        fruitless: 0,
        judged: None,
        came_to_nothing: false,
        written_before: Bytes(0),
        planned: Bytes(0),
        work: None,
        goal: None,
        has_just_emptied: false,
        promised: None,
        space: Consolidation::default(),
        begun_at: None,
        for_files: None,
        files_are_over: false,
    };
    match pass.stages(picture) {
        Ok((report, picture)) => Ok(Ended { report, done: pass.done, picture }),
        Err(cause) => Err(PassError { cause, not_given_back: None, bytes_moved: pass.pacer.written }),
    }
}

struct Pass<'a> {
    volume: &'a mut dyn Relocated,
    settings: &'a Settings,
    pacer: Pacer<'a>,
    experience: Experience,
    tally: Tally,
    done: Done,
    stage: u32,
    /// The least excess and free pieces so far.
    best: Option<(u64, u64)>,
    fruitless: u32,
    /// What had been written, and the sum of excess and free pieces, when it was judged last.
    judged: Option<(Bytes, u64)>,
    /// It was judged to come to nothing once.
    came_to_nothing: bool,
    written_before: Bytes,
    planned: Bytes,
    /// What this stage is for.
    work: Option<Work>,
    /// The last stage emptied a chunk.
    has_just_emptied: bool,
    /// What the last stage was to do for the free space.
    promised: Option<Promise>,
    /// What became of such.
    space: Consolidation,
    /// What an efficient pass set out for.
    goal: Option<u64>,
    /// What may still be written for files.
    for_files: Option<Blocks>,
    /// Files that are still in pieces are left at that.
    files_are_over: bool,
    /// What there was to do when it was begun, or begun again.
    begun_at: Option<(u64, u64)>,
}

impl Pass<'_> {
    fn stages(&mut self, mut picture: Picture) -> Result<(Report, Picture), VolumeError> {
        let before = picture.layout.fragmentation();
        let mut now = before.clone();
        let (mut stop, mut by_round) = (None, Vec::new());
        loop {
            let (seconds, written, commits) = (self.pacer.seconds(), self.pacer.written, self.tally.barriers);
            match self.one_stage(&picture, &now, &before) {
                // It begins again with what it has kept away from: the volume is as it was.
                Ok(true) if self.work.is_none() => continue,
                Ok(true) => {}
                Ok(false) => break,
                Err(Halt::Stop(reason)) => {
                    stop = Some(reason);
                    self.tally.round.end = RoundEnd::Stopped;
                }
                Err(Halt::Fatal(error)) => return Err(error),
            }
            self.commit()?;
            drop(picture);
            picture = self.pacer.scan_again(self.stage + 1, &mut stop, |progress| self.volume.scan(progress))?;
            now = picture.layout.fragmentation();
            by_round.push(Round {
                work: self.work.take(),
                planned: std::mem::take(&mut self.planned),
                moved: self.pacer.written.saturating_sub(written),
                commits: self.tally.barriers - commits,
                excess_fragments: now.excess_fragments,
                free_pieces: now.free_space.pieces,
                seconds: self.pacer.seconds() - seconds,
                ..std::mem::take(&mut self.tally.round).told()
            });
            if stop.is_some() {
                break;
            }
            self.stage += 1;
        }
        self.settle_skips(&picture);
        let report = Report {
            before,
            after: now,
            moves: self.tally.moves,
            bytes_moved: self.pacer.written,
            skipped: self.tally.skipped(),
            barriers: self.tally.barriers,
            rounds: self.stage,
            capture_calls: 0,
            given_up: 0,
            seconds: self.pacer.seconds(),
            interrupted: stop.is_some_and(|stop| stop != Stop::Budget),
            stop,
            end: if stop.is_some() { PassEnd::Stopped } else { PassEnd::Done },
            by_round,
        };
        Ok((report, picture))
    }

    /// False when there is nothing left to do.
    fn one_stage(&mut self, picture: &Picture, now: &Fragmentation, before: &Fragmentation) -> Result<bool, Halt> {
        self.show(Phase::Plan);
        self.pacer.wanted_still()?;
        // Free space belongs to the volume as a whole.
        let mode = if self.settings.scope == Scope::Volume { self.settings.mode } else { Mode::Files };
        let state = (now.excess_fragments, now.free_space.pieces);
        self.begun_at.get_or_insert(state);
        if !self.is_fruitful(state, before) && !self.turns_to_space(mode) && !self.begins_again(mode, state) {
            return Ok(false);
        }
        let layout = &picture.layout;
        self.experience.begin(picture);
        let model = Model::of(picture, mode, &self.experience, |file| {
            layout.file(file).is_some_and(|file| self.settings.scope.has(&file))
        });
        let goal = *self.goal.get_or_insert(model.excess() / 20);
        let for_files = *self.for_files.get_or_insert(match mode {
            Mode::Full => Blocks(model.wanted().0.saturating_mul(MOST_FOR_FILES)),
            Mode::Efficient | Mode::Files => Blocks(u64::MAX),
        });
        if let Some(promise) = self.promised.take() {
            self.space = self.space.after(promise.is_kept(now.free_space.pieces));
        }
        let for_files = if self.files_are_over { Blocks(0) } else { for_files };
        let limits = ChunkLimits { for_files, ..self.limits(picture, before, mode, goal) };
        match computed(|work| self.pacer.observer.compute(work), || next_stage(&model.map, &limits)) {
            None => {
                // Something is left that only the budget keeps from being done.
                let unlimited = ChunkLimits { budget: None, ..limits };
                let more = self.settings.budget.is_some() && next_stage(&model.map, &unlimited).is_some();
                if more {
                    return Err(Stop::Budget.into());
                }
                Ok(self.begins_again(mode, state))
            }
            Some(Stage::Gather { portions, clears, promises }) => {
                self.has_just_emptied = false;
                self.promised = Promise::of(now.free_space.pieces, promises);
                let written = self.pacer.written;
                self.gather(picture, &model, &limits, &portions)?;
                self.spend(layout.block_size(), written);
                let cleared: Vec<Extent> = clears.iter().filter_map(|area| model.area(*area)).collect();
                let gains = portions.iter().any(|portion| model.gain(portion) > 0);
                self.experience.cleared(&cleared, gains);
                Ok(true)
            }
            Some(Stage::Evacuate { chunk, promises }) => {
                self.has_just_emptied = true;
                self.promised = Promise::of(now.free_space.pieces, promises);
                let written = self.pacer.written;
                self.evacuate(picture, &model, chunk)?;
                self.spend(layout.block_size(), written);
                Ok(true)
            }
        }
    }

    /// Charges what was written for files.
    fn spend(&mut self, block_size: BlockSize, written_before: Bytes) {
        if let (None, Some(left)) = (self.promised, &mut self.for_files) {
            *left = left.saturating_sub(block_size.to_blocks(self.pacer.written.saturating_sub(written_before)));
        }
    }

    /// Leaves the files that are still in pieces at that: nothing comes of it any more.
    fn turns_to_space(&mut self, mode: Mode) -> bool {
        let turns = mode == Mode::Full && !self.files_are_over;
        if turns {
            (self.files_are_over, self.fruitless) = (true, 0);
        }
        turns
    }

    /// Whether the stages so far were worth going on.
    fn is_fruitful(&mut self, now: (u64, u64), before: &Fragmentation) -> bool {
        let is_judged = !self.files_are_over && now.0 * 2 > before.excess_fragments;
        if is_judged && !self.comes_to_something(now.0 + now.1, before.used_bytes) {
            self.came_to_nothing = true;
            return false;
        }
        if self.best.is_none_or(|best| now < best) {
            self.best = Some(now);
            self.fruitless = 0;
        } else {
            self.fruitless += 1;
        }
        self.fruitless <= MOST_FRUITLESS
    }

    /// Whether what was written since it was judged last has taken enough off `sum`.
    fn comes_to_something(&mut self, sum: u64, used: Bytes) -> bool {
        let (written, before) = *self.judged.get_or_insert((self.pacer.written, sum));
        if self.pacer.written.saturating_sub(written).0 < used.0 / PART_TO_JUDGE {
            return true;
        }
        self.judged = None;
        sum < before - before / 100
    }

    /// Whether the next pass would find something to do that this one has kept away from, having been there: then this one
    /// does it, as long as it comes to something.
    fn begins_again(&mut self, mode: Mode, now: (u64, u64)) -> bool {
        let again = mode == Mode::Full && self.begun_at.is_some_and(|then| now < then);
        if again {
            self.begun_at = Some(now);
            self.experience.begin_again();
            (self.space, self.files_are_over, self.fruitless) = (Consolidation::default(), false, 0);
            self.judged = None;
        }
        again
    }

    fn limits(&self, picture: &Picture, before: &Fragmentation, mode: Mode, goal: u64) -> ChunkLimits {
        let layout = &picture.layout;
        let most = Bytes((before.used_bytes.0 / 10).saturating_mul(MOST_WRITTEN_TENTHS));
        let budget = self.settings.budget.map_or(most, |budget| budget.min(most)).saturating_sub(self.pacer.written);
        let size = u64::from(layout.block_size().bytes());
        let reserve = self.settings.policy(layout, Bytes(0)).reserve;
        ChunkLimits {
            mode,
            budget: Some(Blocks(budget.0 / size)),
            for_files: Blocks(u64::MAX),
            reserve,
            reserve_beside: Blocks(RESERVE_BESIDE.0 / size).min(reserve),
            has_just_emptied: self.has_just_emptied,
            space: self.space,
            goal,
            makes_room: !self.came_to_nothing,
            into_pieces: picture.only_files.is_some(),
        }
    }

    fn gather(
        &mut self,
        picture: &Picture,
        model: &Model,
        limits: &ChunkLimits,
        portions: &[Portion],
    ) -> Result<(), Halt> {
        let size = picture.layout.block_size();
        let prospects: Vec<Prospect> = portions.iter().filter_map(|portion| model.prospect(picture, portion)).collect();
        self.work = Some(if self.promised.is_some() { Work::Space } else { Work::Files });
        self.tally.round.units = prospects.len() as u64;
        self.begin(size.to_bytes(prospects.iter().map(|prospect| prospect.written).sum()));
        for prospect in prospects {
            let bytes = size.to_bytes(prospect.written);
            self.show(Phase::Move);
            self.pacer.afford(bytes)?;
            self.make_sure_of_space(prospect.written + limits.reserve)?;
            self.pacer.wait_for(bytes)?;
            let written = self.pacer.written;
            let left = self.volume.gather(&prospect.task, &mut self.pacer)?;
            let why = if prospect.excess > 0 { Why::Defragment } else { Why::MakeRoom };
            self.account(why, written, left.is_none());
            match left {
                None => self.tally.round.done += 1,
                Some(reason) => self.tally.round.leave(reason, bytes),
            }
            for file in &prospect.task.members {
                let Some(id) = picture.layout.file(*file).map(|file| file.id()) else { continue };
                match left {
                    None => self.tally.done(id),
                    Some(reason) => self.skip(id, reason),
                }
            }
        }
        Ok(())
    }

    fn evacuate(&mut self, picture: &Picture, model: &Model, chunk: ChunkIndex) -> Result<(), Halt> {
        let size = picture.layout.block_size();
        self.work = Some(Work::Evacuation);
        let Some((key, chunk)) = model.chunk(chunk) else { return Ok(()) };
        let used = size.to_bytes(chunk.used());
        self.tally.round.units = 1;
        self.begin(used);
        self.show(Phase::Move);
        self.pacer.afford(used)?;
        self.pacer.wait_for(used)?;
        let written = self.pacer.written;
        let ended = self.volume.evacuate(key, &mut self.pacer)?;
        self.account(Why::MakeRoom, written, ended == Evacuated::Emptied);
        if ended == Evacuated::Emptied {
            self.tally.round.done += 1;
        }
        if ended == Evacuated::NoSpace {
            // Tried blindly again it would meet the same; and that it was tried says nothing about the rest.
            self.experience.staying.insert(key, chunk.used());
            self.promised = None;
            self.fruitless = self.fruitless.saturating_sub(1);
        }
        Ok(())
    }

    fn begin(&mut self, planned: Bytes) {
        self.written_before = self.pacer.written;
        self.planned = planned;
    }

    fn account(&mut self, why: Why, written_before: Bytes, completed: bool) {
        let kind = self.done.entry(why).or_default();
        kind.moves += u64::from(completed);
        kind.bytes += self.pacer.written.saturating_sub(written_before);
        self.tally.moves += u64::from(completed);
    }

    /// Waits until so much is free, the reserve included: what was freed counts after a commit only, and others may be filling
    /// the volume.
    fn make_sure_of_space(&mut self, needed: Blocks) -> Result<(), Halt> {
        if self.volume.unclaimed()? >= needed {
            return Ok(());
        }
        self.commit()?;
        let mut waited = Duration::ZERO;
        while self.volume.unclaimed()? < needed {
            if waited >= self.settings.patience {
                return Err(Stop::SpaceNeeded.into());
            }
            self.show(Phase::Wait);
            self.pacer.observer.wait(PAUSE);
            waited += PAUSE;
            self.pacer.wanted_still()?;
        }
        Ok(())
    }

    fn skip(&mut self, file: FileId, reason: SkipReason) {
        self.tally.skip(file, reason, self.stage);
        self.pacer.observer.skipped(file, reason);
        // What had no place may find one when there is more room; what is in use now may not be later.
        let again = matches!(
            reason,
            SkipReason::TargetTaken | SkipReason::Changed | SkipReason::Busy | SkipReason::SpaceNeeded
        );
        *self.experience.left.entry(file).or_default() += if again { 1 } else { TRIES };
    }

    fn commit(&mut self) -> Result<(), VolumeError> {
        self.volume.commit()?;
        self.tally.barriers += 1;
        Ok(())
    }

    /// What was not done, by the state that the volume was left in.
    fn settle_skips(&mut self, picture: &Picture) {
        for (file, reason) in &picture.staying {
            if let Some(file) = picture.layout.file(*file).filter(|file| self.settings.scope.has(file)) {
                self.tally.skip(file.id(), *reason, self.stage);
            }
        }
        let in_pieces = picture.layout.files().filter(|file| !file.record.is_directory && file.fragments() > 1);
        let in_pieces: BTreeSet<FileId> = in_pieces.map(|file| file.id()).collect();
        self.tally.keep_skips(u32::MAX, &in_pieces);
    }

    fn show(&mut self, phase: Phase) {
        let done = self.pacer.written.saturating_sub(self.written_before).0;
        let status = Status { phase, round: self.stage, done, total: self.planned.0.max(done) };
        self.pacer.observer.status(status);
    }
}
