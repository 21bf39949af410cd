//! Decides whether a pass continues: the observer can pause or end it, and limits end it.
//!
//! Owns the questions to the observer, the clock, and the count of written bytes. Never decides what is moved.

use super::observer::{Observer, ScanProgress, until_permitted};
use super::report::Stop;
use super::settings::Settings;
use crate::{Progress, VolumeError};
use longrun_layout::Bytes;
use std::time::{Duration, Instant};

/// Why an operation ends before it is complete.
#[derive(Debug)]
pub enum Halt {
    /// The caller asked for it.
    Stop(Stop),
    /// The volume failed.
    Fatal(VolumeError),
}

impl From<VolumeError> for Halt {
    fn from(error: VolumeError) -> Self {
        Self::Fatal(error)
    }
}

impl From<Stop> for Halt {
    fn from(stop: Stop) -> Self {
        Self::Stop(stop)
    }
}

/// Asks the observer, and counts.
pub(crate) struct Pacer<'a> {
    pub(crate) observer: &'a mut dyn Observer,
    settings: &'a Settings,
    begun: Instant,
    /// All bytes so far, those that stepped aside or were taken back included.
    pub(crate) written: Bytes,
}

impl<'a> Pacer<'a> {
    /// Time runs from now on.
    pub(crate) fn new(settings: &'a Settings, observer: &'a mut dyn Observer) -> Self {
        Self::since(Instant::now(), settings, observer)
    }

    /// Time runs since `begun`.
    pub(crate) fn since(begun: Instant, settings: &'a Settings, observer: &'a mut dyn Observer) -> Self {
        Self { observer, settings, begun, written: Bytes(0) }
    }

    pub(crate) fn seconds(&self) -> f64 {
        self.begun.elapsed().as_secs_f64()
    }

    /// Returns when `next` bytes may be written.
    pub(crate) fn wait_for(&mut self, next: Bytes) -> Result<(), Stop> {
        let (settings, begun) = (self.settings, self.begun);
        until_permitted(self.observer, next, Duration::MAX, |observer| is_wanted(observer, settings, begun))
    }

    /// Whether anybody still wants the pass to go on.
    pub(crate) fn wanted_still(&self) -> Result<(), Stop> {
        is_wanted(self.observer, self.settings, self.begun)
    }

    /// Whether the budget covers `bytes` more.
    pub(crate) fn afford(&self, bytes: Bytes) -> Result<(), Stop> {
        let total = self.written + bytes;
        if self.settings.budget.is_some_and(|budget| total > budget) { Err(Stop::Budget) } else { Ok(()) }
    }

    /// The scan behind a round. The figures of a pass that is being stopped are wanted too, so that it cannot be stopped.
    pub(crate) fn scan_again<T>(
        &mut self,
        round: u32,
        stop: &mut Option<Stop>,
        mut scan: impl FnMut(&dyn Progress) -> Result<T, VolumeError>,
    ) -> Result<T, VolumeError> {
        if stop.is_none() {
            match scan(&ScanProgress::new(self.observer, round)) {
                Err(VolumeError::Interrupted) => *stop = Some(Stop::Cancelled),
                other => return other,
            }
        }
        scan(&ScanProgress::new(self.observer, round).to_the_end())
    }
}

fn is_wanted(observer: &dyn Observer, settings: &Settings, begun: Instant) -> Result<(), Stop> {
    if observer.cancelled() {
        return Err(Stop::Cancelled);
    }
    match settings.deadline {
        Some(deadline) if begun.elapsed() >= deadline => Err(Stop::Deadline),
        _ => Ok(()),
    }
}
