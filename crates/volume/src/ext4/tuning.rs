//! The allocator settings that are changed while free space is captured, and restored afterwards.
//!
//! Owns some settings of one mounted volume in /sys/fs/ext4. With them, ext4 allocates in the block group of the goal
//! that a file gives, whatever the defaults of the device and the administrator's settings. Never leaves a setting
//! changed for longer than one capture. Settings that a killed run left changed are restored at the next start.

use longrun_engine::VolumeError;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// A setting of the allocator.
#[derive(Debug)]
struct Setting {
    name: &'static str,
    /// The value during a capture, by which the next start recognises what a killed run left behind.
    ours: &'static str,
    /// What is restored when the original is not known; nothing where an administrator may have set our value.
    default: Option<&'static str>,
    /// The only value with which goals are not followed; with every other one the setting is left alone. Nothing
    /// when it must always be changed.
    unfit: Option<&'static str>,
    /// Whether a kernel without it follows goals anyway.
    may_lack: bool,
}

const SETTINGS: [Setting; 3] = [
    // Above that length ext4 allocates wherever the last large allocation was. One below the kernel's maximum.
    Setting { name: "mb_stream_req", ours: "2147483646", default: Some("16"), unfit: None, may_lack: false },
    // How many groups are tried one after the other, from that of the goal on, before the allocator jumps to any that fits. 0 on
    // devices that do not rotate; since Linux 6.17 not even the group of the goal is tried then, while older kernels, which try
    // it in any case, take no harm. Small, because a value above the number of groups makes searches go round and round.
    Setting { name: "mb_max_linear_groups", ours: "3", default: None, unfit: Some("0"), may_lack: true },
    // With 0, small files, too, are allocated wherever the last large allocation was (Linux 6.0 and newer).
    Setting { name: "mb_group_prealloc", ours: "509", default: None, unfit: Some("0"), may_lack: true },
];

/// Where the original values are kept while they are changed. On tmpfs: like the settings, they do not outlive the
/// machine. A value kept from an earlier mount of the device does no harm, since it is used only while the setting
/// is ours, and every mount starts with the kernel's defaults. Not /run/longrun, which systemd removes when the
/// service ends, by a kill too.
const STATE_DIRECTORY: &str = "/run/longrun-settings";

/// A setting of one volume.
#[derive(Debug)]
struct Place {
    setting: &'static Setting,
    path: PathBuf,
    kept: PathBuf,
}

impl Place {
    fn read(&self) -> io::Result<Option<String>> {
        match fs::read_to_string(&self.path) {
            Ok(value) => Ok(Some(value.trim().to_owned())),
            Err(error) if self.setting.may_lack && error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    fn recover(&self) -> io::Result<()> {
        let Setting { ours, default, .. } = *self.setting;
        if self.read()?.is_some_and(|value| value == ours) {
            let original = fs::read_to_string(&self.kept).unwrap_or_default();
            let usable = original.trim().parse::<u32>().is_ok_and(|_| original.trim() != ours);
            if let Some(value) = usable.then_some(original.trim()).or(default) {
                fs::write(&self.path, value)?;
            }
        }
        Ok(())
    }

    /// Changes the setting if need be, until the answer is dropped.
    fn borrow(&self) -> io::Result<Option<Borrowed<'_>>> {
        let unfit = |value: &String| self.setting.unfit.is_none_or(|unfit| value == unfit);
        let Some(original) = self.read()?.filter(unfit) else { return Ok(None) };
        if let Some(directory) = self.kept.parent() {
            fs::create_dir_all(directory)?;
        }
        // Kept before it is changed: a run killed in between leaves nothing to restore.
        fs::write(&self.kept, &original)?;
        let borrowed = Borrowed { place: self, original };
        fs::write(&self.path, self.setting.ours)?;
        Ok(Some(borrowed))
    }

    fn failed(&self, act: &'static str, source: io::Error) -> VolumeError {
        let path = self.path.clone();
        match source.kind() {
            io::ErrorKind::NotFound => VolumeError::Unsupported {
                path,
                what: "a kernel without this setting (it is needed to choose where ext4 allocates)".into(),
            },
            _ => VolumeError::Io { path, act, source },
        }
    }
}

/// A changed setting.
#[derive(Debug)]
struct Borrowed<'a> {
    place: &'a Place,
    original: String,
}

impl Drop for Borrowed<'_> {
    fn drop(&mut self) {
        // If this fails the volume is being unmounted or gone, and the setting with it.
        if fs::write(&self.place.path, &self.original).is_ok() {
            let _ = fs::remove_file(&self.place.kept);
        }
    }
}

/// The settings of one volume.
#[derive(Debug)]
pub(super) struct Tuning {
    places: Vec<Place>,
}

/// While it lives, allocations follow the goal of their file.
#[derive(Debug)]
pub(super) struct GoalsHonoured<'a>(#[expect(dead_code, reason = "kept for being dropped")] Vec<Borrowed<'a>>);

impl Tuning {
    /// For the volume that the kernel calls `name` (as in /sys/fs/ext4). Puts right what a killed run left.
    pub(super) fn open(name: &Path) -> Result<Self, VolumeError> {
        let tuning = Self::at(&Path::new("/sys/fs/ext4").join(name), &Path::new(STATE_DIRECTORY).join(name));
        tuning
            .each(|place| place.recover().map_err(|source| place.failed("restoring the allocator setting", source)))?;
        Ok(tuning)
    }

    fn at(settings: &Path, kept: &Path) -> Self {
        let place = |setting: &'static Setting| Place {
            setting,
            path: settings.join(setting.name),
            kept: kept.with_extension(setting.name),
        };
        Self { places: SETTINGS.iter().map(place).collect() }
    }

    fn each<'a, T>(&'a self, act: impl Fn(&'a Place) -> Result<T, VolumeError>) -> Result<Vec<T>, VolumeError> {
        self.places.iter().map(act).collect()
    }

    /// Makes allocations follow the goal of their file until the answer is dropped.
    pub(super) fn honour_goals(&self) -> Result<GoalsHonoured<'_>, VolumeError> {
        let failed = |place: &Place, source| place.failed("changing the allocator setting", source);
        let borrowed = self.each(|place| place.borrow().map_err(|source| failed(place, source)))?;
        Ok(GoalsHonoured(borrowed.into_iter().flatten().collect()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A volume with these values of the settings; `None` where the kernel does not have one.
    fn tuning(values: [Option<&str>; 3]) -> (tempfile::TempDir, Tuning) {
        let directory = tempfile::tempdir().unwrap();
        for (setting, value) in SETTINGS.iter().zip(values) {
            if let Some(value) = value {
                fs::write(directory.path().join(setting.name), value).unwrap();
            }
        }
        let kept = directory.path().join("state").join("volume");
        let tuning = Tuning::at(directory.path(), &kept);
        (directory, tuning)
    }

    fn values(tuning: &Tuning) -> Vec<Option<String>> {
        tuning.places.iter().map(|place| place.read().unwrap()).collect()
    }

    fn recover(tuning: &Tuning) {
        tuning.places.iter().for_each(|place| place.recover().unwrap());
    }

    #[test]
    fn settings_are_changed_only_where_need_be_and_while_the_guard_lives() {
        for (before, during) in [
            ([Some("48\n"), Some("0\n"), Some("512\n")], [Some("2147483646"), Some("3"), Some("512")]),
            ([Some("16"), Some("4"), Some("0")], [Some("2147483646"), Some("4"), Some("509")]),
            ([Some("16"), None, None], [Some("2147483646"), None, None]),
        ] {
            let (_directory, tuning) = tuning(before);
            let guard = tuning.honour_goals().unwrap();
            assert_eq!(values(&tuning), during.map(|value| value.map(str::to_owned)));
            drop(guard);
            assert_eq!(values(&tuning), before.map(|value| value.map(|value| value.trim().to_owned())));
            assert!(tuning.places.iter().all(|place| !place.kept.exists()));
        }
    }

    #[test]
    fn what_a_killed_run_left_is_put_right_at_the_next_start() {
        let (_directory, tuning) = tuning([Some("48"), Some("0"), Some("0")]);
        std::mem::forget(tuning.honour_goals().unwrap());
        recover(&tuning);
        assert_eq!(values(&tuning), ["48", "0", "0"].map(|value| Some(value.to_owned())));
    }

    #[test]
    fn without_kept_values_only_what_nobody_else_sets_is_restored() {
        let (_directory, tuning) = tuning(SETTINGS.each_ref().map(|setting| Some(setting.ours)));
        recover(&tuning);
        assert_eq!(values(&tuning), ["16", "3", "509"].map(|value| Some(value.to_owned())));
    }

    #[test]
    fn a_setting_that_is_not_ours_is_left_alone() {
        let (_directory, tuning) = tuning([Some("2147483647"), Some("0"), Some("0")]);
        recover(&tuning);
        assert_eq!(values(&tuning), ["2147483647", "0", "0"].map(|value| Some(value.to_owned())));
    }

    #[test]
    fn an_error_half_way_leaves_nothing_changed_and_a_kernel_without_goals_is_refused() {
        let (directory, tuning) = tuning([Some("16"), Some("0"), Some("512")]);
        // The third setting cannot be read: the first two have been changed by then.
        fs::remove_file(directory.path().join("mb_group_prealloc")).unwrap();
        fs::create_dir(directory.path().join("mb_group_prealloc")).unwrap();
        tuning.honour_goals().unwrap_err();
        assert_eq!(fs::read_to_string(directory.path().join("mb_stream_req")).unwrap(), "16");
        assert_eq!(fs::read_to_string(directory.path().join("mb_max_linear_groups")).unwrap(), "0");
        fs::remove_file(directory.path().join("mb_stream_req")).unwrap();
        assert!(matches!(tuning.honour_goals().unwrap_err(), VolumeError::Unsupported { .. }));
    }
}
