//! The recorder: loads the BPF programs that count, and takes their counts.
//!
//! Owns which volumes are counted. Never sees single requests, only counts.

mod programs;
mod record;
mod skeleton;

use crate::HeatError;
use libbpf_rs::{MapCore as _, MapFlags};
use longrun_bpf::KernelDevice;
use longrun_layout::FileId;
use longrun_sys::{DeviceNumber, FileSystem, volume_members};
use programs::Programs;
use std::collections::BTreeMap;

/// What the device was asked for on behalf of a file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counted {
    /// Requests that read.
    pub reads: u64,
    /// Bytes that they read.
    pub read_bytes: u64,
    /// Requests that wrote.
    pub writes: u64,
    /// Bytes that they wrote.
    pub written_bytes: u64,
}

/// What was counted of a volume since the harvest before.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Harvested {
    /// All requests that read its devices, but for those of Longrun.
    pub reads: u64,
    /// Bytes that they read.
    pub read_bytes: u64,
    /// Requests of Longrun that read them: they are no demand, and count for no file.
    pub own_reads: u64,
    /// By file.
    pub files: Vec<(FileId, Counted)>,
}

/// What the programs have cost, while the kernel records that.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cost {
    /// How often they ran.
    pub runs: u64,
    /// How long that took, in nanoseconds.
    pub nanos: u64,
}

/// The last known totals of a device, and whose it is.
struct Device {
    volume: DeviceNumber,
    value: Vec<u8>,
}

/// A recorder that counts until it is dropped.
pub struct Recorder {
    programs: Programs,
    /// By number.
    devices: BTreeMap<DeviceNumber, Device>,
    /// The type of btrfs's inodes was known when the programs were loaded.
    knows_btrfs: bool,
}

impl Recorder {
    /// Loads the programs; no volume is counted yet.
    ///
    /// # Errors
    /// [`HeatError::NotPermitted`] and [`HeatError::Unsupported`]. Nothing stays loaded in the kernel then.
    pub fn start() -> Result<Self, HeatError> {
        Ok(Self { programs: Programs::load()?, devices: BTreeMap::new(), knows_btrfs: false })
    }

    /// Counts the requests to a volume. `volume` is the file system's own number: on btrfs another one than that of its files. `on`
    /// is its block device, on btrfs any of them.
    ///
    /// # Errors
    /// [`HeatError`]. The volume may be counted in part then, until [`Self::unwatch`].
    pub fn watch(&mut self, volume: DeviceNumber, filesystem: FileSystem, on: DeviceNumber) -> Result<(), HeatError> {
        let subvolumes = filesystem == FileSystem::Btrfs;
        if subvolumes && !self.knows_btrfs {
            // The module may have been loaded after the programs were.
            self.load_again()?;
            self.knows_btrfs = true;
        }
        let value = record::device(KernelDevice::of(volume), subvolumes);
        // On ext4 and XFS the number of the volume is that of its device.
        for member in volume_members(on).into_iter().chain([volume]) {
            if self.devices.get(&member).is_none_or(|known| known.volume != volume) {
                self.tell(member, &value)?;
                self.devices.insert(member, Device { volume, value: value.clone() });
            }
        }
        Ok(())
    }

    /// Ends counting the requests to a volume. What was counted since the last harvest is lost.
    pub fn unwatch(&mut self, volume: DeviceNumber) {
        let gone: Vec<DeviceNumber> = self.of(volume).collect();
        for number in gone {
            self.devices.remove(&number);
            let table = self.programs.table("devices");
            // What is not there any more need not be deleted.
            _ = table.map(|table| table.delete(&KernelDevice::of(number).bytes()));
        }
    }

    /// The volumes that are counted.
    #[must_use]
    pub fn watches(&self, volume: DeviceNumber) -> bool {
        self.of(volume).next().is_some()
    }

    fn of(&self, volume: DeviceNumber) -> impl Iterator<Item = DeviceNumber> + '_ {
        self.devices.iter().filter(move |(_, device)| device.volume == volume).map(|(number, _)| *number)
    }

    /// Whether transfers past the page cache are counted for their files (Linux 6.4 and later).
    #[must_use]
    pub fn tells_direct(&self) -> bool {
        self.programs.tells_direct()
    }

    /// What the programs have cost, while the kernel records that.
    #[must_use]
    pub fn cost(&self) -> Option<Cost> {
        self.programs.cost()
    }

    /// Takes what was counted since the last time, by volume.
    ///
    /// # Errors
    /// [`HeatError::Broken`].
    pub fn harvest(&mut self) -> Result<BTreeMap<DeviceNumber, Harvested>, HeatError> {
        let mut found: BTreeMap<DeviceNumber, Harvested> = BTreeMap::new();
        let mut volumes: BTreeMap<KernelDevice, DeviceNumber> = BTreeMap::new();
        let table = self.programs.table("devices")?;
        for (number, device) in &mut self.devices {
            volumes.insert(KernelDevice::of(device.volume), device.volume);
            let of = found.entry(device.volume).or_default();
            let now =
                table.lookup(&KernelDevice::of(*number).bytes(), MapFlags::ANY).map_err(broken("reading totals"))?;
            if let Some(now) = now {
                record::add_device(of, &now, 1);
                record::add_device(of, &device.value, -1);
                device.value = now;
            }
        }
        let files = self.programs.table("files")?;
        // Taken one by one, so that what is counted meanwhile is either in this harvest or in the next one.
        let keys: Vec<Vec<u8>> = files.keys().take(usize::try_from(files.max_entries()).unwrap_or(0)).collect();
        for bytes in keys {
            let Some((volume, file)) = record::key(&bytes) else { continue };
            let counted = files.lookup_and_delete(&bytes).map_err(broken("taking a file's counts"))?;
            let counted = counted.and_then(|bytes| record::count(&bytes));
            let of = volumes.get(&volume).and_then(|volume| found.get_mut(volume));
            if let (Some(of), Some(counted)) = (of, counted) {
                of.files.push((file, counted));
            }
        }
        Ok(found)
    }

    fn tell(&self, device: DeviceNumber, value: &[u8]) -> Result<(), HeatError> {
        let table = self.programs.table("devices")?;
        table.update(&KernelDevice::of(device).bytes(), value, MapFlags::ANY).map_err(broken("adding a device"))
    }

    fn load_again(&mut self) -> Result<(), HeatError> {
        self.programs = Programs::load()?;
        for (number, device) in &self.devices {
            self.tell(*number, &device.value)?;
        }
        Ok(())
    }
}

fn broken(act: &'static str) -> impl Fn(libbpf_rs::Error) -> HeatError {
    move |error| HeatError::Broken { act, detail: format!("{error:#}") }
}
