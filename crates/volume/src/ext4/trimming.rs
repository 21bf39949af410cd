//! How FITRIM goes over ext4: block group by block group.
//!
//! Owns the slices of ext4. The kernel marks a group as trimmed only if one call covered all of it, so that no cut lies within
//! one. Never writes to the volume.

use super::scan::{Access, Ext4Reader, Refusal};
use crate::Target;
use crate::reclaim::{Cuts, Memory, Trimming};
use longrun_engine::VolumeError;
use longrun_layout::Blocks;
use longrun_sys::ByteRange;
use std::path::Path;

/// What the kernel remembers.
pub(super) const SKIPS: &str =
    "ext4 skips block groups that it has trimmed since it was mounted and in which nothing was freed since then";

/// The slices of the volume of `target`. A volume with recorded errors is refused: what its bitmaps call free may be in use.
pub(super) fn trimming(target: &Target) -> Result<Trimming, VolumeError> {
    let reader = Ext4Reader::open(&target.device, Access::Live)?;
    let kernel_name = target.kernel_name().unwrap_or_default();
    let settings = Path::new("/sys/fs/ext4").join(kernel_name);
    let noted = std::fs::read_to_string(settings.join("errors_count")).unwrap_or_default();
    if reader.refusals().contains(&Refusal::Errors) || noted.trim().parse().is_ok_and(|count: u64| count > 0) {
        let detail = Refusal::Errors.to_string();
        return Err(VolumeError::Damaged { path: target.device.clone(), filesystem: "ext4".into(), detail });
    }
    let geometry = reader.geometry();
    let bytes = |blocks| geometry.block_size.to_bytes(blocks);
    let start = bytes(Blocks(geometry.first_block.0));
    let all = ByteRange { start, length: bytes(geometry.total).saturating_sub(start) };
    let group = bytes(geometry.blocks_per_group);
    Ok(Trimming {
        areas: vec![all],
        cuts: Cuts { origin: start, unit: group },
        first: None,
        longest: Some(group),
        is_counted: true,
        memory: Memory::open(settings.join("last_trim_minblks")),
    })
}
