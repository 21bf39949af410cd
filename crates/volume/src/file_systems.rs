//! The list of supported file systems. A new one takes a folder and one entry here.

use crate::file_system::FileSystem;
use crate::mend::{Limits, MendError, Mended, Place};
use crate::mounted::admission::refuse_growing;
use crate::offline::{GivenBack, Kind, is_interrupted, opened};
use crate::survey::{Names, Source, Survey};
use crate::target::{Inside, Subject, node_number};
use crate::thin::{self, Thinned};
use crate::{Target, btrfs, ext2, ext4, ntfs, probe, xfs};
use longrun_engine::{Observer, Opened, Progress, VolumeError};
use longrun_image::{Access, Format};
use longrun_layout::Bytes;
use longrun_sys::FileHandle;
use std::path::Path;
use std::sync::Arc;

/// All of them. What is not here can be analyzed file by file.
static ALL: &[&dyn FileSystem] = &[&ext4::Ext4, &xfs::Xfs, &btrfs::Btrfs, &ext2::Ext2, &ntfs::Ntfs];

/// The one that the kernel calls so.
pub(crate) fn named(name: &str) -> Option<&'static dyn FileSystem> {
    ALL.iter().copied().find(|known| known.names().contains(&name))
}

/// For the file system that [`probe`] calls so: what tells its unmounted volumes apart, if it works on those.
pub(crate) fn offline(signature: &str) -> Option<&'static Kind> {
    ALL.iter().find(|known| known.signatures().contains(&signature))?.offline()
}

/// Whether the volume of `target` is not mounted, and is worked on as it lies there.
#[must_use]
pub fn is_offline(target: &Target) -> bool {
    target.mount.is_none() && signature(target).and_then(offline).is_some()
}

/// Gives the free space of a volume that [`is_offline`] back to what lies below it: pieces of at least `least` bytes.
///
/// # Errors
/// [`VolumeError`]: the volume must not be changed (now), or the storage failed. What was given back before stays so.
pub fn give_back(target: &Target, least: Bytes, progress: &dyn Progress) -> Result<GivenBack, VolumeError> {
    required(target)?.give_back(target, least, progress)
}

/// Whether an interrupted run has left something on a volume that [`is_offline`], which the next one completes.
#[must_use]
pub fn is_unfinished(target: &Target) -> bool {
    let kind = of(target).and_then(FileSystem::offline);
    let found =
        kind.and_then(|kind| Some((kind, opened(kind, &target.device, target.inside.as_ref(), Access::Read).ok()?)));
    found.is_some_and(|(kind, (disk, journal))| is_interrupted(kind, &journal, &disk))
}

/// That of a target. What is not mounted is known by its signature; without one, ext4's reader says what is there instead.
fn of(target: &Target) -> Option<&'static dyn FileSystem> {
    if let Some(mount) = &target.mount {
        return named(&mount.filesystem);
    }
    let with = |name| ALL.iter().copied().find(|known| known.signatures().contains(&name));
    signature(target).and_then(with).or_else(|| with(probe::EXT4))
}

/// What [`probe`] calls the file system of what is not mounted.
fn signature(target: &Target) -> Option<&'static str> {
    let found = match &target.inside {
        Some(inside) => probe::identify_with(|at, buffer| inside.disk.read(Bytes(at), buffer)),
        None => probe::identify_at(&target.device),
    };
    match found {
        Ok(probe::Content::FileSystem(name)) => Some(name),
        _ => None,
    }
}

/// What the file system of a target is called; of what is not mounted only those have a name that can be read.
#[must_use]
pub fn file_system_name(target: &Target) -> String {
    let mounted = target.mount.as_ref().map(|mount| mount.filesystem.clone());
    mounted.or_else(|| Some((*of(target)?.names().first()?).to_owned())).unwrap_or_default()
}

fn required(target: &Target) -> Result<&'static dyn FileSystem, VolumeError> {
    of(target).ok_or_else(|| {
        let what = target.mount.as_ref().map_or_else(String::new, |mount| mount.filesystem.clone());
        VolumeError::Unsupported { path: target.given.clone(), what }
    })
}

/// Whether the volume of `target` can be read as a whole.
#[must_use]
pub fn is_readable_as_a_whole(target: &Target) -> bool {
    of(target).is_some_and(|known| !known.is_unreadable_as_a_whole(target))
}

/// Opens the volume of `target` for optimizing.
///
/// # Errors
/// [`VolumeError`] with the reason why this volume cannot be optimized (now); nothing was changed.
pub fn open(target: &Target) -> Result<Opened, VolumeError> {
    // Of mounted volumes, the engines look at what lies below.
    if is_offline(target)
        && let Some(device) = node_number(&target.device)
    {
        refuse_growing(&target.given, device)?;
    }
    let known = required(target)?;
    let alone = alone(target, known)?;
    let target = alone.as_ref().unwrap_or(target);
    match (known.open(target)?, &target.inside) {
        (Opened::Placed(volume), Some(inside)) if inside.is_thin => {
            Ok(Opened::Placed(Box::new(Thinned::new(volume, Arc::clone(&inside.disk)))))
        }
        (opened, _) => Ok(opened),
    }
}

/// The target of a volume that is the whole of a raw image and is not mounted, with the image open: as those are that are on a disk.
fn alone(target: &Target, known: &dyn FileSystem) -> Result<Option<Target>, VolumeError> {
    let is_whole = target.subject == Subject::Image && target.mount.is_none() && target.inside.is_none();
    let Some(kind) = known.offline().filter(|_| is_whole) else { return Ok(None) };
    let (disk, journal) = opened(kind, &target.device, None, Access::Write)?;
    let is_thin = thin::is_thin(&target.device, Format::Raw, disk.length());
    let inside = Some(Inside { disk, journal, is_thin });
    Ok(Some(Target { inside, ..target.clone() }))
}

/// Reads the volume of `target` as a whole, from its device or image or through its mount.
///
/// # Errors
/// [`VolumeError`]: it cannot be read as a whole, contradicts itself, or `progress` was cancelled.
pub fn survey(target: &Target, progress: &dyn Progress) -> Result<Box<dyn Survey>, VolumeError> {
    let known = required(target)?;
    let mounted = match &target.mount {
        None => None,
        Some(mount) => {
            // The kernel names a mount point without links; who owns a directory above it can put one there.
            let root = longrun_sys::open_trusted_directory(&mount.point);
            Some((mount, root.map_err(crate::mounted::io(&mount.point, "opening"))?.into()))
        }
    };
    let inside = target.inside.as_ref();
    known.survey(
        Source {
            path: path_of(target),
            device: &target.device,
            mounted,
            inside,
            spoils_shadow_copies: target.spoils_shadow_copies,
        },
        progress,
    )
}

/// The same for a caller that already has the mounted volume open.
///
/// # Errors
/// As [`survey`].
pub fn survey_mounted(source: Source<'_>, progress: &dyn Progress) -> Result<Box<dyn Survey>, VolumeError> {
    let name = source.mounted.as_ref().map_or("", |(mount, _)| mount.filesystem.as_str());
    match named(name) {
        Some(known) => known.survey(source, progress),
        None => Err(VolumeError::Unsupported { path: source.path.to_owned(), what: name.to_owned() }),
    }
}

/// Finds the paths of files of a mounted volume.
///
/// # Errors
/// [`VolumeError`].
pub fn namer(source: Source<'_>) -> Result<Box<dyn Names>, VolumeError> {
    let name = source.mounted.as_ref().map_or("", |(mount, _)| mount.filesystem.as_str());
    match named(name) {
        Some(known) => known.namer(source),
        None => Err(VolumeError::Unsupported { path: source.path.to_owned(), what: name.to_owned() }),
    }
}

/// Mends the file `handle`: moves it into one piece, or into as few as the free space allows and [`Limits`] find worth it.
/// `observer` is asked before each chunk whether it may be moved, and whether to stop.
///
/// # Errors
/// [`MendError`], with the reason. Whatever it is, content, times and attributes of the file are as before.
pub fn mend_file(
    place: Place<'_>,
    handle: &FileHandle,
    limits: Limits,
    observer: &mut dyn Observer,
) -> Result<Mended, MendError> {
    let kind = longrun_sys::FileSystem::of(place.root).map_err(place.failed("reading the type of the file system"))?;
    match kind.and_then(|kind| named(kind.name())) {
        Some(known) => known.mend(place, handle, limits, observer),
        None => {
            let what = "mending on this file system".to_owned();
            Err(VolumeError::Unsupported { path: place.point.to_owned(), what }.into())
        }
    }
}

fn path_of(target: &Target) -> &Path {
    target.mount.as_ref().map_or(target.given.as_path(), |mount| mount.point.as_path())
}
