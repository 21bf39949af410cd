//! History: what Longrun did and what it was good for, in one SQLite file.
//!
//! Owns the database: its format and migrations, its size, and what becomes of it when it is damaged, full or read-only.
//! Never reads a clock: times are given. Never stands in the way of the work: a [`Recorder`] takes what it is told at
//! once and writes when it can.

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
