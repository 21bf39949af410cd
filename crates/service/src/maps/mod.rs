//! The maps of volumes that scans leave in the state directory, and the answers that are read from them.
//!
//! Owns their names, their numbers, and which of them are kept. Never scans, and holds no map in memory.

mod answers;
mod heat;
mod store;

pub use answers::{block_owner, extents, file_extents, levels, map_file};
pub use heat::{Cells, heat};
pub use store::{Maps, Wanted};
