//! The free space of a volume according to the file system's own tool; on XFS also the best state that its immovable
//! parts allow.

use super::{FreeFragments, e2freefrag};
use crate::{FileSystemKind, LoopVolume, tool};
use anyhow::{Context, Result, ensure};
use std::path::Path;

/// Asks e2freefrag, xfs_spaceman or btrfs' dump-tree. The volume must be mounted, and is again afterwards.
///
/// # Errors
/// When a tool fails or says something unexpected.
pub fn free_space(volume: &LoopVolume) -> Result<FreeFragments> {
    if volume.kind() == FileSystemKind::Xfs {
        rustix::fs::syncfs(std::fs::File::open(volume.mount_point())?)?;
        return xfs_free_space(&volume.mount_point());
    }
    // The others' tools read the device: what is in memory only must be there.
    volume.unmount()?;
    let free = match volume.kind() {
        FileSystemKind::Btrfs => super::btrfs_space::free_space(volume.device()),
        FileSystemKind::Ext4 | FileSystemKind::Xfs => e2freefrag(volume.device()),
    };
    volume.mount()?;
    free
}

/// The bytes of the longest range of a mounted XFS that holds nothing but file data and free space, or of all free
/// space when that is less: no optimizer can make a longer free piece. Directories count as movable, which they are
/// not: the bound is one from above. `None` when the volume was made without a reverse map (rmapbt), from which
/// alone this can be told.
///
/// # Errors
/// When the tool fails or says something unexpected.
pub fn longest_possible_on_xfs(mount_point: &Path) -> Result<Option<u64>> {
    longest_possible(&tool::run("xfs_io", ["-r".as_ref(), "-c".as_ref(), "fsmap".as_ref(), mount_point.as_os_str()])?)
}

fn xfs_free_space(mount_point: &Path) -> Result<FreeFragments> {
    let text = tool::run("xfs_spaceman", ["-c".as_ref(), "freesp -d -s".as_ref(), mount_point.as_os_str()])?;
    let capacity = longrun_sys::capacity_at(mount_point)?;
    parse_spaceman(&text, u64::from(capacity.block_size.bytes()))
}

/// `-d` lists each extent as group, start and blocks; `-s` tells their number at the end, which must agree.
fn parse_spaceman(text: &str, block_bytes: u64) -> Result<FreeFragments> {
    let (mut free, mut told) = (FreeFragments { free_blocks: 0, pieces: 0, largest_bytes: 0 }, None);
    for line in text.lines() {
        let numbers: Vec<Option<u64>> = line.split_whitespace().map(|word| word.parse().ok()).collect();
        if let [Some(_), Some(_), Some(blocks)] = numbers[..] {
            free.free_blocks += blocks;
            free.pieces += 1;
            free.largest_bytes = free.largest_bytes.max(blocks * block_bytes);
        } else if let Some(number) = line.strip_prefix("total free extents") {
            told = number.trim().parse().ok();
        }
    }
    ensure!(told == Some(free.pieces), "xfs_spaceman tells of {told:?} extents and lists {}:\n{text}", free.pieces);
    Ok(free)
}

/// From lines as `12: 7:3 [1024..2047]: inode 131 0..1023    0 (1024..2047)   1024`, in sectors.
fn longest_possible(text: &str) -> Result<Option<u64>> {
    const SECTOR: u64 = 512;
    let (mut longest, mut free, mut open) = (0, 0, None::<(u64, u64)>);
    for line in text.lines() {
        let parsed = (|| {
            let (_, rest) = line.split_once('[')?;
            let (range, rest) = rest.split_once("]:")?;
            let (first, last) = range.split_once("..")?;
            Some((first.parse::<u64>().ok()?, last.parse::<u64>().ok()? + 1, rest.trim()))
        })();
        let (start, end, what) = parsed.with_context(|| format!("fsmap says something unexpected: {line:?}"))?;
        if what.starts_with("unknown") {
            return Ok(None);
        }
        let is_free = what.starts_with("free space");
        // The extent maps of files go when these are put together.
        let is_data = what.starts_with("inode ") && !what.contains(" attr");
        free += if is_free { end - start } else { 0 };
        open = match open {
            _ if !is_free && !is_data => None,
            // Records can overlap where files share blocks.
            Some((first, until)) if start <= until => Some((first, until.max(end))),
            _ => Some((start, end)),
        };
        longest = longest.max(open.map_or(0, |(first, until)| until - first));
    }
    Ok(Some(longest.min(free) * SECTOR))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_extents_of_xfs_are_counted_and_must_agree_with_the_sum() {
        let text = "         0        9       13\n         1     5000     2000\n   from      to extents  blocks    pct\n      \
                    8      15       1      13   0.65\n   1024    2047       1    2000  99.35\n\
                    total free extents 2\ntotal free blocks 2013\naverage free extent size 1006.5\n";
        let wanted = FreeFragments { free_blocks: 2013, pieces: 2, largest_bytes: 2000 * 4096 };
        assert_eq!(parse_spaceman(text, 4096).unwrap(), wanted);
        assert!(parse_spaceman("total free extents 3\n", 4096).is_err());
    }

    #[test]
    fn nothing_grows_over_what_cannot_move() {
        let line = |number: u64, range: &str, what: &str| format!("\t{number}: 7:0 [{range}]: {what} 0 ({range}) 1\n");
        let map = [
            line(0, "0..7", "static fs metadata"),
            line(1, "8..107", "free space"),
            line(2, "108..207", "inode 131 0..99"),
            line(3, "150..207", "inode 140 0..57"),
            line(4, "208..215", "inode 140 attr fork"),
            line(5, "216..515", "inode 140 0..299"),
            line(6, "516..715", "free space"),
        ];
        assert_eq!(longest_possible(&map[..5].concat()).unwrap(), Some(100 * 512), "all that is free");
        assert_eq!(longest_possible(&map[..6].concat()).unwrap(), Some(100 * 512));
        assert_eq!(longest_possible(&map.concat()).unwrap(), Some(300 * 512));
        assert_eq!(longest_possible(&line(0, "0..7", "unknown")).unwrap(), None);
        assert!(longest_possible("nonsense\n").is_err());
    }
}
