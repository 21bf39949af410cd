//! Checks that no space was lost: the sum of the space of files and the free space, independent of what moved.

use crate::oracle::{allocated_blocks, btrfs_usage, e2freefrag};
use crate::{FileSystemKind, LoopVolume};
use anyhow::{Result, ensure};
use std::thread;
use std::time::{Duration, Instant};

/// Blocks that XFS may have turned to its own use, after an undisturbed run and after one that was cut off: inodes
/// of nameless files come in chunks that stay; and files that share blocks take their copy one after the other, at
/// most 4 MiB at a time, so that a cut between two of them leaves that much twice.
const XFS_TOLERANCE: [u64; 2] = [64, 64 + 1024];
/// What data may take more on btrfs after an undisturbed run, and after one that was cut off, in bytes: of a file
/// that was half-way to its new place the old extents and the whole new one stay as long as either is needed.
const BTRFS_TOLERANCE: [u64; 2] = [256 << 10, 48 << 20];
/// What a crash left without a name is freed in the background after the mount, and btrfs goes on with a balance.
const PATIENCE: Duration = Duration::from_secs(60);

/// What must stay the same.
#[derive(Clone, Copy, Debug)]
pub(super) enum Space {
    /// Free blocks and blocks of files together, extent-tree blocks included.
    Accounted(u64),
    /// Bytes of data extents, each counted once however many share it: what was shared and is not any more shows.
    Data(u64),
}

impl Space {
    /// Of a mounted volume, which is unmounted meanwhile.
    pub(super) fn of(volume: &LoopVolume) -> Result<Self> {
        if volume.kind() == FileSystemKind::Btrfs {
            return Ok(Self::Data(btrfs_usage(&volume.mount_point())?.data));
        }
        let in_files = allocated_blocks(&volume.mount_point())?;
        // What a crash left without a name is given back in the background: not later than at the unmount.
        volume.unmount()?;
        let of_device = (volume.kind() == FileSystemKind::Ext4).then(|| e2freefrag(volume.device())).transpose()?;
        volume.mount()?;
        let free = match of_device {
            Some(free) => free.free_blocks,
            None => longrun_sys::capacity_at(&volume.mount_point())?.free.0,
        };
        Ok(Self::Accounted(in_files + free))
    }

    /// Fails when there is less now.
    pub(super) fn still_in(self, volume: &LoopVolume, interrupted: bool) -> Result<()> {
        let until = Instant::now() + PATIENCE;
        loop {
            let now = Self::of(volume)?;
            let lost = match (self, now) {
                (Self::Accounted(before), Self::Accounted(now)) => {
                    let tolerance = match volume.kind() {
                        FileSystemKind::Ext4 => 0,
                        _ => XFS_TOLERANCE[usize::from(interrupted)],
                    };
                    before.abs_diff(now) > tolerance
                }
                (Self::Data(before), Self::Data(now)) => now > before + BTRFS_TOLERANCE[usize::from(interrupted)],
                _ => true,
            };
            if !lost {
                return Ok(());
            }
            ensure!(
                matches!(now, Self::Data(_)) && Instant::now() < until,
                "space was lost: {self:?} before, {now:?} now"
            );
            thread::sleep(Duration::from_millis(500));
        }
    }
}
