//! The load to which prevention reacts: direct writers that grow files beside each other, scattered writes, short
//! files, deletions, and a volume that is unmounted and mounted again. Never examines the service.

use crate::LoopVolume;
use anyhow::{Context, Result};
use std::fs::{self, File};
use std::os::unix::fs::{FileExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

const O_DIRECT: i32 = 0o40000;
/// Each directory begins anew after so many rounds in it.
const NEW_FILES_EVERY: u64 = 12;

/// Works on one volume until it is asked to stop. Returns the number of files grown, and of remounts.
pub(super) fn load(volume: &LoopVolume, stop: &AtomicBool) -> Result<(u64, u64)> {
    let (mut files, mut remounts) = (0, 0);
    let mut round = 0u64;
    while !stop.load(Ordering::SeqCst) {
        round += 1;
        let base = volume.mount_point().join(format!("round-{}", round % 4));
        // Not all files are new each time: the service's table of reads has an entry for each that ever was, up to a number which
        // half an hour would not reach, and this fills it slowly enough to see anything else grow.
        if (round / 4).is_multiple_of(NEW_FILES_EVERY) {
            _ = fs::remove_dir_all(&base);
        }
        fs::create_dir_all(&base)?;
        files += grow(&base, 4, 48)?;
        scatter(&base.join("sparse"))?;
        (0..50).try_for_each(|number| fs::write(base.join(format!("short-{number}")), vec![1; 20_000]))?;
        if round.is_multiple_of(5) {
            volume.remount()?;
            remounts += 1;
        }
        thread::sleep(Duration::from_millis(100));
    }
    Ok((files, remounts))
}

/// `count` files that grow beside each other by direct writes of 64 KiB.
fn grow(base: &Path, count: u64, writes: u64) -> Result<u64> {
    let mut space = vec![7u8; 65536 + 4096];
    let shift = space.as_ptr().align_offset(4096);
    let block = space.get_mut(shift..shift + 65536).context("no aligned block")?;
    let open = |number| {
        let path: PathBuf = base.join(format!("grown-{number}"));
        File::options().create(true).truncate(true).write(true).custom_flags(O_DIRECT).open(path)
    };
    let files = (0..count).map(open).collect::<std::io::Result<Vec<_>>>()?;
    for write in 0..writes {
        files.iter().try_for_each(|file| file.write_all_at(block, write * 65536))?;
    }
    Ok(count)
}

fn scatter(path: &Path) -> Result<()> {
    let file = File::create(path)?;
    file.set_len(16 << 20)?;
    for write in 0..64u64 {
        file.write_all_at(&[9; 16384], (write * 37 % 256) * 65536)?;
        if write % 8 == 0 {
            file.sync_data()?;
        }
    }
    Ok(())
}
