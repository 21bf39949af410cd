//! An NTFS image mounted with ntfs-3g.
//!
//! Owns the mount and the process that serves it. Never returns from unmounting before that process has ended: for an
//! image in a file `umount` returns while ntfs-3g still writes.

use crate::{cleanup, tool};
use anyhow::{Context, Result, bail, ensure};
use rustix::process::Pid;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread;
use std::time::{Duration, Instant};

/// What ntfs-3g printed, in the directory of the mount.
const LOG: &str = "ntfs-3g.log";
/// How long ntfs-3g has to mount, and to end after it was unmounted: it writes back a whole volume at most.
const PATIENCE: Duration = Duration::from_secs(120);
const PAUSE: Duration = Duration::from_millis(1);

/// How an image is mounted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// Named streams are files called `FILE:STREAM`. Nothing is written.
    Read,
    /// As [`Self::Read`], and the files of NTFS itself are visible.
    ReadSystem,
    /// Named streams are extended attributes called `user.STREAM`, which lists them. Nothing is written.
    ListStreams,
    /// As [`Self::Read`], writable. New files in a compressed directory are compressed.
    Write,
}

impl Access {
    const fn options(self) -> &'static str {
        match self {
            Self::Read => "ro,noatime,streams_interface=windows,efs_raw,no_detach",
            Self::ReadSystem => "ro,noatime,streams_interface=windows,efs_raw,no_detach,show_sys_files",
            Self::ListStreams => "ro,noatime,streams_interface=xattr,efs_raw,no_detach",
            Self::Write => "rw,noatime,streams_interface=windows,efs_raw,no_detach,compression,big_writes",
        }
    }
}

/// A mounted image. It is unmounted when dropped.
#[derive(Debug)]
pub struct Mounted {
    directory: PathBuf,
    server: Child,
}

impl Mounted {
    /// Mounts an image, or a device, on a directory of its own.
    ///
    /// # Errors
    /// With what ntfs-3g printed, when it does not mount; needs root.
    pub fn new(image: &Path, access: Access) -> Result<Self> {
        ensure!(rustix::process::geteuid().is_root(), "NTFS mounts need root: run this with sudo");
        let directory = cleanup::fresh_directory()?;
        let server = serve(image, &directory, access).inspect_err(|_| cleanup::take_down(&directory))?;
        // From here on the value exists, so that an error takes down what is there.
        let mut mounted = Self { directory, server };
        mounted.wait_until_mounted().with_context(|| format!("cannot mount {}", image.display()))?;
        Ok(mounted)
    }

    /// The root directory of the volume.
    #[must_use]
    pub fn root(&self) -> PathBuf {
        self.directory.join(cleanup::MOUNT)
    }

    /// Unmounts, and waits until everything is in the image.
    ///
    /// # Errors
    /// When it stays busy, or ntfs-3g fails at the end.
    pub fn unmount(mut self) -> Result<()> {
        cleanup::unmount(&self.root())?;
        let status = self.wait_for_end()?;
        ensure!(status.success(), "ntfs-3g ended with {status}:\n{}", self.log());
        Ok(())
    }

    fn wait_until_mounted(&mut self) -> Result<()> {
        let until = Instant::now() + PATIENCE;
        while !cleanup::is_mounted(&self.root()) {
            if let Some(status) = self.server.try_wait()? {
                bail!("ntfs-3g ended with {status}:\n{}", self.log());
            }
            ensure!(Instant::now() < until, "ntfs-3g does not answer:\n{}", self.log());
            thread::sleep(PAUSE);
        }
        Ok(())
    }

    fn wait_for_end(&mut self) -> Result<ExitStatus> {
        let until = Instant::now() + PATIENCE;
        loop {
            if let Some(status) = self.server.try_wait()? {
                return Ok(status);
            }
            ensure!(Instant::now() < until, "ntfs-3g does not end after it was unmounted");
            thread::sleep(PAUSE);
        }
    }

    fn log(&self) -> String {
        fs::read_to_string(self.directory.join(LOG)).unwrap_or_default()
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        // It ends by itself when nothing is mounted any more; a mount that stays busy is detached, and it is killed.
        cleanup::take_down(&self.directory);
        if self.wait_for_end().is_err() {
            let _ = self.server.kill();
            let _ = self.server.wait();
        }
        cleanup::child_ended(Pid::from_child(&self.server));
    }
}

fn serve(image: &Path, directory: &Path, access: Access) -> Result<Child> {
    let mount_point = directory.join(cleanup::MOUNT);
    fs::create_dir(&mount_point)?;
    let log = File::create(directory.join(LOG))?;
    // In the foreground: its end is what says that everything is written. Names are UTF-8 whatever the user's locale is.
    let server = Command::new("ntfs-3g")
        .args(["-o", access.options()])
        .args([image, &mount_point])
        .env("LC_ALL", "C.UTF-8")
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(log)
        .spawn()
        .context("cannot run ntfs-3g: is it installed?")?;
    cleanup::child_started(Pid::from_child(&server));
    Ok(server)
}

/// Copies an image, holes included.
pub(crate) fn copy(image: &Path, to: &Path) -> Result<()> {
    tool::run("cp", ["--sparse=always".as_ref(), "--reflink=auto".as_ref(), image.as_os_str(), to.as_os_str()])
        .map(drop)
}
