//! The answers about how often the device is read for which file.
//!
//! Owns the names and types of the fields, as [`crate::model`] does. No I/O.
//!
//! | request | answer |
//! |---|---|
//! | `GET /v1/volumes/{id}/heat?top` | [`VolumeHeat`] |
//! | `GET /v1/volumes/{id}/heat/table` | everything, as `application/octet-stream`, in the form of the file in the state directory |
//!
//! All counts lose half of their value in seven days. 404 means that there is no such volume, or that its reads are not counted; it has
//! a [`crate::model::Problem`].

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// The most files in one answer.
pub const MOST_HOTTEST: usize = 1000;

/// How often the device of a volume is read for which file.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct VolumeHeat {
    /// Since when reads are counted (RFC 3339).
    pub began: String,
    /// For how many minutes of that they were.
    pub minutes: u32,
    /// Whether reads past the page cache are counted for their files (Linux 6.4 and later); otherwise they are in the totals only.
    pub direct: bool,
    /// Requests that read the device, those for metadata included, those of Longrun not.
    pub reads: f64,
    /// Bytes that they read.
    pub read_bytes: f64,
    /// The number of files that are known.
    pub files: u64,
    /// Those with the most reads, the hottest first.
    pub hottest: Vec<HotFile>,
}

/// A file that the device is read for.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct HotFile {
    /// Its inode number.
    pub inode: u64,
    /// Its inode's generation; on btrfs the number of its subvolume.
    pub generation: u32,
    /// Requests that read it.
    pub reads: f64,
    /// Bytes that they read.
    pub read_bytes: f64,
    /// Minutes in which it was written.
    pub changes: f64,
    /// When the device was used for it last (RFC 3339).
    pub last: String,
}
