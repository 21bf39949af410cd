//! Profiles that are kept, by the identity of the disk: names such as `sda` go to other disks after a restart.

use crate::{Profile, ProfileError};
use jiff::{SignedDuration, Timestamp};
use longrun_sys::{BlockDevice, BlockDeviceKind, replace_file};
use std::fmt::Write as _;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// A kept profile counts for so long. The disk itself does not change, but an array below it may.
pub const LASTS: SignedDuration = SignedDuration::from_hours(30 * 24);
/// A profile takes 4 KiB; what is larger is none.
const LARGEST: u64 = 1 << 20;
/// Longer names are no file names.
const LONGEST_NAME: usize = 200;

/// The profiles in the state directory.
#[derive(Clone, Debug)]
pub struct Kept {
    directory: PathBuf,
}

impl Kept {
    /// Below the state directory `state`.
    #[must_use]
    pub fn within(state: &Path) -> Self {
        Self { directory: state.join("profiles") }
    }

    /// The profile of the device with this identity. `None` when there is none, or it is older than [`LASTS`], of another size, or no
    /// profile: then the device is measured again.
    ///
    /// # Errors
    /// [`ProfileError::Keep`] when a file is there and cannot be read.
    pub fn find(&self, identity: &str, now: Timestamp) -> Result<Option<Profile>, ProfileError> {
        let path = self.path(identity);
        let failed = |source| keep_failed(&path, "reading", source);
        match fs::metadata(&path) {
            Ok(file) if file.len() <= LARGEST => {}
            Ok(_) => return Ok(None),
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(failed(error)),
        }
        let text = fs::read(&path).map_err(failed)?;
        let profile: Option<Profile> = serde_json::from_slice(&text).ok();
        Ok(profile.filter(|profile| {
            let age = now.duration_since(profile.measured);
            SignedDuration::ZERO <= age && age < LASTS
        }))
    }

    /// Keeps a profile in the place of an older one.
    ///
    /// # Errors
    /// [`ProfileError::Keep`].
    pub fn keep(&self, identity: &str, profile: &Profile) -> Result<(), ProfileError> {
        let path = self.path(identity);
        let failed = |source| keep_failed(&path, "writing", source);
        fs::create_dir_all(&self.directory).map_err(failed)?;
        let text = serde_json::to_string_pretty(profile).map_err(|error| failed(error.into()))? + "\n";
        replace_file(&path, text.as_bytes()).map_err(failed)
    }

    fn path(&self, identity: &str) -> PathBuf {
        self.directory.join(format!("{identity}.json"))
    }
}

fn keep_failed(path: &Path, act: &'static str, source: io::Error) -> ProfileError {
    ProfileError::Keep { path: path.display().to_string(), act, source }
}

/// What names the disk for good, as a file name: the world-wide name or serial number of a disk, the UUID of an array or a mapped
/// device, the file of a loop device; of a partition with its number. `None` where nothing does: such a profile is not kept.
#[must_use]
pub fn identity_of(device: &BlockDevice) -> Option<String> {
    identity_within(Path::new("/sys"), device)
}

fn identity_within(sysfs: &Path, device: &BlockDevice) -> Option<String> {
    let directory = sysfs.join("dev/block").join(device.number.to_string());
    let text = |name: &str| {
        let text = fs::read_to_string(directory.join(name)).ok()?;
        let text = text.trim();
        (!text.is_empty()).then(|| file_name(text))
    };
    let name = match device.kind {
        BlockDeviceKind::Partition => {
            let disk = identity_within(sysfs, device.below.first()?)?;
            Some(format!("{disk}-partition-{}", text("partition")?))
        }
        _ => ["wwid", "device/wwid", "device/serial", "serial", "dm/uuid", "md/uuid", "loop/backing_file"]
            .into_iter()
            .find_map(text),
    };
    name.filter(|name| name.len() <= LONGEST_NAME)
}

/// As a name of one file: what is no letter, digit, point, underscore or minus becomes its number.
fn file_name(text: &str) -> String {
    text.bytes().fold(String::new(), |mut name, byte| {
        if byte.is_ascii_alphanumeric() || b"_-".contains(&byte) {
            name.push(char::from(byte));
        } else {
            _ = write!(name, ".{byte:02x}");
        }
        name
    })
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests may fail loudly")]
mod tests {
    use super::*;
    use crate::Verdict;
    use longrun_layout::Bytes;
    use longrun_sys::DeviceNumber;

    fn profile(measured: Timestamp) -> Profile {
        let verdict = Verdict::of(&[]);
        Profile { device: "sda".into(), bytes: Bytes(1), measured, seconds: 1.0, places: Vec::new(), verdict }
    }

    #[test]
    fn a_profile_is_found_again_for_thirty_days() {
        let state = tempfile::tempdir().unwrap();
        let kept = Kept::within(state.path());
        let now: Timestamp = "2026-11-25T04:00:00Z".parse().unwrap();
        assert!(kept.find("disk", now).unwrap().is_none());
        kept.keep("disk", &profile(now)).unwrap();
        kept.keep("disk", &profile(now)).unwrap();
        assert_eq!(kept.find("disk", now).unwrap(), Some(profile(now)));
        assert!(kept.find("disk", now + LASTS).unwrap().is_none());
        assert!(kept.find("disk", now - SignedDuration::from_secs(1)).unwrap().is_none(), "from the future");
        assert!(kept.find("other", now).unwrap().is_none());
        fs::write(state.path().join("profiles/disk.json"), "{").unwrap();
        assert!(kept.find("disk", now).unwrap().is_none(), "damaged: measured again");
        let names = fs::read_dir(state.path().join("profiles")).unwrap().count();
        assert_eq!(names, 1, "nothing is left beside it");
    }

    #[test]
    fn identities_are_names_of_files_whatever_a_disk_calls_itself() {
        let root = tempfile::tempdir().unwrap();
        let of = |number: &str| root.path().join("dev/block").join(number);
        fs::create_dir_all(of("8:0").join("device")).unwrap();
        fs::create_dir_all(of("8:1")).unwrap();
        fs::write(of("8:0").join("device/wwid"), "../t10.ATA/x y\n").unwrap();
        fs::write(of("8:1").join("partition"), "1\n").unwrap();
        let device = |minor, kind, below| BlockDevice {
            number: DeviceNumber { major: 8, minor },
            name: String::new(),
            kind,
            below,
        };
        let disk = device(0, BlockDeviceKind::Disk, Vec::new());
        assert_eq!(identity_within(root.path(), &disk).unwrap(), ".2e.2e.2ft10.2eATA.2fx.20y");
        let partition = device(1, BlockDeviceKind::Partition, vec![disk]);
        assert_eq!(identity_within(root.path(), &partition).unwrap(), ".2e.2e.2ft10.2eATA.2fx.20y-partition-1");
        let nameless = device(2, BlockDeviceKind::Disk, Vec::new());
        assert_eq!(identity_within(root.path(), &nameless), None);
        fs::create_dir_all(of("8:2")).unwrap();
        fs::write(of("8:2").join("wwid"), "x".repeat(300)).unwrap();
        assert_eq!(identity_within(root.path(), &nameless), None, "no name of a file");
    }
}
