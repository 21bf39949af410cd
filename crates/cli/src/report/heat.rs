//! The report of `heat`: text and JSON.

use crate::text::{count, counted, printable, printable_path, size};
use longrun_heat::Placing;
use longrun_layout::Bytes;
use serde::Serialize;
use std::fmt::Write as _;
use std::path::PathBuf;

/// Where the counts are from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Source {
    /// The service that runs.
    Service,
    /// What it left in the state directory; none runs now.
    Kept,
}

/// What is printed as JSON. Counts have a half-life of seven days.
#[derive(Debug, Serialize)]
pub struct Heat {
    /// As the user named it.
    pub target: PathBuf,
    /// The block device.
    pub device: PathBuf,
    /// The file system.
    pub filesystem: String,
    /// Where the counts are from.
    pub source: Source,
    /// Since when reads are counted.
    pub began: String,
    /// For how many minutes of that they were.
    pub minutes: u32,
    /// When something was added last.
    pub updated: String,
    /// Requests that read the device, those for metadata included, those of Longrun not.
    pub reads: f64,
    /// Bytes that they read.
    pub read_bytes: f64,
    /// The number of files on the volume that were read.
    pub known_files: u64,
    /// The share of all reads that is for these.
    pub share_of_files: f64,
    /// The share of all reads that is for files that were deleted since.
    pub share_of_deleted: f64,
    /// The hottest files.
    pub files: Vec<File>,
    /// The hottest directories.
    pub directories: Vec<Directory>,
    /// Whether placing hot files pays.
    pub placing: Placing,
    /// The same in words.
    pub placing_sentence: String,
}

/// A file.
#[derive(Debug, Serialize)]
pub struct File {
    /// Its path.
    pub path: String,
    /// Its bytes in hexadecimal digits, where they are no text.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub path_hex: Option<String>,
    /// Its inode number.
    pub inode: u64,
    /// What it takes on the volume.
    pub size: Bytes,
    /// Requests that read it.
    pub reads: f64,
    /// Bytes that they read.
    pub read_bytes: f64,
    /// The share of all reads of the device.
    pub share: f64,
    /// Reads for each MiB of its size.
    pub reads_per_mib: f64,
    /// Minutes in which it was written.
    pub changes: f64,
}

/// A directory, with the files directly in it.
#[derive(Debug, Serialize)]
pub struct Directory {
    /// Its path.
    pub path: String,
    /// As for files.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub path_hex: Option<String>,
    /// How many of its files were read.
    pub files: u64,
    /// What these take on the volume.
    pub size: Bytes,
    /// Requests that read them.
    pub reads: f64,
    /// Bytes that they read.
    pub read_bytes: f64,
    /// The share of all reads of the device.
    pub share: f64,
    /// Reads for each MiB of their size.
    pub reads_per_mib: f64,
}

impl Heat {
    /// For people.
    pub fn text(&self) -> String {
        let what = format!("{} on {}", self.filesystem, self.device.display());
        let mut text =
            format!("{} ({}): reads of the device by file\n", printable_path(&self.target), printable(&what));
        let source = match self.source {
            Source::Service => String::new(),
            Source::Kept => format!("; no service runs now, the counts are as of {}", self.updated),
        };
        let hours = f64::from(self.minutes) / 60.0;
        _ = writeln!(text, "Counted since {}, {hours:.1} hours in all; half-life 7 days{source}", self.began);
        let (reads, bytes) = (count(self.reads.round() as u64), size(Bytes(self.read_bytes as u64)));
        _ = writeln!(
            text,
            "{reads} reads, {bytes}: {} for {}, {} for files deleted since, the rest for metadata and what no file is known of",
            percent(self.share_of_files),
            counted(self.known_files, "file", "files"),
            percent(self.share_of_deleted)
        );
        if self.files.is_empty() {
            text.push_str("\nNo file of the volume was read from the device since then.\n");
        } else {
            text.push_str("\n     reads   share       read        size  reads/MiB  file\n");
            for file in &self.files {
                let figures = figures(file.reads, file.share, file.read_bytes, file.size, file.reads_per_mib);
                _ = writeln!(text, "{figures}  {}", printable(&file.path));
            }
            text.push_str(
                "\n     reads   share       read        size  reads/MiB  files read directly in the directory\n",
            );
            for directory in &self.directories {
                let Directory { reads, share, read_bytes, size, reads_per_mib, .. } = directory;
                let figures = figures(*reads, *share, *read_bytes, *size, *reads_per_mib);
                _ = writeln!(text, "{figures}  {} in {}", count(directory.files), printable(&directory.path));
            }
        }
        _ = writeln!(text, "\nPlacing hot files: {}.", printable(&self.placing_sentence));
        text
    }
}

fn figures(reads: f64, share: f64, read: f64, of: Bytes, density: f64) -> String {
    let (reads, read, of) = (count(reads.round() as u64), size(Bytes(read as u64)), size(of));
    format!("{reads:>10} {:>7} {read:>10}  {of:>10} {density:>10.1}", percent(share))
}

fn percent(share: f64) -> String {
    format!("{:.1} %", share * 100.0)
}
