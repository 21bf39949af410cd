//! Mends files that prevention did not keep whole. Files that are known to be fragmented wait here until they are
//! quiet, and are mended one after the other.
//!
//! Owns the queue ([`queue`], pure), what is known of the lives of files ([`lives`], pure), and the single worker that
//! processes the queue ([`worker`]). Never searches for files, never scans a volume, and keeps files of a volume open only
//! while it mends one or looks whether one is still there.

mod lasting;
mod lives;
mod model;
mod queue;
mod worker;

pub use model::{Candidate, Governor, MendEvent, MendSettings, MendSink, MendingSnapshot, Ungoverned, Waits};
pub use worker::{Mender, Mending};
