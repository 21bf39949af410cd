//! Grants runways, remembers them, and takes them back.
//!
//! Owns the threads, the table of runways and their journal. Never decides how much: that is [`crate::policy`]'s.

mod core;

pub(crate) use core::Core;
