//! Finds the files that share extents.
//!
//! Owns the grouping. Files with a common extent form one unit, because the space of an extent becomes free only when
//! no file refers to it. Never makes a system call.

use super::extents::DataExtents;
use longrun_layout::FileIndex;

/// The files of a volume in units. Files belong to one unit if they have common extents, directly or through other
/// files.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SharingSets {
    /// By file: the first file of its unit.
    leaders: Vec<u32>,
    /// The members of units of more than one file, unit by unit, ascending.
    members: Vec<u32>,
    /// Files that have an extent in common with another file, or twice themselves. Ascending.
    sharers: Vec<u32>,
}

impl SharingSets {
    /// Groups the files of `extents`.
    pub(super) fn of(extents: &DataExtents) -> Self {
        let mut order: Vec<u32> = (0..u32::try_from(extents.count()).unwrap_or(u32::MAX)).collect();
        order.sort_unstable_by_key(|at| (extents.place(*at), *at));
        let mut forest = Forest((0..u32::try_from(extents.files()).unwrap_or(u32::MAX)).collect());
        let mut sharers = Vec::new();
        for pair in order.windows(2) {
            let &[one, other] = pair else { continue };
            if extents.place(one) == extents.place(other) {
                let (one, other) = (extents.file_of(one).0, extents.file_of(other).0);
                forest.join(one, other);
                sharers.extend([one, other]);
            }
        }
        drop(order);
        sharers.sort_unstable();
        sharers.dedup();
        let mut members = sharers.clone();
        let leaders = forest.into_leaders();
        let leader = |file: u32| leaders.get(file as usize).copied().unwrap_or(file);
        members.sort_unstable_by_key(|file| (leader(*file), *file));
        // A file that has an extent twice is no unit of several.
        let mut several = Vec::new();
        for unit in members.chunk_by(|a, b| leader(*a) == leader(*b)).filter(|unit| unit.len() > 1) {
            several.extend_from_slice(unit);
        }
        Self { leaders, members: several, sharers }
    }

    /// The first file of the unit that `file` is in: the file itself when it shares nothing.
    #[must_use]
    pub fn leader(&self, file: FileIndex) -> FileIndex {
        FileIndex(self.leaders.get(file.0 as usize).copied().unwrap_or(file.0))
    }

    /// All files of the unit of `file`, ascending, itself included; none when it shares nothing with others.
    pub fn sharers_of(&self, file: FileIndex) -> impl ExactSizeIterator<Item = FileIndex> + Clone + '_ {
        let leader = self.leader(file).0;
        let of = |file: &u32| self.leader(FileIndex(*file)).0;
        let start = self.members.partition_point(|member| of(member) < leader);
        let rest = self.members.get(start..).unwrap_or_default();
        let length = rest.iter().take_while(|member| of(member) == leader).count();
        rest.get(..length).unwrap_or_default().iter().map(|file| FileIndex(*file))
    }

    /// Files that share an extent with another file, or have one twice. Ascending.
    pub fn sharing_files(&self) -> impl ExactSizeIterator<Item = FileIndex> + Clone + '_ {
        self.sharers.iter().map(|file| FileIndex(*file))
    }
}

/// Trees of files, each pointing towards its unit's first.
struct Forest(Vec<u32>);

impl Forest {
    fn root(&mut self, mut file: u32) -> u32 {
        while let Some(&above) = self.0.get(file as usize) {
            if above == file {
                break;
            }
            let further = self.0.get(above as usize).copied().unwrap_or(above);
            if let Some(slot) = self.0.get_mut(file as usize) {
                *slot = further;
            }
            file = further;
        }
        file
    }

    fn join(&mut self, one: u32, other: u32) {
        let (one, other) = (self.root(one), self.root(other));
        if let Some(slot) = self.0.get_mut(one.max(other) as usize) {
            *slot = one.min(other);
        }
    }

    fn into_leaders(mut self) -> Vec<u32> {
        for file in 0..self.0.len() as u32 {
            let root = self.root(file);
            if let Some(slot) = self.0.get_mut(file as usize) {
                *slot = root;
            }
        }
        self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::btrfs::{Address, DataExtent};
    use longrun_layout::{BlockSize, Bytes};
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    /// One list of places of extents for each file.
    fn extents(files: &[Vec<u64>]) -> DataExtents {
        let mut all = DataExtents::new(BlockSize::new(4096).unwrap());
        for places in files {
            assert!(all.begin_file());
            for (number, place) in (0..).zip(places) {
                let at = |block: u64| Bytes(block * 4096);
                assert!(all.push(&DataExtent {
                    logical: at(number),
                    length: at(1),
                    disk: Address(at(*place).0),
                    disk_length: at(1),
                    offset: Bytes(0),
                    is_compressed: false,
                    is_preallocated: false,
                }));
            }
        }
        all
    }

    #[test]
    fn files_that_share_through_a_third_are_one_unit() {
        let sets = SharingSets::of(&extents(&[vec![1, 2], vec![9], vec![3], vec![2, 3], vec![7, 7], vec![]]));
        assert_eq!(sets.sharers_of(FileIndex(3)).map(|f| f.0).collect::<Vec<_>>(), [0, 2, 3]);
        assert_eq!(sets.sharers_of(FileIndex(4)).len(), 0, "an extent twice in one file is nobody else's");
        assert_eq!(sets.sharing_files().map(|f| f.0).collect::<Vec<_>>(), [0, 2, 3, 4]);
        assert_eq!([1, 3, 4, 5].map(|file| sets.leader(FileIndex(file)).0), [1, 0, 4, 5]);
    }

    proptest! {
        #[test]
        fn units_agree_with_a_naive_search(files in prop::collection::vec(prop::collection::vec(0u64..40, 0..4), 0..30)) {
            let sets = SharingSets::of(&extents(&files));
            for start in 0..files.len() {
                let (mut unit, mut open) = (BTreeSet::from([start]), vec![start]);
                while let Some(file) = open.pop() {
                    for (other, places) in files.iter().enumerate() {
                        if places.iter().any(|p| files[file].contains(p)) && unit.insert(other) {
                            open.push(other);
                        }
                    }
                }
                let found: BTreeSet<usize> = sets.sharers_of(FileIndex(start as u32)).map(|f| f.0 as usize).collect();
                if unit.len() > 1 {
                    prop_assert_eq!(found, unit);
                } else {
                    prop_assert!(found.is_empty());
                }
            }
        }
    }
}
