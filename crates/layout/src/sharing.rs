//! Groups of files that share all their blocks. When the first file of a group moves, the others move with it.
//!
//! Owns the grouping. A file that shares only a part of its blocks, or shares blocks with unknown files, belongs to no
//! group and stays in place.

use crate::{FileIndex, FileView};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};

/// Groups of files that share all their blocks, by the first file of each group, the leader.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Sharing {
    followers: BTreeMap<FileIndex, Vec<FileIndex>>,
    leaders: BTreeMap<FileIndex, FileIndex>,
}

/// Larger groups are not moved, because each move would have to be made for every file.
const MOST_OWNERS: usize = 64;

impl Sharing {
    /// Groups `files`, which all share blocks, by the blocks that they own.
    pub(crate) fn of(files: &[FileView<'_>]) -> Self {
        let mut by_runs: Vec<&FileView<'_>> = files.iter().filter(|file| file.runs().len() > 0).collect();
        let runs = |file: &FileView<'_>| -> Vec<(u64, u64, u64)> {
            file.runs().map(|run| (run.physical.0, run.logical.0, run.length.0)).collect()
        };
        by_runs.sort_by_cached_key(|file| (runs(file), file.index));
        let mut sharing = Self::default();
        for group in by_runs.chunk_by(|a, b| a.runs().eq(b.runs())) {
            let [leader, rest @ ..] = group else { continue };
            if rest.is_empty() || group.len() > MOST_OWNERS {
                continue;
            }
            sharing.followers.insert(leader.index, rest.iter().map(|file| file.index).collect());
            sharing.leaders.extend(rest.iter().map(|file| (file.index, leader.index)));
        }
        sharing
    }

    /// The files that move with `leader`.
    pub(crate) fn followers(&self, leader: FileIndex) -> &[FileIndex] {
        self.followers.get(&leader).map_or(&[], Vec::as_slice)
    }

    /// The file that `follower` moves with.
    pub(crate) fn leader_of(&self, follower: FileIndex) -> Option<FileIndex> {
        self.leaders.get(&follower).copied()
    }

    /// All leaders.
    pub(crate) fn leaders(&self) -> impl Iterator<Item = FileIndex> + '_ {
        self.followers.keys().copied()
    }

    /// Dissolves the group of `leader`, which does not move.
    pub(crate) fn dissolve(&mut self, leader: FileIndex) {
        for follower in self.followers.remove(&leader).unwrap_or_default() {
            self.leaders.remove(&follower);
        }
    }

    /// All files that belong to a group.
    pub(crate) fn members(&self) -> BTreeSet<FileIndex> {
        self.followers.iter().flat_map(|(leader, rest)| std::iter::once(leader).chain(rest)).copied().collect()
    }
}

#[cfg(test)]
mod tests {
    use crate::{BlockSize, Blocks, Extent, FileId, FileIndex, InodeNumber, LayoutBuilder, NO_DIRECTORY, Pin, Run};

    fn builder(files: &[(bool, Option<Pin>, &[Run])]) -> LayoutBuilder {
        let mut builder = LayoutBuilder::new(BlockSize::new(4096).unwrap(), Blocks(1000));
        for (number, (shares, pin, runs)) in (11..).zip(files) {
            let id = FileId { inode: InodeNumber(number), generation: 1 };
            let index = builder.push_file(id, NO_DIRECTORY, false, *pin, &mut runs.to_vec());
            if *shares {
                builder.shares_blocks(index);
            }
        }
        builder
    }

    const TORN: [Run; 2] = [Run::new(0, 100, 5), Run::new(5, 200, 5)];

    #[test]
    fn files_in_the_same_blocks_move_as_one_and_each_counts() {
        let alone = [Run::new(0, 300, 5)];
        let mut builder =
            builder(&[(true, None, &TORN), (false, None, &alone), (true, None, &TORN), (true, None, &TORN)]);
        builder.push_free(Extent::new(500, 100));
        let layout = builder.build().unwrap();
        assert_eq!(layout.followers(FileIndex(0)), [FileIndex(2), FileIndex(3)]);
        assert_eq!((layout.leader_of(FileIndex(3)), layout.leader_of(FileIndex(0))), (Some(FileIndex(0)), None));
        assert_eq!([0, 1, 2].map(|index| layout.owners(FileIndex(index))), [3, 1, 1]);
        let movable: Vec<u32> = layout.files().filter(|f| f.is_movable()).map(|f| f.index.0).collect();
        assert_eq!(movable, [0, 1]);
        let figures = layout.fragmentation();
        assert_eq!((figures.excess_fragments, figures.pinned_excess_fragments), (3, 0));
        assert!(!layout.obstacles().iter().any(|o| o.intersection(&Extent::new(100, 5)).is_some()));
        let (mut withheld, group) = (layout.clone(), [0, 2, 3].map(FileIndex));
        let were = withheld.withhold_files(&group);
        assert!(withheld.files().filter(|f| f.is_movable()).map(|f| f.index.0).eq([1]));
        assert!(withheld.obstacles().iter().any(|o| o.contains(&Extent::new(100, 5))));
        withheld.readmit_files(were);
        assert_eq!(withheld, layout);
    }

    #[test]
    fn files_that_share_only_some_blocks_stay_and_so_do_their_partners() {
        let part = [Run::new(0, 100, 5), Run::new(5, 400, 5)];
        let copies: [(bool, Option<Pin>, &[Run]); 3] = [(true, None, &TORN), (true, None, &TORN), (true, None, &part)];
        let lonely: [(bool, Option<Pin>, &[Run]); 1] = [(true, None, &TORN)];
        let immutable: [(bool, Option<Pin>, &[Run]); 3] =
            [(true, None, &TORN), (true, Some(Pin::Immutable), &TORN), (true, None, &TORN)];
        for files in [&copies[..], &lonely, &immutable] {
            let layout = builder(files).build().unwrap();
            assert!(layout.files().all(|f| matches!(f.record.pin, Some(Pin::Shared | Pin::Immutable))), "{files:?}");
            assert!(layout.files().all(|f| layout.leader_of(f.index).is_none() && layout.owners(f.index) == 1));
            assert_eq!(layout.segments(), []);
        }
    }

    #[test]
    fn a_leader_that_is_pinned_later_leads_nobody() {
        let mut layout = builder(&[(true, None, &TORN), (true, None, &TORN)]).build().unwrap();
        layout.pin(&[FileIndex(0)], Pin::Immutable);
        assert_eq!((layout.owners(FileIndex(0)), layout.leader_of(FileIndex(1))), (1, None));
        assert_eq!(layout.fragmentation().pinned_excess_fragments, 2);
    }
}
