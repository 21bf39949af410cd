//! Volumes in memory, for tests and predictions.
//!
//! Owns the replacement of a real volume; the engine above it is the production engine. Never touches a disk, stores
//! nothing per block, and depends only on its seed.

mod placed;
mod relocated;
#[cfg(test)]
mod shared;

pub use placed::{Content, Failure, Faults, Foreigners, SimVolume, User, Violation, recipes};
pub use relocated::{ChunkFaults, SimChunkedVolume};
#[cfg(test)]
pub(crate) use shared::{BLOCK, ShareFaults, SimShared};
