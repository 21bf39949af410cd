//! Block devices, disk images and their partitions behind one trait.
//!
//! Owns reading, writing, flushing and discarding of bytes at offsets, and who else may use the same device meanwhile.
//! Never knows a file system.

mod disk;
mod memory;

pub use disk::{Disk, Part};
pub use memory::MemoryDisk;
