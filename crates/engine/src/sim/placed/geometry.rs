//! The places of immovable metadata on a default ext4 volume: flex-group tables, superblock backups, the journal. Knows
//! no files.

use longrun_layout::Extent;

const GROUP: u64 = 32_768;
const FLEX: u64 = 16;
const INODE_TABLE: u64 = 512;

/// The fixed areas of a volume.
#[derive(Clone, Copy, Debug)]
pub(super) struct Geometry {
    total: u64,
}

impl Geometry {
    /// What mkfs does with `total` blocks of 4 KiB.
    pub(super) fn ext4_default(total: u64) -> Self {
        Self { total }
    }

    /// The immovable areas; they may overlap.
    pub(super) fn metadata(self) -> impl Iterator<Item = Extent> {
        let groups = self.total.div_ceil(GROUP);
        // One descriptor block per 64 groups, and room for the volume to grow.
        let descriptors = (groups.div_ceil(64) + (self.total / GROUP * 8).min(1024)).max(1);
        let small = self.total < GROUP * 2;
        let backups = (0..groups).filter(move |g| !small && is_backup(*g)).map(move |g| (g * GROUP, 1 + descriptors));
        let tables = (0..groups).step_by(FLEX as usize).map(move |g| {
            let members = FLEX.min(groups - g);
            let offset = if is_backup(g) { 1 + descriptors } else { 0 };
            (g * GROUP + offset, members * (2 + INODE_TABLE))
        });
        let tables = tables.filter(move |_| !small);
        let journal = (!small).then(|| (groups / 2 * GROUP, (self.total / 64).min(262_144)));
        // A volume smaller than two groups is a toy: a boot block and one island in the middle.
        let toy = small.then_some([(0, 1), (self.total / 2, (self.total / 64).max(1))]).into_iter().flatten();
        let total = self.total;
        backups
            .chain(tables)
            .chain(journal)
            .chain(toy)
            .filter(move |(start, _)| *start < total)
            .map(move |(start, length)| Extent::new(start, length.min(total - start)))
    }
}

/// Groups 0, 1 and powers of 3, 5 and 7 hold a copy of the superblock.
fn is_backup(group: u64) -> bool {
    let power_of = |base: u64| {
        let mut rest = group;
        while rest.is_multiple_of(base) && rest > 1 {
            rest /= base;
        }
        rest == 1
    };
    group <= 1 || power_of(3) || power_of(5) || power_of(7)
}
