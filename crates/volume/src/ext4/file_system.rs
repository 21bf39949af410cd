//! The operations that are supported on ext4.

use super::scan::{Access, AreaKind, Ext4Reader, Ext4Scan, FreeSpace, OnDisk, ScanOptions};
use super::{Ext4Volume, OfflineExt4, offline, one_file, trimming};
use crate::Target;
use crate::file_system::FileSystem;
use crate::mend::{Limits, MendError, Mended, Place};
use crate::mounted::io;
use crate::offline::{GivenBack, Kind, give_back, is_interrupted, opened};
use crate::reclaim::Trimming;
use crate::survey::{Names, Owner, Source, Survey, file_with, free_piece};
use longrun_engine::{CompactedDirectories, Observer, Opened, Progress, Scan, VolumeError};
use longrun_layout::{Bytes, Extent, ExtentSet, FileId, InodeNumber, PhysicalBlock, VolumeLayout};
use longrun_sys::{FileHandle, Mount};
use std::fs::File;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};

/// ext4.
pub(crate) struct Ext4;

impl FileSystem for Ext4 {
    fn names(&self) -> &'static [&'static str] {
        &["ext4"]
    }

    fn signatures(&self) -> &'static [&'static str] {
        &[crate::probe::EXT4]
    }

    /// From the device or image.
    fn survey(&self, source: Source<'_>, progress: &dyn Progress) -> Result<Box<dyn Survey>, VolumeError> {
        let mounted = source.mounted.as_ref();
        if let Some((mount, root)) = mounted {
            // What has no blocks yet would be missing, and what was freed since the last commit would not be free.
            longrun_sys::sync_volume(root).map_err(io(&mount.point, "syncing the volume"))?;
        }
        let Some((mount, root)) = mounted else { return survey_offline(&source, progress) };
        let mut names = ByDirectories::mounted(source.device, mount)?;
        let options = ScanOptions { free_space: FreeSpace::Kernel(root.as_fd()), directories: true, offline: false };
        let scan = names.reader.scan(options, progress)?;
        let refusal = scan.refusals.first().map(ToString::to_string);
        Ok(Box::new(Read { scan, refusal, names, offline: None }))
    }

    fn namer(&self, source: Source<'_>) -> Result<Box<dyn Names>, VolumeError> {
        let device = source.device;
        let (mount, _) = source.mount()?;
        Ok(Box::new(ByDirectories::mounted(device, mount)?))
    }

    fn open(&self, target: &Target) -> Result<Opened, VolumeError> {
        if crate::file_systems::is_offline(target) {
            return Ok(Opened::Placed(Box::new(OfflineExt4::of(target)?)));
        }
        // Of others that are not mounted, it says so.
        Ok(Opened::Placed(Box::new(Ext4Volume::open(target)?)))
    }

    fn offline(&self) -> Option<&'static Kind> {
        Some(&offline::KIND)
    }

    fn give_back(&self, target: &Target, least: Bytes, progress: &dyn Progress) -> Result<GivenBack, VolumeError> {
        let free = OfflineExt4::of(target)?.into_free_ranges()?;
        give_back(&target.given, free, least, progress)
    }

    fn mend(
        &self,
        place: Place<'_>,
        handle: &FileHandle,
        limits: Limits,
        observer: &mut dyn Observer,
    ) -> Result<Mended, MendError> {
        one_file::mend(place, handle, limits, observer)
    }

    fn trimming(&self, _root: &File, target: &Target) -> Result<Trimming, VolumeError> {
        trimming::trimming(target)
    }

    fn skips_when_trimming(&self) -> Option<&'static str> {
        Some(trimming::SKIPS)
    }
}

/// From a device or image that is not mounted.
fn survey_offline(source: &Source<'_>, progress: &dyn Progress) -> Result<Box<dyn Survey>, VolumeError> {
    let path = source.path;
    if source.inside.is_none() {
        // Another file system is refused by its name.
        crate::probe::open(source.device)?;
    }
    let (disk, journal) = opened(&offline::KIND, source.device, source.inside, longrun_image::Access::Read)?;
    if is_interrupted(&offline::KIND, &journal, &disk) {
        return Err(VolumeError::Unfinished { path: path.to_owned() });
    }
    let mut reader = Ext4Reader::from_source(path, Box::new(OnDisk(disk)), Access::Still)?;
    let scan = reader.scan(offline::OPTIONS, progress)?;
    let device = &reader.device;
    let refusal = offline::refusal(device.source.as_ref(), &device.sb, false).map_err(|fault| fault.on(path))?;
    let damage = offline::check_claims(&scan).err().map(|fault| fault.on(path).to_string());
    let (names, offline) = (ByDirectories { reader, top: PathBuf::from("/") }, Some(path.to_owned()));
    Ok(Box::new(Read { scan, refusal: refusal.or(damage), names, offline }))
}

struct Read {
    scan: Ext4Scan,
    refusal: Option<String>,
    names: ByDirectories,
    /// What errors call the volume, when it is not mounted.
    offline: Option<PathBuf>,
}

struct ByDirectories {
    reader: Ext4Reader,
    /// What the root of the volume is called.
    top: PathBuf,
}

impl ByDirectories {
    fn mounted(device: &Path, mount: &Mount) -> Result<Self, VolumeError> {
        Ok(Self { reader: Ext4Reader::open(device, Access::Live)?, top: mount.point.clone() })
    }
}

impl Names for ByDirectories {
    fn of(
        &self,
        layout: &VolumeLayout,
        files: &[FileId],
        _progress: &dyn Progress,
    ) -> Result<Vec<PathBuf>, VolumeError> {
        self.reader.names(layout, Path::new(&self.top), files)
    }
}

impl Survey for Read {
    fn layout(&self) -> &VolumeLayout {
        &self.scan.layout
    }

    fn refusal(&self) -> Option<String> {
        self.refusal.clone()
    }

    fn compactable(&self, progress: &dyn Progress) -> Result<Option<CompactedDirectories>, VolumeError> {
        let Some(path) = self.offline.as_deref().filter(|_| self.refusal.is_none()) else { return Ok(None) };
        let found = offline::foresee(&self.names.reader.device, &self.scan.layout, progress);
        found.map(Some).map_err(|fault| fault.on(path))
    }

    fn owner(&self, block: PhysicalBlock) -> Owner {
        let scan = &self.scan;
        if let Some(file) = file_with(&scan.layout, block) {
            return file;
        }
        if let Some(area) = scan.areas.at(block) {
            let (what, of) = describe(area.kind);
            let of = of.map(|inode| FileId { inode: InodeNumber(u64::from(inode)), generation: 0 });
            return Owner::Metadata { what, of, extent: Some(area.extent) };
        }
        free_piece(&scan.layout, block).map_or(Owner::Unknown { note: None }, |piece| Owner::Free { piece, note: None })
    }

    fn areas(&self) -> Box<dyn Iterator<Item = (Extent, &'static str)> + '_> {
        Box::new(self.scan.areas.all().iter().map(|area| (area.extent, word(area.kind).0)))
    }

    fn names(&self) -> &dyn Names {
        &self.names
    }

    fn into_scan(self: Box<Self>) -> (Scan, Box<dyn Names>) {
        let scan = Scan::Placed { layout: self.scan.layout, unavailable: ExtentSet::new() };
        (scan, Box::new(self.names))
    }
}

/// What an area is, and of which file.
fn describe(kind: AreaKind) -> (String, Option<u32>) {
    match (word(kind), kind) {
        ((what, Some(inode)), AreaKind::System { .. } | AreaKind::Deleted { .. }) => {
            (format!("{what}, inode {inode}"), None)
        }
        ((what, of), _) => (what.to_owned(), of),
    }
}

/// The same in a word.
fn word(kind: AreaKind) -> (&'static str, Option<u32>) {
    match kind {
        AreaKind::Superblock => ("superblock or its backup", None),
        AreaKind::Descriptors => ("group descriptors or their backup", None),
        AreaKind::ReservedDescriptors => ("reserved group descriptors", None),
        AreaKind::BlockBitmap => ("block bitmap", None),
        AreaKind::InodeBitmap => ("inode bitmap", None),
        AreaKind::InodeTable => ("inode table", None),
        AreaKind::MountProtection => ("multiple-mount protection", None),
        AreaKind::Journal => ("journal", None),
        AreaKind::System { inode } => ("system file", Some(inode)),
        AreaKind::FileMap { inode } => ("extent tree or indirect blocks of", Some(inode)),
        AreaKind::Attributes { inode } => ("extended attributes of", Some(inode)),
        AreaKind::BeyondEnd { inode } => ("preallocated behind the end of", Some(inode)),
        AreaKind::Deleted { inode } => ("file that was deleted while open", Some(inode)),
    }
}
