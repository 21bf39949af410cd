//! The observer of a pass: it sees the progress, sets the pace, and can stop the pass.

use crate::{Progress, SkipReason};
use longrun_layout::{Bytes, FileId};
use serde::{Deserialize, Serialize};
use std::cell::{Cell, RefCell};
use std::time::{Duration, Instant};

/// The current activity of a pass.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Phase {
    /// Reading the layout; units are the volume's own.
    Scan,
    /// Waiting for the planner's next batch.
    Plan,
    /// Getting hold of free space.
    Capture,
    /// Exchanging blocks.
    Move,
    /// Waiting for others to give free space back.
    Wait,
    /// Giving free space back to the storage below.
    Reclaim,
}

/// The progress of a pass.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Status {
    /// What it does.
    pub phase: Phase,
    /// Which scan-plan-move round, from 1.
    pub round: u32,
    /// Done: bytes moved in this round, or units scanned.
    pub done: u64,
    /// Of so many that are known of by now; grows while the planner yields batches.
    pub total: u64,
}

/// The governor's answer before the next chunk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Permission {
    /// Move it.
    Go,
    /// Ask again after this time.
    Wait(Duration),
}

/// The most that is read or written before the observer is asked again. Other I/O waits for at most this much.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Turn {
    /// Bytes that are moved.
    pub bytes: Bytes,
    /// Pieces of a file, lying apart on the device, that are read together.
    pub pieces: usize,
}

impl Turn {
    /// As much as the work itself finds useful.
    pub const UNLIMITED: Self = Self { bytes: Bytes(u64::MAX), pieces: usize::MAX };
}

/// Observes and paces a pass. The defaults of all methods neither observe nor stop it.
pub trait Observer {
    /// Called often; must be quick.
    fn status(&mut self, status: Status) {
        let _ = status;
    }

    /// A file was left alone, for now: a later round may still move it.
    fn skipped(&mut self, file: FileId, reason: SkipReason) {
        let _ = (file, reason);
    }

    /// Whether `next` bytes may be moved now.
    fn permission(&mut self, next: Bytes) -> Permission {
        let _ = next;
        Permission::Go
    }

    /// How much may be done on one permission.
    fn turn(&self) -> Turn {
        Turn::UNLIMITED
    }

    /// True as soon as the pass should stop and give everything back.
    fn cancelled(&self) -> bool {
        false
    }

    /// Lets time pass.
    fn wait(&mut self, time: Duration) {
        std::thread::sleep(time);
    }

    /// Calls `work` once, and returns when it is done: something that computes for long, without I/O and without a lock of the
    /// kernel. So it can run behind all other threads.
    fn compute(&self, work: &mut (dyn FnMut() + Send)) {
        work();
    }
}

/// What `work` results in, computed as `run` has it: a method like [`Observer::compute`].
pub(crate) fn computed<T: Send>(run: impl FnOnce(&mut (dyn FnMut() + Send)), mut work: impl FnMut() -> T + Send) -> T {
    let mut result = None;
    run(&mut || result = Some(work()));
    // One that did not call it leaves it to us.
    result.unwrap_or_else(work)
}

/// Returns when `observer` permits `next` bytes. A permission can take long: `go_on` is asked before each question whether
/// the work is still wanted, and no wait is longer than `longest`.
///
/// # Errors
/// The first error of `go_on`.
pub fn until_permitted<E>(
    observer: &mut dyn Observer,
    next: Bytes,
    longest: Duration,
    mut go_on: impl FnMut(&dyn Observer) -> Result<(), E>,
) -> Result<(), E> {
    loop {
        go_on(observer)?;
        match observer.permission(next) {
            Permission::Go => return Ok(()),
            Permission::Wait(time) => observer.wait(time.min(longest)),
        }
    }
}

/// An observer that neither observes nor stops.
#[derive(Clone, Copy, Debug, Default)]
pub struct Unobserved;

impl Observer for Unobserved {}

/// A scan asks for permission at most this often: asking takes some system calls.
const BETWEEN_QUESTIONS: Duration = Duration::from_millis(20);
/// How long a scan lets others go first at one question: beside a process that never stops, little is read at a time.
const LONGEST_STOP: Duration = Duration::from_secs(1);
/// A user who ends the work expects its result soon.
const LONGEST_AT_THE_END: Duration = Duration::from_secs(10);

/// Reports the progress of a scan to an observer, and lets the scan give way when the observer asks for it.
pub struct ScanProgress<'a> {
    observer: RefCell<&'a mut dyn Observer>,
    round: u32,
    asked: Cell<Option<Instant>>,
    waited: Cell<Duration>,
    is_last: bool,
}

impl std::fmt::Debug for ScanProgress<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ScanProgress").field("round", &self.round).finish_non_exhaustive()
    }
}

impl<'a> ScanProgress<'a> {
    /// How long a scan lets others go first in all. A volume changes while it is read, and a picture that takes too
    /// long does not help.
    pub const LONGEST: Duration = Duration::from_secs(120);

    /// Of the scan before this round; 0 is one before all work.
    pub fn new(observer: &'a mut dyn Observer, round: u32) -> Self {
        let (observer, waited) = (RefCell::new(observer), Cell::new(Duration::ZERO));
        Self { observer, round, asked: Cell::new(None), waited, is_last: false }
    }

    /// The same of a scan that is not stopped: it tells what came of the work, also of work that was.
    #[must_use]
    pub fn to_the_end(self) -> Self {
        Self { is_last: true, ..self }
    }

    fn wait(&self, observer: &mut dyn Observer) {
        let mut stopped = Duration::ZERO;
        let longest = if self.is_last { LONGEST_AT_THE_END } else { Self::LONGEST };
        while stopped < LONGEST_STOP && self.waited.get() < longest && !observer.cancelled() {
            let Permission::Wait(time) = observer.permission(Bytes(0)) else { return };
            observer.wait(time);
            stopped += time;
            self.waited.set(self.waited.get() + time);
        }
    }
}

impl Progress for ScanProgress<'_> {
    fn at(&self, done: u64, total: u64) {
        // A scan that reports from within a report is not worth a panic.
        if let Ok(mut observer) = self.observer.try_borrow_mut() {
            observer.status(Status { phase: Phase::Scan, round: self.round, done, total });
        }
    }

    fn compute(&self, work: &mut (dyn FnMut() + Send)) {
        match self.observer.try_borrow() {
            Ok(observer) => observer.compute(work),
            Err(_) => work(),
        }
    }

    fn cancelled(&self) -> bool {
        !self.is_last && self.observer.try_borrow().is_ok_and(|observer| observer.cancelled())
    }

    fn give_way(&self) {
        if self.asked.get().is_some_and(|asked| asked.elapsed() < BETWEEN_QUESTIONS) {
            return;
        }
        if let Ok(mut observer) = self.observer.try_borrow_mut() {
            self.wait(*observer);
        }
        self.asked.set(Some(Instant::now()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Never gives permission; counts how long it was waited for.
    #[derive(Default)]
    struct Busy {
        stopped: bool,
        waited: Duration,
    }

    impl Observer for Busy {
        fn permission(&mut self, _next: Bytes) -> Permission {
            Permission::Wait(Duration::from_millis(500))
        }

        fn cancelled(&self) -> bool {
            self.stopped
        }

        fn wait(&mut self, time: Duration) {
            self.waited += time;
        }
    }

    fn waited(busy: &mut Busy, last: bool) -> Duration {
        let scan = ScanProgress::new(busy, 1);
        let scan = if last { scan.to_the_end() } else { scan };
        for _ in 0..1000 {
            scan.asked.set(None);
            scan.give_way();
        }
        busy.waited
    }

    #[test]
    fn a_scan_gives_way_for_a_while_and_the_last_one_for_a_shorter_one() {
        assert_eq!(waited(&mut Busy::default(), false), ScanProgress::LONGEST);
        assert_eq!(waited(&mut Busy::default(), true), LONGEST_AT_THE_END);
    }

    #[test]
    fn the_last_scan_is_not_stopped_and_makes_nobody_wait_who_has_stopped_the_work() {
        let mut stopped = Busy { stopped: true, ..Busy::default() };
        assert!(ScanProgress::new(&mut stopped, 1).cancelled());
        assert!(!ScanProgress::new(&mut stopped, 1).to_the_end().cancelled());
        assert_eq!(waited(&mut stopped, true), Duration::ZERO);
    }
}
