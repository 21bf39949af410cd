//! Files outside the volume that only root can open, and to which the user's links lead. The kernel reports every
//! opening.

use anyhow::{Result, ensure};
use rustix::fs::inotify;
use std::fs;
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

/// A directory of root's with a file and a directory that are called as the writers' are.
pub(super) struct Outside {
    directory: tempfile::TempDir,
    watch: OwnedFd,
}

impl Outside {
    pub(super) fn create() -> Result<Self> {
        let directory = tempfile::tempdir()?;
        fs::set_permissions(directory.path(), fs::Permissions::from_mode(0o700))?;
        let watch = inotify::init(inotify::CreateFlags::NONBLOCK | inotify::CreateFlags::CLOEXEC)?;
        for number in 0..super::WRITERS {
            fs::write(directory.path().join(super::prey::file_name(number)), vec![7; 1 << 16])?;
        }
        let opened = inotify::WatchFlags::OPEN
            | inotify::WatchFlags::CREATE
            | inotify::WatchFlags::MODIFY
            | inotify::WatchFlags::ATTRIB
            | inotify::WatchFlags::DELETE;
        inotify::add_watch(&watch, directory.path(), opened)?;
        Ok(Self { directory, watch })
    }

    pub(super) fn path(&self) -> PathBuf {
        self.directory.path().to_owned()
    }

    /// Fails if anything there was opened or changed: the user may not, so another process did it for the user.
    pub(super) fn verify(&self) -> Result<()> {
        let mut buffer = [MaybeUninit::uninit(); 4096];
        let mut events = inotify::Reader::new(&self.watch, &mut buffer);
        match events.next() {
            Err(rustix::io::Errno::AGAIN) => Ok(()),
            Err(errno) => Err(errno.into()),
            Ok(event) => {
                let name = event.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
                let at = Path::new(&name);
                ensure!(
                    false,
                    "a privilege was gained: {:?} at {} outside the volume, where only a link of the user's leads",
                    event.events(),
                    at.display()
                );
                Ok(())
            }
        }
    }
}
