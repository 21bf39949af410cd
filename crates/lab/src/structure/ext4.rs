//! The structures of ext4, as the kernel's documentation of the format (filesystems/ext4) defines them.
//!
//! For volumes without checksums of metadata: a hostile writer makes those right anyway.

use super::{Field, Layout, Structures, number};

const SUPERBLOCK: Layout = &[
    ("inodes", 0, 4),
    ("blocks", 4, 4),
    ("reserved blocks", 8, 4),
    ("free blocks", 12, 4),
    ("free inodes", 16, 4),
    ("first data block", 20, 4),
    ("log block size", 24, 4),
    ("log cluster size", 28, 4),
    ("blocks per group", 32, 4),
    ("clusters per group", 36, 4),
    ("inodes per group", 40, 4),
    ("magic", 56, 2),
    ("state", 58, 2),
    ("errors", 60, 2),
    ("creator", 72, 4),
    ("revision", 76, 4),
    ("first inode", 84, 4),
    ("inode size", 88, 2),
    ("group", 90, 2),
    ("compatible features", 92, 4),
    ("incompatible features", 96, 4),
    ("read-only features", 100, 4),
    ("reserved descriptor blocks", 206, 2),
    ("journal inode", 224, 4),
    ("journal device", 228, 4),
    ("last orphan", 232, 4),
    ("hash version", 252, 1),
    ("descriptor size", 254, 2),
    ("first meta group", 260, 4),
    ("blocks high", 336, 4),
    ("minimum extra size", 348, 2),
    ("wanted extra size", 350, 2),
    ("flags", 352, 4),
    ("mmp interval", 358, 2),
    ("mmp block", 360, 8),
    ("log groups of flex group", 372, 1),
    ("checksum type", 373, 1),
    ("snapshot inode", 384, 4),
    ("user quota inode", 576, 4),
    ("group quota inode", 580, 4),
    ("overhead", 584, 4),
    ("backup groups", 588, 8),
    ("encryption", 596, 4),
    ("project quota inode", 620, 4),
    ("checksum seed", 624, 4),
    ("orphan file inode", 640, 4),
];

const DESCRIPTOR: Layout = &[
    ("block bitmap", 0, 4),
    ("inode bitmap", 4, 4),
    ("inode table", 8, 4),
    ("free blocks", 12, 2),
    ("free inodes", 14, 2),
    ("directories", 16, 2),
    ("flags", 18, 2),
    ("unused inodes", 28, 2),
    ("block bitmap high", 32, 4),
    ("inode bitmap high", 36, 4),
    ("inode table high", 40, 4),
    ("free blocks high", 44, 2),
    ("unused inodes high", 50, 2),
];

const INODE: Layout = &[
    ("mode", 0, 2),
    ("size", 4, 4),
    ("deletion time", 20, 4),
    ("links", 26, 2),
    ("blocks", 28, 4),
    ("flags", 32, 4),
    ("generation", 100, 4),
    ("attribute block", 104, 4),
    ("size high", 108, 4),
    ("blocks high", 116, 2),
    ("attribute block high", 118, 2),
    ("extra size", 128, 2),
    ("attribute magic", 160, 4),
    ("attribute name length", 164, 1),
    ("attribute value offset", 166, 2),
    ("attribute inode", 168, 4),
    ("attribute value size", 172, 4),
];

const EXTENT_HEADER: Layout =
    &[("magic", 0, 2), ("entries", 2, 2), ("most entries", 4, 2), ("depth", 6, 2), ("generation", 8, 4)];
const EXTENT: Layout = &[("logical block", 0, 4), ("length", 4, 2), ("start high", 6, 2), ("start", 8, 4)];
const INDEX: Layout = &[("logical block", 0, 4), ("node", 4, 4), ("node high", 8, 2)];
const DIRECTORY_ENTRY: Layout = &[("inode", 0, 4), ("length", 4, 2), ("name length", 6, 1), ("type", 7, 1)];
const TREE_ROOT: Layout = &[
    ("hash version", 4, 1),
    ("length", 5, 1),
    ("levels", 6, 1),
    ("limit", 8, 2),
    ("count", 10, 2),
    ("block", 12, 4),
    ("second hash", 16, 4),
    ("second block", 20, 4),
];
const JOURNAL: Layout = &[
    ("magic", 0, 4),
    ("type", 4, 4),
    ("block size", 12, 4),
    ("length", 16, 4),
    ("first", 20, 4),
    ("sequence", 24, 4),
    ("start", 28, 4),
    ("error", 32, 4),
    ("compatible features", 36, 4),
    ("incompatible features", 40, 4),
];

const JOURNAL_INODE: u64 = 8;
const HAS_EXTENTS: u64 = 0x8_0000;
const HAS_INDEX: u64 = 0x1000;
const INLINE: u64 = 0x1000_0000;
const WIDE: u64 = 0x80;

/// The structures of a sound volume.
#[must_use]
pub fn ext4(image: &[u8]) -> Structures {
    let field = |at: usize, bytes| number(image, 1024 + at, bytes);
    let mut found = Structures::new(|_| ());
    found.add("superblock", 1024, 1024, SUPERBLOCK);
    let block = 1024usize << field(24, 4);
    let (blocks, per_group, inodes) = (field(4, 4), field(32, 4), field(40, 4));
    let groups = (blocks - field(20, 4)).div_ceil(per_group);
    let descriptor = if field(96, 4) & WIDE == 0 { 32 } else { field(254, 2) as usize };
    let inode = field(88, 2) as usize;
    found.notable.extend([blocks, groups, inodes, inodes * groups, per_group, block as u64]);
    let table = (field(20, 4) as usize + 1) * block;
    for group in 0..groups as usize {
        let at = table + group * descriptor;
        found.add("group descriptor", at, descriptor, DESCRIPTOR);
        let [bitmap, inode_bitmap, inode_table] = [0, 4, 8].map(|offset| number(image, at + offset, 4) as usize);
        found.notable.extend([bitmap, inode_bitmap, inode_table].map(|block| block as u64));
        for (kind, at, length) in [("block bitmap", bitmap, per_group / 8), ("inode bitmap", inode_bitmap, inodes / 8)]
        {
            found.add_bytes(kind, at * block..at * block + length as usize);
        }
        for index in 0..inodes as usize {
            let at = inode_table * block + index * inode;
            let number = group as u64 * inodes + index as u64 + 1;
            if super::number(image, at + 26, 2) > 0 {
                found.notable.push(number);
                add_inode(&mut found, image, (at, inode, block), number);
            }
        }
    }
    found
}

fn add_inode(found: &mut Structures, image: &[u8], (at, length, block): (usize, usize, usize), inode: u64) {
    found.add("inode", at, length, INODE);
    let (mode, flags) = (number(image, at, 2) & 0xf000, number(image, at + 32, 4));
    let is_directory = mode == 0x4000;
    let mut content = Vec::new();
    if flags & INLINE != 0 {
        if is_directory {
            add_entries(found, image, at + 44, at + 100);
        }
        return;
    }
    if flags & HAS_EXTENTS != 0 {
        add_node(found, image, (at + 40, 60), block, &mut content);
    } else if is_directory || mode == 0x8000 {
        for slot in 0..15 {
            let place = Field { name: "block", at: at + 40 + slot * 4, bytes: 4, is_big_endian: false };
            found.add_field("block map", place);
            if slot < 12 {
                content.push(place.get(image) as usize);
            } else if place.get(image) != 0 {
                let node = place.get(image) as usize * block;
                let entries = (node..node + block).step_by(4);
                for at in entries.filter(|at| number(image, *at, 4) != 0) {
                    found.add_field("block map", Field { name: "entry", at, bytes: 4, is_big_endian: false });
                }
            }
        }
    }
    let attributes = number(image, at + 104, 4) as usize;
    if attributes != 0 {
        let layout = &[("magic", 0, 4), ("references", 4, 4), ("blocks", 8, 4), ("hash", 12, 4)];
        found.add("attribute block", attributes * block, block, layout);
    }
    if is_directory {
        for (index, place) in content.iter().filter(|place| **place != 0).enumerate() {
            let start = place * block;
            if flags & HAS_INDEX != 0 && index == 0 {
                found.add("directory tree", start + 24, block - 24, TREE_ROOT);
            }
            add_entries(found, image, start, start + block);
        }
    }
    if inode == JOURNAL_INODE
        && let Some(first) = content.first()
    {
        found.add_ordered("journal", (first * block, 1024), JOURNAL, true);
    }
}

/// A node of an extent tree, and those below it. Adds the blocks that it maps to `content`.
fn add_node(
    found: &mut Structures,
    image: &[u8],
    (at, length): (usize, usize),
    block: usize,
    content: &mut Vec<usize>,
) {
    found.add("extent node", at, length, EXTENT_HEADER);
    let (entries, depth) = (number(image, at + 2, 2) as usize, number(image, at + 6, 2));
    for entry in (0..entries).map(|index| at + 12 * (index + 1)) {
        if depth > 0 {
            found.add("extent index", entry, 12, INDEX);
            add_node(found, image, (number(image, entry + 4, 4) as usize * block, block), block, content);
        } else {
            found.add("extent", entry, 12, EXTENT);
            let (start, count) = (number(image, entry + 8, 4) as usize, number(image, entry + 4, 2) as usize);
            content.extend(start..start + if count > 32_768 { 0 } else { count });
        }
    }
}

fn add_entries(found: &mut Structures, image: &[u8], mut at: usize, end: usize) {
    while at + 8 <= end {
        let length = number(image, at + 4, 2) as usize;
        if length < 8 {
            return;
        }
        found.add("directory entry", at, 8, DIRECTORY_ENTRY);
        at += length;
    }
}
