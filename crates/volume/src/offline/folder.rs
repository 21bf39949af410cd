//! The directory of a journal.
//!
//! Owns which files in it are accepted. The directory may belong to somebody else: it is opened once, and its files are reached through
//! the descriptor.

use super::error::{Doubt, JournalError};
use longrun_image::Access;
use longrun_sys::Errno;
use rustix::fs::{AtFlags, Mode, OFlags};
use std::ffi::{OsStr, OsString};
use std::fs::{self, File};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

/// How the name of a journal ends.
pub(super) const SUFFIX: &str = ".longrun-journal";

/// A directory that is open.
#[derive(Debug)]
pub(super) struct Folder {
    directory: OwnedFd,
    /// Who may own a journal in it, in addition to us and root.
    owner: Option<u32>,
}

impl Folder {
    /// Opens the directory `path`, which has no links in it.
    pub(super) fn open(path: &Path, owner: Option<u32>) -> io::Result<Self> {
        Ok(Self { directory: longrun_sys::open_trusted_directory(path)?, owner })
    }

    /// The names of all journals in it.
    pub(super) fn journals(&self) -> io::Result<Vec<OsString>> {
        let entries = fs::read_dir(longrun_sys::descriptor_path(&self.directory))?;
        let is_journal = |name: &OsString| name.as_bytes().ends_with(SUFFIX.as_bytes());
        entries.map(|entry| Ok(entry?.file_name())).filter(|name| name.as_ref().map_or(true, is_journal)).collect()
    }

    /// Opens the file `name`, if there is one. Nothing but a regular file of an accepted owner is accepted, which has no other name, by
    /// which it would be another file, too.
    pub(super) fn file(&self, name: &OsStr, access: Access) -> Result<Option<File>, JournalError> {
        let flags = if access == Access::Read { OFlags::RDONLY } else { OFlags::RDWR };
        // Without waiting: to open a FIFO would wait for another process.
        let flags = flags | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
        let file = match rustix::fs::openat(&self.directory, name, flags, Mode::empty()) {
            Ok(file) => File::from(file),
            Err(Errno::NOENT) => return Ok(None),
            Err(Errno::LOOP) => return Err(Doubt::SymbolicLink.into()),
            Err(Errno::ISDIR | Errno::NXIO) => return Err(Doubt::NotAFile.into()),
            Err(error) => return Err(io::Error::from(error).into()),
        };
        let meta = file.metadata()?;
        let owners = [Some(rustix::process::geteuid().as_raw()), Some(0), self.owner];
        if !meta.is_file() {
            return Err(Doubt::NotAFile.into());
        }
        if !owners.contains(&Some(meta.uid())) {
            return Err(Doubt::Owner(meta.uid()).into());
        }
        if meta.nlink() > 1 {
            return Err(Doubt::HardLink.into());
        }
        Ok(Some(file))
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
