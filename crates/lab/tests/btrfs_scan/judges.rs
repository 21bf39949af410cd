//! What btrfs' own tools and filefrag say about a volume.

use longrun_lab::tool;
use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};

/// An extent item as `btrfs inspect-internal dump-tree` prints it: place in the file, place and length on disk, offset,
/// length; compressed or not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Item {
    pub logical: u64,
    pub disk: u64,
    pub disk_length: u64,
    pub offset: u64,
    pub length: u64,
    pub is_compressed: bool,
    pub is_preallocated: bool,
}

fn dump(device: &Path, tree: &str) -> String {
    // The tool reads through a cache that does not see what the file system writes.
    tool::run("blockdev", ["--flushbufs".as_ref(), device.as_os_str()]).unwrap();
    let words = ["inspect-internal", "dump-tree", "-t", tree].map(OsStr::new);
    tool::run("btrfs", words.into_iter().chain([device.as_os_str()])).unwrap()
}

/// The extents of all inodes of a subvolume; holes and what lies in the tree left out.
pub fn extents(device: &Path, subvolume: u64) -> BTreeMap<u64, Vec<Item>> {
    let mut found: BTreeMap<u64, Vec<Item>> = BTreeMap::new();
    let mut key = None;
    let mut item: Option<Item> = None;
    let mut is_preallocated = false;
    for line in dump(device, &subvolume.to_string()).lines() {
        let words: Vec<&str> = line.split_whitespace().collect();
        match words[..] {
            ["item", _, "key", object, kind, offset, ..] => {
                let number = |word: &str| word.trim_matches(['(', ')']).parse::<u64>().ok();
                key = number(object).zip(number(offset)).filter(|_| kind == "EXTENT_DATA");
            }
            ["generation", _, "type", number, ..] => is_preallocated = number == "2",
            ["prealloc" | "extent", "data", "disk", "byte", disk, "nr", length] => {
                let (disk, disk_length) = (disk.parse().unwrap(), length.parse().unwrap());
                let logical = key.map_or(0, |(_, offset)| offset);
                let new =
                    Item { logical, disk, disk_length, offset: 0, length: 0, is_compressed: false, is_preallocated };
                item = key.map(|_| new).filter(|_| disk != 0);
            }
            ["prealloc" | "extent", "data", "offset", offset, "nr", length, ..] => {
                if let Some(item) = &mut item {
                    (item.offset, item.length) = (offset.parse().unwrap(), length.parse().unwrap());
                    if item.is_preallocated {
                        found.entry(key.unwrap().0).or_default().push(*item);
                    }
                }
            }
            ["extent", "compression", number, ..] => {
                if let (Some(mut item), Some((object, _))) = (item.take(), key) {
                    item.is_compressed = number != "0";
                    if !item.is_preallocated {
                        found.entry(object).or_default().push(item);
                    }
                }
            }
            _ => {}
        }
    }
    found
}

/// The pieces of free space in each block group, by where it starts: as the free-space tree counts them; and how many of the
/// groups keep bitmaps.
pub fn free_pieces(device: &Path) -> (BTreeMap<u64, u64>, usize) {
    let (mut found, mut group, mut bitmaps) = (BTreeMap::new(), None, 0);
    for line in dump(device, "10").lines() {
        let words: Vec<&str> = line.split_whitespace().collect();
        match words[..] {
            ["item", _, "key", object, "FREE_SPACE_INFO", ..] => group = object.trim_matches('(').parse().ok(),
            ["free", "space", "info", "extent", "count", count, "flags", flags] => {
                found.insert(group.unwrap(), count.parse().unwrap());
                bitmaps += usize::from(flags != "0");
            }
            _ => {}
        }
    }
    (found, bitmaps)
}

/// Bytes of each file that no other file has, by `btrfs filesystem du`.
pub fn exclusive(top: &Path) -> BTreeMap<PathBuf, u64> {
    let words = ["filesystem", "du", "--raw"].map(OsStr::new);
    let text = tool::run("btrfs", words.into_iter().chain([top.as_os_str()])).unwrap();
    let line = |line: &str| {
        let mut rest = line.trim_start();
        let mut word = || {
            let (word, after) = rest.split_once(char::is_whitespace)?;
            rest = after.trim_start();
            Some(word.to_owned())
        };
        let (_, exclusive, _) = (word()?, word()?, word()?);
        Some((PathBuf::from(rest), exclusive.parse().ok()?))
    };
    text.lines().filter_map(line).collect()
}

/// A figure of `btrfs filesystem usage`, by its label.
pub fn usage(top: &Path, label: &str) -> u64 {
    let text = tool::run("btrfs", ["filesystem", "usage", "-b", top.to_str().unwrap()]).unwrap();
    let line = text.lines().find_map(|line| line.trim_start().strip_prefix(label));
    line.and_then(|rest| rest.split_whitespace().next()?.parse().ok()).unwrap_or_else(|| panic!("{label}?\n{text}"))
}
