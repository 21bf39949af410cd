//! Where the new image is made: under another name in the directory of the image, which may belong to somebody else.
//!
//! Owns that name, its end, and the exchange of the two images. The new image is written through its descriptor, so that it does not
//! matter what others put in the place of the name. Never removes anything but the one file that has this name.

use longrun_layout::Bytes;
use rustix::fs::{AtFlags, FileType, Mode, OFlags, RenameFlags, Stat};
use rustix::io::Errno;
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};

/// Behind the name of the image, with a point before it.
const SUFFIX: &str = ".longrun-compact";

/// The directory of an image, and the file that is made in it. When this is dropped the file goes that is not the image; should we be
/// killed, when the image is compacted the next time.
pub(super) struct Place {
    directory: OwnedFd,
    path: PathBuf,
    image: OsString,
    other: OsString,
    /// The file under the other name that may be removed.
    surplus: Option<Identity>,
}

/// Device and inode number.
type Identity = (u64, u64);

fn identity(stat: &Stat) -> Identity {
    (stat.st_dev, stat.st_ino)
}

impl Place {
    /// `image` has no links in it.
    pub(super) fn beside(image: &Path) -> io::Result<Self> {
        let path = image.parent().unwrap_or(Path::new("/")).to_owned();
        let image = image.file_name().ok_or(io::ErrorKind::InvalidInput)?.to_owned();
        let mut other = OsString::from(".");
        other.push(&image);
        other.push(SUFFIX);
        let directory = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC | OFlags::NOFOLLOW;
        let directory = rustix::fs::open(&path, directory, Mode::empty())?;
        Ok(Self { directory, path, image, other, surplus: None })
    }

    /// Whether the image's name in this directory is that of `file`.
    pub(super) fn leads_to(&self, file: impl AsFd) -> io::Result<bool> {
        self.has(&self.image, identity(&rustix::fs::fstat(file)?))
    }

    /// Whether a name in this directory is that of `file`.
    fn has(&self, name: &OsStr, file: Identity) -> io::Result<bool> {
        Ok(self.found(name)?.is_some_and(|found| identity(&found) == file))
    }

    /// What has a name. Links are not followed.
    fn found(&self, name: &OsStr) -> io::Result<Option<Stat>> {
        match rustix::fs::statat(&self.directory, name, AtFlags::SYMLINK_NOFOLLOW) {
            Err(Errno::NOENT) => Ok(None),
            found => Ok(Some(found?)),
        }
    }

    /// Removes what an interrupted run has left; its name. `image` is the one that has the name of the image and is locked: that one is
    /// complete, before and after an exchange. The other is a file of ours, or has the owner of the image already.
    pub(super) fn sweep(&mut self, image: impl AsFd) -> io::Result<Option<PathBuf>> {
        let Some(left) = self.found(&self.other)? else { return Ok(None) };
        let owners = [rustix::process::geteuid().as_raw(), rustix::fs::fstat(image)?.st_uid];
        if FileType::from_raw_mode(left.st_mode) != FileType::RegularFile || !owners.contains(&left.st_uid) {
            let text = format!("{} is not a file of ours", self.other.display());
            return Err(io::Error::new(io::ErrorKind::AlreadyExists, text));
        }
        self.surplus = Some(identity(&left));
        self.remove()?;
        Ok(Some(self.path.join(&self.other)))
    }

    /// What is free on the file system.
    pub(super) fn available(&self) -> io::Result<Bytes> {
        let capacity = longrun_sys::capacity(&self.directory)?;
        Ok(capacity.block_size.to_bytes(capacity.available))
    }

    /// Makes an empty file that only we may open.
    pub(super) fn make(&mut self) -> io::Result<File> {
        let flags = OFlags::CREATE | OFlags::EXCL | OFlags::RDWR | OFlags::CLOEXEC | OFlags::NOFOLLOW;
        let file = rustix::fs::openat(&self.directory, &self.other, flags, Mode::RUSR | Mode::WUSR)?;
        self.surplus = Some(identity(&rustix::fs::fstat(&file)?));
        Ok(file.into())
    }

    /// Exchanges the names of the two files, of which `named` has that of the image. What was written to them is durable; so is the
    /// exchange when this returns.
    pub(super) fn exchange(&mut self, named: impl AsFd) -> io::Result<()> {
        let named = identity(&rustix::fs::fstat(named)?);
        let surplus = self.surplus.ok_or(io::ErrorKind::NotFound)?;
        let taken = || io::Error::other("another file has the name by now");
        if !self.has(&self.image, named)? || !self.has(&self.other, surplus)? {
            return Err(taken());
        }
        let (at, exchange) = (&self.directory, RenameFlags::EXCHANGE);
        rustix::fs::renameat_with(at, &self.other, at, &self.image, exchange)?;
        // Another user of the directory can rename files between the check and the exchange.
        let is_exchanged = self.has(&self.image, surplus)? && self.has(&self.other, named)?;
        // Which of the two has the name after a loss of power is not known until this has succeeded: neither is removed.
        self.surplus = None;
        rustix::fs::fsync(&self.directory)?;
        if !is_exchanged {
            return Err(taken());
        }
        self.surplus = Some(named);
        Ok(())
    }

    /// Removes the file that is not the image.
    pub(super) fn remove(&mut self) -> io::Result<()> {
        let Some(surplus) = self.surplus.take() else { return Ok(()) };
        match self.found(&self.other)? {
            None => Ok(()),
            Some(found) if identity(&found) == surplus => {
                rustix::fs::unlinkat(&self.directory, &self.other, AtFlags::empty())?;
                Ok(rustix::fs::fsync(&self.directory)?)
            }
            Some(_) => Err(io::Error::other(format!("another file has the name {} by now", self.other.display()))),
        }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        // What cannot be removed now is left for the next time.
        _ = self.remove();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    const OTHER: &str = ".disk.longrun-compact";

    /// A directory with an image in it.
    fn scene() -> (tempfile::TempDir, PathBuf, Place, File) {
        let directory = tempfile::tempdir().unwrap();
        let image = directory.path().join("disk");
        fs::write(&image, "original").unwrap();
        let place = Place::beside(&image).unwrap();
        let file = File::open(&image).unwrap();
        (directory, image, place, file)
    }

    #[test]
    fn exchanged_files_swap_names_and_the_surplus_one_goes() {
        let (directory, image, mut place, original) = scene();
        let new = place.make().unwrap();
        rustix::io::write(&new, b"new").unwrap();
        place.exchange(&original).unwrap();
        assert_eq!(fs::read_to_string(&image).unwrap(), "new");
        assert_eq!(fs::read_to_string(directory.path().join(OTHER)).unwrap(), "original");
        place.exchange(&new).unwrap();
        assert_eq!(fs::read_to_string(&image).unwrap(), "original");
        drop(place);
        assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 1);
    }

    #[test]
    fn a_name_that_others_have_taken_is_not_exchanged_or_removed() {
        type Act = fn(&Path);
        // What is put there: for the file as another file, as a directory, as a link.
        let acts: [Act; 3] = [
            |other| fs::write(other, "theirs").unwrap(),
            |other| fs::create_dir(other).unwrap(),
            |other| std::os::unix::fs::symlink("/etc/passwd", other).unwrap(),
        ];
        for (number, act) in acts.into_iter().enumerate() {
            for taken in [OTHER, "disk"] {
                let (directory, image, mut place, original) = scene();
                let mut new = place.make().unwrap();
                let name = directory.path().join(taken);
                fs::rename(&name, directory.path().join("moved")).unwrap();
                act(&name);
                io::Write::write_all(&mut new, b"new").unwrap();
                let refused = place.exchange(&original).unwrap_err();
                assert!(refused.to_string().contains("another file has the name"), "{number} {taken}: {refused}");
                drop(place);
                assert!(name.symlink_metadata().is_ok(), "{number} {taken}: what others put there is gone");
                let moved = fs::read_to_string(directory.path().join("moved")).unwrap();
                assert_eq!(moved, if taken == OTHER { "new" } else { "original" }, "{number}");
                assert!(taken == "disk" || fs::read_to_string(&image).unwrap() == "original", "{number}");
            }
        }
    }

    #[test]
    fn a_name_that_exists_is_neither_followed_nor_overwritten() {
        let (directory, _, mut place, original) = scene();
        let (other, victim) = (directory.path().join(OTHER), directory.path().join("victim"));
        fs::write(&victim, "precious").unwrap();
        std::os::unix::fs::symlink(&victim, &other).unwrap();
        assert_eq!(place.sweep(&original).unwrap_err().kind(), io::ErrorKind::AlreadyExists);
        assert_eq!(place.make().unwrap_err().kind(), io::ErrorKind::AlreadyExists);
        assert_eq!(fs::read_to_string(&victim).unwrap(), "precious");
        fs::remove_file(&other).unwrap();
        fs::create_dir(&other).unwrap();
        assert_eq!(place.sweep(&original).unwrap_err().kind(), io::ErrorKind::AlreadyExists);
        drop(place);
        assert!(other.exists());
    }
}
