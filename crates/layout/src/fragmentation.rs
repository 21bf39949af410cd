//! The fragmentation figures: what counts as a fragment, in the usual terms.

use crate::{Blocks, Bytes, FileIndex, Run, VolumeLayout};
use serde::{Deserialize, Serialize};

/// The number of physically contiguous ranges of a file. Adjacent ranges on the volume count as ONE, whatever the
/// number of extent records, and a hole between them does not count.
pub fn count_fragments(runs: impl IntoIterator<Item = Run>) -> u64 {
    let mut fragments = 0;
    let mut end = None;
    for run in runs {
        if end != Some(run.physical) {
            fragments += 1;
        }
        end = Some(run.extent().end());
    }
    fragments
}

/// The free space of a volume.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct FreeSpace {
    /// All of it.
    pub bytes: Bytes,
    /// Contiguous free ranges.
    pub pieces: u64,
    /// The longest of them.
    pub largest_bytes: Bytes,
    /// The least number of obstacle-free segments that can hold all the free space. No optimizer can achieve fewer
    /// pieces.
    pub floor_pieces: u64,
}

/// The state of a volume in figures.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Fragmentation {
    /// Regular files (and long symbolic links) that own blocks or could.
    pub files: u64,
    /// Directories.
    pub directories: u64,
    /// Files with more than one fragment.
    pub fragmented_files: u64,
    /// Sum over files of (fragments - 1). The goal is 0.
    pub excess_fragments: u64,
    /// The part of the excess in immovable files.
    pub pinned_excess_fragments: u64,
    /// Sum over directories of (fragments - 1): no kernel moves directories of a mounted volume.
    pub directory_excess_fragments: u64,
    /// Everything that is not free.
    pub used_bytes: Bytes,
    /// Free space.
    pub free_space: FreeSpace,
}

impl Fragmentation {
    /// Excess fragments of the files that may move.
    #[must_use]
    pub fn movable_excess(&self) -> u64 {
        self.excess_fragments.saturating_sub(self.pinned_excess_fragments)
    }
}

/// One of the most fragmented files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FragmentedFile {
    /// Which file.
    pub file: FileIndex,
    /// Its fragments.
    pub fragments: u64,
    /// The blocks it occupies.
    pub size: Blocks,
}

impl VolumeLayout {
    /// Computes all figures in one sweep.
    #[must_use]
    pub fn fragmentation(&self) -> Fragmentation {
        let mut figures = Fragmentation::default();
        for file in self.files() {
            let excess = file.fragments().saturating_sub(1);
            if file.record.is_directory {
                figures.directories += 1;
                if file.is_fixed_directory() {
                    figures.directory_excess_fragments += excess;
                    continue;
                }
            } else {
                figures.files += 1;
            }
            figures.fragmented_files += u64::from(excess > 0);
            figures.excess_fragments += excess;
            if !file.is_movable() && self.leader_of(file.index).is_none() {
                figures.pinned_excess_fragments += excess;
            }
        }
        let free = self.free_blocks();
        figures.used_bytes = self.block_size().to_bytes(self.total_blocks().saturating_sub(free));
        figures.free_space = FreeSpace {
            bytes: self.block_size().to_bytes(free),
            pieces: self.free().len() as u64,
            largest_bytes: self.block_size().to_bytes(self.free().iter().map(|e| e.length).max().unwrap_or_default()),
            floor_pieces: self.floor_pieces(),
        };
        figures
    }

    /// The least number of obstacle-free segments (volume minus immovable areas) that can hold all the free space:
    /// the largest segments are taken until they suffice.
    #[must_use]
    pub fn floor_pieces(&self) -> u64 {
        let mut lengths: Vec<u64> = self.segments().iter().map(|s| s.length.0).collect();
        lengths.sort_unstable_by(|a, b| b.cmp(a));
        let mut wanted = self.free_blocks().0;
        let mut pieces = 0;
        for length in lengths {
            if wanted == 0 {
                break;
            }
            wanted = wanted.saturating_sub(length);
            pieces += 1;
        }
        pieces
    }

    /// The `count` most fragmented files, worst first; among equals the one with the lower index.
    #[must_use]
    pub fn most_fragmented(&self, count: usize) -> Vec<FragmentedFile> {
        let mut worst: Vec<FragmentedFile> = self
            .files()
            .filter(|f| !f.is_fixed_directory())
            .map(|f| FragmentedFile { file: f.index, fragments: f.fragments(), size: f.size() })
            .filter(|f| f.fragments > 1)
            .collect();
        worst.sort_unstable_by_key(|f| (std::cmp::Reverse(f.fragments), f.file));
        worst.truncate(count);
        worst
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn adjacent_extents_are_one_fragment_and_holes_do_not_count() {
        assert_eq!(count_fragments([]), 0);
        assert_eq!(count_fragments([Run::new(0, 100, 10), Run::new(10, 110, 5)]), 1);
        assert_eq!(count_fragments([Run::new(0, 100, 10), Run::new(90, 110, 5)]), 1);
        assert_eq!(count_fragments([Run::new(0, 100, 10), Run::new(10, 111, 5)]), 2);
        assert_eq!(count_fragments([Run::new(0, 100, 10), Run::new(10, 90, 10)]), 2);
    }
}
