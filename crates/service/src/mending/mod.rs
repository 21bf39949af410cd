//! Mends files that prevention did not keep whole. Files that are known to be fragmented wait here until they are
//! quiet, and are mended one after the other.
//!
//! Owns the queue ([`queue`], pure) and the single worker that processes it ([`worker`]). Never searches for files,
//! never scans a volume, and keeps files of a volume open only while it mends one.

mod model;
mod queue;
mod worker;

pub use model::{Candidate, Governor, MendEvent, MendSettings, MendSink, MendingSnapshot, Ungoverned};
pub use worker::{Mender, Mending};
