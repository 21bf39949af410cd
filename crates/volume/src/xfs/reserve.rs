//! Free blocks that cannot be allocated.
//!
//! Owns the knowledge that XFS reserves a part of each allocation group's free space for its own trees, without saying
//! which blocks. Never makes a system call.

use longrun_layout::{Blocks, Extent, PhysicalBlock, Region};
use longrun_sys::XfsGeometry;

/// What a group needs besides what it keeps: for its free lists, and for splits of trees during an allocation.
const SLACK: Blocks = Blocks(32);

/// What each group keeps: `available` blocks of the `free` ones are to be had. The kernel tells only the sum, and groups of
/// one size keep about as much each.
pub(super) fn regions(geometry: &XfsGeometry, free: Blocks, available: Blocks) -> Vec<Region> {
    let groups = geometry.total.0.div_ceil(geometry.group_blocks.0.max(1)).max(1);
    let share = Blocks(free.saturating_sub(available).0.div_ceil(groups)) + SLACK;
    (0..groups).map(|group| Region { extent: group_extent(geometry, group), kept_free: share }).collect()
}

/// The blocks of a group.
pub(super) fn group_extent(geometry: &XfsGeometry, group: u64) -> Extent {
    let start = PhysicalBlock(group * geometry.group_blocks.0);
    Extent::between(start, (start + geometry.group_blocks).min(PhysicalBlock(geometry.total.0)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use longrun_layout::BlockSize;

    #[test]
    fn each_group_keeps_its_share() {
        let geometry = XfsGeometry {
            block_size: BlockSize::new(4096).unwrap(),
            total: Blocks(2500),
            group_blocks: Blocks(1000),
            shares_blocks: true,
        };
        let regions = regions(&geometry, Blocks(1000), Blocks(976));
        let expected = [(0, 1000), (1000, 1000), (2000, 500)];
        let expected =
            expected.map(|(start, length)| Region { extent: Extent::new(start, length), kept_free: Blocks(40) });
        assert_eq!(regions, expected);
    }
}
