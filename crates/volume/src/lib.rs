//! File systems behind one small trait of primitives, and the one engine that executes plans on them.
//!
//! Owns what is possible on a live volume: scan, capture, exchange, barrier, release. Never decides what goes where:
//! that is the planner's.

pub mod engine;
mod error;
pub mod ext4;
pub mod probe;
mod range_map;
pub mod sim;
pub mod target;
mod traits;

pub use error::{MoveError, SkipReason, VolumeError};
pub use target::Target;
pub use traits::{Exchanged, NoProgress, Progress, Volume, VolumeInfo};
