//! Judges: what filefrag, e2freefrag and a full dump of every file say about a volume. None of this uses our own scan.

mod dump;
mod filefrag;
mod freefrag;

pub use dump::{Dump, Entry, allocated_blocks, compare, dump, file_hash};
pub use filefrag::{FileFragments, filefrag};
pub use freefrag::{FreeFragments, e2freefrag};
