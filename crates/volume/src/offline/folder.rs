//! The directory of a journal.
//!
//! Owns which files in it are believed. The directory may belong to somebody else: it is opened once, and its files are reached through
//! the descriptor.

use longrun_image::Access;
use longrun_sys::Errno;
use rustix::fs::{AtFlags, Mode, OFlags};
use std::ffi::{OsStr, OsString};
use std::fs::{self, DirBuilder, File};
use std::io;
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};

/// How the name of a journal ends.
pub(super) const SUFFIX: &str = ".longrun-journal";

/// Why a file is not believed to be a journal.
pub(super) type Doubt = String;

/// A directory that is open.
#[derive(Debug)]
pub(super) struct Folder {
    directory: OwnedFd,
    path: PathBuf,
}

impl Folder {
    /// Opens the directory `path`.
    pub(super) fn open(path: &Path) -> io::Result<Self> {
        let path = fs::canonicalize(if path.as_os_str().is_empty() { Path::new(".") } else { path })?;
        Ok(Self { directory: longrun_sys::open_trusted_directory(&path)?, path })
    }

    /// As [`Self::open`], and makes the directory when there is none: that of the service, which need not run here.
    pub(super) fn make(path: &Path) -> io::Result<Self> {
        if !path.as_os_str().is_empty() {
            DirBuilder::new().recursive(true).mode(0o700).create(path)?;
        }
        Self::open(path)
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// The names of all journals in it.
    pub(super) fn journals(&self) -> io::Result<Vec<OsString>> {
        let entries = fs::read_dir(format!("/proc/self/fd/{}", self.directory.as_raw_fd()))?;
        let is_journal = |name: &OsString| name.as_bytes().ends_with(SUFFIX.as_bytes());
        entries.map(|entry| Ok(entry?.file_name())).filter(|name| name.as_ref().map_or(true, is_journal)).collect()
    }

    /// Opens the file `name`, if there is one and it is to be believed: it belongs to us, to root or to `owner`, and has no other
    /// name, by which it would be another file, too.
    pub(super) fn file(
        &self,
        name: &OsStr,
        access: Access,
        owner: Option<u32>,
    ) -> io::Result<Option<Result<File, Doubt>>> {
        let doubt = |what: &str| Ok(Some(Err(what.to_owned())));
        let flags = if access == Access::Read { OFlags::RDONLY } else { OFlags::RDWR };
        // Without waiting: to open a FIFO would wait for another process.
        let flags = flags | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
        let file = match rustix::fs::openat(&self.directory, name, flags, Mode::empty()) {
            Ok(file) => File::from(file),
            Err(Errno::NOENT) => return Ok(None),
            Err(Errno::LOOP) => return doubt("is a symbolic link"),
            Err(Errno::ISDIR | Errno::NXIO) => return doubt("is no regular file"),
            Err(error) => return Err(error.into()),
        };
        let meta = file.metadata()?;
        let owners = [Some(rustix::process::geteuid().as_raw()), Some(0), owner];
        if !meta.is_file() {
            doubt("is no regular file")
        } else if !owners.contains(&Some(meta.uid())) {
            doubt(&format!("belongs to another user (number {})", meta.uid()))
        } else if meta.nlink() > 1 {
            doubt("has another name, too (a hard link)")
        } else {
            Ok(Some(Ok(file)))
        }
    }

    /// Makes the file `name`, which must not exist, for us only.
    pub(super) fn create(&self, name: &OsStr) -> io::Result<File> {
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        Ok(rustix::fs::openat(&self.directory, name, flags, Mode::RUSR | Mode::WUSR)?.into())
    }

    /// Removes the file `name`.
    pub(super) fn remove(&self, name: &OsStr) -> io::Result<()> {
        Ok(rustix::fs::unlinkat(&self.directory, name, AtFlags::empty())?)
    }

    /// Makes the names in it durable.
    pub(super) fn sync(&self) -> io::Result<()> {
        Ok(rustix::fs::fsync(&self.directory)?)
    }
}
