//! The files of a list: `NAME.list`, `NAME.trace` (of the last recording), `NAME.plan` (what is read ahead next time; none: nothing) and
//! `NAME.history`. Below the state directory of the system, in `boot/`.
//!
//! What can be changed by others than root is not read: it decides what root reads.

use crate::judge::History;
use crate::model::List;
use crate::plan::Plan;
use crate::system::Root;
use crate::text::{Damage, LARGEST};
use longrun_sys::{Errno, make_directory_within, open_within, remove_within, write_within};
use std::fs::File;
use std::io::{self, Read as _};
use std::os::fd::OwnedFd;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

/// Why a file of a list cannot be read or written.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// The name of a list.
    #[error("{name}: no name of a list; letters, digits and - _ . @ : are allowed")]
    Name {
        /// As given.
        name: String,
    },
    /// The kernel.
    #[error("{file}: {act} failed: {source}")]
    Io {
        /// Which file.
        file: String,
        /// What failed.
        act: &'static str,
        /// The kernel's error.
        source: io::Error,
    },
    /// Somebody else can write it.
    #[error("{file}: not read, because others than root can change it; remove it, or make it root's with mode 600")]
    Untrusted {
        /// Which file.
        file: String,
    },
    /// It is no list.
    #[error("{file}: damaged ({damage}); it is not used")]
    Damaged {
        /// Which file.
        file: String,
        /// What is wrong.
        damage: String,
    },
}

/// The name of a list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Names(String);

impl Names {
    /// Of the boot.
    #[must_use]
    pub fn boot() -> Self {
        Self("boot".to_owned())
    }

    /// Of an application: usually that of its unit.
    ///
    /// # Errors
    /// [`StoreError::Name`] when it is no name of a file, or a hidden one.
    pub fn of(name: &str) -> Result<Self, StoreError> {
        let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.@:".contains(&byte);
        if (1..=120).contains(&name.len()) && name.bytes().all(plain) && !name.starts_with('.') {
            Ok(Self(name.to_owned()))
        } else {
            Err(StoreError::Name { name: name.to_owned() })
        }
    }

    /// As text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    fn file(&self, kind: &str) -> String {
        format!("{}.{kind}", self.0)
    }
}

/// The files of all lists.
#[derive(Debug)]
pub struct Store {
    directory: OwnedFd,
    shown: PathBuf,
}

impl Store {
    /// That of a system, below its state directory; `None` when there is none yet.
    ///
    /// # Errors
    /// [`StoreError::Io`].
    pub fn find(root: &Root, state: &Path) -> Result<Option<Self>, StoreError> {
        let shown = state.join("boot");
        match root.open_file(&shown) {
            Ok(directory) => Ok(Some(Self { directory, shown })),
            Err(Errno::NOENT) => Ok(None),
            Err(error) => Err(failed(&shown, "opening the directory", error.into())),
        }
    }

    /// As [`Self::find`]; makes the directory, not the state directory above it.
    ///
    /// # Errors
    /// [`StoreError::Io`].
    pub fn make(root: &Root, state: &Path) -> Result<Self, StoreError> {
        let shown = state.join("boot");
        let made = root.open_file(state).and_then(|above| make_directory_within(above, "boot"));
        let directory = made.map_err(|error| failed(&shown, "making the directory", error.into()))?;
        Ok(Self { directory, shown })
    }

    /// The list.
    ///
    /// # Errors
    /// [`StoreError`].
    pub fn list(&self, names: &Names) -> Result<Option<List>, StoreError> {
        self.parsed(&names.file("list"), List::parse)
    }

    /// What is read ahead next time.
    ///
    /// # Errors
    /// [`StoreError`].
    pub fn plan(&self, names: &Names) -> Result<Option<Plan>, StoreError> {
        self.parsed(&names.file("plan"), Plan::parse)
    }

    /// What is remembered; nothing when the file is damaged.
    ///
    /// # Errors
    /// [`StoreError`].
    pub fn history(&self, names: &Names) -> Result<History, StoreError> {
        let text = self.text(&names.file("history"))?;
        Ok(text.and_then(|text| serde_json::from_str(&text).ok()).unwrap_or_default())
    }

    /// Keeps a recording.
    ///
    /// # Errors
    /// [`StoreError::Io`].
    pub fn keep_trace(&self, names: &Names, recording: &List) -> Result<(), StoreError> {
        self.write(&names.file("trace"), &recording.to_text())
    }

    /// Keeps a list.
    ///
    /// # Errors
    /// [`StoreError::Io`].
    pub fn keep_list(&self, names: &Names, list: &List) -> Result<(), StoreError> {
        self.write(&names.file("list"), &list.to_text())
    }

    /// Keeps what is read ahead next time; `None`: nothing.
    ///
    /// # Errors
    /// [`StoreError::Io`].
    pub fn keep_plan(&self, names: &Names, plan: Option<&Plan>) -> Result<(), StoreError> {
        let name = names.file("plan");
        match plan {
            Some(plan) => self.write(&name, &plan.to_text()),
            None => self.remove(&name),
        }
    }

    /// Keeps what is remembered.
    ///
    /// # Errors
    /// [`StoreError::Io`].
    pub fn keep_history(&self, names: &Names, history: &History) -> Result<(), StoreError> {
        let text = serde_json::to_string_pretty(history).unwrap_or_default() + "\n";
        self.write(&names.file("history"), &text)
    }

    /// The names of all lists, in order.
    ///
    /// # Errors
    /// [`StoreError::Io`].
    pub fn names(&self) -> Result<Vec<Names>, StoreError> {
        let read = || -> io::Result<Vec<Names>> {
            let here = rustix::fs::Dir::read_from(&self.directory)?;
            let mut names = Vec::new();
            for entry in here {
                let entry = entry?;
                let name = entry.file_name().to_str().ok().and_then(|name| name.strip_suffix(".list"));
                names.extend(name.and_then(|name| Names::of(name).ok()));
            }
            names.sort_by(|a, b| a.0.cmp(&b.0));
            Ok(names)
        };
        read().map_err(|source| failed(&self.shown, "listing the directory", source))
    }

    /// Removes everything of a list.
    ///
    /// # Errors
    /// [`StoreError::Io`].
    pub fn forget(&self, names: &Names) -> Result<(), StoreError> {
        // The plan first: it is what acts.
        for kind in ["plan", "list", "trace", "history"] {
            self.remove(&names.file(kind))?;
        }
        Ok(())
    }

    fn parsed<T>(&self, name: &str, parse: impl Fn(&str) -> Result<T, Damage>) -> Result<Option<T>, StoreError> {
        let Some(text) = self.text(name)? else { return Ok(None) };
        let file = || self.shown.join(name).display().to_string();
        parse(&text).map(Some).map_err(|damage| StoreError::Damaged { file: file(), damage: damage.to_string() })
    }

    fn text(&self, name: &str) -> Result<Option<String>, StoreError> {
        let path = self.shown.join(name);
        match open_within(&self.directory, Path::new(name)) {
            Ok(file) => trusted_text(file.into(), &path).map(Some),
            Err(Errno::NOENT) => Ok(None),
            Err(error) => Err(failed(&path, "opening it", error.into())),
        }
    }

    fn remove(&self, name: &str) -> Result<(), StoreError> {
        remove_within(&self.directory, name)
            .map_err(|error| failed(&self.shown.join(name), "removing it", error.into()))
    }

    fn write(&self, name: &str, text: &str) -> Result<(), StoreError> {
        let path = self.shown.join(name);
        write_within(&self.directory, name, text.as_bytes()).map_err(|source| failed(&path, "writing it", source))
    }
}

/// A list from a file anywhere, which only root can change.
///
/// # Errors
/// [`StoreError`].
pub fn read_list(path: &Path) -> Result<List, StoreError> {
    let file = longrun_sys::open_trusted(path).map_err(|error| failed(path, "opening it", error.into()))?;
    let text = trusted_text(file.into(), path)?;
    let damaged = |damage: Damage| StoreError::Damaged { file: path.display().to_string(), damage: damage.to_string() };
    List::parse(&text).map_err(damaged)
}

/// The text of a file that only root can change.
pub(crate) fn trusted_text(file: File, path: &Path) -> Result<String, StoreError> {
    let reading = |source| failed(path, "reading it", source);
    let shown = || path.display().to_string();
    let meta = file.metadata().map_err(reading)?;
    if !meta.is_file() || meta.uid() != 0 || meta.mode() & 0o022 != 0 {
        return Err(StoreError::Untrusted { file: shown() });
    }
    let mut text = Vec::new();
    file.take(LARGEST + 1).read_to_end(&mut text).map_err(reading)?;
    let damaged = |damage: &str| StoreError::Damaged { file: shown(), damage: damage.to_owned() };
    if text.len() as u64 > LARGEST {
        return Err(damaged("too large"));
    }
    String::from_utf8(text).map_err(|_| damaged("not a text"))
}

fn failed(path: &Path, act: &'static str, source: io::Error) -> StoreError {
    StoreError::Io { file: path.display().to_string(), act, source }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::{PermissionsExt as _, symlink};

    fn store() -> (tempfile::TempDir, Store) {
        let base = tempfile::tempdir().unwrap();
        fs::create_dir_all(base.path().join("var/lib/longrun")).unwrap();
        let root = Root::open(base.path()).unwrap();
        assert!(Store::find(&root, Path::new("/var/lib/longrun")).unwrap().is_none());
        let store = Store::make(&root, Path::new("/var/lib/longrun")).unwrap();
        assert!(Store::find(&root, Path::new("/var/lib/longrun")).unwrap().is_some());
        (base, store)
    }

    #[test]
    fn what_is_kept_is_found_and_forgotten() {
        let (_base, store) = store();
        let names = Names::boot();
        let list = List::empty([3; 16]);
        assert!(store.list(&names).unwrap().is_none() && store.plan(&names).unwrap().is_none());
        store.keep_list(&names, &list).unwrap();
        assert_eq!(store.list(&names).unwrap(), Some(list));
        assert_eq!(store.names().unwrap(), std::slice::from_ref(&names));
        store.keep_history(&names, &History { runs: Vec::new(), off: Some("slower".into()) }).unwrap();
        assert_eq!(store.history(&names).unwrap().off.as_deref(), Some("slower"));
        store.forget(&names).unwrap();
        store.keep_plan(&names, None).unwrap();
        assert!(store.list(&names).unwrap().is_none() && store.names().unwrap().is_empty());
    }

    #[test]
    fn a_list_that_others_can_change_is_not_read() {
        let (base, store) = store();
        let names = Names::boot();
        store.keep_list(&names, &List::empty([3; 16])).unwrap();
        let path = base.path().join("var/lib/longrun/boot/boot.list");
        for mode in [0o620, 0o602, 0o666] {
            fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
            assert!(matches!(store.list(&names), Err(StoreError::Untrusted { .. })), "{mode:o}");
        }
        fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).unwrap();
        assert!(store.list(&names).is_ok());
        std::os::unix::fs::chown(&path, Some(65534), None).unwrap();
        assert!(matches!(store.list(&names), Err(StoreError::Untrusted { .. })));
        fs::remove_file(&path).unwrap();
        fs::create_dir(&path).unwrap();
        assert!(matches!(store.list(&names), Err(StoreError::Untrusted { .. })));
        fs::remove_dir(&path).unwrap();
        symlink("/etc/passwd", &path).unwrap();
        assert!(store.list(&names).unwrap().is_none(), "the link leads nowhere within its directory");
    }

    #[test]
    fn names_of_lists_are_names_of_files() {
        for name in ["boot", "nginx.service", "postgresql@16-main.service"] {
            assert_eq!(Names::of(name).unwrap().as_str(), name);
        }
        for name in ["", ".", "..", ".hidden", "a/b", "a b", "a\n", &"x".repeat(200)] {
            assert!(Names::of(name).is_err(), "{name:?}");
        }
    }

    #[test]
    fn what_is_no_list_is_damaged_and_what_is_too_large_is_not_read() {
        let (base, store) = store();
        let path = base.path().join("var/lib/longrun/boot/boot.list");
        for content in [&b"x"[..], &[0xff; 100], &vec![b'x'; usize::try_from(LARGEST).unwrap() + 1]] {
            fs::write(&path, content).unwrap();
            assert!(matches!(store.list(&Names::boot()), Err(StoreError::Damaged { .. })));
        }
        fs::write(base.path().join("var/lib/longrun/boot/boot.history"), "{").unwrap();
        assert_eq!(store.history(&Names::boot()).unwrap(), History::default());
    }
}
