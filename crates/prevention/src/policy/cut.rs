//! Divides a preallocation into extents, for file systems that free an extent only as a whole.
//!
//! Owns the lengths. btrfs keeps an extent as long as any part of it is referenced, also by a snapshot. What a file
//! leaves unused of its last extent is therefore not usable by others while the file exists ([decision
//! 14](../../../../docs/decisions/0014-runways-on-btrfs-are-cut.md)).

use longrun_layout::Bytes;
use longrun_sys::ByteRange;
use longrun_sys::FileSystem;

/// An extent of a runway is at most such a part of what lies before it in the file: so much of the file can be lost …
const PART_OF_FILE: u64 = 32;
/// … but it is no shorter than this: a call for each keeps the others waiting. What a small file leaves of one is copied away.
const SHORTEST: u64 = 256 << 10;
/// … or longer: btrfs keeps extents from 8 MiB on in other places than shorter ones.
const LONGEST: u64 = 4 << 20;
/// The extents of a window: shorter stretches than a MiB are not given back anyway.
const IN_WINDOW: u64 = 256 << 10;

/// How a preallocation is divided.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cut {
    /// Not at all.
    Whole,
    /// The farther into the file, the longer.
    Runway,
    /// All alike.
    Window,
}

impl Cut {
    /// How a runway is cut.
    #[must_use]
    pub const fn of_runway(filesystem: FileSystem) -> Self {
        if matches!(filesystem, FileSystem::Btrfs) { Self::Runway } else { Self::Whole }
    }

    /// How a window is cut.
    #[must_use]
    pub const fn of_window(filesystem: FileSystem) -> Self {
        if matches!(filesystem, FileSystem::Btrfs) { Self::Window } else { Self::Whole }
    }

    /// The first extent of `rest`, no shorter than `least`, a power of two. Extents end at multiples of their length, which
    /// is one, too, as requests mostly do.
    #[must_use]
    pub fn first(self, rest: ByteRange, least: Bytes) -> ByteRange {
        let step = match self {
            Self::Whole => return rest,
            Self::Window => IN_WINDOW,
            Self::Runway => {
                let power = rest.start.0.checked_ilog2().map_or(0, |log2| 1 << log2);
                (power / PART_OF_FILE).clamp(SHORTEST, LONGEST)
            }
        };
        let step = step.max(least.0);
        let until_end = step - rest.start.0 % step;
        ByteRange { start: rest.start, length: rest.length.min(Bytes(until_end)) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    fn all(cut: Cut, start: u64, length: u64) -> Vec<ByteRange> {
        let mut rest = Some(ByteRange { start: Bytes(start), length: Bytes(length) });
        let mut pieces = Vec::new();
        while let Some(range) = rest {
            let piece = cut.first(range, Bytes(0));
            rest = range.not_before(Bytes(piece.start.0 + piece.length.0));
            pieces.push(piece);
        }
        pieces
    }

    #[test]
    fn the_extents_of_a_runway_follow_each_other_and_none_is_more_than_three_percent_of_what_lies_before() {
        for start in [0, 4096, 300 << 10, MIB + 4096, 9 * MIB, 3 << 30] {
            let pieces = all(Cut::Runway, start, 64 * MIB);
            let mut at = start;
            for piece in &pieces {
                assert_eq!(piece.start.0, at);
                assert!(piece.length.0 <= SHORTEST || piece.length.0 * 32 <= at, "{piece:?}");
                at += piece.length.0;
            }
            assert_eq!(at, start + 64 * MIB);
        }
        // 32 for each doubling, and not more the larger the file becomes.
        assert_eq!(all(Cut::Runway, MIB, 15 * MIB).len(), 7 * 4 + 32);
        assert_eq!(all(Cut::Runway, 1 << 40, 128 * MIB).len(), 32);
    }

    #[test]
    fn only_btrfs_is_cut() {
        let range = ByteRange { start: Bytes(5), length: Bytes(64 * MIB) };
        assert_eq!(Cut::of_runway(FileSystem::Ext4).first(range, Bytes(0)), range);
        assert_eq!(Cut::of_window(FileSystem::Xfs).first(range, Bytes(MIB)), range);
        assert_eq!(all(Cut::of_window(FileSystem::Btrfs), 16 * MIB, 16 * MIB).len(), 64);
        let end = ByteRange { start: Bytes(u64::MAX - 1), length: Bytes(1) };
        assert_eq!(Cut::Runway.first(end, Bytes(MIB)), end);
    }
}
