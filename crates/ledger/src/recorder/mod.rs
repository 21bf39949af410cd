//! Records the history for a program that must never wait for a disk.
//!
//! Owns the thread that writes. Callers queue records and continue at once. If the database cannot be written (no space,
//! read-only, damaged), this is logged once, records stay in memory up to a limit, and writing is repeated periodically.
//! Reads no clock of its own: the caller provides one.

mod keeper;
mod pending;

use crate::{Account, Counter, Event, Gauge, Limits, VolumeIdentity};
use jiff::Timestamp;
use keeper::Keeper;
use longrun_layout::Bytes;
use pending::Shared;
use serde::Serialize;
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::Duration;

/// How long dropping the recorder waits for the last write.
const LAST_WORDS: Duration = Duration::from_secs(10);

/// How a recorder works.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settings {
    /// The longest time between queueing and writing a record.
    pub flush_every: Duration,
    /// The time to wait after a failure.
    pub retry_every: Duration,
    /// The most rows that may be pending. Further rows are dropped and counted.
    pub pending: usize,
    /// How much history is kept.
    pub limits: Limits,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            flush_every: Duration::from_secs(10),
            retry_every: Duration::from_secs(60),
            pending: 20_000,
            limits: Limits::default(),
        }
    }
}

/// The state of the recorder, for `status`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct RecorderStatus {
    /// Whether history is being written.
    pub recording: bool,
    /// Why it is not being written, or what happened at the start (a damaged database was renamed).
    pub note: Option<String>,
    /// The time of the last write.
    pub written: Option<Timestamp>,
    /// Rows that wait to be written.
    pub pending: u64,
    /// Rows that were dropped because too many waited.
    pub dropped: u64,
    /// The size of the database.
    pub bytes: u64,
}

/// Records the history. When dropped, it writes what is pending and ends.
pub struct Recorder {
    path: PathBuf,
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

impl Recorder {
    /// Starts the thread that writes to the database at `path`. The thread opens the database, so that a faulty database
    /// causes no error here.
    ///
    /// # Errors
    /// If the thread cannot be started.
    pub fn start(
        path: &Path,
        settings: Settings,
        clock: impl Fn() -> Timestamp + Send + Sync + 'static,
    ) -> std::io::Result<Self> {
        let shared = Arc::new(Shared::new(settings.pending, Box::new(clock)));
        let keeper = Keeper::new(path.to_owned(), settings, Arc::clone(&shared));
        let end = End(Arc::clone(&shared));
        let thread = thread::Builder::new().name("ledger".to_owned()).spawn(move || {
            let _end = end;
            keeper.run();
        })?;
        Ok(Self { path: path.to_owned(), shared, thread: Some(thread) })
    }

    /// The path of the database, for [`crate::Reader::open`].
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Notes that a volume is present, with its current names.
    pub fn saw(&self, volume: VolumeIdentity) {
        let now = self.shared.now();
        self.shared.add(|batch| batch.saw(volume, now));
    }

    /// Adds to a counter, in the current hour.
    pub fn count(&self, account: &Account, counter: Counter, amount: u64) {
        if amount > 0 {
            self.shared.count(account, counter, amount);
        }
    }

    /// Records the figures of a scan.
    pub fn scanned(&self, account: &Account, gauge: Gauge) {
        let now = self.shared.now();
        self.shared.add(|batch| batch.gauges.push((account.clone(), now, gauge)));
    }

    /// Records an event.
    pub fn event(&self, event: Event) {
        self.shared.add(|batch| batch.events.push(event));
    }

    /// Notes that Longrun wrote `bytes` to a volume.
    pub fn spend(&self, account: &Account, bytes: Bytes) {
        self.shared.spend(account, bytes);
    }

    /// The bytes that Longrun wrote to a volume today (UTC). Includes earlier processes, and works without the database.
    #[must_use]
    pub fn spent_today(&self, account: &Account) -> Bytes {
        self.shared.spent_today(account)
    }

    /// The state of the recorder.
    #[must_use]
    pub fn status(&self) -> RecorderStatus {
        self.shared.status()
    }

    /// Writes what is pending. Returns whether this succeeded within `patience`; while the recorder waits after a failure,
    /// it returns false at once.
    pub fn flush(&self, patience: Duration) -> bool {
        self.shared.flush(patience)
    }
}

impl Drop for Recorder {
    fn drop(&mut self) {
        if let Some(thread) = self.thread.take().filter(|_| self.shared.stop(LAST_WORDS)) {
            // The thread has logged its errors. A panic in it must not cause another one here.
            _ = thread.join();
        }
    }
}

/// Reports the end of the thread, also after a panic.
struct End(Arc<Shared>);

impl Drop for End {
    fn drop(&mut self) {
        self.0.end();
    }
}

impl fmt::Debug for Recorder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Recorder").field("path", &self.path).field("status", &self.status()).finish()
    }
}
