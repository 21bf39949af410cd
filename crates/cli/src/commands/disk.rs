//! Commands on disk images and disks with partitions: one volume after the other.
//!
//! Owns the order, and what is printed for the disk as a whole. What is done with a volume is the command's own.

use crate::exit::{Failure, Status, after};
use crate::progress::Watch;
use crate::report::compaction::Compaction;
use crate::report::{print, print_json};
use crate::text::{counted, printable, printable_path, size};
use longrun_engine::VolumeError;
use longrun_image::Access;
use longrun_layout::Bytes;
use longrun_volume::Target;
use longrun_volume::disk_image::{DiskImage, VolumeOnDisk, is_disk};
use serde::Serialize;
use std::path::{Path, PathBuf};

/// What a command has to say of a volume, and the status that it ends with when the volume is all that it works on.
pub type Outcome<T> = (T, Result<(), Failure>);

/// What is printed as JSON.
#[derive(Serialize)]
struct OfDisk<T> {
    target: PathBuf,
    /// "raw", "qcow2", …
    format: String,
    /// Snapshots inside the image.
    snapshots: u32,
    /// Who else has it open, if somebody has.
    #[serde(skip_serializing_if = "Option::is_none")]
    in_use: Option<String>,
    volumes: Vec<OfVolume<T>>,
    /// What was done with the image as a whole.
    #[serde(skip_serializing_if = "Option::is_none")]
    compaction: Option<Compaction>,
}

#[derive(Serialize)]
struct OfVolume<T> {
    /// None where the volume is the whole disk.
    partition: Option<u32>,
    name: String,
    bytes: Bytes,
    /// Why nothing was done with it.
    #[serde(skip_serializing_if = "Option::is_none")]
    skipped: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    result: Option<T>,
}

/// A disk image or a disk with partitions, as the user named it.
pub struct Disk {
    path: PathBuf,
    /// The only partition that is meant.
    only: Option<u32>,
    /// The user says so.
    machine_is_off: bool,
}

impl Disk {
    /// The disk that `target` names: its path, or with `#2` behind it one of its partitions. `None` when it is something else.
    pub fn find(target: &Path) -> Option<Self> {
        if is_disk(target) {
            return Some(Self { path: target.to_owned(), only: None, machine_is_off: false });
        }
        let (path, number) = target.to_str().filter(|_| !target.exists())?.rsplit_once('#')?;
        let path = PathBuf::from(path);
        let only = number.parse().ok()?;
        is_disk(&path).then_some(Self { path, only: Some(only), machine_is_off: false })
    }

    /// The same with what the user says of its machine.
    pub fn of_machine_that_is_off(self, machine_is_off: bool) -> Self {
        Self { machine_is_off, ..self }
    }

    /// The image or device.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Does `act` for each volume on it, and goes on when it fails for one. Ends with the first failure, or with a
    /// refusal when nothing on the disk is a volume that can be worked on.
    pub fn on_each<T: Serialize>(
        &self,
        access: Access,
        json: bool,
        act: impl FnMut(&Target, &mut Watch) -> Result<Outcome<T>, Failure>,
    ) -> Result<(), Failure> {
        self.on_each_and_whole(access, json, act, |_| Ok(None))
    }

    /// The same, and then, when nothing has failed, does `whole` with the image, which is closed by then.
    pub fn on_each_and_whole<T: Serialize>(
        &self,
        access: Access,
        json: bool,
        mut act: impl FnMut(&Target, &mut Watch) -> Result<Outcome<T>, Failure>,
        whole: impl FnOnce(&mut Watch) -> Result<Option<Compaction>, Failure>,
    ) -> Result<(), Failure> {
        let mut disk = DiskImage::open(&self.path, access)?;
        disk.machine_is_off = self.machine_is_off;
        let meant = |volume: &&VolumeOnDisk| self.only.is_none() || volume.number == self.only;
        if longrun_sys::is_root() && disk.volumes.iter().filter(meant).any(|volume| disk.mounts(volume)) {
            // What is mounted from the disk nobody else sees, and it goes with us. Only the first thread can do that.
            longrun_sys::own_mount_namespace().map_err(|error| {
                let text = format!("{}: making a mount name space of its own failed: {error}", self.path.display());
                Failure::new(Status::Failed, text)
            })?;
        }
        let mut watch = Watch::start()?;
        if !json {
            print(&heading(&disk))?;
        }
        let (mut told, mut first, mut done) = (Vec::new(), Ok(()), false);
        for volume in disk.volumes.iter().filter(meant) {
            if !json {
                print(&format!("\n{}\n", title(&disk, volume)))?;
            }
            let mut of = OfVolume {
                partition: volume.number,
                name: volume.name.clone(),
                bytes: volume.length,
                skipped: None,
                result: None,
            };
            let end = match disk.target(volume) {
                Err(error @ VolumeError::Unsupported { .. }) => {
                    of.skipped = Some(error.to_string());
                    Ok(())
                }
                Err(error) => Err(Failure::from(error)),
                Ok(opened) => {
                    let end = act(&opened.target, &mut watch).and_then(|(result, end)| {
                        (of.result, done) = (Some(result), true);
                        end
                    });
                    after(end, opened.close())
                }
            };
            watch.finish();
            let is_over = matches!(&end, Err(failure) if failure.status == Status::Interrupted);
            if let Err(failure) = end {
                if of.result.is_none() {
                    of.skipped = Some(failure.to_string());
                }
                first = first.and(Err(failure));
            }
            if let (Some(why), false) = (&of.skipped, json) {
                print(&format!("  {}\n", printable(why)))?;
            }
            told.push(of);
            if is_over {
                break;
            }
        }
        if first.is_ok() && !done {
            let text = format!("{}: no volume on it can be worked on", self.path.display());
            first = Err(Failure::new(Status::Refused, text));
        }
        let (format, snapshots, in_use) = (disk.format.to_string(), disk.snapshots, disk.in_use.clone());
        // Its locks end with it.
        drop(disk);
        let compaction = match first {
            Ok(()) => whole(&mut watch).unwrap_or_else(|failure| {
                first = Err(failure);
                None
            }),
            Err(_) => None,
        };
        watch.finish();
        if json {
            let target = self.path.clone();
            print_json(&OfDisk { target, format, snapshots, in_use, volumes: told, compaction })?;
        }
        first
    }
}

fn heading(disk: &DiskImage) -> String {
    let count = counted(disk.volumes.len() as u64, "volume", "volumes");
    let mut text = format!("{}: {} image with {count}\n", printable_path(&disk.path), disk.format);
    if disk.snapshots > 0 {
        let snapshots = counted(u64::from(disk.snapshots), "snapshot", "snapshots");
        text +=
            &format!("It has {snapshots} inside, which keep the space of what is moved or freed: the image grows.\n");
    }
    if let Some(user) = &disk.in_use {
        text += &format!(
            "Somebody uses it ({}), so that what is read may be old and new at the same time.\n",
            printable(user)
        );
    }
    text
}

fn title(disk: &DiskImage, volume: &VolumeOnDisk) -> String {
    let name = if volume.name.is_empty() { String::new() } else { format!(" ({})", printable(&volume.name)) };
    let number = volume.number.map_or_else(|| disk.format.to_string(), |number| format!("Partition {number}"));
    format!("{number}{name}, {}:", size(volume.length))
}
