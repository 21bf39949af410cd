//! ext4: the scan of the on-disk format, and the primitives on a mounted volume.
//!
//! Owns the operations of the kernel on a mounted ext4 volume: which files may be moved ([`admission`]), free space at
//! chosen places ([`balloon`]), and the exchange of a file's blocks with it ([`exchange`]). Never decides where data
//! goes.

mod admission;
mod balloon;
mod exchange;
mod file_system;
pub mod offline;
mod one_file;
mod pipeline;
mod rescue;
pub mod scan;
mod trimming;
mod tuning;
mod volume;

pub(crate) use file_system::Ext4;
pub use offline::OfflineExt4;
pub use volume::Ext4Volume;

use crate::mounted::{Named, files};
