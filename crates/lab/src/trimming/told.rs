//! A sensor that reports what a test tells it.

use longrun_layout::Bytes;
use longrun_prevention::sensor::{Sensor, SensorError};
use longrun_prevention::{FileKey, Nanos, ProcessName, SensorKind, Signal, SignalKind, Watched};
use longrun_sys::DeviceNumber;
use std::collections::VecDeque;
use std::fs::File;
use std::sync::{Condvar, Mutex, PoisonError};
use std::time::Duration;

/// A sensor that delivers the signals of a test, and detects nothing itself.
#[derive(Default)]
pub struct Told {
    /// Without a signal: somebody wakes who waits.
    signals: Mutex<VecDeque<Option<Signal>>>,
    came: Condvar,
}

impl Told {
    /// Something is to be noticed about a file.
    pub fn tell(&self, file: FileKey, size: u64, kind: SignalKind) {
        let at = Nanos(longrun_sys::monotonic_nanoseconds());
        let signal = Signal { at, file, size: Bytes(size), by: ProcessName(*b"writer\0\0\0\0\0\0\0\0\0\0"), kind };
        self.push(Some(signal));
    }

    fn push(&self, signal: Option<Signal>) {
        self.signals.lock().unwrap_or_else(PoisonError::into_inner).push_back(signal);
        self.came.notify_one();
    }

    /// A file has grown to `size` in pieces.
    pub fn tell_of_growth(&self, file: FileKey, size: u64) {
        let kind = SignalKind::Fragmenting { allocations: 8, bytes: Bytes(8 * 4096), end: Bytes(size) };
        self.tell(file, size, kind);
    }
}

impl Sensor for Told {
    fn kind(&self) -> SensorKind {
        SensorKind::Bpf
    }

    fn watch(&self, _: &Watched) -> Result<(), SensorError> {
        Ok(())
    }

    fn unwatch(&self, _: DeviceNumber) {}

    fn arm(&self, _: &FileKey, _: &File, _: Bytes) -> Result<(), SensorError> {
        Ok(())
    }

    fn disarm(&self, _: &FileKey) {}

    fn poll(&self, timeout: Duration, sink: &mut dyn FnMut(Signal)) -> Result<(), SensorError> {
        let signals = self.signals.lock().unwrap_or_else(PoisonError::into_inner);
        let waited = self.came.wait_timeout_while(signals, timeout, |signals| signals.is_empty());
        let (mut signals, _) = waited.unwrap_or_else(PoisonError::into_inner);
        let came: Vec<Signal> = signals.drain(..).flatten().collect();
        drop(signals);
        came.into_iter().for_each(sink);
        Ok(())
    }

    fn wake(&self) {
        self.push(None);
    }

    fn lost(&self) -> u64 {
        0
    }
}
