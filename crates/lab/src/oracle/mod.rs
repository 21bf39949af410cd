//! Judges: what filefrag, e2freefrag and a full dump of every file say about a volume. None of this uses our own scan.

mod dump;
mod excess_space;
mod filefrag;
mod freefrag;

pub use dump::{Dump, Entry, allocated_blocks, compare, dump, file_hash};
pub use excess_space::bytes_beyond_end;
pub use filefrag::{FileFragments, excess_of, filefrag};
pub use freefrag::{FreeFragments, e2freefrag};
