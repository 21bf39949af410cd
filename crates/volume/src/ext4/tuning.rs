//! The allocator setting that must be changed while free space is captured, and the promise that it is put back.
//!
//! Owns `mb_stream_req` of one mounted volume: below that length ext4 allocates near the goal that a file gives, above it
//! wherever the last large allocation was. Never leaves it changed longer than one capture; what a killed run left is put
//! right at the next start.

use crate::VolumeError;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// The value during a capture. One below the kernel's maximum, which somebody might have set: this one is only ours, so
/// that the next start recognises what a killed run left behind.
const OURS: &str = "2147483646";
/// The kernel's default, for when the original is not known.
const DEFAULT: &str = "16";

/// Where the original value is kept while it is changed. On tmpfs: like the setting, it does not outlive the machine. A
/// value kept from an earlier mount of the device does no harm, since it is used only while the setting is [`OURS`], and
/// every mount starts with the kernel's default.
const STATE_DIRECTORY: &str = "/run/longrun";

/// The setting of one volume.
#[derive(Debug)]
pub(super) struct Tuning {
    setting: PathBuf,
    kept: PathBuf,
}

/// While it lives, allocations follow the goal of their file.
#[derive(Debug)]
pub(super) struct GoalsHonoured<'a> {
    tuning: &'a Tuning,
    original: String,
}

impl Tuning {
    /// For the volume that the kernel calls `name` (as in /sys/fs/ext4). Puts right what a killed run left.
    pub(super) fn open(name: &Path) -> Result<Self, VolumeError> {
        let at = |directory: &Path| Self {
            setting: directory.join(name).join("mb_stream_req"),
            kept: Path::new(STATE_DIRECTORY).join(name).with_extension("mb_stream_req"),
        };
        let tuning = at(Path::new("/sys/fs/ext4"));
        tuning.recover().map_err(|source| tuning.failed("restoring the allocator setting", source))?;
        Ok(tuning)
    }

    fn failed(&self, act: &'static str, source: io::Error) -> VolumeError {
        VolumeError::Io { path: self.setting.clone(), act, source }
    }

    fn recover(&self) -> io::Result<()> {
        if fs::read_to_string(&self.setting)?.trim() == OURS {
            let original = fs::read_to_string(&self.kept).unwrap_or_default();
            let usable = original.trim().parse::<u32>().is_ok_and(|_| original.trim() != OURS);
            fs::write(&self.setting, if usable { original.trim() } else { DEFAULT })?;
        }
        Ok(())
    }

    /// Makes allocations follow the goal of their file until the answer is dropped.
    pub(super) fn honour_goals(&self) -> Result<GoalsHonoured<'_>, VolumeError> {
        let change = || {
            let original = fs::read_to_string(&self.setting)?.trim().to_owned();
            if let Some(directory) = self.kept.parent() {
                fs::create_dir_all(directory)?;
            }
            // Kept before it is changed: a run killed in between leaves nothing to restore.
            fs::write(&self.kept, &original)?;
            let guard = GoalsHonoured { tuning: self, original };
            fs::write(&self.setting, OURS)?;
            Ok(guard)
        };
        change().map_err(|source| self.failed("changing the allocator setting", source))
    }
}

impl Drop for GoalsHonoured<'_> {
    fn drop(&mut self) {
        // If this fails the volume is being unmounted or gone, and the setting with it.
        if fs::write(&self.tuning.setting, &self.original).is_ok() {
            let _ = fs::remove_file(&self.tuning.kept);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tuning(value: &str) -> (tempfile::TempDir, Tuning) {
        let directory = tempfile::tempdir().unwrap();
        let setting = directory.path().join("mb_stream_req");
        fs::write(&setting, value).unwrap();
        let kept = directory.path().join("state").join("kept");
        (directory, Tuning { setting, kept })
    }

    #[test]
    fn the_setting_is_changed_only_while_the_guard_lives() {
        let (_directory, tuning) = tuning("48\n");
        let guard = tuning.honour_goals().unwrap();
        assert_eq!(fs::read_to_string(&tuning.setting).unwrap(), OURS);
        drop(guard);
        assert_eq!(fs::read_to_string(&tuning.setting).unwrap(), "48");
        assert!(!tuning.kept.exists());
    }

    #[test]
    fn what_a_killed_run_left_is_put_right_at_the_next_start() {
        let (_directory, tuning) = tuning("48\n");
        std::mem::forget(tuning.honour_goals().unwrap());
        tuning.recover().unwrap();
        assert_eq!(fs::read_to_string(&tuning.setting).unwrap(), "48");
    }

    #[test]
    fn without_a_kept_value_the_kernels_default_is_restored() {
        let (_directory, tuning) = tuning(OURS);
        tuning.recover().unwrap();
        assert_eq!(fs::read_to_string(&tuning.setting).unwrap(), DEFAULT);
    }

    #[test]
    fn a_setting_that_is_not_ours_is_left_alone() {
        let (_directory, tuning) = tuning("2147483647");
        tuning.recover().unwrap();
        assert_eq!(fs::read_to_string(&tuning.setting).unwrap(), "2147483647");
    }
}
