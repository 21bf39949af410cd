//! The conditions for exchanging the blocks of a user's file.
//!
//! Owns the refusals of [`crate::fragment_file`]. Never changes anything.

use crate::AgeError;
use longrun_layout::Blocks;
use longrun_sys::{Capacity, device_number_of_file};
use std::fs::{self, File};
use std::path::Path;

/// The least that stays free for others meanwhile, in bytes.
const RESERVE_BYTES: u64 = 4 << 20;
/// And as a part of the volume: one in so many blocks.
const RESERVE_PART: u64 = 100;

/// Refuses all but ext4 that writes data before it commits where the data lies: anywhere else a power cut could leave
/// blocks in the file that the data never reached.
pub(crate) fn require_ordered_data(file: &File, path: &Path) -> Result<(), AgeError> {
    let device = device_number_of_file(file).map_err(|e| AgeError::io("stat", path, e))?;
    // The link ends in the kernel's name of the device, and ext4 lists its mounts by that name.
    let options = fs::read_link(format!("/sys/dev/block/{device}"))
        .ok()
        .and_then(|link| fs::read_to_string(Path::new("/proc/fs/ext4").join(link.file_name()?).join("options")).ok());
    if options.is_some_and(|options| options.lines().any(|line| line == "data=ordered")) {
        return Ok(());
    }
    let reason = "only files on ext4 with a journal and data=ordered can be fragmented";
    Err(AgeError::Unsuitable { path: path.to_owned(), reason })
}

/// Refuses to take `wanted` blocks when that would leave others less than a reserve.
pub(crate) fn keep_reserve(file: &File, path: &Path, wanted: Blocks) -> Result<(), AgeError> {
    let capacity = longrun_sys::capacity(file).map_err(|e| AgeError::io("read the free space of", path, e))?;
    // What is set aside for root is room for root only.
    let room = if longrun_sys::is_root() { capacity.free } else { capacity.available };
    if leaves_reserve(&capacity, room, wanted) {
        return Ok(());
    }
    let reason = "its volume has too little free space for a copy of it and a reserve for other files";
    Err(AgeError::Unsuitable { path: path.to_owned(), reason })
}

fn leaves_reserve(capacity: &Capacity, room: Blocks, wanted: Blocks) -> bool {
    let bytes = u64::from(capacity.block_size.bytes());
    let reserve = RESERVE_BYTES.div_ceil(bytes).max(capacity.total.0 / RESERVE_PART);
    wanted.0.checked_add(reserve).is_some_and(|needed| needed <= room.0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use longrun_layout::BlockSize;

    #[test]
    fn a_copy_is_taken_only_where_it_leaves_the_reserve() {
        let leaves = |total, room, wanted| {
            let block_size = BlockSize::new(4096).unwrap();
            let (free, available) = (Blocks(room), Blocks(room));
            let capacity = Capacity { block_size, total: Blocks(total), free, available };
            leaves_reserve(&capacity, Blocks(room), Blocks(wanted))
        };
        // 4 MiB are 1024 blocks, which is more than a hundredth of the small volume and less than that of the large one.
        for (total, room, most) in [(50_000, 3_000, 1_976), (500_000, 30_000, 25_000)] {
            assert!(leaves(total, room, most));
            assert!(!leaves(total, room, most + 1));
        }
        assert!(!leaves(1, 1, u64::MAX));
    }

    #[test]
    fn what_is_not_on_ext4_is_refused() {
        let file = File::open("/proc/version").unwrap();
        let error = require_ordered_data(&file, Path::new("/proc/version")).unwrap_err().to_string();
        assert!(error.contains("data=ordered"), "{error}");
    }
}
