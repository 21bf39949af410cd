//! Analysis without privilege: maps each file below a directory.
//!
//! Never follows symbolic links, never leaves the device, opens only files and directories, and never writes back dirty
//! data: data without a place on the device is counted separately.

use longrun_engine::{Progress, VolumeError};
use longrun_layout::{Bytes, Fragmentation};
use longrun_sys::{ByteRange, Errno, Mapping, for_each_extent};
use std::cmp::Reverse;
use std::collections::{BTreeSet, BinaryHeap};
use std::fs::{self, File, Metadata};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// One of the most fragmented files.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct WalkedFile {
    /// Its contiguous ranges.
    pub fragments: u64,
    /// What it occupies.
    pub bytes: Bytes,
    /// Where it was found; one of its names, if it has several.
    pub path: PathBuf,
}

/// The result of a walk. Pieces of free space are not visible this way: see [`Walk::figures`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Walk {
    /// Regular files; hard links count once.
    pub files: u64,
    /// Directories, the starting one included.
    pub directories: u64,
    /// Files with more than one fragment.
    pub fragmented_files: u64,
    /// Sum over files of (fragments - 1).
    pub excess_fragments: u64,
    /// Sum over directories of (fragments - 1).
    pub directory_excess_fragments: u64,
    /// Bytes that the files found occupy.
    pub occupied_bytes: Bytes,
    /// Bytes of the whole volume that are not free.
    pub used_bytes: Bytes,
    /// Bytes of the whole volume that are free.
    pub free_bytes: Bytes,
    /// Most fragments first.
    pub most_fragmented: Vec<WalkedFile>,
    /// Extents that have no place of their own yet or at all (written to memory only, inline, compressed): not counted.
    pub unplaced_extents: u64,
    /// Files and directories that could not be opened, read or mapped.
    pub unreadable: u64,
}

impl Walk {
    /// The figures in the form of a whole volume's. Of the free space only the bytes are known: pieces, the largest and
    /// the floor are 0 and mean nothing.
    #[must_use]
    pub fn figures(&self) -> Fragmentation {
        let mut figures = Fragmentation {
            files: self.files,
            directories: self.directories,
            fragmented_files: self.fragmented_files,
            excess_fragments: self.excess_fragments,
            directory_excess_fragments: self.directory_excess_fragments,
            used_bytes: self.used_bytes,
            ..Fragmentation::default()
        };
        figures.free_space.bytes = self.free_bytes;
        figures
    }
}

/// Looks at `start`, a file or everything below a directory, and keeps the `worst` most fragmented files by name.
///
/// # Errors
/// [`VolumeError`] when `start` itself cannot be looked at, the file system does not tell where extents lie, or
/// `progress` was cancelled. What lies below and cannot be looked at is counted.
pub fn walk(start: &Path, worst: usize, progress: &dyn Progress) -> Result<Walk, VolumeError> {
    let failed = |act| move |source| VolumeError::Io { path: start.to_owned(), act, source };
    // The user may name a link; what lies below is not followed.
    let path = fs::canonicalize(start).map_err(failed("examining it"))?;
    let file = open(&path).map_err(failed("opening"))?;
    let meta = file.metadata().map_err(failed("examining it"))?;
    if !meta.is_file() && !meta.is_dir() {
        let problem = "neither a file nor a directory".to_owned();
        return Err(VolumeError::NotAVolume { path: start.to_owned(), problem });
    }
    let capacity = longrun_sys::capacity(&file).map_err(|e| failed("reading the free space")(e.into()))?;
    let mut walker = Walker::new(meta.dev(), worst);
    walker.walk.free_bytes = capacity.block_size.to_bytes(capacity.free);
    walker.walk.used_bytes = capacity.block_size.to_bytes(capacity.total.saturating_sub(capacity.free));
    match walker.examine(&path, &file, &meta) {
        Err(Errno::OPNOTSUPP | Errno::NOTTY) if meta.is_file() => {
            let what = "a file system without FIEMAP (the location of extents is unknown)".to_owned();
            return Err(VolumeError::Unsupported { path: start.to_owned(), what });
        }
        Err(errno) if meta.is_file() => return Err(failed("mapping its extents")(errno.into())),
        _ => {}
    }
    if meta.is_dir() {
        walker.pending.push(path);
    }
    walker.run(progress)?;
    Ok(walker.finish())
}

struct Walker {
    device: u64,
    worst: usize,
    walk: Walk,
    /// Directories still to be listed.
    pending: Vec<PathBuf>,
    /// Inodes with several names that were seen.
    linked: BTreeSet<u64>,
    /// The worst so far, the least bad of them on top.
    top: BinaryHeap<Reverse<WalkedFile>>,
}

impl Walker {
    fn new(device: u64, worst: usize) -> Self {
        let (walk, pending, linked, top) = (Walk::default(), Vec::new(), BTreeSet::new(), BinaryHeap::new());
        Self { device, worst, walk, pending, linked, top }
    }

    fn run(&mut self, progress: &dyn Progress) -> Result<(), VolumeError> {
        while let Some(directory) = self.pending.pop() {
            let Ok(entries) = longrun_sys::list_trusted_directory(&directory) else {
                self.walk.unreadable += 1;
                continue;
            };
            for entry in entries {
                if progress.cancelled() {
                    return Err(VolumeError::Interrupted);
                }
                progress.give_way();
                match entry {
                    Ok(entry) => self.look_at(&directory, &entry),
                    Err(_) => self.walk.unreadable += 1,
                }
            }
            let done = self.walk.files + self.walk.directories;
            // How much is still to come no one knows: at least the directories that were found.
            progress.at(done, done + self.pending.len() as u64);
        }
        Ok(())
    }

    fn look_at(&mut self, directory: &Path, entry: &fs::DirEntry) {
        // By its type first: opening a device or a FIFO would do something.
        let Ok(kind) = entry.file_type() else {
            self.walk.unreadable += 1;
            return;
        };
        if !kind.is_file() && !kind.is_dir() {
            return;
        }
        let path = directory.join(entry.file_name());
        let opened = open(&path).and_then(|file| Ok((file.metadata()?, file)));
        let Ok((meta, file)) = opened else {
            self.walk.unreadable += 1;
            return;
        };
        // Between listing and opening the name may have come to mean something else.
        if meta.dev() != self.device || (!meta.is_file() && !meta.is_dir()) {
            return;
        }
        if meta.is_file() && meta.nlink() > 1 && !self.linked.insert(meta.ino()) {
            return;
        }
        // A directory whose own extents are not reported is still listed.
        let mapped = self.examine(&path, &file, &meta);
        if meta.is_dir() {
            self.pending.push(path);
        } else if mapped.is_err() {
            self.walk.unreadable += 1;
        }
    }

    /// Counts one file or directory, and its fragments.
    fn examine(&mut self, path: &Path, file: &File, meta: &Metadata) -> Result<(), Errno> {
        if meta.is_dir() {
            self.walk.directories += 1;
        } else {
            self.walk.files += 1;
        }
        // What lies behind the end of a file does not move, and is not counted as its fragments.
        // At least a byte: an empty file, too, has to say whether it can be asked.
        let range = ByteRange { start: Bytes(0), length: Bytes(meta.len().max(1)) };
        let (mut fragments, mut bytes, mut unplaced, mut end) = (0u64, 0u64, 0u64, None);
        for_each_extent(file, range, Mapping::AsIs, |extent| {
            if extent.logical.0 >= meta.len() {
                return false;
            }
            if extent.flags.has_address() {
                fragments += u64::from(end != Some(extent.physical.0));
                end = Some(extent.physical.0.saturating_add(extent.length.0));
                bytes += extent.length.0;
            } else {
                unplaced += 1;
            }
            true
        })?;
        self.walk.unplaced_extents += unplaced;
        self.walk.occupied_bytes += Bytes(bytes);
        let excess = fragments.saturating_sub(1);
        if meta.is_dir() {
            self.walk.directory_excess_fragments += excess;
        } else if excess > 0 {
            self.walk.fragmented_files += 1;
            self.walk.excess_fragments += excess;
            self.remember(path, fragments, Bytes(bytes));
        }
        Ok(())
    }

    fn remember(&mut self, path: &Path, fragments: u64, bytes: Bytes) {
        let least = self.top.peek().map_or(0, |Reverse(file)| file.fragments);
        if self.top.len() >= self.worst && fragments <= least {
            return;
        }
        self.top.push(Reverse(WalkedFile { fragments, bytes, path: path.to_owned() }));
        if self.top.len() > self.worst {
            self.top.pop();
        }
    }

    fn finish(self) -> Walk {
        let mut walk = self.walk;
        walk.most_fragmented = self.top.into_iter().map(|Reverse(file)| file).collect();
        walk.most_fragmented.sort_unstable_by(|a, b| b.cmp(a));
        walk
    }
}

/// Opens a file or directory without following a link, or waiting.
fn open(path: &Path) -> io::Result<File> {
    Ok(longrun_sys::open_trusted(path)?.into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use longrun_engine::NoProgress;
    use std::os::unix::fs::symlink;

    #[test]
    fn a_tree_is_counted_once_and_links_are_not_followed() {
        let tree = tempfile::tempdir().unwrap();
        let root = tree.path();
        fs::create_dir(root.join("sub")).unwrap();
        fs::write(root.join("a"), vec![1; 100_000]).unwrap();
        fs::hard_link(root.join("a"), root.join("sub/b")).unwrap();
        fs::write(root.join("sub/empty"), b"").unwrap();
        symlink("/", root.join("away")).unwrap();
        let walk = walk(root, 10, &NoProgress).unwrap();
        assert_eq!((walk.files, walk.directories, walk.unreadable), (2, 2, 0));
    }
}
