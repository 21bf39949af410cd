//! The fragments of every file of a tree according to filefrag: extent records that adjoin are one fragment, and so
//! are the two sides of a hole whose blocks adjoin.

use crate::tool;
use anyhow::{Context, Result};
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// Paths handed to one call.
const BATCH: usize = 400;

/// Fragments of a tree.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct FileFragments {
    /// Regular files; hard links count once.
    pub files: u64,
    /// Files with more than one fragment.
    pub fragmented: u64,
    /// Sum over regular files of (fragments − 1).
    pub excess: u64,
    /// The same over directories, which no optimizer moves while the volume is mounted.
    pub directory_excess: u64,
    /// Fragments of each file or directory with more than one.
    pub worst: BTreeMap<PathBuf, u64>,
}

/// Asks filefrag about every regular file and directory below `root` (on the same volume).
///
/// # Errors
/// When a directory cannot be read or the tool fails.
pub fn filefrag(root: &Path) -> Result<FileFragments> {
    let mut paths = Vec::new();
    let device = fs::metadata(root).with_context(|| format!("cannot stat {}", root.display()))?.dev();
    collect(root, device, &mut BTreeSet::new(), &mut paths)?;
    let filesystem = longrun_sys::FileSystem::of(fs::File::open(root)?)?;
    if matches!(filesystem, Some(longrun_sys::FileSystem::Xfs | longrun_sys::FileSystem::Btrfs)) {
        // XFS does not tell where directories lie; on btrfs they have no place.
        paths.retain(|path| !path.is_dir());
    }
    let mut sum = FileFragments::default();
    for batch in paths.chunks(BATCH) {
        let text = tool::run("filefrag", [Path::new("-v")].into_iter().chain(batch.iter().map(PathBuf::as_path)))?;
        let fragments = parse(&text);
        anyhow::ensure!(
            fragments.len() == batch.len(),
            "filefrag told about {} of {} files",
            fragments.len(),
            batch.len()
        );
        for (path, count) in batch.iter().zip(fragments) {
            let is_directory = path.is_dir();
            let excess = count.saturating_sub(1);
            if is_directory {
                sum.directory_excess += excess;
            } else {
                sum.files += 1;
                sum.fragmented += u64::from(excess > 0);
                sum.excess += excess;
            }
            if excess > 0 {
                sum.worst.insert(path.clone(), count);
            }
        }
    }
    Ok(sum)
}

/// The excess fragments of one file, by filefrag.
///
/// # Errors
/// When the tool fails.
pub fn excess_of(file: &Path) -> Result<u64> {
    let text = tool::run("filefrag", [Path::new("-v"), file])?;
    let fragments = parse(&text).first().copied().with_context(|| format!("filefrag does not tell:\n{text}"))?;
    Ok(fragments.saturating_sub(1))
}

fn collect(directory: &Path, device: u64, seen: &mut BTreeSet<u64>, paths: &mut Vec<PathBuf>) -> Result<()> {
    paths.push(directory.to_owned());
    for entry in fs::read_dir(directory).with_context(|| format!("cannot read {}", directory.display()))? {
        let entry = entry?;
        let meta = entry.metadata()?;
        if meta.dev() != device {
            continue;
        }
        if meta.is_dir() {
            collect(&entry.path(), device, seen, paths)?;
        } else if meta.is_file() && seen.insert(meta.ino()) {
            paths.push(entry.path());
        }
    }
    Ok(())
}

/// Fragments of each file in filefrag's verbose output, in order.
fn parse(text: &str) -> Vec<u64> {
    let mut counts = Vec::new();
    let mut expected = None;
    for line in text.lines() {
        if line.starts_with("File size of ") {
            counts.push(0);
            expected = None;
        } else if let Some((start, end)) = physical(line)
            && let Some(count) = counts.last_mut()
        {
            *count += u64::from(expected != Some(start));
            expected = Some(end + 1);
        }
    }
    counts
}

/// The physical range of an extent line: `   0:  0..  15:  34048..  34063:  16:  last,eof`.
fn physical(line: &str) -> Option<(u64, u64)> {
    let mut columns = line.split(':');
    columns.next()?.trim().parse::<u64>().ok()?;
    let (first, _) = columns.next()?.split_once("..")?;
    first.trim().parse::<u64>().ok()?;
    let (start, end) = columns.next()?.split_once("..")?;
    if line.contains("unknown") || line.contains("inline") {
        return None;
    }
    Some((start.trim().parse().ok()?, end.trim().parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn adjoining_records_are_one_fragment_and_holes_do_not_count() {
        let text = "\
Filesystem type is: ef53
File size of a: b (16 blocks) is 65536 (16 blocks of 4096 bytes)
 ext:     logical_offset:        physical_offset: length:   expected: flags:
   0:        0..       7:      34048..     34055:      8:
   1:        8..      15:      34056..     34063:      8:             last,eof
a: b: 1 extent found
File size of c is 65536 (16 blocks of 4096 bytes)
 ext:     logical_offset:        physical_offset: length:   expected: flags:
   0:        0..       3:      40000..     40003:      4:             unwritten
   1:        9..      15:      40004..     40010:      7:             last,eof
c: 1 extent found
File size of d is 3 (1 block of 4096 bytes)
 ext:     logical_offset:        physical_offset: length:   expected: flags:
   0:        0..       3:         10..        13:      4:
   1:        4..       4:         20..        20:      1:         14: last,eof
d: 2 extents found
File size of e is 0 (0 blocks of 4096 bytes)
e: 0 extents found
";
        assert_eq!(parse(text), [1, 1, 2, 0]);
    }
}
