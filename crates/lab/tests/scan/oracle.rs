//! What filefrag says about every file and directory, block by block.

use longrun_lab::tool;
use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// One file as filefrag sees it.
#[derive(Debug, Default)]
pub struct Seen {
    pub path: PathBuf,
    /// (logical, physical, length) in blocks; neighbours joined.
    pub runs: Vec<(u64, u64, u64)>,
    /// The number in its summary.
    pub extents: u64,
    pub is_directory: bool,
}

/// All files and directories below `root`, by inode number.
pub fn look(root: &Path) -> BTreeMap<u64, Seen> {
    let mut seen = BTreeMap::new();
    collect(root, &mut seen);
    let paths: Vec<PathBuf> = seen.values().map(|s: &Seen| s.path.clone()).collect();
    for (paths, inodes) in paths.chunks(300).zip(seen.keys().copied().collect::<Vec<_>>().chunks(300)) {
        let text =
            tool::run("filefrag", [Path::new("-v")].into_iter().chain(paths.iter().map(PathBuf::as_path))).unwrap();
        let mut inodes = inodes.iter();
        let mut current = None;
        for line in text.lines() {
            if line.starts_with("File size of ") {
                current = inodes.next();
            }
            let Some(seen) = current.and_then(|i| seen.get_mut(i)) else { continue };
            if let Some(extents) = line.strip_suffix(" found").and_then(|l| l.rsplit(' ').nth(1)) {
                seen.extents = extents.parse().unwrap();
            } else if let Some(run) = extent(line) {
                match seen.runs.last_mut() {
                    Some((logical, physical, length))
                        if *logical + *length == run.0 && *physical + *length == run.1 =>
                    {
                        *length += run.2;
                    }
                    _ => seen.runs.push(run),
                }
            }
        }
    }
    seen
}

fn collect(path: &Path, seen: &mut BTreeMap<u64, Seen>) {
    let meta = fs::symlink_metadata(path).unwrap();
    if !meta.is_dir() && !meta.is_file() {
        return;
    }
    seen.insert(meta.ino(), Seen { path: path.to_owned(), is_directory: meta.is_dir(), ..Seen::default() });
    if meta.is_dir() {
        for entry in fs::read_dir(path).unwrap() {
            collect(&entry.unwrap().path(), seen);
        }
    }
}

/// `   0:        0..       3:      40000..     40003:      4:             unwritten`
fn extent(line: &str) -> Option<(u64, u64, u64)> {
    let mut columns = line.split(':');
    columns.next()?.trim().parse::<u64>().ok()?;
    let mut pair = || {
        let (first, last) = columns.next()?.split_once("..")?;
        Some((first.trim().parse::<u64>().ok()?, last.trim().parse::<u64>().ok()?))
    };
    let (logical, physical) = (pair()?, pair()?);
    (!line.contains("inline")).then_some((logical.0, physical.0, physical.1 - physical.0 + 1))
}
