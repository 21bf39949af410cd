//! The pacer of a pass as the meter of what a volume does for it.

use super::Meter;
use crate::{Observer, Pacer, Permission, Stop, Turn};
use longrun_layout::Bytes;
use std::time::Duration;

impl Observer for Pacer<'_> {
    fn permission(&mut self, next: Bytes) -> Permission {
        self.observer.permission(next)
    }

    fn turn(&self) -> Turn {
        self.observer.turn()
    }

    fn cancelled(&self) -> bool {
        self.stop().is_some()
    }

    fn wait(&mut self, time: Duration) {
        self.observer.wait(time);
    }

    fn compute(&self, work: &mut (dyn FnMut() + Send)) {
        self.observer.compute(work);
    }
}

impl Meter for Pacer<'_> {
    fn before(&mut self, next: Bytes) -> Result<(), Stop> {
        self.wait_for(next)
    }

    fn stop(&self) -> Option<Stop> {
        self.wanted_still().err()
    }

    fn wrote(&mut self, bytes: Bytes) {
        self.written += bytes;
    }
}
