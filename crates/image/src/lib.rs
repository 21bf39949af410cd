//! Block devices, disk images and their partitions behind one trait.
//!
//! Owns reading, writing, flushing and discarding of bytes at offsets, and who else may use the same device meanwhile.
//! Of file systems it knows only the signatures that tell a volume from a partition table.

mod bytes;
mod compact;
mod daemon;
mod disk;
mod error;
mod export;
mod fail_stop;
mod file;
mod format;
mod gpt;
mod mbr;
mod memory;
mod open;
mod partitions;
mod places;
mod private;
mod qemu_img;
mod users;

pub use compact::{CompactError, Compacted, Step, check_compactable, compact};
pub use disk::{Disk, Part};
pub use error::ImageError;
pub use fail_stop::FailStop;
pub use file::{Access, FileDisk, Origin};
pub use format::Format;
pub use memory::{MemoryDisk, MemoryImage};
pub use open::{OpenImage, open_image};
pub use partitions::{Partition, PartitionKind, TableFault, read_partitions};
