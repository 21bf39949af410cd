//! Volumes that exist in memory only.
//!
//! Owns synthetic aged layouts ([`recipes`]) and [`SimVolume`], which stands where a real volume stands: the engine above
//! it is the production engine. Never touches a disk, keeps nothing per block, and depends on nothing but its seed.

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
