//! The file systems: the operations on mounted volumes, as implementations of the engine's traits.
//!
//! Owns scanning, capturing, exchanging, releasing, and the refusals of each file system. Never decides where data goes
//! (the planner does), nor in which order (the engine does).

pub mod btrfs;
mod bytes;
pub mod disk_image;
mod ext2;
pub mod ext4;
mod file_by_file;
mod file_system;
mod file_systems;
pub mod identity;
pub mod inside;
pub mod member;
pub mod mend;
mod mounted;
pub mod ntfs;
mod offline;
pub mod probe;
pub mod reclaim;
mod remap;
pub mod survey;
pub mod target;
pub mod thin;
mod tool;
pub mod walk;
pub mod xfs;

pub use file_systems::{
    file_system_name, give_back, is_offline, is_readable_as_a_whole, is_unfinished, mend_file, namer, open, survey,
    survey_mounted,
};
pub use identity::Identity;
pub use offline::{GivenBack, JournalPlace};
pub use reclaim::Reclaim;
pub use target::Target;
