//! Detects files that grow in fragments, without delaying writers.
//!
//! Owns the kernel's events and their translation to [`Signal`]s. Never touches a file, never decides about a runway.

mod bpf;
mod closes;
mod fanotify;
mod tail;

use crate::{FileKey, SensorKind, Signal, Watched};
use longrun_layout::Bytes;
use longrun_sys::{Bell, DeviceNumber, Errno};
use std::fs::File;
use std::sync::Arc;
use std::time::Duration;

/// Which sensor to use.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Choice {
    /// The best that works.
    #[default]
    Auto,
    /// BPF or nothing.
    Bpf,
    /// fanotify or nothing.
    Fanotify,
}

/// A working sensor.
pub struct Opened {
    /// The source.
    pub sensor: Arc<dyn Sensor>,
    /// Why it is not the better one, when that was tried and refused: for `status`.
    pub refused: Option<SensorError>,
}

/// Settings that are rarely changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settings {
    /// The size of the queue between the kernel and us: rounded up to a power of two of whole pages. BPF only.
    pub queue: Bytes,
    /// Also reports what this process does: its preallocations look like growth, and its examinations of a file like
    /// closes. For tests and recordings, whose writers are threads of the same process.
    pub own_writes: bool,
}

impl Settings {
    /// The process whose events are not reported: our own. It opens files to check whether their space can be given
    /// back; with an event for each close it would check again for ever.
    fn silent_process(&self) -> Option<u32> {
        (!self.own_writes).then(std::process::id)
    }
}

impl Default for Settings {
    /// Room for three thousand signals, which are rare and fetched within milliseconds; of others' files only.
    fn default() -> Self {
        Self { queue: Bytes(256 << 10), own_writes: false }
    }
}

/// Opens a source of signals. What works is found out by trying it.
///
/// # Errors
/// [`SensorError`] when nothing of what was chosen works.
pub fn open(choice: Choice) -> Result<Opened, SensorError> {
    open_with(choice, Settings::default())
}

/// As [`open`], with settings.
///
/// # Errors
/// [`SensorError`] when nothing of what was chosen works.
pub fn open_with(choice: Choice, settings: Settings) -> Result<Opened, SensorError> {
    let bpf = || bpf::Bpf::open(settings).map(|sensor| Opened { sensor: Arc::new(sensor), refused: None });
    let fanotify =
        |refused| fanotify::Fanotify::open(settings).map(|sensor| Opened { sensor: Arc::new(sensor), refused });
    match choice {
        Choice::Bpf => bpf(),
        Choice::Fanotify => fanotify(None),
        Choice::Auto => bpf().or_else(|refused| fanotify(Some(refused))),
    }
}

/// A source of signals. Many threads call it at once, except [`Sensor::poll`], which only one thread calls.
pub trait Sensor: Send + Sync {
    /// What it is, for `status`.
    fn kind(&self) -> SensorKind;

    /// Begins to report about a volume.
    ///
    /// # Errors
    /// [`SensorError`]; the volume is then not watched.
    fn watch(&self, volume: &Watched) -> Result<(), SensorError>;

    /// Ends reporting about a volume; files armed on it are disarmed. Unknown volumes are no error: they may be gone.
    fn unwatch(&self, volume: DeviceNumber);

    /// `file` has a runway: wants [`crate::SignalKind::HalfUsed`] once, when it is written beyond `half` (offset in the
    /// file), and [`crate::SignalKind::Closed`] at each last close by a writer. Arming again replaces `half`.
    ///
    /// # Errors
    /// [`SensorError`]; then only the caller's own looking tells when the file is closed.
    fn arm(&self, key: &FileKey, file: &File, half: Bytes) -> Result<(), SensorError>;

    /// Nothing more about this file but new fragmentation.
    fn disarm(&self, key: &FileKey);

    /// Waits up to `timeout` for events, and gives `sink` those that came, oldest first.
    ///
    /// # Errors
    /// [`SensorError`] when the source is broken for good.
    fn poll(&self, timeout: Duration, sink: &mut dyn FnMut(Signal)) -> Result<(), SensorError>;

    /// Ends the [`Sensor::poll`] that waits now, or else the next one.
    fn wake(&self);

    /// How many events the kernel could not deliver since the start (full ring, overflowed queue).
    fn lost(&self) -> u64;
}

/// What wakes the thread that waits for a sensor's events.
fn bell() -> Result<Bell, SensorError> {
    Bell::new().map_err(|source| SensorError::Refused { act: "to make an event descriptor", source })
}

/// Why a sensor does not work.
#[derive(Debug, thiserror::Error)]
pub enum SensorError {
    /// The kernel refused a call.
    #[error("the kernel refused {act}: {source}")]
    Refused {
        /// What was asked.
        act: &'static str,
        /// Its answer.
        source: Errno,
    },
    /// The BPF programs do not work here.
    #[error("the BPF program could not be loaded or attached: {detail}")]
    Bpf {
        /// What libbpf says.
        detail: String,
    },
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;
    use std::time::Instant;

    #[test]
    fn who_waits_for_a_sensor_can_be_woken() {
        for choice in [Choice::Bpf, Choice::Fanotify] {
            let sensor = open(choice).unwrap().sensor;
            let begin = Instant::now();
            // Rung before anybody waits, and at about the time.
            sensor.wake();
            sensor.poll(Duration::from_secs(600), &mut |_| {}).unwrap();
            std::thread::scope(|scope| {
                scope.spawn(|| sensor.poll(Duration::from_secs(600), &mut |_| {}).unwrap());
                sensor.wake();
            });
            assert!(begin.elapsed() < Duration::from_secs(300), "{choice:?}: not woken, but timed out");
        }
    }
}
