//! The movable files of a volume in the order of their homes, in four bytes each.

use longrun_layout::{Extent, ExtentSet, FileIndex, FileView, PhysicalBlock, VolumeLayout, in_order};

/// Movable files by home: where their first run outside the zone starts, or their first one if all lie in the zone. What lies
/// partly in the zone is so at home where the first window comes that sees it: no later window then tears holes into a finished one. What
/// stays is in no window, and is nobody's home as long as another run is.
#[derive(Debug)]
pub(crate) struct Homes<'a> {
    layout: &'a VolumeLayout,
    /// As it was at the beginning.
    zone: ExtentSet,
    /// Runs that stay where they are.
    stays: ExtentSet,
    /// The homes themselves would take twice as much, and are as soon looked up.
    files: Vec<u32>,
}

impl<'a> Homes<'a> {
    pub(crate) fn of(layout: &'a VolumeLayout, zone: ExtentSet, stays: ExtentSet) -> Self {
        let mut homes = Self { layout, zone, stays, files: Vec::new() };
        let has_blocks = |file: &FileView<'_>| file.is_movable() && file.runs().next().is_some();
        let movable = || layout.files().filter(has_blocks).map(|file| file.index.0);
        homes.files = in_order(movable, layout.total_blocks().0, |file| homes.home(file));
        homes
    }

    /// How many there are.
    pub(crate) fn len(&self) -> usize {
        self.files.len()
    }

    /// How many have their home before `block`.
    pub(crate) fn before(&self, block: u64) -> usize {
        self.files.partition_point(|file| self.home(*file) < block)
    }

    /// The home at a position in the order.
    pub(crate) fn at(&self, position: usize) -> Option<u64> {
        self.files.get(position).map(|file| self.home(*file))
    }

    /// The files at home in an extent, with their homes.
    pub(crate) fn within(&self, extent: Extent) -> impl Iterator<Item = (u64, FileIndex)> + '_ {
        let from = self.files.get(self.before(extent.start.0)..).unwrap_or_default();
        from.iter().map(|file| (self.home(*file), FileIndex(*file))).take_while(move |(home, _)| *home < extent.end().0)
    }

    /// Whether the run at a block stays where it is.
    pub(crate) fn stays(&self, at: PhysicalBlock) -> bool {
        !self.stays.is_empty() && self.stays.extent_at(at).is_some()
    }

    fn home(&self, file: u32) -> u64 {
        let Some(file) = self.layout.file(FileIndex(file)) else { return u64::MAX };
        let mut runs = file.runs().map(|run| run.physical);
        let Some(first) = runs.next() else { return u64::MAX };
        let place = |at| (self.stays(at), self.zone.extent_at(at).is_some(), at);
        // Most have one run, and need no look at the zone.
        let Some(second) = runs.next() else { return first.0 };
        runs.map(place).fold(place(first).min(place(second)), Ord::min).2.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use longrun_layout::{BlockSize, Blocks, FileId, InodeNumber, LayoutBuilder, NO_DIRECTORY, Pin, Run};
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn homes_are_in_order_and_complete(
            files in prop::collection::vec((prop::collection::vec(1u64..999, 0..4), any::<bool>()), 0..60),
            zone in (0u64..1000, 0u64..400),
            stays in (0u64..1000, 0u64..400),
        ) {
            // Files that overlap are pinned, and are nobody's to plan for.
            let mut builder = LayoutBuilder::new(BlockSize::new(4096).unwrap(), Blocks(1000));
            for (inode, (places, pinned)) in files.iter().enumerate() {
                let id = FileId { inode: InodeNumber(inode as u64 + 12), generation: 1 };
                let mut runs: Vec<Run> = (0..).zip(places).map(|(n, at)| Run::new(n * 2, *at, 1)).collect();
                builder.push_file(id, NO_DIRECTORY, false, pinned.then_some(Pin::Immutable), &mut runs);
            }
            let layout = builder.build().unwrap();
            let zone: ExtentSet = [Extent::new(zone.0, zone.1)].into_iter().collect();
            let stays: ExtentSet = [Extent::new(stays.0, stays.1)].into_iter().collect();
            let place = |at| (stays.extent_at(at).is_some(), zone.extent_at(at).is_some(), at);
            let mut expected: Vec<(u64, FileIndex)> = layout
                .files()
                .filter(FileView::is_movable)
                .filter_map(|f| Some((f.runs().map(|r| r.physical).min_by_key(|at| place(*at))?.0, f.index)))
                .collect();
            expected.sort_unstable();
            let homes = Homes::of(&layout, zone, stays);
            prop_assert_eq!(homes.within(layout.whole()).collect::<Vec<_>>(), expected.clone());
            prop_assert_eq!(homes.len(), expected.len());
            let half = Extent::new(300, 300);
            let inside: Vec<_> = expected.iter().copied().filter(|(home, _)| (300..600).contains(home)).collect();
            prop_assert_eq!(homes.within(half).collect::<Vec<_>>(), inside);
            prop_assert_eq!(homes.at(homes.before(300)), expected.iter().map(|(home, _)| *home).find(|home| *home >= 300));
        }
    }
}
