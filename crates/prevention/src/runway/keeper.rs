//! The keeper: one thread for all timed work, and for watching the free space.
//!
//! Owns the timers. Never touches a file: due work goes to the workers, so a volume that hangs does not delay the
//! others.

use super::Core;
use super::table::Volume;
use crate::policy::SpaceFacts;
use crate::{FileKey, Happening};
use longrun_sys::FileHandle;
use std::collections::BTreeSet;
use std::path::Path;
use std::sync::atomic::Ordering;
use std::sync::{Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// While a file has a runway, the free space is looked at so often …
const LOOK_AT_SPACE: Duration = Duration::from_millis(50);
/// … and sooner near the floor, where another process could reach it in that time: who preallocates takes 15 GB/s by 64 KiB.
const FASTEST_PER_MICROSECOND: u64 = 20_000;
const SOONEST: Duration = Duration::from_millis(1);
/// Near the floor, what is open is tried again so often: closes are told at once, so this is only for those that were missed,
/// and with hundreds of files it is what the service does most.
const YIELD_AGAIN: Duration = Duration::from_secs(5);
/// The rest has time.
const TEND: Duration = Duration::from_secs(2);

#[derive(Default)]
struct State {
    due: BTreeSet<(Instant, FileKey)>,
    kicked: bool,
    ended: bool,
}

/// What is due when.
#[derive(Default)]
pub(super) struct Clock {
    state: Mutex<State>,
    changed: Condvar,
}

impl Clock {
    /// `file` is due at `at`, and no more when it was to be: there are no more entries than known files, however often they are
    /// heard of.
    fn at(&self, at: Instant, file: FileKey, before: Option<Instant>) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(before) = before {
            state.due.remove(&(before, file));
        }
        let sooner = state.due.first().is_none_or(|(next, _)| at < *next);
        state.due.insert((at, file));
        if sooner {
            self.changed.notify_one();
        }
    }

    fn kick(&self) {
        self.state.lock().unwrap_or_else(PoisonError::into_inner).kicked = true;
        self.changed.notify_one();
    }

    pub(super) fn end(&self) {
        self.state.lock().unwrap_or_else(PoisonError::into_inner).ended = true;
        self.changed.notify_one();
    }

    /// Sleeps until something is due, but no longer than `most`; `None` at the end.
    fn wait(&self, most: Duration) -> Option<Vec<(Instant, FileKey)>> {
        let until = Instant::now() + most;
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        loop {
            if state.ended {
                return None;
            }
            let now = Instant::now();
            let mut due = Vec::new();
            while state.due.first().is_some_and(|(at, _)| *at <= now) {
                due.extend(state.due.pop_first());
            }
            if !due.is_empty() || now >= until || std::mem::take(&mut state.kicked) {
                return Some(due);
            }
            let next = state.due.first().map_or(until, |(at, _)| until.min(*at));
            let pause = next.saturating_duration_since(now);
            state = self.changed.wait_timeout(state, pause).map_or_else(|e| e.into_inner().0, |(state, _)| state);
        }
    }
}

impl Core {
    /// The file is to be watched at `at`; an earlier wish is void. `tries` is how often that was in vain, if it changes.
    pub(super) fn look_again(&self, volume: &Volume, handle: &FileHandle, at: Instant, tries: Option<u32>) {
        let mut table = volume.table();
        let before = table.change(handle, |known| {
            known.tries = tries.unwrap_or(known.tries);
            known.due.replace(at)
        });
        if let Some(before) = before {
            // Before the table is anybody else's again: the clock has what it has.
            self.clock.at(at, FileKey { volume: volume.watched.device, handle: *handle }, before);
        }
    }

    /// Another process may have closed the file.
    pub(super) fn closed(&self, file: &FileKey) {
        let Some(volume) = self.volume(file.volume) else { return };
        // Near the floor nothing waits: another process may need the space before the usual while has passed.
        let pause = if volume.tight.load(Ordering::Relaxed) { Duration::ZERO } else { self.debounce };
        self.look_again(&volume, &file.handle, Instant::now() + pause, Some(0));
    }

    /// The keeper is to look at the free space now.
    pub(super) fn kick(&self) {
        self.clock.kick();
    }

    /// What the keeper's thread does.
    pub(super) fn keep(&self) {
        let (mut tended, mut lost) = (Instant::now(), 0);
        let mut yielded = Instant::now();
        let mut pause = TEND;
        while let Some(due) = self.clock.wait(pause) {
            let now = Instant::now();
            for (at, file) in due {
                let Some(volume) = self.volume(file.volume) else { continue };
                let is_due = volume.table().get(&file.handle).is_some_and(|known| known.due == Some(at));
                if is_due {
                    self.queue.settle(file);
                }
            }
            let again = now.saturating_duration_since(yielded) >= YIELD_AGAIN;
            let looks = self.volumes().into_iter().filter_map(|volume| self.watch_space(&volume, again));
            pause = looks.min().unwrap_or(TEND);
            if again {
                yielded = now;
            }
            if now.saturating_duration_since(tended) >= TEND {
                tended = now;
                self.journal.tend(now);
                let all = self.sensor.lost();
                if all > lost {
                    self.sink.happened(Path::new(""), &Happening::Lost { signals: all - lost });
                    lost = all;
                    self.look_at_all(now);
                }
            }
        }
    }

    /// Among what was lost may have been the close of any of our files.
    fn look_at_all(&self, now: Instant) {
        for volume in self.volumes() {
            let handles = volume.table().handles();
            for handle in handles {
                self.look_again(&volume, &handle, now + self.debounce, Some(0));
            }
        }
    }

    /// Near the floor everything is to be given back that can be. How soon to look again, when there is something to watch.
    fn watch_space(&self, volume: &Volume, again: bool) -> Option<Duration> {
        let was_tight = volume.tight.load(Ordering::Relaxed);
        let held = volume.table().held();
        if held.0 == 0 && !was_tight {
            return None;
        }
        let Ok(capacity) = longrun_sys::capacity_at(&volume.watched.point) else { return Some(LOOK_AT_SPACE) };
        let table = volume.table();
        let space = SpaceFacts::of(capacity, held);
        let (tight, short) = (table.policy.is_tight(space), table.policy.is_short(space));
        let was_short = volume.short.swap(short, Ordering::Relaxed);
        volume.tight.store(tight, Ordering::Relaxed);
        if (tight && (!was_tight || again)) || (short && !was_short) {
            let volume_number = volume.watched.device;
            for (handle, _) in table.growing() {
                self.queue.settle(FileKey { volume: volume_number, handle: *handle });
            }
        }
        // Before even a fast disk can have filled what is left above the line.
        if held.0 == 0 {
            return Some(TEND);
        }
        let left = space.free.saturating_sub(table.policy.tight_below(space));
        let soon = Duration::from_micros(left.0 / FASTEST_PER_MICROSECOND);
        Some(if tight { LOOK_AT_SPACE } else { soon.clamp(SOONEST, LOOK_AT_SPACE) })
    }
}
