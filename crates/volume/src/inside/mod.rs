//! XFS and btrfs inside of a disk image: mounted where only we look, for the engines of mounted volumes.
//!
//! Owns the mount, the loop device below it, and their end. Refuses what a mount would change without being asked. Never opens a
//! format other than raw, never takes the lock that keeps others from the image, and never replays a journal.

mod clean;
mod directory;
mod error;
mod log;

pub use error::{InsideError, Place};

use directory::Directory;
use error::refused;
use longrun_engine::VolumeError;
use longrun_image::Access;
use longrun_layout::Bytes;
use longrun_sys::{Errno, FileSystem, LoopDevice, format_uuid};
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt as _;
use std::path::Path;
use std::thread::sleep;
use std::time::Duration;

/// Who identifies devices may have the volume open for a moment.
const UNMOUNT_TRIES: u32 = 40;
const UNMOUNT_PAUSE: Duration = Duration::from_millis(50);

/// What is mounted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Xfs,
    Btrfs,
}

impl Kind {
    fn kernel(self) -> FileSystem {
        match self {
            Self::Xfs => FileSystem::Xfs,
            Self::Btrfs => FileSystem::Btrfs,
        }
    }
}

/// A mounted volume inside of an image. When this is dropped it is unmounted, and all of it is written to the image; with the death
/// of the process likewise, where the process has a mount namespace of its own ([`longrun_sys::own_mount_namespace`]).
#[derive(Debug)]
pub struct PrivateMount {
    place: Place,
    filesystem: Kind,
    access: Access,
    content: File,
    /// These three until it is unmounted.
    mounted: Option<(Directory, LoopDevice)>,
}

impl PrivateMount {
    /// Mounts the volume in the `length` bytes of `content` from `start` on. `content` is a raw image or a block device, opened
    /// with `access`. `name` is for messages only: the path may lead to another file meanwhile. `kind` is what [`crate::probe`] calls the
    /// file system.
    ///
    /// To write, the caller has the image for itself: see [`longrun_image::open_image`]. To read, nothing is written, not even what
    /// mounting read-only writes: the device is read-only too. The locks of `content` stay until the volume is unmounted. A file that
    /// `qemu-storage-daemon` shows must not be given for writing: several requests at a time reach it, and before QEMU 10.2 one of them
    /// may get the data of another.
    ///
    /// # Errors
    /// [`VolumeError::Image`] with [`InsideError`], [`VolumeError::Unsupported`] and [`VolumeError::Damaged`]: it is refused, and
    /// nothing was changed; [`VolumeError::NotPermitted`] without root; [`VolumeError::Io`]: the content cannot be read.
    pub fn new(
        content: &File,
        name: &Path,
        start: Bytes,
        length: Bytes,
        kind: &str,
        access: Access,
    ) -> Result<Self, VolumeError> {
        let (kind, filesystem) = known(kind)
            .ok_or_else(|| VolumeError::Unsupported { path: name.to_owned(), what: format!("mounting {kind}") })?;
        let place = Place { kind, path: name.to_owned(), start: start.0 };
        if !longrun_sys::is_root() {
            return Err(VolumeError::NotPermitted { path: name.to_owned(), act: "mounting a volume".into() });
        }
        let io = |source| VolumeError::Io { path: name.to_owned(), act: "opening", source };
        let file = content.try_clone().map_err(io)?;
        let raw = superblock(&file, &place, filesystem, length)?;
        clean::check(filesystem, &raw, access).map_err(|objection| objection.about(&place))?;
        let uuid = clean::btrfs_uuid(&raw).filter(|_| filesystem == Kind::Btrfs).map(|uuid| format_uuid(&uuid));
        if uuid.as_ref().is_some_and(|uuid| Path::new(BTRFS).join(uuid).exists()) {
            return Err(refused(InsideError::SameIdentity { place }));
        }
        let attach = |file: &File, read_only| {
            LoopDevice::attach(file, start, length, read_only)
                .map_err(|source| refused(InsideError::Loop { place: place.clone(), source }))
        };
        if filesystem == Kind::Xfs {
            let read_only = attach(&file, true)?;
            log::check(read_only.path(), &place).map_err(refused)?;
        }
        let device = attach(&file, access == Access::Read)?;
        let directory =
            Directory::new().map_err(|source| refused(InsideError::Directory { place: place.clone(), source }))?;
        let read_only = access == Access::Read;
        longrun_sys::mount_device(
            device.path(),
            directory.point(),
            filesystem.kernel(),
            read_only,
            options(filesystem),
        )
        .map_err(|source| refused(InsideError::Mount { place: place.clone(), source }))?;
        let mounted = Self { place, filesystem, access, content: file, mounted: Some((directory, device)) };
        match uuid {
            Some(uuid) => mounted.check_identity(&uuid).map(|()| mounted).map_err(refused),
            None => Ok(mounted),
        }
    }

    /// The root directory of the volume.
    #[must_use]
    pub fn point(&self) -> &Path {
        self.mounted.as_ref().map_or(Path::new(""), |(directory, _)| directory.point())
    }

    /// The block device that is mounted.
    #[must_use]
    pub fn device(&self) -> &Path {
        self.mounted.as_ref().map_or(Path::new(""), |(_, device)| device.path())
    }

    /// Unmounts it, and returns when all of it is in the image, durable. Nothing of it may be open any more. Dropping does the
    /// same, but does not say when it fails.
    ///
    /// # Errors
    /// [`VolumeError::NotClosed`] with [`InsideError::Unmount`]: somebody has a file of it open. It is out of sight, and is unmounted
    /// when that is closed. [`InsideError::Write`]: it is not known whether all of it is durable.
    pub fn close(mut self) -> Result<(), VolumeError> {
        self.end().map_err(|error| VolumeError::NotClosed(Box::new(error)))
    }

    fn end(&mut self) -> Result<(), InsideError> {
        let Some((directory, device)) = self.mounted.take() else { return Ok(()) };
        let unmounted = unmount(directory.point());
        if unmounted.is_ok() && self.filesystem == Kind::Btrfs {
            // Before it ends. Where the kernel knows nothing of it, there is nothing to forget.
            _ = longrun_sys::forget_btrfs_device(device.path());
        }
        drop(device);
        drop(directory);
        // The file system has flushed all that must not be lost; what it wrote last may still be in the cache of the image.
        let written = if self.access == Access::Write { self.content.sync_all() } else { Ok(()) };
        unmounted.map_err(|source| InsideError::Unmount { place: self.place.clone(), source })?;
        written.map_err(|source| InsideError::Write { place: self.place.clone(), source })
    }

    /// Whether the kernel mounted this btrfs and under its own UUID: it knows volumes by their UUIDs, and has given a copy of a
    /// mounted one another since Linux 6.7.
    fn check_identity(&self, uuid: &str) -> Result<(), InsideError> {
        let name = self.device().file_name().unwrap_or_default();
        let is_it = Path::new(BTRFS).join(uuid).join("devices").join(name).exists();
        if is_it { Ok(()) } else { Err(InsideError::SameIdentity { place: self.place.clone() }) }
    }
}

impl Drop for PrivateMount {
    fn drop(&mut self) {
        // Who must know calls `close`.
        _ = self.end();
    }
}

/// Where the kernel lists the mounted btrfs volumes, by UUID.
const BTRFS: &str = "/sys/fs/btrfs";

/// Whether a [`PrivateMount`] can be made of the file system that [`crate::probe`] calls so.
pub(crate) fn mounts(kind: &str) -> bool {
    known(kind).is_some()
}

/// By the name that the signature gives.
fn known(kind: &str) -> Option<(&'static str, Kind)> {
    [("XFS", Kind::Xfs), ("btrfs", Kind::Btrfs)].into_iter().find(|(name, _)| *name == kind)
}

/// What the image must not decide, and what nobody asked for.
///
/// XFS: a copy of a mounted volume has its UUID, which matters to nobody. btrfs: the whole
/// volume, whichever subvolume it prefers; a paused balance stays paused; nothing is discarded.
fn options(filesystem: Kind) -> &'static str {
    match filesystem {
        Kind::Xfs => "nouuid,nodiscard",
        Kind::Btrfs => "subvolid=5,skip_balance,nodiscard",
    }
}

/// What of the superblock is to be looked at.
fn superblock(file: &File, place: &Place, filesystem: Kind, length: Bytes) -> Result<Vec<u8>, VolumeError> {
    let (at, size) = clean::superblock(filesystem);
    let missing = || error::Objection::Missing.about(place);
    let end = at + size as u64;
    let from = place.start.checked_add(at).filter(|_| end <= length.0).ok_or_else(missing)?;
    let mut raw = vec![0; size];
    file.read_exact_at(&mut raw, from).map_err(|source| match source.kind() {
        // The kernel has no offsets as large as the second.
        io::ErrorKind::UnexpectedEof | io::ErrorKind::InvalidInput => missing(),
        _ => VolumeError::Io { path: place.path.clone(), act: "reading the superblock", source },
    })?;
    Ok(raw)
}

/// Unmounts; what stays busy is taken out of sight, and that it is busy is the answer.
fn unmount(point: &Path) -> Result<(), Errno> {
    for _ in 1..UNMOUNT_TRIES {
        match longrun_sys::unmount(point) {
            Err(Errno::BUSY) => sleep(UNMOUNT_PAUSE),
            done => return done,
        }
    }
    match longrun_sys::unmount(point) {
        Err(Errno::BUSY) => longrun_sys::detach_mount(point).and(Err(Errno::BUSY)),
        done => done,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_names_are_those_of_the_probe_and_everything_else_is_refused() {
        for (name, signature) in [("XFS", Kind::Xfs), ("btrfs", Kind::Btrfs)] {
            assert_eq!(known(name), Some((name, signature)));
        }
        for kind in ["NTFS", "ext4", "xfs", "", "F2FS"] {
            let (file, name) = (tempfile::tempfile().unwrap(), Path::new("/none"));
            let refused = PrivateMount::new(&file, name, Bytes(0), Bytes(1 << 20), kind, Access::Read).unwrap_err();
            assert!(matches!(refused, VolumeError::Unsupported { .. }), "{kind}: {refused}");
        }
    }

    #[test]
    fn what_is_no_volume_or_ends_before_its_superblock_is_refused() {
        if !longrun_sys::is_root() {
            return;
        }
        let image = tempfile::NamedTempFile::new().unwrap();
        image.as_file().set_len(1 << 20).unwrap();
        for kind in ["XFS", "btrfs"] {
            for (start, length) in [(0, 1 << 20), (0, 512), (1 << 20, 1 << 20), (u64::MAX - 511, 1 << 20), (0, 0)] {
                let (file, name) = (image.as_file(), image.path());
                let refused = PrivateMount::new(file, name, Bytes(start), Bytes(length), kind, Access::Write);
                let refused = refused.unwrap_err().to_string();
                assert!(refused.contains(&format!("no {kind} volume")), "{kind} {start} {length}: {refused}");
            }
        }
    }
}
