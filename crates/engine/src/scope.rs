//! The scope of a pass: the files that belong to the volume, the directory or the file that the user named.
//!
//! Owns the choice of files. Other files are left out of the layout that the planner sees, so their blocks are
//! obstacles, like all blocks with an unknown owner.

use crate::Settings;
use longrun_layout::{FileId, FileIndex, FileView, InodeNumber, LayoutBuilder, LayoutError, Pin, Run, VolumeLayout};
use longrun_planner::Mode;
use std::collections::BTreeSet;
use std::sync::Arc;

/// The files of a volume that a pass works on.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Scope {
    /// All, and the free space.
    #[default]
    Volume,
    /// One file, and what shares blocks with it.
    File(FileId),
    /// The files below a directory, and what shares blocks with them.
    Directory {
        /// Their numbers.
        inodes: Arc<BTreeSet<InodeNumber>>,
        /// The subvolume that the directory lies in; 0 where there are none.
        subvolume: u32,
    },
}

impl Scope {
    /// The one file.
    #[must_use]
    pub fn file(&self) -> Option<FileId> {
        match self {
            Self::File(id) => Some(*id),
            Self::Volume | Self::Directory { .. } => None,
        }
    }

    /// Whether a file is meant, those that share blocks with one left aside.
    #[must_use]
    pub fn has(&self, file: &FileView<'_>) -> bool {
        match self {
            Self::Volume => true,
            Self::File(id) => *id == file.id(),
            // Where there are subvolumes, their numbers are the files' generations in a layout.
            Self::Directory { inodes, subvolume } => {
                inodes.contains(&file.record.inode) && (*subvolume == 0 || file.id().generation == *subvolume)
            }
        }
    }

    /// Whether a mode fits: free space belongs to the volume as a whole.
    #[must_use]
    pub fn permits(&self, mode: Mode) -> bool {
        mode != Mode::Full || *self == Self::Volume
    }
}

/// The layout of a volume, and the part of it that is planned for.
#[derive(Debug)]
pub struct Scoped {
    whole: VolumeLayout,
    /// Where that is not the whole.
    part: Option<VolumeLayout>,
}

impl From<VolumeLayout> for Scoped {
    fn from(whole: VolumeLayout) -> Self {
        Self { whole, part: None }
    }
}

impl Scoped {
    /// What the scope of `settings` means of a layout. Of the files that are to stay, those that are whole are immovable in it.
    ///
    /// # Errors
    /// [`LayoutError`] when the layout contradicts itself, which one that was built before does not.
    pub fn new(mut whole: VolumeLayout, settings: &Settings) -> Result<Self, LayoutError> {
        let stays = |file: &FileView<'_>| settings.stay.contains(&file.id()) && file.fragments() <= 1;
        if !settings.stay.is_empty() {
            let stay: Vec<FileIndex> = whole.files().filter(stays).map(|file| file.index).collect();
            whole.pin(&stay, Pin::Gathered);
        }
        let part = match &settings.scope {
            // One file is planned for among all others.
            Scope::Volume | Scope::File(_) => None,
            scope @ Scope::Directory { .. } => Some(restrict(&whole, scope)?),
        };
        Ok(Self { whole, part })
    }

    /// The whole.
    #[must_use]
    pub fn whole(&self) -> &VolumeLayout {
        &self.whole
    }

    /// The whole, when nothing is planned any more.
    #[must_use]
    pub fn into_whole(self) -> VolumeLayout {
        self.whole
    }

    /// What is planned for.
    #[must_use]
    pub fn planned(&self) -> &VolumeLayout {
        self.part.as_ref().unwrap_or(&self.whole)
    }

    /// The same, to be changed for a while.
    pub fn planned_mut(&mut self) -> &mut VolumeLayout {
        self.part.as_mut().unwrap_or(&mut self.whole)
    }
}

/// The layout with the files of `scope` alone, and those that lie in the same blocks as one of them; the blocks of all others
/// are obstacles.
fn restrict(layout: &VolumeLayout, scope: &Scope) -> Result<VolumeLayout, LayoutError> {
    let mut builder = LayoutBuilder::like(layout);
    let mut runs: Vec<Run> = Vec::new();
    let leader = |file: &FileView<'_>| layout.leader_of(file.index).unwrap_or(file.index);
    let is_chosen = |file: &FileView<'_>| scope.has(file);
    let sharers = layout.sharers();
    // None of those that lie in the same blocks can move without the others.
    let groups: BTreeSet<FileIndex> =
        sharers.iter().filter_map(|index| layout.file(*index).filter(is_chosen).map(|file| leader(&file))).collect();
    for file in layout.files() {
        let shares = sharers.contains(&file.index);
        let comes_along = shares && groups.contains(&leader(&file));
        if !is_chosen(&file) && !comes_along {
            continue;
        }
        runs.clear();
        runs.extend(file.runs());
        let record = file.record;
        let pin = if shares { None } else { record.pin };
        let index = builder.push_file(file.id(), record.directory, record.is_directory, pin, &mut runs);
        if shares {
            builder.shares_blocks(index);
        }
    }
    for piece in layout.free() {
        builder.push_free(*piece);
    }
    let mut restricted = builder.build()?;
    restricted.set_regions(layout.regions().to_vec());
    Ok(restricted)
}

#[cfg(test)]
mod tests {
    use super::*;
    use longrun_layout::{BlockSize, Blocks, Extent, NO_DIRECTORY};

    fn below(inode: u64) -> Scope {
        Scope::Directory { inodes: Arc::new([InodeNumber(inode)].into()), subvolume: 0 }
    }

    #[test]
    fn files_that_were_not_chosen_become_obstacles() {
        let mut b = LayoutBuilder::new(BlockSize::new(4096).unwrap(), Blocks(100));
        for (inode, start) in [(11, 10), (12, 30), (13, 50)] {
            let id = FileId { inode: InodeNumber(inode), generation: 1 };
            b.push_file(id, NO_DIRECTORY, false, None, &mut vec![Run::new(0, start, 5), Run::new(5, start + 10, 5)]);
        }
        b.push_free(Extent::new(70, 30));
        let layout = b.build().unwrap();
        let only = restrict(&layout, &below(12)).unwrap();
        assert_eq!(only.files().map(|f| f.record.inode.0).collect::<Vec<_>>(), [12]);
        assert_eq!(only.free(), layout.free());
        assert_eq!(only.fragmentation().excess_fragments, 1);
        assert!(only.obstacles().iter().any(|o| o.contains(&Extent::new(50, 5))));
    }

    #[test]
    fn of_what_is_to_stay_only_what_is_whole_is_immovable() {
        let mut b = LayoutBuilder::new(BlockSize::new(4096).unwrap(), Blocks(100));
        let id = |inode| FileId { inode: InodeNumber(inode), generation: 1 };
        b.push_file(id(11), NO_DIRECTORY, false, None, &mut vec![Run::new(0, 10, 5)]);
        b.push_file(id(12), NO_DIRECTORY, false, None, &mut vec![Run::new(0, 20, 5), Run::new(5, 40, 5)]);
        b.push_file(id(13), NO_DIRECTORY, false, None, &mut vec![Run::new(0, 30, 5)]);
        b.push_free(Extent::new(70, 30));
        let settings = Settings { stay: Arc::new([id(11), id(12)].into()), ..Settings::default() };
        let scoped = Scoped::new(b.build().unwrap(), &settings).unwrap();
        let movable: Vec<u64> =
            scoped.planned().files().filter(FileView::is_movable).map(|file| file.record.inode.0).collect();
        assert_eq!(movable, [12, 13], "what has become fragmented is mended, and so is gathered again");
    }

    #[test]
    fn a_file_that_shares_its_blocks_brings_those_that_share_them() {
        let mut b = LayoutBuilder::new(BlockSize::new(4096).unwrap(), Blocks(100));
        for (inode, start) in [(11, 10), (12, 30), (13, 10), (14, 10), (15, 30)] {
            let id = FileId { inode: InodeNumber(inode), generation: 1 };
            let file = b.push_file(id, NO_DIRECTORY, false, None, &mut vec![Run::new(0, start, 5)]);
            b.shares_blocks(file);
        }
        let only = restrict(&b.build().unwrap(), &below(13)).unwrap();
        assert_eq!(only.files().map(|f| f.record.inode.0).collect::<Vec<_>>(), [11, 13, 14]);
        assert_eq!(only.owners(FileIndex(0)), 3);
    }
}
