//! Keeps the books for a program that must never wait for a disk.
//!
//! Owns the thread that writes. Callers add to what is pending and go on; when nothing can be written (no space,
//! read-only, damaged), that is said once, what fits is kept in memory, and writing is tried again now and then. Reads no
//! clock of its own: the caller gives it one.

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

/// So long the end waits for what is pending to be written.
const LAST_WORDS: Duration = Duration::from_secs(10);

/// How a recorder works.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settings {
    /// At most this long after it was given, something is written.
    pub flush_every: Duration,
    /// How long to wait after a failure.
    pub retry_every: Duration,
    /// How many rows may be pending; what is beyond that is dropped, and counted.
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

/// How the books stand, for `status`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct RecorderStatus {
    /// Whether history is being written.
    pub recording: bool,
    /// Why not, or what happened at the start (a damaged database set aside).
    pub note: Option<String>,
    /// When something was last written.
    pub written: Option<Timestamp>,
    /// Rows that wait to be written.
    pub pending: u64,
    /// Rows that were dropped because too many waited.
    pub dropped: u64,
    /// How large the database is.
    pub bytes: u64,
}

/// Keeps the books. Ends, having written what is pending, when dropped.
pub struct Recorder {
    path: PathBuf,
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

impl Recorder {
    /// Starts the thread that writes to the database at `path`, which is opened by and by: nothing fails here for its sake.
    ///
    /// # Errors
    /// When no thread can be had.
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

    /// Where the database is: for [`crate::Reader::open`].
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Notes that a volume is there, and what it is called now.
    pub fn saw(&self, volume: VolumeIdentity) {
        let now = self.shared.now();
        self.shared.add(|batch| batch.saw(volume, now));
    }

    /// Counts, in the present hour.
    pub fn count(&self, account: &Account, counter: Counter, amount: u64) {
        if amount > 0 {
            self.shared.count(account, counter, amount);
        }
    }

    /// Keeps the figures of a scan.
    pub fn scanned(&self, account: &Account, gauge: Gauge) {
        let now = self.shared.now();
        self.shared.add(|batch| batch.gauges.push((account.clone(), now, gauge)));
    }

    /// Keeps an event.
    pub fn event(&self, event: Event) {
        self.shared.add(|batch| batch.events.push(event));
    }

    /// Notes that `bytes` were written to a volume at our instance.
    pub fn spend(&self, account: &Account, bytes: Bytes) {
        self.shared.spend(account, bytes);
    }

    /// How much was spent on a volume today (UTC), also before this process began, and also while nothing can be written.
    #[must_use]
    pub fn spent_today(&self, account: &Account) -> Bytes {
        self.shared.spent_today(account)
    }

    /// How the books stand.
    #[must_use]
    pub fn status(&self) -> RecorderStatus {
        self.shared.status()
    }

    /// Writes what is pending; whether that worked within `patience`. A failure that is waited out is not waited for.
    pub fn flush(&self, patience: Duration) -> bool {
        self.shared.flush(patience)
    }
}

impl Drop for Recorder {
    fn drop(&mut self) {
        if let Some(thread) = self.thread.take().filter(|_| self.shared.stop(LAST_WORDS)) {
            // It has said what there was to say; a panic in it is not worth another one here.
            _ = thread.join();
        }
    }
}

/// Tells that the thread has ended, however it ended.
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
