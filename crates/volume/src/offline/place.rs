//! Where the journal of a volume lies.
//!
//! Owns its name and its directory, and what speaks against a run that would keep it there. The journal of an image lies beside the image, so
//! that it goes where the image goes. That of a device lies in the state directory, named by the serial number of the volume: the name of a
//! device can be another one tomorrow.

use super::folder::{Folder, SUFFIX};
use super::lasting;
use crate::member;
use crate::target::{Inside, node_number};
use longrun_engine::VolumeError;
use longrun_image::{Access, Disk, FailStop, FileDisk, Origin};
use longrun_sys::{BlockDevice, BlockDeviceKind, DeviceNumber};
use std::ffi::{OsStr, OsString};
use std::fs::{self, DirBuilder, File};
use std::io;
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Where the journals of block devices are kept.
const STATE_DIRECTORY: &str = "/var/lib/longrun";

/// A file system whose volumes are worked on while they are not mounted.
pub(crate) struct Kind {
    /// What errors and journals call it.
    pub(crate) name: &'static str,
    /// The number that tells its volumes apart, read so that no interrupted write can change it; `None` when it is another file system.
    pub(crate) serial: fn(&dyn Disk) -> Option<u64>,
    /// The record by which a run marks the volume as dirty, as it lies there. A transaction must not be pending.
    pub(crate) mark: fn(&Arc<dyn Disk>) -> Option<Vec<u8>>,
}

/// The place of the journal of one volume.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JournalPlace {
    path: PathBuf,
    beside: Beside,
}

/// What a journal lies beside.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Beside {
    /// The image.
    Image(Origin),
    /// Other journals, in the state directory.
    Journals,
    /// The caller chose it.
    Anything,
}

/// A place that the caller chose, and answers for.
impl<T: AsRef<Path> + ?Sized> From<&T> for JournalPlace {
    fn from(path: &T) -> Self {
        Self { path: path.as_ref().to_owned(), beside: Beside::Anything }
    }
}

impl JournalPlace {
    pub(super) fn of_image(image: Origin, partition: Option<u32>) -> Self {
        let mut name = OsString::from(".");
        name.push(image.path.file_name().unwrap_or_default());
        name.push(partition.map(|number| format!("#{number}")).unwrap_or_default());
        name.push(SUFFIX);
        Self { path: image.path.with_file_name(name), beside: Beside::Image(image) }
    }

    /// The journal.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    fn directory(&self) -> &Path {
        self.path.parent().filter(|path| !path.as_os_str().is_empty()).unwrap_or(Path::new("."))
    }

    /// Opens its directory.
    pub(super) fn folder(&self) -> io::Result<Arc<Folder>> {
        let folder = match &self.beside {
            // Its owner can write to the image without any journal. The kernel has named it: a link in it was put there since.
            Beside::Image(image) => Folder::open(self.directory(), Some(image.owner)),
            Beside::Journals | Beside::Anything => Folder::open(&fs::canonicalize(self.directory())?, None),
        };
        folder.map(Arc::new)
    }

    /// The same, after the state directory was made if there was none: the service need not run here.
    pub(super) fn make_folder(&self) -> io::Result<Arc<Folder>> {
        if self.beside == Beside::Journals {
            DirBuilder::new().recursive(true).mode(0o700).create(self.directory())?;
        }
        self.folder()
    }

    pub(super) fn name(&self) -> &OsStr {
        self.path.file_name().unwrap_or_default()
    }

    /// Whether a journal of the volume can have another name in the same directory: images are renamed and copied.
    pub(super) fn is_named_after_an_image(&self) -> bool {
        matches!(self.beside, Beside::Image(_))
    }

    /// Why a run that is interrupted might not find its journal here.
    pub(super) fn obstacle(&self) -> Option<String> {
        match &self.beside {
            Beside::Anything => None,
            Beside::Journals => {
                // It may have to be made.
                let directory = self.directory().ancestors().find(|directory| directory.exists())?;
                let loss = lasting::loss(directory)?;
                Some(format!(
                    "a loss of power would take it away, and leave the volume half changed: {loss}; mount a lasting file system at {} \
                     and try again",
                    self.directory().display()
                ))
            }
            Beside::Image(Origin { path, links, .. }) if *links > 1 => Some(format!(
                "{} has {links} names (hard links), and a run by another one would not find the journal; remove the other names, or \
                 use a copy",
                path.display()
            )),
            Beside::Image(Origin { path, .. }) => {
                let mount = |path| longrun_sys::mount_at(path).ok();
                let is_elsewhere = mount(self.directory()) != mount(path);
                let text =
                    "the image is mounted over this name, and has another directory than the journal; use its own name";
                is_elsewhere.then(|| text.to_owned())
            }
        }
    }
}

/// What has the volume, and where its journal is. To write, it is ours alone.
///
/// # Errors
/// It cannot be opened; or it is a part of a larger device. What is `inside` was asked that when its image was opened.
pub(crate) fn opened(
    kind: &Kind,
    device: &Path,
    inside: Option<&Inside>,
    access: Access,
) -> Result<(Arc<dyn Disk>, JournalPlace), VolumeError> {
    if let Some(inside) = inside {
        return Ok((Arc::clone(&inside.disk), inside.journal.clone()));
    }
    let image = |error| VolumeError::Image(Box::new(error));
    let disk = FileDisk::open(device, access).map_err(image)?;
    if let Some(sign) = member::of_volume(&disk, kind.name)? {
        return Err(sign.on(device));
    }
    let origin = disk.origin().map_err(image)?;
    let place = journal_of(kind, &origin, None, &disk);
    Ok((FailStop::over(Arc::new(disk)), place))
}

/// The place of the journal of the volume on `disk`, which is the image or device at `origin` or the partition of this number on it.
pub(crate) fn journal_of(kind: &Kind, origin: &Origin, partition: Option<u32>, disk: &dyn Disk) -> JournalPlace {
    let Some(number) = node_number(&origin.path) else { return JournalPlace::of_image(origin.clone(), partition) };
    if let Some((image, of_device)) = image_below(number) {
        return JournalPlace::of_image(image, partition.or(of_device));
    }
    // Without a serial number it is another file system, and has no journal.
    let serial = (kind.serial)(disk).unwrap_or_default();
    let name = format!("{}-{serial:016x}{SUFFIX}", kind.name);
    JournalPlace { path: Path::new(STATE_DIRECTORY).join(name), beside: Beside::Journals }
}

/// The image that a loop device shows, and the number of the partition when the device is one. An image has the same journal as its loop
/// devices.
fn image_below(number: DeviceNumber) -> Option<(Origin, Option<u32>)> {
    let device = BlockDevice::numbered(number).ok()?;
    let (device, partition) = match device.kind {
        BlockDeviceKind::Partition => (device.below.into_iter().next()?, Some(longrun_sys::partition_number(number)?)),
        _ => (device, None),
    };
    let node = device.node();
    let BlockDeviceKind::Loop { backing } = device.kind else { return None };
    // The name is the one that the file had when the device was made, where that was done.
    let file = File::from(longrun_sys::open_trusted(&backing).ok()?);
    let meta = file.metadata().ok().filter(|meta| meta.is_file())?;
    let is_below = longrun_sys::loop_devices_on(&file).ok()?.contains(&node);
    is_below.then(|| (Origin { path: backing, owner: meta.uid(), links: meta.nlink() }, partition))
}
