//! Everything that must not change: a dump of a tree, and the first differences between two dumps.

use anyhow::{Context, Result, ensure};
use longrun_sys::{ByteRange, Mapping};
use rustix::fs::{AtFlags, CWD, IFlags, OFlags, SeekFrom, StatxFlags};
use rustix::io::Errno;
use sha2::{Digest, Sha256};
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs::{self, File};
use std::io::Read;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Differences shown at most.
const SHOWN: usize = 12;

/// The inode number that a snapshot shows in the place of a subvolume that is not part of it. It is invented each time.
const BTRFS_NOTHING: u64 = 2;

/// One file, directory or other node: its properties by name, in a readable form.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Entry(BTreeMap<String, String>);

impl Entry {
    /// The SHA-256 of a regular file's content.
    #[must_use]
    pub fn hash(&self) -> Option<&str> {
        self.0.get("sha256").map(String::as_str)
    }

    /// Forgets a property, for a judge who allows it to change.
    pub fn forget(&mut self, property: &str) {
        self.0.remove(property);
    }

    /// Forgets the times of a directory, for a judge who allows them to change.
    pub fn forget_directory_times(&mut self) {
        if self.0.get("mode").is_some_and(|mode| mode.starts_with("4")) {
            self.forget("mtime");
            self.forget("ctime");
        }
    }
}

/// A tree: each path below its root and what is there.
pub type Dump = BTreeMap<PathBuf, Entry>;

/// Dumps everything below `root`, the root itself included: type, content (SHA-256), size, mode, owner, links, times but
/// for the access time (which reading changes), extended attributes (ACLs and capabilities are such), inode flags, project, extent-size
/// hint, holes.
/// Not the allocated blocks: a file's extent tree may need fewer or more after its data has moved.
///
/// # Errors
/// When something cannot be read.
pub fn dump(root: &Path) -> Result<Dump> {
    let mut paths = Vec::new();
    collect(root, &mut paths)?;
    let (next, done) = (AtomicUsize::new(0), Mutex::new(Dump::new()));
    let workers = std::thread::available_parallelism().map_or(2, usize::from);
    std::thread::scope(|scope| {
        let work = || -> Result<()> {
            while let Some(path) = paths.get(next.fetch_add(1, Ordering::Relaxed)) {
                let entry = describe(path).with_context(|| format!("cannot read {}", path.display()))?;
                let name = path.strip_prefix(root)?.to_owned();
                done.lock().map_err(|_| anyhow::anyhow!("another reader failed"))?.insert(name, entry);
            }
            Ok(())
        };
        let handles: Vec<_> = (0..workers).map(|_| scope.spawn(work)).collect();
        handles
            .into_iter()
            .try_for_each(|handle| handle.join().map_err(|_| anyhow::anyhow!("a reader panicked")).flatten())
    })?;
    done.into_inner().map_err(|_| anyhow::anyhow!("a reader panicked"))
}

/// File-system blocks that everything below `root` occupies, extent-tree and attribute blocks included; hard links count
/// once.
///
/// # Errors
/// When something cannot be read.
pub fn allocated_blocks(root: &Path) -> Result<u64> {
    let mut paths = Vec::new();
    collect(root, &mut paths)?;
    let mut sectors = BTreeMap::new();
    for path in &paths {
        let meta = fs::symlink_metadata(path)?;
        sectors.insert(meta.ino(), meta.blocks());
    }
    let block_size = longrun_sys::capacity(&File::open(root)?)?.block_size;
    Ok(sectors.values().sum::<u64>() * 512 / u64::from(block_size.bytes()))
}

/// Fails with the first differences when the two dumps are not the same.
///
/// # Errors
/// The differences, one a line: path, property, before, after.
pub fn compare(before: &Dump, after: &Dump) -> Result<()> {
    let mut differences = Vec::new();
    for (path, entry) in before {
        match after.get(path) {
            None => differences.push(format!("{}: gone", path.display())),
            Some(now) => {
                for key in entry.0.keys().chain(now.0.keys().filter(|k| !entry.0.contains_key(*k))) {
                    let [was, is] = [entry, now].map(|e| e.0.get(key).map_or("-", String::as_str));
                    if was != is {
                        differences.push(format!("{}: {key} was {was}, is {is}", path.display()));
                    }
                }
            }
        }
    }
    differences.extend(after.keys().filter(|p| !before.contains_key(*p)).map(|p| format!("{}: new", p.display())));
    let more = differences.len().saturating_sub(SHOWN);
    ensure!(
        differences.is_empty(),
        "the trees differ in {} places:\n{}{}",
        differences.len(),
        differences.iter().take(SHOWN).cloned().collect::<Vec<_>>().join("\n"),
        if more > 0 { format!("\n… and {more} more") } else { String::new() }
    );
    Ok(())
}

fn collect(path: &Path, paths: &mut Vec<PathBuf>) -> Result<()> {
    let meta = fs::symlink_metadata(path).with_context(|| format!("cannot stat {}", path.display()))?;
    if meta.is_dir() && meta.ino() == BTRFS_NOTHING && is_btrfs(path)? {
        return Ok(());
    }
    paths.push(path.to_owned());
    if meta.is_dir() {
        for entry in fs::read_dir(path).with_context(|| format!("cannot read {}", path.display()))? {
            collect(&entry?.path(), paths)?;
        }
    }
    Ok(())
}

fn is_btrfs(directory: &Path) -> Result<bool> {
    Ok(longrun_sys::FileSystem::of(File::open(directory)?)? == Some(longrun_sys::FileSystem::Btrfs))
}

fn describe(path: &Path) -> Result<Entry> {
    let wanted = StatxFlags::BASIC_STATS | StatxFlags::BTIME;
    let stat = rustix::fs::statx(CWD, path, AtFlags::SYMLINK_NOFOLLOW, wanted)?;
    let mut entry = Entry::default();
    let mut note = |name: &str, value: String| {
        entry.0.insert(name.to_owned(), value);
    };
    note("mode", format!("{:o}", stat.stx_mode));
    note("owner", format!("{}:{}", stat.stx_uid, stat.stx_gid));
    note("inode", stat.stx_ino.to_string());
    note("links", stat.stx_nlink.to_string());
    note("device", format!("{}:{}", stat.stx_rdev_major, stat.stx_rdev_minor));
    for (name, time) in [("mtime", stat.stx_mtime), ("ctime", stat.stx_ctime), ("btime", stat.stx_btime)] {
        note(name, format!("{}.{:09}", time.tv_sec, time.tv_nsec));
    }
    for (name, value) in attributes(path)? {
        note(&format!("xattr {name}"), value);
    }
    let kind = rustix::fs::FileType::from_raw_mode(stat.stx_mode.into());
    if kind.is_symlink() {
        note("target", fs::read_link(path)?.display().to_string());
    }
    if kind.is_file() {
        let file = rustix::fs::open(path, OFlags::RDONLY | OFlags::NOATIME | OFlags::CLOEXEC, 0.into())?;
        note("size", stat.stx_size.to_string());
        note("flags", flags(&file)?);
        note("project and hint", charged(&file)?);
        note("unwritten", unwritten(&file)?);
        // Pages read from preallocated space count as data to SEEK_DATA as long as they are in memory.
        longrun_sys::drop_cache(&file, ByteRange::ALL)?;
        note("holes", holes(&file, stat.stx_size)?);
        note("sha256", file_hash(File::from(file))?);
    } else if kind.is_dir() {
        let directory = rustix::fs::open(path, OFlags::RDONLY | OFlags::NOATIME | OFlags::CLOEXEC, 0.into())?;
        note("flags", flags(&directory)?);
        note("project and hint", charged(&directory)?);
    }
    Ok(entry)
}

fn flags(file: impl std::os::fd::AsFd) -> Result<String> {
    // The tree index of a directory comes and goes with its size.
    Ok(format!("{:#x}", (rustix::fs::ioctl_getflags(file)? & !IFlags::from_bits_retain(0x1000)).bits()))
}

/// The project that the space of a file is charged to, and its extent-size hint, where the file system has such.
fn charged(file: impl std::os::fd::AsFd) -> Result<String> {
    match longrun_sys::extended_attributes(file) {
        Ok(found) => Ok(format!("{}, {}", found.project, found.extent_size)),
        Err(Errno::NOTTY | Errno::OPNOTSUPP) => Ok(String::new()),
        Err(error) => Err(error.into()),
    }
}

/// The holes as "start-end" in bytes; preallocated space counts as one.
fn holes(file: impl std::os::fd::AsFd, size: u64) -> Result<String> {
    let (mut at, mut text) = (0, String::new());
    while at < size {
        let hole = rustix::fs::seek(&file, SeekFrom::Hole(at))?;
        if hole >= size {
            break;
        }
        let end = match rustix::fs::seek(&file, SeekFrom::Data(hole)) {
            Err(Errno::NXIO) => size,
            other => other?,
        };
        write!(text, "{hole}-{end} ")?;
        at = end;
    }
    rustix::fs::seek(&file, SeekFrom::Start(0))?;
    Ok(text)
}

/// Preallocated ranges that were never written, also behind the end, as "start-end" in bytes.
fn unwritten(file: impl std::os::fd::AsFd) -> Result<String> {
    let mut ranges: Vec<(u64, u64)> = Vec::new();
    longrun_sys::for_each_extent(&file, ByteRange::ALL, Mapping::Synced, |extent| {
        let (start, end) = (extent.logical.0, extent.logical.0 + extent.length.0);
        match ranges.last_mut() {
            _ if !extent.flags.is_unwritten() => {}
            Some(last) if last.1 == start => last.1 = end,
            _ => ranges.push((start, end)),
        }
        true
    })?;
    Ok(ranges.iter().map(|(start, end)| format!("{start}-{end} ")).collect())
}

/// SHA-256 of a file from its present position.
///
/// # Errors
/// When it cannot be read.
pub fn file_hash(mut file: File) -> Result<String> {
    let (mut sha, mut buffer) = (Sha256::new(), vec![0; 1 << 18]);
    loop {
        match file.read(&mut buffer)? {
            0 => return Ok(hex(&sha.finalize())),
            n => sha.update(buffer.get(..n).unwrap_or_default()),
        }
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::with_capacity(bytes.len() * 2), |mut text, byte| {
        // Writing to a string cannot fail.
        let _ = write!(text, "{byte:02x}");
        text
    })
}

/// All extended attributes, also those that only root sees (security, trusted) and the ACLs (system.posix_acl_…).
fn attributes(path: &Path) -> Result<Vec<(String, String)>> {
    let mut names = vec![0; 1 << 16];
    let length = match rustix::fs::llistxattr(path, &mut names) {
        Err(Errno::OPNOTSUPP) => return Ok(Vec::new()),
        other => other?,
    };
    let mut found = Vec::new();
    for name in names.get(..length).unwrap_or_default().split(|b| *b == 0).filter(|n| !n.is_empty()) {
        let name = std::ffi::OsStr::from_bytes(name);
        let mut value = vec![0; 1 << 16];
        let length = rustix::fs::lgetxattr(path, name, &mut value)?;
        found.push((name.to_string_lossy().into_owned(), hex(value.get(..length).unwrap_or_default())));
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_trees_compare_equal_and_a_changed_byte_is_named() {
        let directory = tempfile::tempdir().unwrap();
        fs::create_dir(directory.path().join("sub")).unwrap();
        let file = directory.path().join("sub/file");
        fs::write(&file, b"content").unwrap();
        let before = dump(directory.path()).unwrap();
        assert_eq!(before.len(), 3);
        compare(&before, &dump(directory.path()).unwrap()).unwrap();
        fs::write(&file, b"Content").unwrap();
        let error = compare(&before, &dump(directory.path()).unwrap()).unwrap_err().to_string();
        assert!(error.contains("sub/file: sha256 was "), "{error}");
        fs::remove_file(&file).unwrap();
        let error = compare(&before, &dump(directory.path()).unwrap()).unwrap_err().to_string();
        assert!(error.contains("sub/file: gone"), "{error}");
    }
}
