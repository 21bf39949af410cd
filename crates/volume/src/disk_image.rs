//! Disk images, and disks with partitions: the volumes on them.
//!
//! Owns which parts of a disk are volumes, and the target of each. Never changes anything itself.

use crate::inside::PrivateMount;
use crate::member::{self, Sign};
use crate::offline::journal_of;
use crate::probe::{self, Content};
use crate::target::{Inside, Subject};
use crate::{Target, file_systems, inside, thin};
use longrun_engine::VolumeError;
use longrun_image::{Access, Disk, FileDisk, Format, ImageError, Origin, Part, open_image, read_partitions};
use longrun_layout::Bytes;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// An open disk with the volumes on it.
pub struct DiskImage {
    /// As the user gave it.
    pub path: PathBuf,
    /// How it is stored.
    pub format: Format,
    /// Snapshots inside the image: they keep what is moved or freed.
    pub snapshots: u32,
    /// Who else has it open, when it is only read.
    pub in_use: Option<String>,
    /// Whether the user has confirmed that its machine is shut down, for what cannot be seen.
    pub machine_is_off: bool,
    /// In the order of the disk's table; one without a number when there is no table.
    pub volumes: Vec<VolumeOnDisk>,
    disk: Arc<dyn Disk>,
    raw: Option<File>,
    origin: Origin,
    access: Access,
}

/// A part of a disk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VolumeOnDisk {
    /// The partition; `None` where the volume is the whole disk.
    pub number: Option<u32>,
    /// What it is called in the partition table, or what it is for.
    pub name: String,
    /// Its first byte.
    pub start: Bytes,
    /// Its size.
    pub length: Bytes,
    /// What is on it.
    pub content: Content,
    /// What says that it is a part of a larger device.
    pub member: Option<Sign>,
}

/// The target of a volume on a disk, for as long as it is worked on.
pub struct Opened {
    /// The target.
    pub target: Target,
    // Unmounted after everything that has it open.
    mount: Option<PrivateMount>,
    /// Its locks, which end with it.
    _disk: Arc<dyn Disk>,
}

impl Opened {
    /// Unmounts the volume where it was mounted, and returns when all that was written is in the image. Nothing of it may be open any
    /// more. Dropping it does the same, but does not say when it fails.
    ///
    /// # Errors
    /// As [`PrivateMount::close`].
    pub fn close(self) -> Result<(), VolumeError> {
        self.mount.map_or(Ok(()), PrivateMount::close)
    }
}

/// Whether `path` is an image in a format of virtual machines, or has a partition table: then the volumes are on it, and it is none
/// itself. What cannot be read is no image.
#[must_use]
pub fn is_disk(path: &Path) -> bool {
    match probe::identify_at(path) {
        Ok(Content::FileSystem(_)) | Err(_) => return false,
        Ok(Content::Container(name)) if name.contains("image") => return true,
        Ok(Content::Container(_) | Content::Unknown) => {}
    }
    let Ok(disk) = FileDisk::open(path, Access::Read) else { return false };
    has_vhd_footer(&disk) || read_partitions(&disk).is_ok_and(|partitions| !partitions.is_empty())
}

/// Whether to read the disk at `path` means to mount a volume on it, which is so on raw ones only. Starts no program.
#[must_use]
pub fn mounts_something(path: &Path) -> bool {
    let may_be_raw = matches!(probe::identify_at(path), Ok(Content::Container(name)) if !name.contains("image"));
    let disk = (may_be_raw && is_disk(path)).then(|| DiskImage::open(path, Access::Read));
    disk.is_some_and(|disk| disk.is_ok_and(|disk| disk.volumes.iter().any(|volume| disk.mounts(volume))))
}

/// A VHD of fixed size has its signature at its end only.
fn has_vhd_footer(disk: &dyn Disk) -> bool {
    const FOOTER: u64 = 512;
    let mut signature = [0; 8];
    let at = disk.length().0.checked_sub(FOOTER).map(Bytes);
    at.is_some_and(|at| disk.read(at, &mut signature).is_ok()) && signature == *b"conectix"
}

impl DiskImage {
    /// Opens a disk, and finds the volumes on it. To write, nobody else may have it open.
    ///
    /// # Errors
    /// [`VolumeError::Image`]: it cannot be opened, or its partition table contradicts itself.
    pub fn open(path: &Path, access: Access) -> Result<Self, VolumeError> {
        let image = |error: ImageError| VolumeError::Image(Box::new(error));
        let found = open_image(path, access).map_err(image)?;
        let partitions = read_partitions(&*found.disk).map_err(image)?;
        let of_disk = if partitions.is_empty() { None } else { member::of_disk(&*found.disk)? };
        let volume = |number, name, start, length, sign: Option<Sign>| {
            let (content, of_content) = content(&found.disk, start, length)?;
            let member = of_disk.clone().or(sign).or(of_content);
            Ok(VolumeOnDisk { number, name, start, length, content, member })
        };
        let volumes = if partitions.is_empty() {
            vec![volume(None, String::new(), Bytes(0), found.disk.length(), None)?]
        } else {
            let of = |p: longrun_image::Partition| {
                let sign = member::of_entry(&p);
                let name = if p.name.is_empty() { p.kind.to_string() } else { p.name };
                volume(Some(p.number), name, p.start, p.length, sign)
            };
            partitions.into_iter().map(of).collect::<Result<_, VolumeError>>()?
        };
        Ok(Self {
            path: path.to_owned(),
            format: found.format,
            snapshots: found.snapshots,
            in_use: found.in_use,
            machine_is_off: false,
            volumes,
            disk: found.disk,
            raw: found.raw,
            origin: found.origin,
            access,
        })
    }

    /// The target of one of its volumes. NTFS is worked on as it lies there; ext4, XFS and btrfs are mounted where nobody else
    /// sees them.
    ///
    /// # Errors
    /// [`VolumeError::Unsupported`] for everything else, and as [`PrivateMount::new`].
    pub fn target(&self, volume: &VolumeOnDisk) -> Result<Opened, VolumeError> {
        let given = self.name(volume);
        let unsupported = |what: &str| VolumeError::Unsupported { path: given.clone(), what: what.to_owned() };
        if let Some(sign) = &volume.member {
            return Err(sign.on(&given));
        }
        let kind = match volume.content {
            Content::FileSystem(kind) => kind,
            Content::Container(what) => return Err(unsupported(what)),
            Content::Unknown => return Err(unsupported("what is on it, which has no known signature,")),
        };
        if let Some(offline) = file_systems::offline(kind) {
            let part = Part::new(Arc::clone(&self.disk), volume.start, volume.length);
            let disk: Arc<dyn Disk> = Arc::new(part.ok_or_else(|| unsupported("a partition outside of the disk"))?);
            let journal = journal_of(offline, &self.origin, volume.number, &*disk);
            let is_thin = thin::is_thin(&self.path, self.format, self.disk.length());
            let target = Target {
                given,
                subject: Subject::Image,
                device: self.path.clone(),
                device_number: None,
                mount: None,
                inside: Some(Inside { disk, journal, is_thin }),
                spoils_shadow_copies: false,
            };
            return Ok(Opened { target, mount: None, _disk: Arc::clone(&self.disk) });
        }
        let Some(raw) = &self.raw else {
            let what = format!(
                "{kind} inside of a {} image (convert it to raw first, with qemu-img convert -O raw, or run Longrun in the \
                 virtual machine)",
                self.format
            );
            return Err(unsupported(&what));
        };
        // Its superblock is the same whether it was unmounted or its machine was saved.
        if kind == "btrfs" && self.access == Access::Write && !self.machine_is_off {
            let what = "btrfs on a disk image, where it cannot be seen whether the machine is only saved (use --machine-is-off when \
                        it is shut down)";
            return Err(unsupported(what));
        }
        let mount = PrivateMount::new(raw, &self.path, volume.start, volume.length, kind, self.access)?;
        let mut target = Target::resolve(mount.point())?;
        target.given = given;
        Ok(Opened { target, mount: Some(mount), _disk: Arc::clone(&self.disk) })
    }

    /// Whether [`Self::target`] mounts the volume.
    #[must_use]
    pub fn mounts(&self, volume: &VolumeOnDisk) -> bool {
        self.raw.is_some()
            && volume.member.is_none()
            && matches!(volume.content, Content::FileSystem(kind) if inside::mounts(kind))
    }

    /// What a volume is called: the image, and the number of its partition.
    #[must_use]
    pub fn name(&self, volume: &VolumeOnDisk) -> PathBuf {
        let Some(number) = volume.number else { return self.path.clone() };
        let mut name = self.path.clone().into_os_string();
        name.push(format!("#{number}"));
        name.into()
    }
}

/// What is on a part of a disk, and the sign that it is a part of a larger device.
fn content(disk: &Arc<dyn Disk>, start: Bytes, length: Bytes) -> Result<(Content, Option<Sign>), VolumeError> {
    let Some(part) = Part::new(Arc::clone(disk), start, length) else { return Ok((Content::Unknown, None)) };
    let io = |source| VolumeError::Io { path: disk.path().to_owned(), act: "reading the disk", source };
    let content = probe::identify_with(|at, buffer| part.read(Bytes(at), buffer)).map_err(io)?;
    let sign = match content {
        Content::FileSystem(name) if file_systems::offline(name).is_some() || inside::mounts(name) => {
            member::of_volume(&part, name)?
        }
        _ => None,
    };
    Ok((content, sign))
}
