//! The balloon: free space that we own, at places that we know, as blocks of temporary files.
//!
//! Owns the donors, the way by which chosen free blocks get into them, and the duty to give everything back when others
//! need the space. Never owns a block that a user's file has.

mod allocator;
mod capture;
mod donor;
mod guard;
mod tripwire;

pub(super) use capture::Capturer;
pub(super) use donor::{Donor, Stock};
pub(super) use guard::{Guard, Shared, Withheld};
pub(super) use tripwire::Tripwire;
