//! ext4: the raw scan, and the live primitives.
//!
//! Owns what the kernel can do for a mounted ext4 volume: who may be moved ([`admission`]), free space at chosen places
//! ([`balloon`]), and the exchange of a file's blocks with it ([`exchange`]). Never decides what goes where.

mod admission;
mod balloon;
mod exchange;
mod one_file;
mod pipeline;
pub mod scan;
mod tuning;
mod volume;

pub(crate) use one_file::mend;
pub use volume::Ext4Volume;

use crate::live::{Named, files};
