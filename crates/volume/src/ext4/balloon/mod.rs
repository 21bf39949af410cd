//! The balloon: free space that we own at known places, as blocks of temporary files.
//!
//! Owns the donors, the capture of chosen free blocks, and the duty to give everything back when others need the space.
//! Never owns a block of a user's file.

mod allocator;
mod capture;
mod commits;
mod discards;
mod donor;
mod guard;
mod skeleton;
mod tripwire;

pub(super) use capture::Capturer;
pub(super) use commits::Commits;
pub(super) use donor::{Donor, Engaged, Stock};
pub(super) use guard::{Guard, Shared, Withheld};
