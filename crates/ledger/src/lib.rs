//! The history: what Longrun did and what it gained, in one SQLite file.
//!
//! Owns the database: its format, migrations and size, and the handling of damage, full disks and read-only places. Never
//! reads a clock: the caller passes times. Never blocks the caller: a [`Recorder`] queues records and writes them later.

mod counter;
mod error;
mod model;
mod recorder;
mod report;
mod store;
mod time;

pub use counter::{Counter, Unit};
pub use error::LedgerError;
pub use model::{Account, Batch, Event, Gauge, Severity, VolumeIdentity};
pub use recorder::{Recorder, RecorderStatus, Settings};
pub use report::{Benefit, EventShown, GaugeShown, Period, Query, Report, SeriesPoint, Tallies, VolumeReport};
pub use store::{Ledger, Limits, Note, Opened, Reader};
pub use time::{Day, Hour, Step};
