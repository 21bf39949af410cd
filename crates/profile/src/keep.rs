//! Profiles that are kept, by the identity of the disk: names such as `sda` go to other disks after a restart.

use crate::{Profile, ProfileError};
use jiff::{SignedDuration, Timestamp};
use longrun_sys::replace_file;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// A kept profile counts for so long. The disk itself does not change, but an array below it may.
pub const LASTS: SignedDuration = SignedDuration::from_hours(30 * 24);
/// A profile takes 4 KiB; what is larger is none.
const LARGEST: u64 = 1 << 20;

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

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests may fail loudly")]
mod tests {
    use super::*;
    use crate::Verdict;
    use longrun_layout::Bytes;

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
}
