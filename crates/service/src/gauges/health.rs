//! Checks whether all free space can be used, to warn of "no space left on device" while space is free.
//!
//! Owns the thresholds of each file system. Pure: the figures are arguments. Answers "unknown" instead of guessing.
//!
//! - **XFS** allocates inodes in chunks, which need contiguous aligned blocks. If no free piece is long enough for a chunk and the
//!   allocated inodes are used up, no file can be created, however much space is free. Alert: fewer than [`XFS_FEWEST_INODES`] more
//!   files can be created while at least [`LEAST_FREE_SHARE`] of the volume is free.
//! - **btrfs** allocates space for data and metadata in chunks of some hundred MiB. If the whole device is allocated and the metadata
//!   chunks are full, nothing can be changed, however much space the data chunks have. Alert: less space is unallocated than one
//!   metadata chunk needs, and at least [`BTRFS_FULL_METADATA`] of the metadata chunks is used or reserved.
//! - **ext4** uses any free block for data, and creates its inodes with the file system. Alert: fewer than [`EXT4_FEWEST_INODES`] inodes
//!   are left while at least [`LEAST_FREE_SHARE`] of the volume is free.

use longrun_api::model::{Health, HealthLevel};

/// Below this share of free space, a volume is simply full, in per cent.
pub const LEAST_FREE_SHARE: u64 = 2;
/// XFS: at least so many more files must be possible.
pub const XFS_FEWEST_INODES: u64 = 4096;
/// ext4: at least so many inodes must be free.
pub const EXT4_FEWEST_INODES: u64 = 1024;
/// btrfs: so much of the metadata's part may be used or reserved, in per cent.
pub const BTRFS_FULL_METADATA: u64 = 90;
/// btrfs: what a chunk of metadata takes at most; on small volumes a tenth of the volume.
const BTRFS_METADATA_CHUNK: u64 = 256 << 20;

/// The figures of a volume that the check needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Figures {
    /// ext4.
    Ext4 {
        /// Inodes that are free.
        free_inodes: u64,
    },
    /// XFS.
    Xfs {
        /// Inodes that are allocated and free.
        free_inodes: u64,
        /// How many more fit into the free pieces.
        possible_inodes: u64,
    },
    /// btrfs.
    Btrfs {
        /// Not given out to anything.
        unallocated: u64,
        /// Given out to metadata.
        metadata: u64,
        /// Used of that, or reserved.
        metadata_used: u64,
        /// Copies of metadata.
        copies: u64,
    },
}

/// The verdict about a volume of `total` bytes with `free` bytes.
#[must_use]
pub fn judge(total: u64, free: u64, figures: Option<Figures>) -> Health {
    let Some(figures) = figures else {
        return Health {
            level: HealthLevel::Unknown,
            sentence: "unknown: the volume could not be examined".to_owned(),
        };
    };
    let full = u128::from(free) * 100 < u128::from(total) * u128::from(LEAST_FREE_SHARE);
    let (bad, sentence) = match figures {
        Figures::Ext4 { free_inodes } => (
            free_inodes < EXT4_FEWEST_INODES && !full,
            format!(
                "{free_inodes} inodes are left, and without inodes no file can be created: delete small files, or \
                 create the file system again with more inodes"
            ),
        ),
        Figures::Xfs { free_inodes, possible_inodes } => (
            free_inodes.saturating_add(possible_inodes) < XFS_FEWEST_INODES && !full,
            format!(
                "{} more files can be created, because the free pieces are too short for inode chunks: free some long \
                 pieces (delete or move large files)",
                free_inodes.saturating_add(possible_inodes)
            ),
        ),
        Figures::Btrfs { unallocated, metadata, metadata_used, copies } => {
            let chunk = BTRFS_METADATA_CHUNK.min(total / 10).max(1) * copies.max(1);
            let share = metadata_used.saturating_mul(100) / metadata.max(1);
            (
                unallocated < chunk && share >= BTRFS_FULL_METADATA,
                format!(
                    "{share} % of the metadata chunks is used or reserved, and no space is left for new chunks: run \
                     `btrfs balance start -dusage=50` on the volume"
                ),
            )
        }
    };
    if bad {
        Health { level: HealthLevel::Alert, sentence }
    } else {
        Health { level: HealthLevel::Good, sentence: "all free space can be used".to_owned() }
    }
}

/// How many inodes fit into free pieces (start and length in bytes, from the start of the volume).
#[must_use]
pub fn possible_inodes(pieces: impl Iterator<Item = (u64, u64)>, chunks: &longrun_sys::InodeChunks) -> u64 {
    let (align, chunk) = (chunks.align_bytes.max(1), chunks.chunk_bytes.max(1));
    // One chunk after the other lies aligned only when a chunk is as long as its alignment, or a multiple.
    let step = chunk.next_multiple_of(align);
    let fit = pieces.map(|(start, length)| {
        // Chunks are aligned within their allocation group, whose length need not be aligned.
        let inside = if chunks.group_bytes > 0 { start % chunks.group_bytes } else { start };
        let room = length.saturating_sub(inside.next_multiple_of(align) - inside);
        if room < chunk { 0 } else { 1 + (room - chunk) / step }
    });
    fit.sum::<u64>().saturating_mul(chunks.inodes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use longrun_sys::InodeChunks;

    const GIB: u64 = 1 << 30;

    fn level(free: u64, figures: Figures) -> HealthLevel {
        judge(100 * GIB, free, Some(figures)).level
    }

    #[test]
    fn xfs_alerts_when_no_piece_holds_a_chunk_of_inodes_although_space_is_free() {
        let xfs = |free_inodes, possible_inodes| Figures::Xfs { free_inodes, possible_inodes };
        assert_eq!(level(50 * GIB, xfs(100, 0)), HealthLevel::Alert);
        assert_eq!(level(50 * GIB, xfs(100, 1 << 20)), HealthLevel::Good);
        assert_eq!(level(50 * GIB, xfs(5000, 0)), HealthLevel::Good);
        assert_eq!(level(GIB, xfs(0, 0)), HealthLevel::Good, "a full volume is full, not fragmented");
    }

    #[test]
    fn btrfs_alerts_when_everything_is_given_out_and_metadata_is_nearly_full() {
        let btrfs =
            |unallocated, metadata_used| Figures::Btrfs { unallocated, metadata: GIB, metadata_used, copies: 2 };
        assert_eq!(level(50 * GIB, btrfs(0, GIB - 1000)), HealthLevel::Alert);
        assert_eq!(level(50 * GIB, btrfs(GIB, GIB - 1000)), HealthLevel::Good);
        assert_eq!(level(50 * GIB, btrfs(0, GIB / 2)), HealthLevel::Good);
    }

    #[test]
    fn ext4_alerts_when_inodes_run_out_and_what_is_unknown_is_said_to_be() {
        assert_eq!(level(50 * GIB, Figures::Ext4 { free_inodes: 10 }), HealthLevel::Alert);
        assert_eq!(level(50 * GIB, Figures::Ext4 { free_inodes: 10_000 }), HealthLevel::Good);
        assert_eq!(judge(100 * GIB, GIB, None).level, HealthLevel::Unknown);
    }

    #[test]
    fn only_aligned_room_counts_for_inodes() {
        let chunks = InodeChunks { chunk_bytes: 32768, align_bytes: 32768, inodes: 64, group_bytes: 1 << 30 };
        let inodes = |pieces: &[(u64, u64)]| possible_inodes(pieces.iter().copied(), &chunks);
        assert_eq!(inodes(&[(0, 32768)]), 64);
        assert_eq!(inodes(&[(4096, 32768)]), 0);
        assert_eq!(inodes(&[(4096, 65536)]), 64);
        assert_eq!(inodes(&[(0, 65536), (1 << 30, 32767)]), 128);
        assert_eq!(inodes(&[]), 0);
    }
}
