//! Grants runways, records them, and gives them back.
//!
//! Owns the threads, the table of runways and their journal. Never decides how much to grant: [`crate::policy`] does.
//!
//! A signal enters the queue, which holds each file at most once. A worker opens the file, asks the policy, lets the
//! journal record what must be given back, and preallocates. A close goes to the keeper, and some time later into the
//! queue. A worker then takes the lease and gives the unused space back. Nothing stays open in between.

mod core;
mod exclusive;
mod file;
mod fill;
mod give_back;
mod hints;
mod journal;
mod keeper;
mod owner;
mod queue;
mod reaction;
mod record;
mod table;
mod tail;
mod window;
mod work;

pub(crate) use core::Core;
pub use hints::HintsUndone;
pub(crate) use hints::undo_hints_of;
