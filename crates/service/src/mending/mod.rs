//! Mending what slipped through: files known to be fragmented wait here until they are quiet, and are made whole one
//! after the other.
//!
//! Owns the queue ([`queue`], pure) and the one worker that drains it ([`worker`]). Never looks for files itself, never
//! scans a volume, and keeps nothing of a volume open but while it mends a file.

mod model;
mod queue;
mod worker;

pub use model::{Candidate, Governor, MendEvent, MendSettings, MendSink, MendingSnapshot, Ungoverned};
pub use worker::Mending;
