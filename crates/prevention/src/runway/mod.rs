//! Grants runways, remembers them, and takes them back.
//!
//! Owns the threads, the table of runways and their journal. Never decides how much: that is [`crate::policy`]'s.
//!
//! A signal goes into the queue, in which a file is at most once; a worker opens the file, asks the policy, has the journal
//! remember what is to be given back, and preallocates. A close goes to the keeper, and a while later into the queue;
//! a worker then takes the lease and gives back. Nothing stays open in between.

mod core;
mod file;
mod give_back;
mod hints;
mod identity;
mod journal;
mod keeper;
mod queue;
mod reaction;
mod record;
mod table;
mod work;

pub(crate) use core::Core;
pub use hints::HintsUndone;
pub(crate) use hints::undo_hints_of;
