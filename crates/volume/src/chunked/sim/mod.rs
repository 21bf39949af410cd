//! A simulated volume that hands out its space in chunks: for tests, with other users, failing calls and no space, and for
//! foreseeing what a pass would do.
//!
//! Owns a model of the allocator, as btrfs has it since Linux 6.3. Never touches a device.

mod faults;
mod space;
mod volume;

#[cfg(test)]
mod tests;

pub use faults::ChunkFaults;
pub use volume::SimChunkedVolume;
