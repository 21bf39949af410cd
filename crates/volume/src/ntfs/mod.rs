//! NTFS: volumes that are not mounted, on devices and in images.
//!
//! Owns the on-disk format: reading it, and changing where files lie by transactions that a redo journal completes after a
//! crash ([`crate::offline`]). Every stream that has clusters is a file of the model, directories and $MFT too. Never decides where data goes.

mod admission;
mod attribute;
mod bitmap;
mod boot;
mod fault;
mod file;
mod file_system;
mod leaks;
mod list;
mod names;
mod reader;
mod record;
mod runs;
mod scan;
mod state;
mod volume;

pub(crate) use file_system::Ntfs;
pub use volume::NtfsVolume;
