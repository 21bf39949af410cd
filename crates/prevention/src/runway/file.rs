//! One file of a watched volume: opens it without disturbing other users, and reads the facts that a decision needs.
//!
//! Never keeps a file open beyond the life of the value, never changes one.

use super::owner;
use crate::policy::{Attributes, FileFacts, FileKind, Modified};
use crate::{ProcessName, Watched};
use longrun_layout::Bytes;
use longrun_sys::FileSystem;
use longrun_sys::{ByteRange, Errno, ExtendedAttributes, FileExtent, FileHandle, Mapping, OFlags};
use std::fs::{self, File, Metadata};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::time::{Duration, SystemTime};

/// A process that makes a file executable usually executes it soon, which fails while anybody has it open for writing.
/// Such a file is opened only when it has not changed for so long.
const EXECUTABLE_REST: Duration = Duration::from_secs(60);
/// More than one request may have under way behind the end of a file: what is beyond that was preallocated by another process.
const OWN_PREALLOCATION: u64 = 1 << 20;
/// XFS preallocates no more ahead of a file than one extent can have.
const XFS_LONGEST: u64 = 8 << 30;
/// The two times that a write (or a preallocation) sets lie no farther apart.
const TIMES_APART: Duration = Duration::from_millis(20);
/// A map with more extents than this is not read to its end: the file is in pieces, that much is known.
const MOST_EXTENTS: u64 = 100_000;

/// Why a file could not be opened.
#[derive(Debug)]
pub(super) enum Closed {
    /// It has been deleted.
    Gone,
    /// Another process executes it, or is about to, or has a lease on it: later.
    Busy,
    /// It is executable: left alone.
    Executable,
    /// It is no regular file, or may not be written.
    Refused,
    /// The volume is not there.
    Volume(io::Error),
}

/// An open file.
#[derive(Debug)]
pub(super) struct Opened {
    pub(super) file: File,
    pub(super) stat: Metadata,
}

/// What executable files are to us at the moment.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Executables {
    /// They are left alone.
    Never,
    /// They may be opened when they have rested.
    Rested,
}

/// Opens a file for preallocating and giving back. No one is waited for, and no times change by it.
pub(super) fn open(volume: &Watched, handle: &FileHandle, executables: Executables) -> Result<Opened, Closed> {
    names_one(handle)?;
    let root = volume.open_root().map_err(Closed::Volume)?;
    // A descriptor that cannot be read or written disturbs no other process: neither who executes the file nor who has a lease.
    let glance = File::from(handle.open(&root, OFlags::PATH).map_err(closed)?);
    let stat = glance.metadata().map_err(Closed::Volume)?;
    if !stat.is_file() {
        return Err(Closed::Refused);
    }
    if stat.mode() & 0o111 != 0 {
        match executables {
            Executables::Never => return Err(Closed::Executable),
            Executables::Rested if !has_rested(&stat) => return Err(Closed::Busy),
            Executables::Rested => {}
        }
    }
    let flags = OFlags::RDWR | OFlags::NONBLOCK | OFlags::NOATIME | OFlags::LARGEFILE | OFlags::CLOEXEC;
    let file: OwnedFd = match volume.filesystem {
        FileSystem::Xfs => longrun_sys::open_without_times(&root, handle, flags),
        FileSystem::Ext4 | FileSystem::Btrfs => handle.open(&root, flags),
    }
    .map_err(closed)?;
    let file = File::from(file);
    let stat = file.metadata().map_err(Closed::Volume)?;
    Ok(Opened { file, stat })
}

/// Opens a file for looking at its map only.
pub(super) fn open_to_look(volume: &Watched, handle: &FileHandle) -> Result<Opened, Closed> {
    names_one(handle)?;
    let root = volume.open_root().map_err(Closed::Volume)?;
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOATIME | OFlags::LARGEFILE | OFlags::CLOEXEC;
    let file = File::from(handle.open(&root, flags).map_err(closed)?);
    let stat = file.metadata().map_err(Closed::Volume)?;
    if stat.is_file() { Ok(Opened { file, stat }) } else { Err(Closed::Refused) }
}

/// To the kernel generation 0 means "any": what it opened could be another file, which has the inode now.
fn names_one(handle: &FileHandle) -> Result<(), Closed> {
    match handle.generation() {
        Some(0) | None => Err(Closed::Gone),
        Some(_) => Ok(()),
    }
}

fn closed(errno: Errno) -> Closed {
    match errno {
        Errno::STALE | Errno::NOENT => Closed::Gone,
        Errno::AGAIN | Errno::TXTBSY | Errno::BUSY | Errno::NFILE | Errno::MFILE => Closed::Busy,
        Errno::PERM | Errno::ACCESS | Errno::INVAL | Errno::ISDIR | Errno::LOOP | Errno::NXIO => Closed::Refused,
        other => Closed::Volume(other.into()),
    }
}

fn has_rested(stat: &Metadata) -> bool {
    let changed = SystemTime::UNIX_EPOCH + Duration::from_secs(u64::try_from(stat.ctime()).unwrap_or(0));
    changed.elapsed().is_ok_and(|age| age >= EXECUTABLE_REST)
}

impl Opened {
    /// The name by which it is known now, if it has one below the mount point.
    pub(super) fn path(&self, volume: &Watched) -> Option<PathBuf> {
        let path = fs::read_link(longrun_sys::descriptor_path(&self.file)).ok()?;
        let is_it = |named: &Metadata| named.ino() == self.stat.ino() && named.dev() == self.stat.dev();
        (path.starts_with(&volume.point) && fs::symlink_metadata(&path).is_ok_and(|named| is_it(&named)))
            .then_some(path)
    }

    /// All that the policy asks about a file.
    pub(super) fn facts(&self, volume: &Watched, compressed_mount: bool, by: &ProcessName) -> io::Result<FileFacts> {
        let filesystem = volume.filesystem;
        let flags = longrun_sys::attributes(&self.file)?;
        let mut attributes = Attributes::new(filesystem, flags, false);
        // What lies behind its end could not be given back.
        attributes.no_extents |= filesystem == FileSystem::Ext4 && !longrun_sys::can_free_behind_end(&self.file)?;
        attributes.privileged = longrun_sys::gives_privileges(&self.file)?;
        let extended = longrun_sys::extended_attributes(&self.file).ok();
        let by_mount = compressed_mount && !flags.refuses_compression();
        let path = self.path(volume);
        Ok(FileFacts {
            filesystem,
            kind: FileKind::new(path.as_deref(), by),
            path,
            size: Bytes(self.stat.len()),
            allocated: Bytes(self.stat.blocks() * 512),
            links: self.stat.nlink(),
            executable: self.stat.mode() & 0o111 != 0,
            compressed: filesystem == FileSystem::Btrfs && (flags.is_compressed() || by_mount),
            size_hint: extended.is_some_and(ExtendedAttributes::has_size_hint),
            attributes,
            limited: owner::is_limited(filesystem, self)?,
            modified: modified(&self.stat),
            fragments: None,
        })
    }

    /// Whether another process has preallocated space behind its end; `reach` is how far our runways have reached, when
    /// there were any.
    pub(super) fn has_own_preallocation(&self, filesystem: FileSystem, reach: Option<Bytes>) -> io::Result<bool> {
        if let Some(reach) = reach {
            let theirs = foreign_behind(filesystem, &self.file, &self.stat, reach)?;
            return Ok(theirs.is_some_and(|theirs| theirs.behind.bytes.0 >= OWN_PREALLOCATION));
        }
        // XFS preallocates on its own, too, and marks what was asked for.
        if filesystem == FileSystem::Xfs && !longrun_sys::extended_attributes(&self.file)?.is_preallocated() {
            return Ok(false);
        }
        let behind = unwritten_behind(&self.file, Bytes(self.stat.len()))?;
        Ok(behind.iter().map(|range| range.length.0).sum::<u64>() >= OWN_PREALLOCATION)
    }
}

/// When the file was written last. A write sets this time and that of the last change alike; who sets times by hand changes
/// the latter to the present: such a file was modified "ages ago", however recent the time that was set.
fn modified(stat: &Metadata) -> Modified {
    if times_were_set(stat) {
        return Modified::Ago(Duration::MAX);
    }
    match stat.modified().unwrap_or(SystemTime::UNIX_EPOCH).elapsed() {
        Ok(age) => Modified::Ago(age),
        Err(ahead) => Modified::Ahead(ahead.duration()),
    }
}

/// Whether the last to change the file's times was no write.
pub(super) fn times_were_set(stat: &Metadata) -> bool {
    let changed = i128::from(stat.ctime()) * 1_000_000_000 + i128::from(stat.ctime_nsec());
    let written = i128::from(stat.mtime()) * 1_000_000_000 + i128::from(stat.mtime_nsec());
    changed - written > TIMES_APART.as_nanos() as i128
}

/// What is allocated and unwritten behind `end`.
fn unwritten_behind(file: &File, end: Bytes) -> io::Result<Vec<ByteRange>> {
    let mut found = Vec::new();
    let range = ByteRange { start: end, length: Bytes(u64::MAX - end.0) };
    longrun_sys::for_each_extent(file, range, Mapping::AsIs, |extent| {
        if extent.flags.is_unwritten() {
            found.push(part_behind(&extent, end));
        }
        found.len() < 4096
    })?;
    Ok(found)
}

/// What is allocated behind some place of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Behind {
    /// Where it begins.
    pub(super) first: Bytes,
    /// Where it ends.
    pub(super) last: Bytes,
    pub(super) bytes: Bytes,
}

/// What is allocated behind `end`, if anything is. Of a map that is too long only the beginning: the rest is for the next look.
pub(super) fn allocated_behind(file: &File, end: Bytes) -> io::Result<Option<Behind>> {
    let mut found: Option<Behind> = None;
    let range = ByteRange { start: end, length: Bytes(u64::MAX - end.0) };
    let mut extents = 0;
    longrun_sys::for_each_extent(file, range, Mapping::AsIs, |extent| {
        extents += 1;
        let part = part_behind(&extent, end);
        if part.length.0 > 0 {
            let found = found.get_or_insert(Behind { first: part.start, last: part.start, bytes: Bytes(0) });
            found.last = Bytes(part.start.0 + part.length.0);
            found.bytes.0 += part.length.0;
        }
        extents < MOST_EXTENTS
    })?;
    Ok(found)
}

/// Another process's own preallocation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Foreign {
    pub(super) behind: Behind,
    /// It begins right where our runways, or the data, end.
    pub(super) adjoins: bool,
}

/// What another process has preallocated behind the end of the file and beyond `reach`, which none of our runways passed.
///
/// ext4 and btrfs allocate nothing there by themselves. XFS does, ahead of a file that is written through the cache, but only
/// when the file grows: in a file that is no longer than our runways reach there is nothing of the kind. In a file that
/// has grown beyond, up to twice its length can be XFS's own; what another process preallocates within that bound is taken for
/// it, and goes: otherwise XFS would keep its own for good, because the runways have marked the file as preallocated.
pub(super) fn foreign_behind(
    filesystem: FileSystem,
    file: &File,
    stat: &Metadata,
    reach: Bytes,
) -> io::Result<Option<Foreign>> {
    let block = stat.blksize().clamp(4096, 64 << 10);
    let size = stat.len();
    let from = reach.0.max(size).checked_next_multiple_of(block).filter(|from| i64::try_from(*from).is_ok());
    let Some(from) = from else { return Ok(None) };
    let Some(behind) = allocated_behind(file, Bytes(from))? else { return Ok(None) };
    let own = size.saturating_mul(2).min(XFS_LONGEST) + OWN_PREALLOCATION;
    if filesystem == FileSystem::Xfs && size > reach.0 && behind.last.0 <= size.saturating_add(own) {
        return Ok(None);
    }
    Ok(Some(Foreign { behind, adjoins: behind.first.0 == from }))
}

fn part_behind(extent: &FileExtent, end: Bytes) -> ByteRange {
    let start = extent.logical.max(end);
    let stop = extent.logical.0.saturating_add(extent.length.0);
    ByteRange { start, length: Bytes(stop.saturating_sub(start.0)) }
}

/// In how many physically contiguous pieces `range` of the file lies, and how much of it is allocated.
pub(super) fn pieces(file: &File, range: ByteRange) -> io::Result<(u64, Bytes)> {
    let (mut pieces, mut bytes, mut extents) = (0, 0, 0);
    let mut next = None;
    let end = range.start.0.saturating_add(range.length.0);
    longrun_sys::for_each_extent(file, range, Mapping::AsIs, |extent| {
        extents += 1;
        let stop = extent.logical.0.saturating_add(extent.length.0).min(end);
        bytes += stop.saturating_sub(extent.logical.0.max(range.start.0));
        if extent.flags.has_address() {
            if next != Some(extent.physical) {
                pieces += 1;
            }
            next = Some(Bytes(extent.physical.0.saturating_add(extent.length.0)));
        }
        extents < MOST_EXTENTS
    })?;
    Ok((pieces, Bytes(bytes)))
}

/// The holes of `range`: what a window there would make ours.
pub(super) fn holes(file: &File, range: ByteRange, most: usize) -> io::Result<Vec<ByteRange>> {
    let mut holes = Vec::new();
    let end = range.start.0.saturating_add(range.length.0);
    let mut at = range.start.0;
    longrun_sys::for_each_extent(file, range, Mapping::AsIs, |extent| {
        if extent.logical.0 > at {
            holes.push(ByteRange { start: Bytes(at), length: Bytes(extent.logical.0.min(end) - at) });
        }
        at = at.max(extent.logical.0.saturating_add(extent.length.0));
        at < end && holes.len() < most
    })?;
    if at < end && holes.len() < most {
        holes.push(ByteRange { start: Bytes(at), length: Bytes(end - at) });
    }
    Ok(holes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use longrun_lab::{FileSystemKind, LoopVolume, VolumeSpec};

    #[test]
    fn loop_a_handle_of_generation_zero_opens_nothing() {
        for kind in FileSystemKind::ALL {
            let volume = LoopVolume::create(&VolumeSpec::of(kind, 512)).unwrap();
            let watched = Watched::mounted_at(&volume.mount_point()).unwrap().unwrap();
            let path = volume.mount_point().join("file");
            let handle = FileHandle::of_file(File::create(&path).unwrap()).unwrap();
            assert!(open(&watched, &handle, Executables::Never).is_ok() && open_to_look(&watched, &handle).is_ok());
            let mut bytes = handle.bytes().to_vec();
            let end = bytes.len();
            assert_ne!(bytes[end - 4..], [0; 4], "{kind:?}");
            bytes[end - 4..].fill(0);
            let any = FileHandle::new(handle.kind(), &bytes).unwrap();
            // The kernel takes it for any file that has the inode, but for XFS.
            let root = watched.open_root().unwrap();
            assert_eq!(any.open(root, OFlags::RDONLY).is_ok(), kind != FileSystemKind::Xfs, "{kind:?}");
            assert!(matches!(open(&watched, &any, Executables::Never), Err(Closed::Gone)), "{kind:?}");
            assert!(matches!(open_to_look(&watched, &any), Err(Closed::Gone)), "{kind:?}");
        }
    }
}
