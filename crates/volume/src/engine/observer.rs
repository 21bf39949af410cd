//! Who watches a pass, paces it and may stop it.

use crate::{Progress, SkipReason};
use longrun_layout::{Bytes, FileId};
use serde::{Deserialize, Serialize};
use std::cell::RefCell;
use std::time::Duration;

/// What a pass is doing.
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
}

/// Where a pass is.
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

/// What the governor says to the next chunk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Permission {
    /// Move it.
    Go,
    /// Ask again after this time.
    Wait(Duration),
}

/// Watches and steers a pass. Every method has a default that neither looks nor stops.
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

    /// True as soon as the pass should stop and give everything back.
    fn cancelled(&self) -> bool {
        false
    }

    /// Lets time pass.
    fn wait(&mut self, time: Duration) {
        std::thread::sleep(time);
    }
}

/// For callers that neither watch nor stop.
#[derive(Clone, Copy, Debug, Default)]
pub struct Unobserved;

impl Observer for Unobserved {}

/// Shows the scan's progress to the pass's observer.
pub(crate) struct ScanProgress<'a> {
    observer: RefCell<&'a mut dyn Observer>,
    round: u32,
}

impl<'a> ScanProgress<'a> {
    pub(crate) fn new(observer: &'a mut dyn Observer, round: u32) -> Self {
        Self { observer: RefCell::new(observer), round }
    }
}

impl Progress for ScanProgress<'_> {
    fn at(&self, done: u64, total: u64) {
        // A scan that reports from within a report is not worth a panic.
        if let Ok(mut observer) = self.observer.try_borrow_mut() {
            observer.status(Status { phase: Phase::Scan, round: self.round, done, total });
        }
    }

    fn cancelled(&self) -> bool {
        self.observer.try_borrow().is_ok_and(|observer| observer.cancelled())
    }
}
