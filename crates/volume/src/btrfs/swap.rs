//! Files that are in use as swap space.
//!
//! Owns the reading of /proc/swaps. Swap files whose path there cannot be reached are not known.

use super::address::SubvolumeId;
use super::model::{Owner, OwnerTraits};
use longrun_layout::InodeNumber;
use longrun_sys::BtrfsInfo;
use longrun_sys::unescape;
use std::collections::BTreeSet;
use std::fs::{self, File};
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// Marks the files of the volume that are swap space.
pub(super) fn mark(info: &BtrfsInfo, owners: &mut [Owner]) {
    let table = fs::read("/proc/swaps").unwrap_or_default();
    let paths =
        table.split(|byte| *byte == b'\n').skip(1).filter_map(|line| line.split(u8::is_ascii_whitespace).next());
    let swaps: BTreeSet<_> = paths.filter_map(|path| identity(&unescape(path), info)).collect();
    if swaps.is_empty() {
        return;
    }
    for owner in owners.iter_mut().filter(|owner| swaps.contains(&(owner.subvolume, owner.inode))) {
        owner.traits.add(OwnerTraits::SWAP);
    }
}

/// Subvolume and number of a file, when it lies on the volume.
fn identity(path: &Path, info: &BtrfsInfo) -> Option<(SubvolumeId, InodeNumber)> {
    let file = File::from(longrun_sys::open_trusted(path).ok()?);
    let meta = file.metadata().ok().filter(fs::Metadata::is_file)?;
    (longrun_sys::btrfs_info(&file).ok()?.uuid == info.uuid).then_some(())?;
    let subvolume = SubvolumeId(longrun_sys::subvolume_of_file(&file).ok()?.0);
    Some((subvolume, InodeNumber(meta.ino())))
}
