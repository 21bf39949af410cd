//! File systems behind one small trait of primitives, and the one engine that executes plans on them.
//!
//! Owns what is possible on a live volume: scan, capture, exchange, barrier, release. Never decides what goes where:
//! that is the planner's.

pub mod btrfs;
mod bytes;
pub mod chunked;
pub mod engine;
mod error;
pub mod ext4;
mod live;
pub mod mend;
pub mod probe;
mod range_map;
mod rewrite;
pub mod sim;
pub mod subset;
pub mod target;
mod traits;
pub mod walk;
pub mod xfs;

pub use error::{MoveError, SkipReason, VolumeError};
pub use target::Target;
pub use traits::{Exchanged, NoProgress, Part, Progress, Volume, VolumeInfo};

/// A volume that may be optimized, by the kind of engine that it takes.
pub enum Opened {
    /// Its blocks can be moved to chosen places.
    Placed(Box<dyn Volume>),
    /// Its space comes in chunks, and where things come to lie is its own decision.
    Chunked(Box<dyn chunked::ChunkedVolume>),
}

/// Opens the volume of `target` for optimizing. The one place that knows every file system: a new one is one folder and
/// one line here.
///
/// # Errors
/// [`VolumeError`] with the reason why this volume cannot be optimized (now); nothing was changed.
pub fn open(target: &Target) -> Result<Opened, VolumeError> {
    match target.mount.as_ref().map_or("", |mount| mount.filesystem.as_str()) {
        // What is not mounted is refused by ext4 too, with the way out.
        "ext4" | "" => Ok(Opened::Placed(Box::new(ext4::Ext4Volume::open(target)?))),
        "xfs" => Ok(Opened::Placed(Box::new(xfs::XfsVolume::open(target)?))),
        "btrfs" => Ok(Opened::Chunked(Box::new(btrfs::BtrfsVolume::open(target)?))),
        other => Err(VolumeError::Unsupported { path: target.given.clone(), what: other.to_owned() }),
    }
}
