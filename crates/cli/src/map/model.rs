//! The map: the volume divided into equal cells, and the content of each.
//!
//! Owns the counting and the choice of what a cell shows. Never draws.

use longrun_layout::{Blocks, Extent, ExtentSet, Pin, VolumeLayout};

/// What a block is used for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum State {
    /// Free.
    Free,
    /// Data of a file in one fragment.
    Contiguous,
    /// Data of a file in more than one fragment.
    Fragmented,
    /// A directory.
    Directory,
    /// Metadata of the file system, or a file that must not move.
    Fixed,
}

impl State {
    /// In the order of the legend.
    pub const ALL: [Self; 5] = [Self::Contiguous, Self::Fragmented, Self::Directory, Self::Fixed, Self::Free];

    /// As the legend names it.
    pub const fn label(self) -> &'static str {
        match self {
            Self::Free => "free",
            Self::Contiguous => "contiguous files",
            Self::Fragmented => "fragmented files",
            Self::Directory => "directories",
            Self::Fixed => "metadata, immovable",
        }
    }

    const fn slot(self) -> usize {
        self as usize
    }
}

/// Blocks by state.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally([u64; 5]);

impl Tally {
    /// The blocks in `state`.
    pub fn of(&self, state: State) -> Blocks {
        Blocks(self.0.get(state.slot()).copied().unwrap_or(0))
    }

    /// All blocks.
    pub fn total(&self) -> Blocks {
        Blocks(self.0.iter().sum())
    }

    fn add(&mut self, state: State, blocks: u64) {
        if let Some(slot) = self.0.get_mut(state.slot()) {
            *slot += blocks;
        }
    }

    /// The share of the blocks that is in use, 0 to 1.
    pub fn used_share(&self) -> f64 {
        let total = self.total().0.max(1);
        (total - self.of(State::Free).0.min(total)) as f64 / total as f64
    }

    /// What the cell shows: the state of most of its used blocks, but fragmented data from a quarter up, because the map
    /// is for finding it. Free if nothing is used.
    pub fn shown(&self) -> State {
        let used = self.total().0 - self.of(State::Free).0;
        let fragmented = self.of(State::Fragmented).0;
        if used == 0 {
            return State::Free;
        }
        if fragmented > 0 && fragmented * 4 >= used {
            return State::Fragmented;
        }
        let kinds = [State::Contiguous, State::Fragmented, State::Directory, State::Fixed];
        kinds.into_iter().max_by_key(|s| (self.of(*s), std::cmp::Reverse(*s))).unwrap_or(State::Free)
    }
}

/// The whole volume in cells.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Map {
    /// In the order of the volume; each has at least one block.
    pub cells: Vec<Tally>,
    /// All cells together.
    pub whole: Tally,
}

impl Map {
    /// Divides the volume into `cells` cells of equal size (to within one block), or one per block if there are fewer.
    pub fn new(layout: &VolumeLayout, cells: usize) -> Self {
        let total = layout.total_blocks().0;
        let count = (cells.max(1) as u64).min(total);
        let mut grid = Grid { total, cells: vec![Tally::default(); count as usize] };
        for piece in layout.free() {
            grid.paint(*piece, State::Free);
        }
        let mut shared = Shared { all: layout.shared(), painted: ExtentSet::new() };
        for file in layout.files() {
            let state = match (file.record.is_directory, file.record.pin) {
                // Its runs may overlap others': the remainder counts them once.
                (_, Some(Pin::DamagedMap | Pin::Changed | Pin::TooLarge)) => continue,
                (true, _) => State::Directory,
                (false, Some(_)) => continue,
                (false, None) if file.fragments() > 1 => State::Fragmented,
                (false, None) => State::Contiguous,
            };
            for part in file.runs().flat_map(|run| shared.once(run.extent())) {
                grid.paint(part, state);
            }
        }
        let mut whole = Tally::default();
        for at in 0..count {
            let length = grid.boundary(at + 1) - grid.boundary(at);
            let Some(cell) = grid.cells.get_mut(at as usize) else { break };
            cell.add(State::Fixed, length.saturating_sub(cell.total().0));
            for state in State::ALL {
                whole.add(state, cell.of(state).0);
            }
        }
        Self { cells: grid.cells, whole }
    }
}

/// Blocks of several files, shown with the state of the first of these files.
struct Shared<'a> {
    all: &'a [Extent],
    painted: ExtentSet,
}

impl Shared<'_> {
    /// The parts of `extent` that have not been painted yet.
    fn once(&mut self, extent: Extent) -> Vec<Extent> {
        let first = self.all.partition_point(|shared| shared.end() <= extent.start);
        let common = self.all.get(first..).unwrap_or_default().iter().map_while(|shared| shared.intersection(&extent));
        let common: Vec<Extent> = common.collect();
        if common.is_empty() {
            return vec![extent];
        }
        let left = self.painted.gaps(extent);
        self.painted.extend(common);
        left
    }
}

struct Grid {
    total: u64,
    cells: Vec<Tally>,
}

impl Grid {
    /// The first block of cell `at`.
    fn boundary(&self, at: u64) -> u64 {
        (u128::from(at) * u128::from(self.total) / self.cells.len().max(1) as u128) as u64
    }

    /// The last cell whose boundary is not behind `block`.
    fn cell_of(&self, block: u64) -> u64 {
        let product = (u128::from(block) + 1) * self.cells.len() as u128 - 1;
        (product / u128::from(self.total.max(1))) as u64
    }

    fn paint(&mut self, extent: Extent, state: State) {
        let (mut at, end) = (extent.start.0, extent.end().0.min(self.total));
        while at < end {
            let cell = self.cell_of(at);
            let stop = self.boundary(cell + 1).min(end);
            let Some(tally) = self.cells.get_mut(cell as usize) else { return };
            tally.add(state, stop - at);
            at = stop;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::map::tests::sample;

    #[test]
    fn every_block_is_counted_once_whatever_the_number_of_cells() {
        let layout = sample();
        let one = Map::new(&layout, 1);
        assert_eq!(one.whole.total(), layout.total_blocks());
        assert_eq!(one.whole.of(State::Free), layout.free_blocks());
        for cells in [1, 2, 3, 7, 64, 999, 1000, 5000] {
            let map = Map::new(&layout, cells);
            assert_eq!(map.whole, one.whole, "{cells} cells");
            assert_eq!(map.cells.len(), cells.min(1000));
            let sizes: Vec<u64> = map.cells.iter().map(|c| c.total().0).collect();
            assert!(sizes.iter().max().unwrap() - sizes.iter().min().unwrap() <= 1, "{sizes:?}");
        }
    }

    #[test]
    fn each_kind_of_block_has_its_state() {
        let map = Map::new(&sample(), 1000);
        let shown = |block: usize| map.cells[block].shown();
        assert_eq!(shown(0), State::Fixed);
        assert_eq!(shown(120), State::Contiguous);
        assert_eq!(shown(310), State::Fragmented);
        assert_eq!(shown(205), State::Directory);
        assert_eq!(shown(225), State::Fixed, "an immutable file");
        assert_eq!(shown(900), State::Free);
    }

    #[test]
    fn shared_blocks_are_counted_once() {
        use longrun_layout::{BlockSize, FileId, InodeNumber, LayoutBuilder, NO_DIRECTORY, Run};
        let mut b = LayoutBuilder::new(BlockSize::new(4096).unwrap(), Blocks(100)).sharing(true);
        let files =
            [vec![Run::new(0, 10, 20)], vec![Run::new(0, 5, 10), Run::new(10, 25, 10)], vec![Run::new(0, 10, 20)]];
        for (inode, mut runs) in (1..).zip(files) {
            let id = FileId { inode: InodeNumber(inode), generation: 1 };
            b.push_file(id, NO_DIRECTORY, false, None, &mut runs);
        }
        b.push_free(Extent::new(50, 50));
        let map = Map::new(&b.build().unwrap(), 7);
        let of = |state| map.whole.of(state).0;
        assert_eq!([State::Contiguous, State::Fragmented, State::Fixed, State::Free].map(of), [20, 10, 20, 50]);
    }

    #[test]
    fn a_cell_shows_fragmented_data_from_a_quarter_up() {
        let tally = |contiguous, fragmented, free| {
            let mut t = Tally::default();
            t.add(State::Contiguous, contiguous);
            t.add(State::Fragmented, fragmented);
            t.add(State::Free, free);
            t
        };
        assert_eq!(tally(75, 25, 900).shown(), State::Fragmented);
        assert_eq!(tally(76, 24, 0).shown(), State::Contiguous);
        assert_eq!(tally(1, 0, 1000).shown(), State::Contiguous);
        assert_eq!(tally(0, 0, 1000).shown(), State::Free);
        assert!((tally(50, 25, 25).used_share() - 0.75).abs() < 1e-9);
    }
}
