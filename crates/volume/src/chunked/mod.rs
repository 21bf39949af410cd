//! The engine for file systems that write every change to a new place and cannot be told which: their space comes in chunks,
//! and what can be asked of them is to write files anew in one piece, and to empty a chunk.
//!
//! Owns the order of these acts, the limits, and what is told of them. Never decides what is worth while (the planner does),
//! and does nothing to a volume but through [`ChunkedVolume`].

mod foresee;
mod model;
mod pass;
mod sim;
mod tasks;
mod traits;

pub use crate::engine::Halt;
pub use foresee::foresee;
pub use pass::{Scope, optimize};
pub use sim::{ChunkFaults, SimChunkedVolume};
pub use tasks::Task;
pub use traits::{ChunkKey, ChunkedVolume, DataChunk, Evacuated, Pace, Picture, UnitOfFiles};
