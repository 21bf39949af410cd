//! What lies below a volume: whether it takes space back, in which blocks, and how much it has allocated.
//!
//! Owns the reading of that from sysfs and from the backing files of loop devices. Never opens a device or a file.

use super::granules::Granules;
use longrun_engine::VolumeError;
use longrun_layout::Bytes;
use longrun_sys::{BlockDevice, BlockDeviceKind, DeviceNumber, Discards, volume_members};
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::thread::sleep;
use std::time::{Duration, Instant};

/// What lies below a volume.
#[derive(Clone, Debug)]
pub struct Storage {
    /// The devices of the volume.
    pub devices: Vec<Device>,
}

/// A device of the volume.
#[derive(Clone, Debug)]
pub struct Device {
    /// The kernel's name of it.
    pub name: String,
    /// Its size.
    pub size: Bytes,
    /// What it accepts as a discard; none where it accepts none.
    pub discards: Option<Discards>,
    /// The file that it shows as a device, from its first byte to its last.
    pub file: Option<PathBuf>,
}

/// Between two looks at what a file has allocated.
const LOOK: Duration = Duration::from_millis(50);
/// After so many looks without a change for the less nothing is under way any more.
const LOOKS: u32 = 2;
/// Discards that are under way when the last call returns are waited for, but not longer than this.
const PATIENCE: Duration = Duration::from_secs(10);

impl Storage {
    /// What lies below the volume on `device`, which errors call `path`.
    pub(super) fn below(device: DeviceNumber, path: &Path) -> Result<Self, VolumeError> {
        let members = volume_members(device).into_iter().map(|member| Device::numbered(member, path));
        let storage = Self { devices: members.collect::<Result<_, _>>()? };
        if storage.devices.iter().any(|device| device.discards.is_some()) {
            return Ok(storage);
        }
        let device = BlockDevice::numbered(device).map_err(crate::mounted::io(path, "looking at its device"))?;
        let (device, advice) = without_discards(&device);
        Err(VolumeError::NoDiscards { path: path.to_owned(), device, advice })
    }

    /// The size of all devices.
    #[must_use]
    pub fn size(&self) -> Bytes {
        self.devices.iter().map(|device| device.size).sum()
    }

    /// The blocks in which it gives space back: of several devices those of the one that has the largest.
    #[must_use]
    pub fn granules(&self) -> Granules {
        let coarsest = self.devices.iter().filter_map(|device| device.discards).max_by_key(|d| d.granularity);
        coarsest.map_or(Granules::of(Bytes(1)), |of| Granules { bytes: of.granularity, offset: of.alignment })
    }

    /// Those devices that accept no discards: nothing on them is given back.
    pub fn refusing(&self) -> impl Iterator<Item = &Device> {
        self.devices.iter().filter(|device| device.discards.is_none())
    }

    /// What is allocated for the volume in the files below; none where it does not lie on files, or not on these alone.
    #[must_use]
    pub fn allocated(&self) -> Option<Bytes> {
        /// The unit of `st_blocks`, whatever the file system has.
        const SECTOR: u64 = 512;
        let of = |device: &Device| {
            let meta = fs::metadata(device.file.as_ref()?).ok().filter(|meta| meta.is_file())?;
            Some(Bytes(meta.blocks().saturating_mul(SECTOR)))
        };
        self.devices.iter().map(of).sum()
    }

    /// Returns when discards that are still under way are done: XFS does not wait for its own.
    pub(super) fn settle(&self) {
        let (begun, mut last, mut unchanged) = (Instant::now(), self.allocated(), 0);
        while last.is_some() && unchanged < LOOKS && begun.elapsed() < PATIENCE {
            sleep(LOOK);
            let now = self.allocated();
            // What others write meanwhile is nothing to wait for.
            unchanged = if now < last { 0 } else { unchanged + 1 };
            last = now;
        }
    }
}

impl Device {
    fn numbered(number: DeviceNumber, path: &Path) -> Result<Self, VolumeError> {
        let failed = |act| crate::mounted::io(path, act);
        let device = BlockDevice::numbered(number).map_err(failed("looking at its device"))?;
        let discards = longrun_sys::discards_of(number).map_err(failed("reading what its device can discard"))?;
        let file = match &device.kind {
            BlockDeviceKind::Loop { backing } => {
                longrun_sys::shows_whole_file(number).is_ok_and(|whole| whole).then(|| backing.clone())
            }
            _ => None,
        };
        Ok(Self {
            name: device.name,
            size: longrun_sys::size_of_device(number).map_err(failed("reading the size of its device"))?,
            discards: Some(discards).filter(|discards| discards.most.0 > 0),
            file,
        })
    }
}

/// The lowest layer below `device` that accepts no discards, and what to do about it.
fn without_discards(device: &BlockDevice) -> (String, &'static str) {
    let deaf =
        |layer: &&&BlockDevice| longrun_sys::discards_of(layer.number).is_ok_and(|discards| discards.most.0 == 0);
    let layers = device.layers();
    let lowest = layers.iter().rev().find(deaf).copied().unwrap_or(device);
    (lowest.name.clone(), advice(&lowest.kind))
}

const fn advice(kind: &BlockDeviceKind) -> &'static str {
    match kind {
        BlockDeviceKind::Mapped => {
            "for encryption allow them (cryptsetup refresh --allow-discards, or \"discard\" in /etc/crypttab); other kinds of \
             mapped devices pass them on where their table allows it"
        }
        BlockDeviceKind::Loop { .. } => {
            "its file lies on a file system that cannot punch holes: move the file to another one"
        }
        BlockDeviceKind::Joined => "a RAID passes them on only where all its disks and its level do",
        BlockDeviceKind::Disk | BlockDeviceKind::Partition | BlockDeviceKind::Paths => {
            "of a virtual disk allow them in the hypervisor (discard='unmap'); of an array turn thin provisioning on; a hard \
             disk has nothing to give back"
        }
    }
}
