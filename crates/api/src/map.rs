//! The answers about the map of a volume: where its files, its free space and the file system's own blocks were at the
//! last scan.
//!
//! Owns the names and types of the fields, as [`crate::model`] does. No I/O.
//!
//! | request | answer |
//! |---|---|
//! | `GET /v1/volumes/{id}/map/levels` | [`MapLevels`] |
//! | `GET /v1/volumes/{id}/map?level&from&count` | cells, [`BYTES_PER_CELL`] bytes each, as `application/octet-stream` |
//! | `GET /v1/volumes/{id}/map/heat?from&cell&count` | [`MapHeat`]: cells of any size |
//! | `GET /v1/volumes/{id}/extents?from&to` | [`MapExtents`] |
//! | `GET /v1/volumes/{id}/owner?block` | [`BlockOwner`] |
//! | `GET /v1/volumes/{id}/file?path` or `?file`, `&from` | [`FileExtents`] |
//!
//! With `before=true` all of them are answered from the map that was there before the last pass of the service, if [`MapLevels::pass`] says
//! that it is kept.
//!
//! Every answer but that about heat has the number of the scan as `ETag`: a request with `If-None-Match` is answered by 304 without a body
//! while there is no later scan. The seconds since the scan are in the header [`AGE_HEADER`], and in the JSON answers.
//! 404 means that there is no such volume, or no map of it yet; 400 that the query is wrong; both have a
//! [`crate::model::Problem`].
//!
//! A cell is four bytes, each from 0 to 255:
//!
//! | byte | meaning |
//! |---|---|
//! | 0 | share of the blocks that is not free |
//! | 1 | share of the blocks that belongs to files in more than one fragment |
//! | 2 | share of the blocks that cannot be moved |
//! | 3 | pieces (extents, areas and free pieces) that begin in the cell: `16 * log2(1 + pieces)` |
//!
//! A share is 0 only when there is nothing of it in the cell, and 255 only when it is all of the cell.

use crate::jobs::{JobFigures, JobMode};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// Bytes of one cell.
pub const BYTES_PER_CELL: usize = 4;
/// The most cells in one answer: 256 KiB.
pub const MOST_CELLS: u32 = 65_536;
/// The most cells in one answer about heat.
pub const MOST_HEAT_CELLS: u32 = 32_768;
/// The most extents in one answer.
pub const MOST_EXTENTS: usize = 4096;
/// The name of the header with the seconds since the scan.
pub const AGE_HEADER: &str = "longrun-scan-age";

/// The scan that an answer is from.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct MapScan {
    /// Its number, which is also the ETag: greater than that of every earlier scan of the volume.
    pub number: u64,
    /// When it ended (RFC 3339).
    pub at: String,
    /// How long ago that is, in seconds.
    pub age_seconds: u64,
}

/// What a map consists of.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct MapLevels {
    /// The scan.
    pub scan: MapScan,
    /// Size of a block, in bytes.
    pub block_size: u32,
    /// Number of blocks of the volume. Blocks are counted from 0.
    pub total_blocks: u64,
    /// Number of files and directories.
    pub files: u64,
    /// Number of extents of files.
    pub file_extents: u64,
    /// Number of pieces that `/extents` has: extents of files, areas of the file system, free pieces.
    pub pieces: u64,
    /// The levels of detail, from the finest to one cell for the whole volume.
    pub levels: Vec<MapLevel>,
    /// The last pass that the service made, if the map from before it is kept: requests with `before=true` are answered from that.
    pub pass: Option<MapPass>,
}

/// The last pass of a volume, as far as maps are concerned.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct MapPass {
    /// The number of its job.
    pub job: u64,
    /// What was optimized.
    pub mode: JobMode,
    /// When it began (RFC 3339).
    pub started: String,
    /// When it ended.
    pub ended: String,
    /// Bytes moved.
    pub moved_bytes: u64,
    /// The figures before; null where they are not known.
    pub before: Option<JobFigures>,
    /// The figures after.
    pub after: Option<JobFigures>,
    /// Whether the current map is of a scan after it.
    pub scanned_since: bool,
}

/// A level of detail.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct MapLevel {
    /// Its number: 0 is the finest.
    pub level: u32,
    /// Number of cells. The last one may stand for fewer blocks.
    pub cells: u64,
    /// Blocks of a cell.
    pub cell_blocks: u64,
    /// Bytes of a cell.
    pub cell_bytes: u64,
}

/// Pieces of the volume from one block to another, ascending, in columns of equal length. Pieces do not overlap. The
/// first and the last may reach beyond the range that was asked for. A block that lies in no piece is in use by an unknown owner.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct MapExtents {
    /// The scan.
    pub scan: MapScan,
    /// The block to ask from for the rest, if there were more than 4096.
    pub next: Option<u64>,
    /// First block of each piece.
    pub start: Vec<u64>,
    /// Its number of blocks.
    pub blocks: Vec<u64>,
    /// What it is: 0 free, 1 file, 2 directory, 3 metadata.
    pub kind: Vec<u8>,
    /// The sum of: 1 cannot be moved, 2 its file has more than one fragment, 4 other files have it, too.
    pub flags: Vec<u8>,
    /// Of a file or directory its number in this scan (for `/file?file=`); of metadata the place in `areas`; otherwise 0.
    pub owner: Vec<u32>,
    /// Of a file or directory, the block of it that the piece begins with; otherwise 0.
    pub logical: Vec<u64>,
    /// Names of the kinds of metadata, for example `journal`.
    pub areas: Vec<String>,
}

/// The kind of the owner of a block.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
pub enum OwnerKind {
    /// No one.
    Free,
    /// A file.
    File,
    /// A directory.
    Directory,
    /// The file system itself, or a file in another way than by content.
    Metadata,
    /// In use, by whom is not known.
    #[default]
    Unknown,
}

/// The owner of a block.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct BlockOwner {
    /// The scan.
    pub scan: MapScan,
    /// The block that was asked for.
    pub block: u64,
    /// The kind of the owner.
    pub kind: OwnerKind,
    /// First block of the piece that holds the block.
    pub start: u64,
    /// Number of blocks of that piece.
    pub blocks: u64,
    /// Of metadata, what it is, for example `inode table`.
    pub area: Option<String>,
    /// The file, if it is one's.
    pub file: Option<MapFile>,
    /// The block of the file that the block is, counted from 0.
    pub logical: Option<u64>,
    /// Other files have the block, too.
    pub shared: bool,
}

/// A file or directory of a map.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct MapFile {
    /// Its number in this scan.
    pub number: u32,
    /// Its path below the mount point, as it is now; absent when it could not be found.
    pub path: Option<String>,
    /// Why there is no path.
    pub no_path: Option<String>,
    /// Its inode number.
    pub inode: u64,
    /// The number of its subvolume, on btrfs.
    pub subvolume: Option<u64>,
    /// Whether it is a directory.
    pub directory: bool,
    /// Why it cannot be moved, if so.
    pub fixed: Option<String>,
    /// Number of its extents.
    pub extents: u64,
    /// Number of its fragments: contiguous ranges on the device.
    pub fragments: u64,
    /// Number of its blocks.
    pub blocks: u64,
}

/// The extents of a file, ascending by their place in the file, in columns of equal length.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct FileExtents {
    /// The scan.
    pub scan: MapScan,
    /// The file.
    pub file: MapFile,
    /// The number of the first extent of this answer: what was asked for with `from`.
    pub from: u64,
    /// What to ask from for the rest, if there were more than 4096.
    pub next: Option<u64>,
    /// The block of the file that each extent begins with.
    pub logical: Vec<u64>,
    /// Its first block on the volume.
    pub start: Vec<u64>,
    /// Its number of blocks.
    pub blocks: Vec<u64>,
}

/// How often the device is read for the files that have the blocks of each cell, as the reads are counted now and as the files lay at
/// the last scan. All counts lose half of their value in seven days. A file's reads are spread evenly over its blocks.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct MapHeat {
    /// The scan.
    pub scan: MapScan,
    /// Why nothing is known, in a sentence. There are no cells then.
    pub no_heat: Option<String>,
    /// Since when reads are counted (RFC 3339).
    pub began: Option<String>,
    /// Reads of all files that were counted.
    pub reads: f64,
    /// Those of them that are on the map: of at most 16,384 files, the hottest, that were there at the scan.
    pub reads_on_map: f64,
    /// For each cell 0 when nothing was read, otherwise `8 * log2(1 + 256 * reads)`, at least 1 and at most 255.
    pub cells: Vec<u8>,
}
