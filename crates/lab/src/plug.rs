//! A device with a volatile write cache whose power can be cut. For file systems without a shutdown call, and for a
//! harsher interruption than a shutdown.
//!
//! The image of the volume is on an XFS of its own, and its loop device writes through the page cache. A flush makes
//! durable what was written before it, as on a disk. Cutting the power shuts that XFS down without flushing anything.
//! Flushed data is there afterwards. Of the other data, pages that the kernel had already written back may be there,
//! each in its old or new state. This models a disk that keeps its promises; one that lies about flushes is not
//! modelled.

use crate::{cleanup, tool};
use anyhow::{Context, Result};
use longrun_sys::Shutdown;
use std::fs::{self, File};
use std::path::{Path, PathBuf};

/// Whether the power of a volume's device can be cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Power {
    /// Direct I/O to the image.
    Stays,
    /// A write cache that is lost.
    CanBeCut,
    /// The image is in memory (ramfs), where no holes can be punched: the device accepts no discards.
    WithoutDiscards,
}

/// The file system below the image.
#[derive(Debug)]
pub(crate) struct Plug {
    mount_point: PathBuf,
    device: PathBuf,
}

impl Plug {
    /// Makes and mounts it, with room for an image of `bytes`.
    pub(crate) fn new(directory: &Path, bytes: u64) -> Result<Self> {
        // Its log and its own trees; mkfs wants 300 MiB anyway.
        let size = bytes + bytes / 16 + (320 << 20);
        let (image, mount_point) = (directory.join(cleanup::BELOW_IMAGE), directory.join(cleanup::BELOW));
        File::create_new(&image)?.set_len(size)?;
        fs::create_dir(&mount_point)?;
        let arguments = ["--direct-io=on", "--find", "--show"].map(Path::new);
        let device = PathBuf::from(tool::run("losetup", arguments.into_iter().chain([&*image]))?.trim());
        cleanup::attached_below(directory, &device);
        tool::run("mkfs.xfs", ["-q".as_ref(), "-f".as_ref(), device.as_os_str()])?;
        let plug = Self { mount_point, device };
        plug.mount()?;
        Ok(plug)
    }

    /// The image of the volume.
    pub(crate) fn image(&self) -> PathBuf {
        self.mount_point.join("image")
    }

    fn mount(&self) -> Result<()> {
        tool::run("mount", [self.device.as_os_str(), self.mount_point.as_os_str()])?;
        Ok(())
    }

    /// Everything that has not been flushed is lost, and nothing can be read or written any more.
    pub(crate) fn pull(&self) -> Result<()> {
        let root = File::open(&self.mount_point)?;
        longrun_sys::shutdown(&root, Shutdown::NoLogFlush).context("cannot cut the power")
    }

    /// The device works again. Nothing may have the image open.
    pub(crate) fn put_back(&self) -> Result<()> {
        cleanup::unmount(&self.mount_point)?;
        self.mount()
    }
}
