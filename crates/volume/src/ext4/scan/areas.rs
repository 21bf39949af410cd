//! Areas of the volume that belong to no ordinary file: `map` draws them as immovable, and `map --at` names them.

use longrun_layout::{Extent, PhysicalBlock};

/// The content of an area.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum AreaKind {
    /// The superblock or a copy of it (with 1 KiB blocks also the boot block).
    Superblock,
    /// Group descriptors or a copy of them.
    Descriptors,
    /// Room kept for more group descriptors, so that the volume can grow.
    ReservedDescriptors,
    /// The map of used blocks of a group.
    BlockBitmap,
    /// The map of used inodes of a group.
    InodeBitmap,
    /// Inodes.
    InodeTable,
    /// The block that keeps two hosts from mounting the volume at once.
    MountProtection,
    /// The journal.
    Journal,
    /// Another file of the file system itself (quota, resize, orphan list, large attribute values).
    System {
        /// Its inode number.
        inode: u32,
    },
    /// Blocks of a file's extent tree, or indirect blocks.
    FileMap {
        /// The file's inode number.
        inode: u32,
    },
    /// Extended attributes; the block may serve several files.
    Attributes {
        /// One of the files.
        inode: u32,
    },
    /// Preallocated blocks behind the end of a file: they do not move.
    BeyondEnd {
        /// The file's inode number.
        inode: u32,
    },
    /// Blocks of a file that was deleted while open.
    Deleted {
        /// The file's inode number.
        inode: u32,
    },
}

/// A contiguous area and what it holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Area {
    /// Where.
    pub extent: Extent,
    /// What.
    pub kind: AreaKind,
}

/// All areas of a volume, ascending; neighbours of one kind are one area.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Areas(Vec<Area>);

impl Areas {
    /// Sorts and joins.
    pub(in crate::ext4) fn new(mut areas: Vec<Area>) -> Self {
        areas.sort_unstable();
        areas.dedup_by(|next, kept| {
            let joined = kept.kind == next.kind && kept.extent.end() >= next.extent.start;
            if joined {
                kept.extent = Extent::between(kept.extent.start, kept.extent.end().max(next.extent.end()));
            }
            joined || kept.extent == next.extent
        });
        areas.shrink_to_fit();
        Self(areas)
    }

    /// All of them, ascending.
    #[must_use]
    pub fn all(&self) -> &[Area] {
        &self.0
    }

    /// The area that holds `block`.
    #[must_use]
    pub fn at(&self, block: PhysicalBlock) -> Option<Area> {
        let behind = self.0.partition_point(|a| a.extent.start <= block);
        // Areas do not overlap on a sound volume; a few steps back find an enclosing one on any other.
        self.0.get(..behind)?.iter().rev().take(8).find(|a| a.extent.end() > block).copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn neighbours_of_one_kind_are_joined_and_a_shared_block_is_listed_once() {
        let area = |start, length, kind| Area { extent: Extent::new(start, length), kind };
        let areas = Areas::new(vec![
            area(12, 2, AreaKind::InodeTable),
            area(10, 2, AreaKind::InodeTable),
            area(14, 1, AreaKind::Attributes { inode: 30 }),
            area(14, 1, AreaKind::Attributes { inode: 20 }),
        ]);
        assert_eq!(areas.all(), [area(10, 4, AreaKind::InodeTable), area(14, 1, AreaKind::Attributes { inode: 20 })]);
        assert_eq!(areas.at(PhysicalBlock(13)).map(|a| a.kind), Some(AreaKind::InodeTable));
        assert_eq!(areas.at(PhysicalBlock(15)), None);
    }
}
