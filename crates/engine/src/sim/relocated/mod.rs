//! A simulated volume that allocates its space in chunks. Tests run on it with other users, failing calls and full
//! volumes; dry runs use it to predict a pass.
//!
//! Owns a model of the btrfs allocator since Linux 6.3. Never touches a device.

mod faults;
mod space;
mod volume;

#[cfg(test)]
mod tests;

pub use faults::ChunkFaults;
pub use volume::SimChunkedVolume;
