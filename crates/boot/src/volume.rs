//! A volume that is recorded, or whose files are read ahead: opening its files by handle, and where they lie.

use crate::model::range;
use crate::plan::Lies;
use crate::sweep::Ahead;
use crate::system::Root;
use longrun_layout::{Bytes, FileId};
use longrun_sys::{
    ByteRange, DeviceNumber, Errno, FileSystem, Mapping, OFlags, for_each_extent, open_by_id, open_xfs_by_id,
    read_ahead, superblock_of,
};
use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::fs::MetadataExt as _;
use std::time::{Duration, Instant};

/// No call is for more, so that others wait for no longer than one of them takes.
const LARGEST_STEP: u64 = 1 << 20;
/// What every kernel reads in one call.
const SMALLEST_STEP: u64 = 64 << 10;

/// Why a volume cannot be recorded.
#[derive(Debug, thiserror::Error)]
pub enum Unsupported {
    /// Not ext4 or XFS.
    #[error("the volume is neither ext4 nor XFS: what is read there is not recorded")]
    FileSystem,
    /// The device has no UUID.
    #[error("the volume has no UUID, by which its list would be known")]
    Nameless,
    /// The kernel does not let us.
    #[error("{act} failed: {source}")]
    Io {
        /// What failed.
        act: &'static str,
        /// The kernel's error.
        source: io::Error,
    },
}

/// An ext4 or XFS volume.
#[derive(Debug)]
pub struct Volume {
    /// Its kind.
    pub filesystem: FileSystem,
    /// Its device.
    pub device: DeviceNumber,
    /// Its UUID.
    pub uuid: [u8; 16],
    directory: File,
    block: File,
    step: Bytes,
    begun: Instant,
    open: BTreeMap<FileId, File>,
}

impl Volume {
    /// The volume of a directory; `root` is the system, where the kernel's own files are.
    ///
    /// # Errors
    /// [`Unsupported`].
    pub fn of(directory: OwnedFd, root: &Root) -> Result<Self, Unsupported> {
        let failed = |act| move |source| Unsupported::Io { act, source };
        let directory = File::from(directory);
        let found = FileSystem::of(&directory).map_err(|error| failed("asking for the file system")(error.into()))?;
        let filesystem = match found {
            Some(FileSystem::Ext4) => FileSystem::Ext4,
            Some(FileSystem::Xfs) => FileSystem::Xfs,
            _ => return Err(Unsupported::FileSystem),
        };
        let device = directory.metadata().map_err(failed("looking at the volume"))?.dev();
        let device = DeviceNumber::from_stat(device);
        let place = format!("/sys/dev/block/{device}");
        let name = root
            .kernels(&format!("{place}/uevent"))
            .and_then(|text| text.lines().find_map(|line| line.strip_prefix("DEVNAME=")).map(str::to_owned));
        let path = name.map_or_else(|| format!("/dev/block/{device}"), |name| format!("/dev/{name}"));
        let block = root.open_kernels(&path).map_err(failed("opening the device"))?;
        let superblock = superblock_of(&block, filesystem).map_err(failed("reading the superblock"))?;
        let uuid = superblock.uuid.ok_or(Unsupported::Nameless)?;
        let kibibytes = |names: &[&str]| {
            names.iter().find_map(|name| root.kernels(&format!("{place}/{name}"))?.parse::<u64>().ok())
        };
        // A partition has the queue of its disk.
        let step =
            [&["bdi/read_ahead_kb", "../bdi/read_ahead_kb"][..], &["queue/max_sectors_kb", "../queue/max_sectors_kb"]]
                .into_iter()
                .filter_map(kibibytes)
                .max()
                .unwrap_or(0)
                .saturating_mul(1024);
        let step = Bytes(step.clamp(SMALLEST_STEP, LARGEST_STEP) / 4096 * 4096);
        Ok(Self { filesystem, device, uuid, directory, block, step, begun: Instant::now(), open: BTreeMap::new() })
    }

    /// Opens a file by its identity, without changing its times.
    ///
    /// # Errors
    /// `ESTALE` when there is no such regular file any more.
    pub fn file(&self, file: FileId) -> Result<File, Errno> {
        let flags = OFlags::RDONLY | OFlags::NOATIME | OFlags::NONBLOCK;
        let opened = match self.filesystem {
            FileSystem::Xfs => open_xfs_by_id(&self.directory, file, flags)?,
            _ => open_by_id(&self.directory, file, flags)?,
        };
        let opened = File::from(opened);
        let is_file = opened.metadata().is_ok_and(|meta| meta.is_file() && meta.nlink() > 0);
        if is_file { Ok(opened) } else { Err(Errno::STALE) }
    }

    /// Where a file lies; `None` when it is gone.
    #[must_use]
    pub fn lies(&self, file: FileId) -> Option<Vec<Lies>> {
        let file = self.file(file).ok()?;
        let mut lies = Vec::new();
        for_each_extent(&file, ByteRange::ALL, Mapping::AsIs, |extent| {
            // What is nowhere on the disk is not read from it.
            if extent.flags.has_address() && !extent.flags.is_unwritten() {
                let (start, length) = (extent.logical.0, extent.length.0);
                lies.push(Lies { range: range(start, start.saturating_add(length)), at: extent.physical });
            }
            true
        })
        .ok()?;
        Some(lies)
    }
}

impl Ahead for Volume {
    fn step(&self) -> Bytes {
        self.step
    }

    fn elapsed(&self) -> Duration {
        self.begun.elapsed()
    }

    fn metadata(&mut self, range: ByteRange) -> bool {
        // Only ext4 keeps its metadata in the page cache of the device.
        self.filesystem == FileSystem::Ext4 && read_ahead(self.block.as_fd(), range).is_ok()
    }

    fn open(&mut self, file: FileId) -> bool {
        match self.file(file) {
            Ok(opened) => {
                self.open.insert(file, opened);
                true
            }
            Err(_) => false,
        }
    }

    fn data(&mut self, file: FileId, range: ByteRange) -> bool {
        self.open.get(&file).is_some_and(|file| read_ahead(file, range).is_ok())
    }
}
