//! The data to unpack: an archive that the user names, or one of installed programs.
//!
//! Owns packing, and unpacking by GNU tar, an independent program. The archive is in memory during the measurement, so
//! it needs no reads from the device.

use crate::{BenchError, child, refuse_too_little_space};
use longrun_layout::Bytes;
use std::ffi::OsString;
use std::fs::{self, DirEntry, File};
use std::io::{self, Read, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use tempfile::NamedTempFile;

/// What a file takes beyond its bytes on average: half of its last block, and its inode.
const EACH: u64 = 2048 + 512;
/// What an archive has beyond the bytes of each entry.
const HEADER: u64 = 512;

/// Where the software comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Source {
    /// A tar archive, compressed or not.
    Archive(PathBuf),
    /// Files of a directory, evenly chosen if they exceed the maximum.
    Tree {
        /// The directory.
        path: PathBuf,
        /// The maximum in bytes.
        most: Bytes,
    },
}

/// An archive that can be unpacked.
#[derive(Debug)]
pub struct Software {
    archive: PathBuf,
    /// Removed when this is dropped.
    _packed: Option<NamedTempFile>,
    entries: u64,
    bytes: Bytes,
}

impl Software {
    /// Packs it if need be, and looks at what is in it.
    ///
    /// # Errors
    /// [`BenchError`], when there is no tar, or nothing in it, among others.
    pub fn prepare(source: &Source, stop: &AtomicBool) -> Result<Self, BenchError> {
        let (archive, packed) = match source {
            Source::Archive(path) => (path.canonicalize().map_err(|e| BenchError::io("finding it", path, e))?, None),
            Source::Tree { path, most } => {
                let packed = pack(path, *most, stop)?;
                (packed.path().to_owned(), Some(packed))
            }
        };
        let (entries, bytes) = list(&archive, stop)?;
        if entries == 0 {
            let problem = "it contains nothing to unpack".to_owned();
            return Err(BenchError::Unsuitable { path: archive, problem });
        }
        Ok(Self { archive, _packed: packed, entries, bytes })
    }

    /// Files, directories and links in it.
    #[must_use]
    pub fn entries(&self) -> u64 {
        self.entries
    }

    /// Everything in it, not compressed.
    #[must_use]
    pub fn bytes(&self) -> Bytes {
        self.bytes
    }

    /// What it takes on a volume.
    pub(super) fn room(&self) -> Bytes {
        Bytes(self.bytes.0.saturating_add(self.entries.saturating_mul(EACH)))
    }

    /// Reads the archive, so that unpacking it needs nothing of any device.
    pub(super) fn read_into_memory(&self, stop: &AtomicBool) -> Result<(), BenchError> {
        let failed = |e| BenchError::io("reading it", &self.archive, e);
        let mut file = File::open(&self.archive).map_err(failed)?;
        let mut buffer = vec![0; 1 << 20];
        while file.read(&mut buffer).map_err(failed)? > 0 {
            if stop.load(Ordering::Relaxed) {
                return Err(BenchError::Interrupted);
            }
        }
        Ok(())
    }

    /// Unpacks it into a directory.
    pub(super) fn unpack(&self, directory: &Path, stop: &AtomicBool) -> Result<(), BenchError> {
        let mut command = tar("--extract", &self.archive);
        let finished = child::run(command.arg("--directory").arg(directory), stop)?;
        if finished.status.success() {
            return Ok(());
        }
        Err(refused(&self.archive, "unpacking failed", &finished.said))
    }
}

fn tar(act: &str, archive: &Path) -> Command {
    let mut command = Command::new("tar");
    // Its words are read.
    command.env("LC_ALL", "C").arg(act).arg("--file").arg(archive);
    command
}

fn refused(path: &Path, what: &str, said: &str) -> BenchError {
    let last = said.lines().last().unwrap_or_default();
    BenchError::Unsuitable { path: path.to_owned(), problem: format!("{what}: {last}") }
}

/// How many entries an archive has, and their bytes together.
fn list(archive: &Path, stop: &AtomicBool) -> Result<(u64, Bytes), BenchError> {
    let finished = child::run(tar("--list", archive).arg("--totals"), stop)?;
    let total = finished.said.lines().find_map(|line| line.strip_prefix("Total bytes read: "));
    let total = total.and_then(|rest| rest.split(' ').next()?.parse().ok());
    let entries = finished.answer.iter().filter(|byte| **byte == b'\n').count() as u64;
    match (finished.status.success(), total) {
        (true, Some(total)) => Ok((entries, Bytes(total))),
        _ => Err(refused(archive, "it is not an archive that GNU tar can read", &finished.said)),
    }
}

/// Packs files of `tree` where temporary files are.
fn pack(tree: &Path, most: Bytes, stop: &AtomicBool) -> Result<NamedTempFile, BenchError> {
    let failed = |e| BenchError::io("reading it", tree, e);
    let device = fs::metadata(tree).map_err(failed)?.dev();
    let mut found = Vec::new();
    collect(tree, &mut OsString::new(), device, &mut found, stop)?;
    let chosen = choose(&found, most);
    let temporary = std::env::temp_dir();
    refuse_too_little_space(&temporary, Bytes(found.iter().map(|(_, bytes)| bytes).sum::<u64>().min(most.0)))?;
    let make = |e| BenchError::io("creating a file in it", &temporary, e);
    let archive = NamedTempFile::with_prefix_in("longrun-bench-", &temporary).map_err(make)?;
    let mut names = NamedTempFile::new_in(&temporary).map_err(make)?;
    for name in chosen {
        names.write_all(name.as_bytes()).and_then(|()| names.write_all(&[0])).map_err(make)?;
    }
    names.flush().map_err(make)?;
    let mut command = tar("--create", archive.path());
    command.arg("--directory").arg(tree).args(["--no-recursion", "--ignore-failed-read", "--null", "--files-from"]);
    let finished = child::run(command.arg(names.path()), stop)?;
    // 1: a file changed while it was read, which does not matter here.
    if !matches!(finished.status.code(), Some(0 | 1)) {
        return Err(refused(tree, "packing failed", &finished.said));
    }
    // Written now, not while unpacking is measured.
    archive.as_file().sync_all().map_err(make)?;
    Ok(archive)
}

/// Files, directories and links below a directory of the same file system, by name: the same order every time.
fn collect(
    root: &Path,
    below: &mut OsString,
    device: u64,
    found: &mut Vec<(OsString, u64)>,
    stop: &AtomicBool,
) -> Result<(), BenchError> {
    let directory = root.join(&below);
    let failed = |e: io::Error| BenchError::io("listing it", &directory, e);
    let mut entries = fs::read_dir(&directory).map_err(failed)?.collect::<Result<Vec<_>, _>>().map_err(failed)?;
    entries.sort_by_key(DirEntry::file_name);
    for entry in entries {
        if stop.load(Ordering::Relaxed) {
            return Err(BenchError::Interrupted);
        }
        // What goes while it is looked at is not packed.
        let Ok(meta) = entry.metadata() else { continue };
        let kind = meta.file_type();
        if meta.dev() != device || !(kind.is_file() || kind.is_dir() || kind.is_symlink()) {
            continue;
        }
        let mut name = below.clone();
        if !name.is_empty() {
            name.push("/");
        }
        name.push(entry.file_name());
        found.push((name.clone(), if kind.is_file() { meta.len() } else { 0 }));
        if kind.is_dir() {
            collect(root, &mut name, device, found, stop)?;
        }
    }
    Ok(())
}

/// Those of `most` bytes together in the archive, spread evenly over all that were found.
fn choose(found: &[(OsString, u64)], most: Bytes) -> impl Iterator<Item = &OsString> {
    let all: u64 = found.iter().map(|(_, bytes)| bytes + HEADER).sum();
    let (mut seen, mut taken) = (0, 0);
    found.iter().filter_map(move |(name, bytes)| {
        let bytes = bytes + HEADER;
        seen += bytes;
        let due = u128::from(seen) * u128::from(most.0.min(all)) / u128::from(all.max(1));
        let fits = u128::from(taken + bytes) <= due;
        taken += if fits { bytes } else { 0 };
        fits.then_some(name)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    static RUNNING: AtomicBool = AtomicBool::new(false);

    fn tree() -> tempfile::TempDir {
        let tree = tempfile::tempdir().unwrap();
        for directory in ["bin", "lib/deep"] {
            fs::create_dir_all(tree.path().join(directory)).unwrap();
            for number in 0..20 {
                fs::write(tree.path().join(directory).join(format!("{number}")), vec![7; 10_000]).unwrap();
            }
        }
        symlink("bin/1", tree.path().join("-link with\na line")).unwrap();
        tree
    }

    #[test]
    fn a_tree_is_packed_and_unpacked_with_its_links() {
        let _alone = crate::child::one_at_a_time();
        let (tree, target) = (tree(), tempfile::tempdir().unwrap());
        let source = Source::Tree { path: tree.path().to_owned(), most: Bytes(1 << 30) };
        let software = Software::prepare(&source, &RUNNING).unwrap();
        assert_eq!(software.entries(), 40 + 3 + 1);
        assert!(software.bytes().0 >= 400_000 && software.room() > software.bytes());
        software.read_into_memory(&RUNNING).unwrap();
        software.unpack(target.path(), &RUNNING).unwrap();
        assert_eq!(fs::read(target.path().join("lib/deep/19")).unwrap(), vec![7; 10_000]);
        assert_eq!(fs::read_link(target.path().join("-link with\na line")).unwrap(), Path::new("bin/1"));

        // The same as an archive of the user's.
        let software = Software::prepare(&Source::Archive(software.archive.clone()), &RUNNING).unwrap();
        assert_eq!(software.entries(), 44);
    }

    #[test]
    fn of_a_large_tree_files_are_chosen_evenly() {
        let _alone = crate::child::one_at_a_time();
        let tree = tree();
        let source = Source::Tree { path: tree.path().to_owned(), most: Bytes(106_000) };
        let software = Software::prepare(&source, &RUNNING).unwrap();
        assert!((10..=12).contains(&software.entries()), "a quarter of the files: {}", software.entries());
        let target = tempfile::tempdir().unwrap();
        software.unpack(target.path(), &RUNNING).unwrap();
        for directory in ["bin", "lib/deep"] {
            let count = fs::read_dir(target.path().join(directory)).unwrap().count();
            assert!((4..=6).contains(&count), "{directory}: {count}");
        }
    }

    #[test]
    fn what_is_no_archive_or_empty_is_refused() {
        let _alone = crate::child::one_at_a_time();
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("no archive");
        fs::write(&path, [9; 5000]).unwrap();
        let error = Software::prepare(&Source::Archive(path), &RUNNING).unwrap_err().to_string();
        assert!(error.contains("no archive: it is not an archive that GNU tar can read"), "{error}");
        let empty = directory.path().join("empty");
        fs::create_dir(&empty).unwrap();
        let source = Source::Tree { path: empty, most: Bytes(1 << 20) };
        let error = Software::prepare(&source, &RUNNING).unwrap_err().to_string();
        assert!(error.contains("contains nothing to unpack"), "{error}");
    }
}
