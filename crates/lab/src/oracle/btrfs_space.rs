//! The free space for data on btrfs: the gaps between extents in the data block groups, from a dump of the extent tree
//! (a dump of the free-space tree does not show the content of its bitmaps). Addresses are those of btrfs itself, as
//! filefrag reports them.

use super::FreeFragments;
use crate::tool;
use anyhow::{Context, Result, ensure};
use std::collections::BTreeMap;
use std::path::Path;

/// The unit in which free blocks are told.
const BLOCK: u64 = 4096;

/// The gaps in data block groups on an unmounted `device`; none reaches over the end of a group.
pub(super) fn free_space(device: &Path) -> Result<FreeFragments> {
    parse(&tool::run(
        "btrfs",
        ["inspect-internal", "dump-tree", "-t", "extent"].map(Path::new).into_iter().chain([device]),
    )?)
}

/// The output of `btrfs filesystem usage` for a mounted volume, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BtrfsUsage {
    /// In data extents: shared ones once, whole ones even where only a part is referenced.
    pub data: u64,
    /// In no block group: what data and metadata can still get.
    pub unallocated: u64,
}

/// Asks `btrfs filesystem usage`, after everything has been committed.
///
/// # Errors
/// When the tool fails or says something unexpected.
pub fn btrfs_usage(mount_point: &Path) -> Result<BtrfsUsage> {
    // What was deleted is freed in the background, subvolumes and all.
    tool::run("btrfs", ["filesystem".as_ref(), "sync".as_ref(), mount_point.as_os_str()])?;
    parse_usage(&tool::run("btrfs", ["filesystem", "usage", "-b"].map(Path::new).into_iter().chain([mount_point]))?)
}

fn parse_usage(text: &str) -> Result<BtrfsUsage> {
    let unallocated =
        text.lines().find_map(|line| line.trim().strip_prefix("Device unallocated:")?.trim().parse().ok());
    // `Data,single: Size:8388608, Used:4096 (0.05%)`
    let data: Vec<u64> = text
        .lines()
        .filter(|line| line.starts_with("Data"))
        .filter_map(|line| line.split_once("Used:")?.1.split([' ', ',']).next()?.parse().ok())
        .collect();
    ensure!(!data.is_empty(), "btrfs does not tell how much data there is:\n{text}");
    let unallocated = unallocated.with_context(|| format!("btrfs does not tell what is unallocated:\n{text}"))?;
    Ok(BtrfsUsage { data: data.iter().sum(), unallocated })
}

/// The three numbers of `item 3 key (13631488 EXTENT_ITEM 4096) itemoff …` and what stands between them.
fn key(line: &str) -> Option<(u64, &str, u64)> {
    let (_, rest) = line.split_once(" key (")?;
    let (inside, _) = rest.split_once(')')?;
    let mut words = inside.split(' ');
    let key = (words.next()?.parse().ok()?, words.next()?, words.next()?.parse().ok()?);
    words.next().is_none().then_some(key)
}

fn parse(text: &str) -> Result<FreeFragments> {
    let (mut extents, mut groups, mut group) = (BTreeMap::new(), BTreeMap::new(), None);
    for line in text.lines() {
        match key(line) {
            Some((start, "EXTENT_ITEM", bytes)) => _ = extents.insert(start, bytes),
            Some((start, "BLOCK_GROUP_ITEM", bytes)) => group = Some((start, bytes)),
            Some(_) => {}
            // Beneath the item: `block group used 4096 chunk_objectid 256 flags DATA|single`.
            None => {
                if let Some((_, flags)) = line.split_once(" flags ")
                    && line.trim_start().starts_with("block group used")
                    && let Some((start, bytes)) = group.take()
                    && flags.split('|').any(|flag| flag == "DATA")
                {
                    groups.insert(start, bytes);
                }
            }
        }
    }
    ensure!(!groups.is_empty(), "dump-tree shows no block group for data");
    let mut free = FreeFragments { free_blocks: 0, pieces: 0, largest_bytes: 0 };
    for (&start, &bytes) in &groups {
        let (mut at, end) = (start, start + bytes);
        for (&first, &length) in extents.range(start..end).chain([(&end, &0)]) {
            if let gap @ 1.. = first.saturating_sub(at) {
                free.free_blocks += gap / BLOCK;
                free.pieces += 1;
                free.largest_bytes = free.largest_bytes.max(gap);
            }
            at = first + length;
        }
    }
    Ok(free)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gaps_between_extents_are_counted_in_groups_for_data_only() {
        let text = "\
btrfs-progs v6.2
extent tree key (EXTENT_TREE ROOT_ITEM 0)
leaf 30703616 items 8 free space 15 generation 9 owner EXTENT_TREE
	item 0 key (1048576 EXTENT_ITEM 8192) itemoff 16230 itemsize 53
		refs 1 gen 7 flags DATA
		(178 0x65) extent data backref root FS_TREE objectid 257 offset 0 count 1
	item 1 key (1048576 BLOCK_GROUP_ITEM 1048576) itemoff 16206 itemsize 24
		block group used 12288 chunk_objectid 256 flags DATA|single
	item 2 key (1060864 EXTENT_ITEM 4096) itemoff 16153 itemsize 53
		refs 1 gen 7 flags DATA
	item 3 key (2097152 BLOCK_GROUP_ITEM 1048576) itemoff 16206 itemsize 24
		block group used 0 chunk_objectid 256 flags DATA|single
	item 4 key (5242880 METADATA_ITEM 0) itemoff 16153 itemsize 33
		refs 1 gen 7 flags TREE_BLOCK
	item 5 key (5242880 BLOCK_GROUP_ITEM 1048576) itemoff 16206 itemsize 24
		block group used 16384 chunk_objectid 256 flags METADATA|DUP
";
        let (first, second) = (4096, 1_048_576 - 16_384);
        let wanted = FreeFragments { free_blocks: (first + second) / BLOCK + 256, pieces: 3, largest_bytes: 1_048_576 };
        assert_eq!(parse(text).unwrap(), wanted);
        assert!(parse("btrfs-progs v6.2\n").is_err());
    }

    #[test]
    fn the_usage_is_found() {
        let text = "Overall:\n    Device size:\t\t\t1073741824\n    Device unallocated:\t\t\t 952107008\n\n\
                    Data,single: Size:8388608, Used:4096 (0.05%)\n   /dev/loop0\t 8388608\n\n\
                    Metadata,DUP: Size:53673984, Used:131072 (0.24%)\n";
        assert_eq!(parse_usage(text).unwrap(), BtrfsUsage { data: 4096, unallocated: 952_107_008 });
        assert!(parse_usage("").is_err());
    }
}
