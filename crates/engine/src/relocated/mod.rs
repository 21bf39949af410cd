//! The engine for file systems that write every change to a new place of their own choice. Their space comes in chunks.
//! They can be asked to write files again in one piece, and to empty a chunk.
//!
//! Owns the order of these operations, the limits, and the reports. Never decides what is worthwhile (the planner
//! does). Works on a volume only through [`Relocated`].

mod foresee;
mod meter;
mod model;
mod pass;
mod tasks;
mod traits;

pub use crate::Halt;
pub use foresee::foresee;
pub use pass::{carry_out, optimize};
pub use tasks::Task;
pub use traits::{ChunkKey, DataChunk, Evacuated, Meter, Picture, Relocated, UnitOfFiles, left};
