//! Where the new image is made: a directory beside the image, which only we may look into.
//!
//! Owns its name, its end, and the exchange of the two images. Never removes anything in it but files of the image's name.

use crate::FileDisk;
use longrun_layout::Bytes;
use rustix::fs::{AtFlags, Mode, OFlags, RenameFlags};
use rustix::io::Errno;
use std::ffi::OsString;
use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

/// Behind the name of the image, with a point before it.
const SUFFIX: &str = ".longrun-compact";

/// The directory of an image, and the one that we make in it. The latter goes when this is dropped, or, should we be killed, when
/// the image is compacted the next time.
pub(super) struct Place {
    beside: OwnedFd,
    directory: PathBuf,
    image: OsString,
    ours: Option<OwnedFd>,
}

impl Place {
    /// `image` has no links in it.
    pub(super) fn beside(image: &Path) -> io::Result<Self> {
        let directory = image.parent().unwrap_or(Path::new("/")).to_owned();
        let name = image.file_name().ok_or(io::ErrorKind::InvalidInput)?.to_owned();
        let beside = rustix::fs::open(&directory, directory_flags(), Mode::empty())?;
        Ok(Self { beside, directory, image: name, ours: None })
    }

    /// Whether the image's name in this directory is that of `file`.
    pub(super) fn leads_to(&self, file: &FileDisk) -> bool {
        let found = rustix::fs::statat(&self.beside, &self.image, AtFlags::SYMLINK_NOFOLLOW);
        let expected = file.file().metadata();
        found.is_ok_and(|found| {
            expected.is_ok_and(|expected| (found.st_dev, found.st_ino) == (expected.dev(), expected.ino()))
        })
    }

    fn name(&self) -> OsString {
        let mut name = OsString::from(".");
        name.push(&self.image);
        name.push(SUFFIX);
        name
    }

    /// Removes what an interrupted run has left; its name. The image that has the name of the image is complete, whichever it is.
    /// Whoever calls this has locked that one.
    pub(super) fn sweep(&mut self) -> io::Result<Option<PathBuf>> {
        let left = match rustix::fs::openat(&self.beside, self.name(), directory_flags(), Mode::empty()) {
            Err(Errno::NOENT) => return Ok(None),
            left => left?,
        };
        let owner = rustix::fs::fstat(&left)?.st_uid;
        if owner != rustix::process::geteuid().as_raw() {
            let text = format!("the directory {} belongs to another user", self.name().display());
            return Err(io::Error::new(io::ErrorKind::AlreadyExists, text));
        }
        self.ours = Some(left);
        self.remove()?;
        Ok(Some(self.directory.join(self.name())))
    }

    /// What is free on the file system.
    pub(super) fn available(&self) -> io::Result<Bytes> {
        let capacity = longrun_sys::capacity(&self.beside)?;
        Ok(capacity.block_size.to_bytes(capacity.available))
    }

    /// Makes the directory, and an empty file of the image's name in it.
    pub(super) fn make(&mut self) -> io::Result<File> {
        rustix::fs::mkdirat(&self.beside, self.name(), Mode::RWXU)?;
        let ours = rustix::fs::openat(&self.beside, self.name(), directory_flags(), Mode::empty())?;
        let flags = OFlags::CREATE | OFlags::EXCL | OFlags::RDWR | OFlags::CLOEXEC | OFlags::NOFOLLOW;
        let file = rustix::fs::openat(&ours, &self.image, flags, Mode::RUSR | Mode::WUSR);
        self.ours = Some(ours);
        Ok(file?.into())
    }

    /// The name of the file in it. Only through us: nobody can put something else in its way. Some formats note the last part.
    pub(super) fn file(&self) -> PathBuf {
        let number = self.ours.as_ref().map_or(-1, AsRawFd::as_raw_fd);
        Path::new("/proc").join(std::process::id().to_string()).join("fd").join(number.to_string()).join(&self.image)
    }

    /// Exchanges the two files, of which `named` has the name of the image. What was written to them is durable; so is the exchange
    /// when this returns.
    pub(super) fn exchange(&mut self, named: &FileDisk) -> io::Result<()> {
        let ours = self.ours.as_ref().ok_or(io::ErrorKind::NotFound)?;
        if !self.leads_to(named) {
            return Err(io::Error::other("another file has the name by now"));
        }
        rustix::fs::renameat_with(ours, &self.image, &self.beside, &self.image, RenameFlags::EXCHANGE)?;
        let durable = rustix::fs::fsync(&self.beside).and_then(|()| rustix::fs::fsync(ours));
        // Which of the two has the name after a loss of power is not known then: neither is removed.
        Ok(durable.inspect_err(|_| self.ours = None)?)
    }

    /// Removes the file that is in the directory, and the directory.
    pub(super) fn remove(&mut self) -> io::Result<()> {
        let Some(ours) = self.ours.take() else { return Ok(()) };
        gone(rustix::fs::unlinkat(&ours, &self.image, AtFlags::empty()))?;
        gone(rustix::fs::unlinkat(&self.beside, self.name(), AtFlags::REMOVEDIR))?;
        Ok(rustix::fs::fsync(&self.beside)?)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        // What cannot be removed now is left for the next time.
        _ = self.remove();
    }
}

fn directory_flags() -> OFlags {
    OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC | OFlags::NOFOLLOW
}

fn gone(result: Result<(), Errno>) -> io::Result<()> {
    match result {
        Err(Errno::NOENT) => Ok(()),
        other => Ok(other?),
    }
}
