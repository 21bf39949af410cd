//! The work on one file: granting a runway, settling it, or examining the file.
//!
//! Owns the order of a grant: facts, decision, journal, preallocation, map, sensor. The queue ensures that a file is
//! worked on by one worker at a time.

use super::Core;
use super::file::{self, Closed, Executables, Opened};
use super::fill;
use super::give_back::{self, Outcome, Settled};
use super::journal::Coming;
use super::queue::Task;
use super::record::GiveBack;
use super::table::{Known, QUIET, Stage, Volume};
use super::tail;
use crate::policy::{Case, Cut, Decision, Ended, FileFacts, Pattern, SpaceFacts};
use crate::{FileKey, Happening, Nanos, NoRunway, Signal, SignalKind};
use longrun_layout::Bytes;
use longrun_sys::FileSystem;
use longrun_sys::{ByteRange, Errno, FileHandle};
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// A file that another process has open is looked at after these multiples of the time to settle, at most this late.
const LATEST_LOOK: Duration = Duration::from_secs(60);
/// So many holes of a window are remembered as ours; what is beyond is never given back.
const MOST_HOLES: usize = 256;

/// What a preallocation is to give a place.
struct Fresh {
    /// The part of the file.
    range: ByteRange,
    /// Whether nothing of it had a place before: only then do its pieces tell of the free space.
    was_empty: bool,
}

/// A preallocation that was made.
struct Granted {
    fresh: Fresh,
    /// What the journal remembers of it.
    give_back: Vec<GiveBack>,
}

impl Core {
    /// Does what is to be done about a file.
    pub(super) fn work(&self, key: &FileKey, task: &Task) {
        let Some(volume) = self.volume(key.volume) else { return };
        if let Some(signal) = &task.signal
            && !volume.leaving.load(Ordering::Acquire)
        {
            match signal.kind {
                SignalKind::InPieces => self.laid_in_pieces(&volume, &key.handle),
                _ => self.grow(&volume, signal),
            }
        }
        if task.settle {
            self.look_after(&volume, &key.handle);
        }
    }

    /// A file fragments, or has used half of its runway.
    fn grow(&self, volume: &Volume, signal: &Signal) {
        let handle = &signal.file.handle;
        let now = Instant::now();
        let coming = self.journal.announce();
        self.heard_of(volume, handle, now);
        volume.table().change(handle, |known| known.growth.note(&signal.kind));
        if let Err(reason) = self.grant(volume, signal, coming) {
            self.leave(volume, handle, reason, now);
        }
    }

    /// A file was laid in pieces that nothing of ours could have kept whole: it is looked at once it is quiet.
    fn laid_in_pieces(&self, volume: &Volume, handle: &FileHandle) {
        let now = Instant::now();
        // One that has a runway, or had one, is looked at when it is settled.
        if self.heard_of(volume, handle, now) == Some(Stage::Left) {
            self.look_again(volume, handle, now + QUIET, None);
        }
    }

    /// The file is known from now on, and not quiet; where it stands.
    fn heard_of(&self, volume: &Volume, handle: &FileHandle, now: Instant) -> Option<Stage> {
        let mut table = volume.table();
        if table.get(handle).is_none()
            && let Some(forgotten) = table.know(*handle, Known::new(Stage::Left, now))
        {
            self.let_go(volume, &forgotten);
        }
        table.change(handle, |known| {
            known.heard = now;
            known.stage
        })
    }

    fn grant(&self, volume: &Volume, signal: &Signal, coming: Coming<'_>) -> Result<(), NoRunway> {
        if volume.short.load(Ordering::Relaxed) {
            return Err(NoRunway::LowSpace);
        }
        let handle = &signal.file.handle;
        // For looking only: as long as it is open for writing no one can execute it.
        let opened = file::open_to_look(&volume.watched, handle).map_err(reason_of)?;
        let compressed = volume.compressed.load(Ordering::Relaxed);
        let facts = opened.facts(&volume.watched, compressed, &signal.by).map_err(refused)?;
        let reach = volume.table().get(handle).and_then(|known| match &known.give_back {
            none if none.is_empty() => None,
            known => Some(GiveBack::reach(known).unwrap_or(Bytes(0))),
        });
        if opened.has_own_preallocation(volume.watched.filesystem, reach).map_err(refused)? {
            return Err(NoRunway::KeptWhole);
        }
        let capacity = longrun_sys::capacity(&opened.file).map_err(|errno| refused(errno.into()))?;
        let mut table = volume.table();
        let space = SpaceFacts::of(capacity, table.held());
        if table.policy.is_short(space) {
            volume.short.store(true, Ordering::Relaxed);
            volume.tight.store(true, Ordering::Relaxed);
            self.kick();
            return Err(NoRunway::LowSpace);
        }
        let Some(known) = table.get(handle) else { return Err(NoRunway::Refused) };
        if table.is_full() && known.stage != Stage::Growing {
            return Err(NoRunway::LowSpace);
        }
        let history = self.history();
        let case = Case { signal, file: &facts, growth: &known.growth, space, history: &history };
        let decision = table.policy.decide(&case);
        drop(history);
        let (range, half) = match decision {
            Decision::Leave(reason) => return Err(reason),
            Decision::Runway { range, arm_half } => (range, Some(arm_half)),
            Decision::Window { range } => (range, None),
        };
        // Reckoned with from now on, so that the others who ask at this moment do not get the same space.
        let first_of_volume = table.held().0 == 0;
        table.change(handle, |known| {
            known.held.0 += range.length.0;
            known.kind = facts.kind.clone();
            known.path.clone_from(&facts.path);
        });
        drop(table);
        if first_of_volume {
            // No one has watched the free space until now.
            self.kick();
        }
        let granted = self.preallocate(volume, handle, &opened, (range, half), coming);
        if granted.is_err() {
            volume.table().change(handle, |known| known.held = known.held.saturating_sub(range.length));
            self.kick();
        }
        self.reckon(volume, signal, opened, &facts, (range, half), &granted?)
    }

    /// Remembers, and then preallocates.
    fn preallocate(
        &self,
        volume: &Volume,
        handle: &FileHandle,
        opened: &Opened,
        (range, half): (ByteRange, Option<Bytes>),
        coming: Coming<'_>,
    ) -> Result<Granted, NoRunway> {
        let give_back: Vec<GiveBack> = match half {
            Some(_) => vec![GiveBack::End(Self::reach(volume, opened, range).map_err(refused)?)],
            None => file::holes(&opened.file, range, MOST_HOLES)
                .map_err(refused)?
                .into_iter()
                .map(GiveBack::Window)
                .collect(),
        };
        if give_back.is_empty() {
            return Err(NoRunway::KeptWhole);
        }
        coming.remember(&volume.id, *handle, &give_back).map_err(refused)?;
        let done = self.allocate(volume, handle, opened, (range, half));
        if let Err(reason) = &done
            && !matches!(reason, NoRunway::LowSpace | NoRunway::Quota | NoRunway::Refused)
        {
            // Nothing was tried.
            if volume.table().get(handle).is_none_or(|known| known.give_back.is_empty()) {
                self.journal.retire(&volume.id, *handle);
            }
            return Err(*reason);
        }
        // Whatever the answer: an error can leave a part allocated, which has to be given back, too.
        volume.table().change(handle, |known| {
            for what in &give_back {
                what.add_to(&mut known.give_back);
            }
            known.stage = Stage::Growing;
            known.pattern = if half.is_some() { Pattern::Appended } else { Pattern::Scattered };
        });
        done.map(|fresh| Granted { fresh, give_back })
    }

    /// Opens the file for writing, for just as long as it takes to preallocate. The writer
    /// goes on while the journal is flushed: the pieces that it makes meanwhile are not the runway's.
    fn allocate(
        &self,
        volume: &Volume,
        handle: &FileHandle,
        seen: &Opened,
        (range, half): (ByteRange, Option<Bytes>),
    ) -> Result<Fresh, NoRunway> {
        let writable = file::open(&volume.watched, handle, Executables::Never).map_err(reason_of)?;
        // The journal may have taken its time. Where a preallocation changes times, who has set them by now is respected.
        // Times that are set between this check and the kernel's own are not kept: no call reports them (docs/hazards.md).
        let set_since = writable.stat.modified().ok() < seen.stat.modified().ok();
        if volume.watched.filesystem != FileSystem::Xfs && (set_since || file::times_were_set(&writable.stat)) {
            return Err(NoRunway::TimesSet);
        }
        // Likewise who has given it privileges.
        if longrun_sys::gives_privileges(&writable.file).map_err(not_granted)? {
            return Err(NoRunway::Attributes);
        }
        let filesystem = volume.watched.filesystem;
        match half {
            Some(_) => {
                let filled = fill::runway(&writable, range, Cut::of_runway(filesystem), &volume.filling);
                let range = filled.map_err(not_granted)?.ok_or(NoRunway::HasRunway)?;
                Ok(Fresh { range, was_empty: true })
            }
            None => {
                let holes = file::holes(&writable.file, range, 1).map_err(refused)?;
                fill::window(&writable, range, Cut::of_window(filesystem), &volume.filling).map_err(not_granted)?;
                Ok(Fresh { range, was_empty: holes == [range] })
            }
        }
    }

    /// Up to where what lies behind the end of the file will be ours. XFS may have preallocated on its own already, and will
    /// not take that back any more once the file is marked.
    fn reach(volume: &Volume, opened: &Opened, range: ByteRange) -> io::Result<Bytes> {
        let end = Bytes(range.start.0.saturating_add(range.length.0));
        if volume.watched.filesystem != FileSystem::Xfs {
            return Ok(end);
        }
        let behind = file::allocated_behind(&opened.file, Bytes(opened.stat.len()))?;
        Ok(behind.map_or(end, |behind| behind.last.max(end)))
    }

    /// What comes after the preallocation.
    fn reckon(
        &self,
        volume: &Volume,
        signal: &Signal,
        opened: Opened,
        facts: &FileFacts,
        (wanted, half): (ByteRange, Option<Bytes>),
        granted: &Granted,
    ) -> Result<(), NoRunway> {
        let handle = &signal.file.handle;
        let now = Nanos(longrun_sys::monotonic_nanoseconds());
        let Granted { fresh: Fresh { range, was_empty }, give_back } = granted;
        let range = *range;
        self.reaction().add(Duration::from_nanos(now.0.saturating_sub(signal.at.0)));
        let (pieces, _) = file::pieces(&opened.file, range).map_err(refused)?;
        let pieces = u32::try_from(pieces).unwrap_or(u32::MAX).max(1);
        let taken = give_back.iter().map(|what| length(what, range)).sum::<u64>();
        let written = facts.size.max(end_of(signal));
        {
            let mut table = volume.table();
            table.change(handle, |known| match half {
                Some(_) => {
                    let before = Bytes(known.growth.runway_end().0.saturating_sub(written.0));
                    known.growth.granted_runway(range, pieces, now);
                    known.held = Bytes(before.0 + range.length.0).min(known.held);
                    known.granted.0 += range.length.0;
                }
                None => {
                    known.growth.granted_window(range, pieces, now);
                    known.held = Bytes(known.held.0.saturating_sub(wanted.length.0) + taken);
                    known.granted.0 += taken;
                }
            });
            if *was_empty {
                table.policy.granted(range.length, pieces, now);
            }
            table.figures.grants += 1;
            table.figures.granted.0 += taken;
        }
        let half = half.unwrap_or(Bytes(u64::MAX));
        // An error is no reason to stop: then we look ourselves, now and then.
        _ = self.sensor.arm(&signal.file, &opened.file, half);
        // The file may have been closed before it was armed, and no one tells that any more.
        self.look_again(volume, handle, Instant::now() + self.debounce, Some(0));
        drop(opened);
        let happening = Happening::Granted { file: signal.file, path: facts.path.clone(), range, pieces };
        self.sink.happened(&volume.watched.point, &happening);
        Ok(())
    }

    /// A file gets nothing, this time.
    fn leave(&self, volume: &Volume, handle: &FileHandle, reason: NoRunway, now: Instant) {
        let file = FileKey { volume: volume.watched.device, handle: *handle };
        let growing = {
            let mut table = volume.table();
            *table.figures.left.entry(reason).or_default() += 1;
            let stage = table.get(handle).map(|known| known.stage);
            if reason == NoRunway::Gone && stage == Some(Stage::Left) {
                table.forget(handle);
                return;
            }
            stage == Some(Stage::Growing)
        };
        let due = if growing { now } else { now + QUIET };
        self.look_again(volume, handle, due, None);
        self.sink.happened(&volume.watched.point, &Happening::Left { file, reason });
    }

    /// A file is due: it may have been closed, or may be quiet.
    fn look_after(&self, volume: &Volume, handle: &FileHandle) {
        let Some((stage, heard, what)) =
            volume.table().get(handle).map(|known| (known.stage, known.heard, known.give_back.clone()))
        else {
            return;
        };
        let now = Instant::now();
        if stage == Stage::Left {
            if now < heard + QUIET {
                self.look_again(volume, handle, heard + QUIET, None);
            } else {
                self.look(volume, handle);
            }
            return;
        }
        let early = volume.tight.load(Ordering::Relaxed);
        match give_back::settle(&volume.watched, handle, &what) {
            Outcome::Settled(settled) => {
                if !volume.short.load(Ordering::Relaxed) {
                    tail::tidy(&volume.watched, &settled);
                }
                self.settled(volume, handle, &settled, early);
            }
            Outcome::Gone => {
                volume.table().forget(handle);
                self.journal.forget(&volume.id, *handle);
                self.sensor.disarm(&FileKey { volume: volume.watched.device, handle: *handle });
            }
            Outcome::Open => {
                let tries = volume.table().change(handle, |known| known.tries.saturating_add(1)).unwrap_or(0);
                let pause = self.debounce.saturating_mul(1 << tries.min(16)).min(LATEST_LOOK);
                self.look_again(volume, handle, now + pause, Some(tries));
            }
            Outcome::Refused | Outcome::Unreachable => {
                self.look_again(volume, handle, now + LATEST_LOOK, None);
            }
        }
    }

    /// Nothing of ours is left on the file: what came of it is told.
    pub(super) fn settled(&self, volume: &Volume, handle: &FileHandle, settled: &Settled, early: bool) {
        let file = FileKey { volume: volume.watched.device, handle: *handle };
        let size = Bytes(settled.file.stat.len());
        let whole = ByteRange { start: Bytes(0), length: size };
        let excess = file::pieces(&settled.file.file, whole).map_or(0, |(pieces, _)| pieces.saturating_sub(1));
        let on_xfs = volume.watched.filesystem == FileSystem::Xfs;
        let sticky = on_xfs && settled.file.stat.nlink() > 0 && !settled.foreign;
        let mut forgotten = (!sticky).then_some(*handle);
        let (prevented, path, told, ended) = {
            let mut table = volume.table();
            let Some(known) = table.get(handle) else { return };
            let used = known.granted.saturating_sub(settled.given_back + settled.kept);
            let prevented = known.growth.prevented(used).0;
            let first = known.stage == Stage::Growing;
            let (path, kind, pattern) = (known.path.clone(), known.kind.clone(), known.pattern);
            if first {
                table.figures.settled += 1;
                table.figures.prevented += prevented;
                table.figures.excess += excess;
            }
            table.figures.trimmed.0 += settled.given_back.0;
            if early {
                table.figures.yielded.0 += settled.given_back.0;
            }
            if sticky {
                let mut kept = Known::new(Stage::Kept, Instant::now());
                kept.give_back = vec![GiveBack::End(size)];
                (kept.path, kept.kind, kept.pattern) = (path.clone(), kind.clone(), pattern);
                forgotten = table.know(*handle, kept);
            } else {
                table.forget(handle);
            }
            let told = first || settled.given_back.0 > 0;
            (if first { prevented } else { 0 }, path, told, first.then_some(Ended { kind, size, pattern }))
        };
        if let Some(forgotten) = forgotten.take() {
            self.let_go(volume, &forgotten);
        }
        let point = &volume.watched.point;
        if let Some(ended) = ended {
            self.history().learn(&ended);
            let hinted = path.as_deref().filter(|_| ended.pattern == Pattern::Appended);
            let settings = volume.table().policy.settings().clone();
            let hinted = hinted.and_then(|path| self.hints.learn(&volume.watched, &settings, path, size));
            if let Some((directory, hint)) = hinted {
                self.sink.happened(point, &Happening::Hinted { directory, hint });
            }
        }
        if told {
            let given_back = settled.given_back;
            self.sink.happened(point, &Happening::Settled { file, path, given_back, prevented, excess });
        }
        if early && settled.given_back.0 > 0 {
            self.sink.happened(point, &Happening::Yielded { given_back: settled.given_back });
        }
    }

    /// The file is of no interest any more.
    fn let_go(&self, volume: &Volume, handle: &FileHandle) {
        self.journal.retire(&volume.id, *handle);
        self.sensor.disarm(&FileKey { volume: volume.watched.device, handle: *handle });
    }

    /// Tells how a file fared that was left alone, now that it is quiet.
    fn look(&self, volume: &Volume, handle: &FileHandle) {
        volume.table().forget(handle);
        let Ok(opened) = file::open_to_look(&volume.watched, handle) else { return };
        let whole = ByteRange { start: Bytes(0), length: Bytes(opened.stat.len()) };
        let excess = file::pieces(&opened.file, whole).map_or(0, |(pieces, _)| pieces.saturating_sub(1));
        if excess == 0 {
            return;
        }
        volume.table().figures.excess += excess;
        let file = FileKey { volume: volume.watched.device, handle: *handle };
        let path = opened.path(&volume.watched);
        self.sink.happened(&volume.watched.point, &Happening::Fragmented { file, path, excess });
    }
}

fn reason_of(closed: Closed) -> NoRunway {
    match closed {
        Closed::Gone => NoRunway::Gone,
        Closed::Executable => NoRunway::Executable,
        Closed::Busy | Closed::Refused | Closed::Volume(_) => NoRunway::Refused,
    }
}

fn not_granted(errno: Errno) -> NoRunway {
    match errno {
        Errno::NOSPC => NoRunway::LowSpace,
        Errno::DQUOT => NoRunway::Quota,
        _ => NoRunway::Refused,
    }
}

fn refused(_: io::Error) -> NoRunway {
    NoRunway::Refused
}

fn length(what: &GiveBack, runway: ByteRange) -> u64 {
    match what {
        GiveBack::End(_) => runway.length.0,
        GiveBack::Window(range) => range.length.0,
    }
}

/// Up to where the signal knows the file to be written.
fn end_of(signal: &Signal) -> Bytes {
    match signal.kind {
        SignalKind::Fragmenting { end, .. } | SignalKind::HalfUsed { end } => end.max(signal.size),
        SignalKind::Scattered { .. } | SignalKind::InPieces | SignalKind::Closed => signal.size,
    }
}
