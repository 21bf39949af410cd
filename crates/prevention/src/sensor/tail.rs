//! The fallback's knowledge of one growing file: the location of its end on the volume, examination by examination.
//! Pure.

use crate::{Nanos, SignalKind};
use longrun_layout::Bytes;
use longrun_sys::FileExtent;
use longrun_sys::FileSystem;

/// What is as long is no small piece.
const SMALL: Bytes = Bytes(4 << 20);
/// A look is worth it once a file has grown by as much.
const GROWTH: Bytes = Bytes(256 << 10);
/// And when the last one is as long ago.
pub(super) const LOOK_PAUSE: Nanos = Nanos(20_000_000);
/// After such a time a file is reported as early as the first time.
const CALM: Nanos = Nanos(1_000_000_000);
/// Where the first look begins, before the end.
const FIRST_LOOK: Bytes = Bytes(1 << 20);

/// The end of a growing file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Tail {
    size: Bytes,
    /// The end of the last extent seen: in the file, and on the volume.
    end: Option<(Bytes, Bytes)>,
    pieces: u32,
    bytes: Bytes,
    limit: u32,
    pub(super) looked: Nanos,
    reported: Nanos,
}

impl Tail {
    /// From how many pieces on files of `filesystem` are reported: ext4 puts them into a few by itself.
    fn first_limit(filesystem: FileSystem) -> u32 {
        match filesystem {
            FileSystem::Ext4 => 4,
            FileSystem::Xfs | FileSystem::Btrfs => 2,
        }
    }

    /// From where on the map of the file is worth a look, now that it is `size` long; `None` when it has hardly grown.
    pub(super) fn wants_look(&mut self, size: Bytes) -> Option<Bytes> {
        if size < self.size {
            *self = Self { looked: self.looked, reported: self.reported, ..Self::default() };
        }
        let Some((seen, _)) = self.end else {
            return (size >= GROWTH).then(|| Bytes(size.0.saturating_sub(FIRST_LOOK.0)));
        };
        // Where the map ended, not where the file did: on btrfs a file is longer before its map is.
        (size.0 >= self.size.0.saturating_add(GROWTH.0)).then(|| seen.min(self.size))
    }

    /// Takes in the extents that were found behind the offset of [`Self::wants_look`], ascending. Says what is to be told.
    pub(super) fn look(
        &mut self,
        filesystem: FileSystem,
        size: Bytes,
        extents: &[FileExtent],
        now: Nanos,
    ) -> Option<SignalKind> {
        let first = Self::first_limit(filesystem);
        for extent in extents.iter().filter(|extent| extent.flags.has_address()) {
            let length = extent.length.0;
            let end = (Bytes(extent.logical.0.saturating_add(length)), Bytes(extent.physical.0.saturating_add(length)));
            if let Some((logical, physical)) = self.end
                && end.0 > logical
                && extent.logical >= logical
                && (extent.logical, extent.physical) != (logical, physical)
                && extent.length < SMALL
                && !extent.flags.is_unwritten()
            {
                self.pieces += 1;
                self.bytes.0 += length;
            }
            self.end = Some(end);
        }
        self.size = size;
        self.looked = now;
        let calm = now.0.saturating_sub(self.reported.0) > CALM.0;
        if calm || self.limit == 0 {
            self.limit = first;
        }
        if self.pieces < self.limit {
            return None;
        }
        let told = SignalKind::Fragmenting { allocations: self.pieces, bytes: self.bytes, end: size };
        self.limit = self.limit.saturating_mul(2);
        (self.reported, self.pieces, self.bytes) = (now, 0, Bytes(0));
        Some(told)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use longrun_sys::ExtentFlags;

    const KIB: u64 = 1024;

    fn extent(logical: u64, physical: u64, length: u64) -> FileExtent {
        let [logical, physical, length] = [logical, physical, length].map(|kib| Bytes(kib * KIB));
        FileExtent { logical, physical, length, flags: ExtentFlags::default() }
    }

    fn at(milliseconds: u64) -> Nanos {
        Nanos(milliseconds * 1_000_000)
    }

    #[test]
    fn a_file_in_small_pieces_is_told_of_by_doubling() {
        let mut tail = Tail::default();
        assert_eq!(tail.wants_look(Bytes(64 * KIB)), None);
        let mut told = Vec::new();
        for look in 1..40 {
            let size = Bytes(look * 256 * KIB);
            assert!(tail.wants_look(size).is_some());
            let pieces: Vec<_> =
                (0..4).map(|piece| (look - 1) * 4 + piece).map(|n| extent(n * 64, n * 128, 64)).collect();
            told.extend(tail.look(FileSystem::Xfs, size, &pieces, at(look)));
        }
        let counts: Vec<u32> = told
            .iter()
            .map(|kind| match kind {
                SignalKind::Fragmenting { allocations, .. } => *allocations,
                other => panic!("{other:?}"),
            })
            .collect();
        assert_eq!(counts, [3, 4, 8, 16, 32, 64]);
    }

    #[test]
    fn a_file_in_one_piece_and_a_file_in_large_ones_are_not_told_of() {
        for (length, distance) in [(256, 256), (8192, 9000)] {
            let mut tail = Tail::default();
            for look in 0..40 {
                let size = Bytes((look + 1) * length * KIB);
                let piece = extent(look * length, look * distance, length);
                assert_eq!(tail.look(FileSystem::Btrfs, size, &[piece], at(look)), None);
            }
        }
    }

    #[test]
    fn what_the_map_did_not_show_yet_is_looked_at_the_next_time() {
        let mut tail = Tail::default();
        tail.look(FileSystem::Btrfs, Bytes(1024 * KIB), &[extent(0, 0, 960)], at(1));
        assert_eq!(tail.wants_look(Bytes(2048 * KIB)), Some(Bytes(960 * KIB)));
        let rest = [extent(960, 960, 64), extent(1024, 1024, 1024)];
        assert_eq!(tail.look(FileSystem::Btrfs, Bytes(2048 * KIB), &rest, at(30)), None);
        assert_eq!(tail.pieces, 0);
    }

    #[test]
    fn a_file_that_was_cut_is_looked_at_anew() {
        let mut tail = Tail::default();
        tail.look(FileSystem::Xfs, Bytes(1024 * KIB), &[extent(0, 0, 1024)], at(1));
        assert_eq!(tail.wants_look(Bytes(1025 * KIB)), None);
        assert_eq!(tail.wants_look(Bytes(1280 * KIB)), Some(Bytes(1024 * KIB)));
        assert_eq!(tail.wants_look(Bytes(512 * KIB)), Some(Bytes(0)));
    }
}
