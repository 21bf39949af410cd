//! Volumes in memory.
//!
//! Owns synthetic aged layouts ([`recipes`]) and [`SimVolume`], which replaces a real volume; the engine above it is
//! the production engine. Never touches a disk, stores nothing per block, and depends only on its seed.

mod ager;
mod check;
mod content;
mod faults;
mod file;
mod foreign;
mod geometry;
pub mod recipes;
mod state;
mod user;
mod volume;

pub use check::Violation;
pub use content::Content;
pub use faults::{Failure, Faults};
pub use foreign::Foreigners;
pub use user::User;
pub use volume::SimVolume;
