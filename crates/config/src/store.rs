//! The configuration file on its disk: what it says now, and replacing it as a whole.
//!
//! Owns the order in which it is replaced: a complete new file, on the disk, in the place of the old one. Its owner, group and mode stay.

use super::load::LARGEST;
use std::fs::{self, DirBuilder, File, OpenOptions, Permissions};
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::io::{self, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _, fchown};
use std::path::{Path, PathBuf};

/// A file that the service makes is readable by all, as the packaged one is: it holds no secrets.
const MODE: u32 = 0o644;

/// What the file said when it was read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stored {
    /// Its text; none when it does not exist.
    pub text: Option<String>,
}

/// Why the file cannot be used, or replaced.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// It cannot be read.
    #[error("{path}: reading the configuration failed: {source}", path = path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// The kernel's answer.
        source: io::Error,
    },
    /// It is another one now.
    #[error("{path} has been changed since it was read", path = path.display())]
    Changed {
        /// The file.
        path: PathBuf,
    },
    /// It cannot be written.
    #[error("{path}: {act} failed: {source}", path = path.display())]
    Unwritable {
        /// The file.
        path: PathBuf,
        /// What was tried.
        act: &'static str,
        /// The kernel's answer.
        source: io::Error,
    },
}

impl Stored {
    /// The file at `path`.
    ///
    /// # Errors
    /// [`StoreError::Unreadable`].
    pub fn read(path: &Path) -> Result<Self, StoreError> {
        let unreadable = |source| StoreError::Unreadable { path: path.to_owned(), source };
        let size = match fs::metadata(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Self { text: None }),
            other => other.map_err(unreadable)?.len(),
        };
        if size > LARGEST {
            return Err(unreadable(io::Error::other("it is larger than 1 MiB")));
        }
        Ok(Self { text: Some(fs::read_to_string(path).map_err(unreadable)?) })
    }

    /// A name for this state of the file, as HTTP wants it.
    #[must_use]
    pub fn tag(&self) -> String {
        let mut hasher = DefaultHasher::new();
        self.text.hash(&mut hasher);
        format!("\"{:016x}\"", hasher.finish())
    }

    /// Puts `text` in the place of the file at `path`, if that still says what it said. A crash leaves the old file or the new one.
    ///
    /// # Errors
    /// [`StoreError`]; the file is as it was then.
    pub fn replace(&self, path: &Path, text: &str) -> Result<Self, StoreError> {
        // What a link names is replaced, not the link.
        let real = fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
        let unwritable = |act| {
            let path = path.to_owned();
            move |source| StoreError::Unwritable { path, act, source }
        };
        let directory = real.parent().unwrap_or(Path::new("/"));
        if !directory.exists() {
            let made = DirBuilder::new().recursive(true).mode(0o755).create(directory);
            made.map_err(unwritable("making its directory"))?;
        }
        let temporary = real.with_extension(format!("toml.new-{}", std::process::id()));
        let written = self.write(path, &real, &temporary, text);
        if written.is_err() {
            _ = fs::remove_file(&temporary);
        }
        written?;
        let synced = File::open(directory).and_then(|directory| directory.sync_all());
        synced.map_err(unwritable("writing its directory"))?;
        Ok(Self { text: Some(text.to_owned()) })
    }

    fn write(&self, path: &Path, real: &Path, temporary: &Path, text: &str) -> Result<(), StoreError> {
        let unwritable = |act| {
            let path = path.to_owned();
            move |source| StoreError::Unwritable { path, act, source }
        };
        // One that an earlier process left behind.
        _ = fs::remove_file(temporary);
        let made = OpenOptions::new().write(true).create_new(true).mode(0o600).open(temporary);
        let mut file = made.map_err(unwritable("making the new file"))?;
        file.write_all(text.as_bytes()).map_err(unwritable("writing the new file"))?;
        let mut mode = MODE;
        if let Ok(old) = fs::metadata(real) {
            let new = file.metadata().map_err(unwritable("reading the owner of the new file"))?;
            if (old.uid(), old.gid()) != (new.uid(), new.gid()) {
                fchown(&file, Some(old.uid()), Some(old.gid())).map_err(unwritable("keeping its owner and group"))?;
            }
            mode = old.mode() & 0o7777;
        }
        file.set_permissions(Permissions::from_mode(mode)).map_err(unwritable("keeping its mode"))?;
        file.sync_all().map_err(unwritable("writing the new file"))?;
        // As late as possible: an editor does not ask us.
        if Self::read(path)? != *self {
            return Err(StoreError::Changed { path: path.to_owned() });
        }
        fs::rename(temporary, real).map_err(unwritable("putting the new file in its place"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    fn names(directory: &Path) -> Vec<String> {
        let mut names: Vec<String> =
            fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }

    #[test]
    fn a_file_is_replaced_with_its_mode_behind_links_and_nothing_else_is_left() {
        let directory = tempfile::tempdir().unwrap();
        let (real, link) = (directory.path().join("real.toml"), directory.path().join("link.toml"));
        fs::write(&real, "old").unwrap();
        fs::set_permissions(&real, Permissions::from_mode(0o640)).unwrap();
        symlink(&real, &link).unwrap();
        let stored = Stored::read(&link).unwrap();
        let next = stored.replace(&link, "new").unwrap();
        assert_ne!(stored.tag(), next.tag());
        assert_eq!(
            (fs::read_to_string(&real).unwrap().as_str(), fs::metadata(&real).unwrap().mode() & 0o777),
            ("new", 0o640)
        );
        assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
        assert_eq!(names(directory.path()), ["link.toml", "real.toml"]);
    }

    #[test]
    fn a_file_that_has_changed_or_cannot_be_replaced_stays() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("longrun.toml");
        let none = Stored::read(&path).unwrap();
        let first = none.replace(&path, "first").unwrap();
        assert_eq!(fs::metadata(&path).unwrap().mode() & 0o777, 0o644);
        fs::write(&path, "by an editor").unwrap();
        assert!(matches!(first.replace(&path, "second").unwrap_err(), StoreError::Changed { .. }));
        assert!(matches!(none.replace(&path, "third").unwrap_err(), StoreError::Changed { .. }));
        assert_eq!(fs::read_to_string(&path).unwrap(), "by an editor");
        assert_eq!(names(directory.path()), ["longrun.toml"]);
        let absent = Path::new("/proc/longrun-is-not-here/longrun.toml");
        assert!(matches!(
            Stored::read(absent).unwrap().replace(absent, "x").unwrap_err(),
            StoreError::Unwritable { .. }
        ));
    }
}
