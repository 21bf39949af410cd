//! Giving space of a file back, without risking a byte of it.
//!
//! Owns the order that makes it safe: nobody else has the file open (the lease says so, and makes openers wait), its length is
//! read after that, only what is allocated and unwritten goes, its times are as before, and the lease ends. The tests at the
//! end of the line are the torture of `longrun-lab`.

use super::file::{self, Closed, Executables, Opened};
use super::record::GiveBack;
use crate::policy::{Stretch, StretchState, give_back};
use crate::{FileSystem, Watched};
use longrun_layout::Bytes;
use longrun_sys::{ByteRange, ExclusiveLease, FileHandle, Mapping};
use std::fs::{File, Metadata};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::time::SystemTime;

/// No file system that we know has larger blocks.
const LARGEST_BLOCK: u64 = 64 << 10;

/// What became of an attempt.
#[derive(Debug)]
pub(super) enum Outcome {
    /// Nothing of ours is left on the file.
    Settled(Settled),
    /// Somebody has it open, executes it, or is about to.
    Open,
    /// It has been deleted.
    Gone,
    /// It cannot be done: the file may not be written any more.
    Refused,
    /// The volume is not there, or fails.
    Unreachable,
}

/// A file that is as long as its data again.
#[derive(Debug)]
pub(super) struct Settled {
    pub(super) given_back: Bytes,
    /// Somebody's own preallocation lies behind its end, and stays.
    pub(super) foreign: bool,
    pub(super) file: Opened,
}

/// Gives back what is listed of a file, if nobody has it open.
pub(super) fn settle(volume: &Watched, handle: &FileHandle, what: &[GiveBack]) -> Outcome {
    let mut opened = match file::open(volume, handle, Executables::Rested) {
        Ok(opened) => opened,
        Err(Closed::Gone) => return Outcome::Gone,
        Err(Closed::Busy | Closed::Executable) => return Outcome::Open,
        Err(Closed::Refused) => return Outcome::Refused,
        Err(Closed::Volume(error)) => return unreachable(volume, &error),
    };
    match settle_open(volume.filesystem, &mut opened, what) {
        Ok(Some(Back { bytes, foreign })) => Outcome::Settled(Settled { given_back: bytes, foreign, file: opened }),
        Ok(None) => Outcome::Open,
        Err(error) => unreachable(volume, &error),
    }
}

/// What one attempt gave back.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Back {
    pub(super) bytes: Bytes,
    /// As in [`Settled`].
    pub(super) foreign: bool,
}

fn unreachable(volume: &Watched, error: &io::Error) -> Outcome {
    tracing::debug!("{}: giving back failed: {error}", volume.point.display());
    Outcome::Unreachable
}

/// As [`settle`], with the file open already; `None` when somebody else has it open, too.
pub(super) fn settle_open(filesystem: FileSystem, opened: &mut Opened, what: &[GiveBack]) -> io::Result<Option<Back>> {
    let windows: Vec<ByteRange> = what.iter().filter_map(window).collect();
    let file = &opened.file;
    if !windows.is_empty() {
        // Asked once without holding up anybody, since writing back can take long.
        if exclusive(file)?.is_none() {
            return Ok(None);
        }
        write_back(file)?;
    }
    let Some(lease) = exclusive(file)? else { return Ok(None) };
    let before = file.metadata()?;
    if !windows.is_empty() && !is_written_back(file, &before)? {
        return Ok(None);
    }
    // Where no runway was, nothing behind the end is ours.
    let reach = GiveBack::reach(what).unwrap_or(Bytes(0));
    let mut back = behind_the_end(filesystem, file, &before, reach)?;
    if !windows.is_empty() {
        back.bytes.0 += inside(file, &before, &windows)?.0;
    }
    if back.bytes.0 > 0 && filesystem != FileSystem::Xfs {
        restore_modified(file, &before)?;
    }
    drop(lease);
    opened.stat = before;
    Ok(Some(back))
}

fn window(what: &GiveBack) -> Option<ByteRange> {
    match what {
        GiveBack::End(_) => None,
        GiveBack::Window(range) => Some(*range),
    }
}

/// Nobody else has the file open while this lives.
fn exclusive(file: &File) -> io::Result<Option<Lease<'_>>> {
    #[cfg(test)]
    if faults::WITHOUT_LEASE.get() {
        return Ok(Some(None));
    }
    Ok(ExclusiveLease::take(file)?.map(Some))
}

type Lease<'file> = Option<ExclusiveLease<'file>>;

fn write_back(file: &File) -> io::Result<()> {
    #[cfg(test)]
    if faults::WITHOUT_WRITE_BACK.get() {
        return Ok(());
    }
    Ok(longrun_sys::sync_file(file)?)
}

/// Whether the map tells all: what was written into a window and is in memory only looks unwritten in it.
fn is_written_back(file: &File, stat: &Metadata) -> io::Result<bool> {
    #[cfg(test)]
    if faults::WITHOUT_WRITE_BACK.get() {
        return Ok(true);
    }
    match longrun_sys::cache_state(file, ByteRange { start: Bytes(0), length: Bytes(stat.len()) }) {
        Ok(cache) => Ok(cache.dirty_pages == 0 && cache.writeback_pages == 0),
        // A kernel that does not tell: then it is written back once more, while nobody can write.
        Err(_) => write_back(file).map(|()| true),
    }
}

/// Gives back what is allocated behind the end and is ours: none of our runways went beyond `reach`.
fn behind_the_end(filesystem: FileSystem, file: &File, stat: &Metadata, reach: Bytes) -> io::Result<Back> {
    let size = stat.len();
    // The block that holds the end is data.
    let block = stat.blksize().clamp(4096, LARGEST_BLOCK);
    let start = Bytes(size.next_multiple_of(block));
    let Some(all) = file::allocated_behind(file, start)? else { return Ok(Back::default()) };
    let stop = match file::foreign_behind(filesystem, file, stat, reach)? {
        None => all.last,
        // Whoever preallocated right behind our runway asked for the place of the runway, too. And ext4 cannot give back a part.
        Some(theirs) if theirs.adjoins || filesystem == FileSystem::Ext4 => {
            return Ok(Back { bytes: Bytes(0), foreign: true });
        }
        Some(theirs) => theirs.behind.first,
    };
    match filesystem {
        FileSystem::Xfs | FileSystem::Btrfs if stop > start => {
            longrun_sys::punch(file, ByteRange { start, length: Bytes(stop.0 - start.0) })?;
        }
        FileSystem::Xfs | FileSystem::Btrfs => {}
        // ext4 punches nothing behind the end. The length is the one read under the lease: nobody can have changed it since.
        FileSystem::Ext4 => longrun_sys::set_length(file, Bytes(size))?,
    }
    let left = file::allocated_behind(file, start)?.map_or(0, |left| left.bytes.0);
    Ok(Back { bytes: Bytes(all.bytes.0.saturating_sub(left)), foreign: stop != all.last })
}

/// Gives back what windows hold and nobody has written, as the policy says.
fn inside(file: &File, stat: &Metadata, windows: &[ByteRange]) -> io::Result<Bytes> {
    let whole = ByteRange { start: Bytes(0), length: Bytes(stat.len()) };
    let mut given_back = 0;
    for range in give_back(&stretches(file, whole, windows)?) {
        longrun_sys::punch(file, range)?;
        given_back += range.length.0;
    }
    Ok(Bytes(given_back))
}

/// The file as the policy wants to see it: written, ours, theirs.
fn stretches(file: &File, whole: ByteRange, windows: &[ByteRange]) -> io::Result<Vec<Stretch>> {
    let mut stretches = Vec::new();
    let mut push = |start: u64, end: u64, state| {
        if end > start {
            stretches.push(Stretch { range: ByteRange { start: Bytes(start), length: Bytes(end - start) }, state });
        }
    };
    let mut windows = windows.to_vec();
    windows.sort_by_key(|range| range.start);
    longrun_sys::for_each_extent(file, whole, Mapping::AsIs, |extent| {
        let end = extent.logical.0.saturating_add(extent.length.0).min(whole.length.0);
        let mut at = extent.logical.0;
        if !extent.flags.is_unwritten() || extent.flags.is_delayed() {
            push(at, end, StretchState::Written);
            return true;
        }
        for window in &windows {
            let (start, stop) = (window.start.0.max(at), window.start.0.saturating_add(window.length.0).min(end));
            if stop > start {
                push(at, start, StretchState::Theirs);
                push(start, stop, StretchState::Ours);
                at = stop;
            }
        }
        push(at, end, StretchState::Theirs);
        true
    })?;
    Ok(stretches)
}

/// Sets the time of the last modification back to what it was, unless somebody has set it since.
fn restore_modified(file: &File, before: &Metadata) -> io::Result<()> {
    let now = file.metadata()?;
    let ours = now.modified()? != before.modified()? && is_now(now.modified()?);
    if ours {
        longrun_sys::set_modified(file, before.modified()?)?;
    }
    Ok(())
}

/// A time that giving back has set is a fraction of a second old.
fn is_now(time: SystemTime) -> bool {
    time.elapsed().map_or_else(|ahead| ahead.duration().as_millis() < 100, |age| age.as_secs() < 60)
}

/// Switches by which tests show that each rule is needed.
#[cfg(test)]
pub(super) mod faults {
    use std::cell::Cell;
    thread_local! {
        /// Give back without asking whether anybody has the file open.
        pub(crate) static WITHOUT_LEASE: Cell<bool> = const { Cell::new(false) };
        /// Believe the map although memory may be newer.
        pub(crate) static WITHOUT_WRITE_BACK: Cell<bool> = const { Cell::new(false) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use longrun_lab::{FileSystemKind, LoopVolume, VolumeSpec};
    use std::os::unix::fs::FileExt as _;
    use std::sync::atomic::{AtomicBool, Ordering};

    const BLOCK: u64 = 4096;

    /// Appends to a file while it is trimmed again and again; answers how many bytes are missing in the end.
    fn bytes_lost(kind: FileSystemKind, appends: u64) -> u64 {
        let volume = LoopVolume::create(&VolumeSpec::of(kind, 512)).unwrap();
        let watched = Watched::mounted_at(&volume.mount_point()).unwrap().unwrap();
        let path = volume.mount_point().join("file");
        let handle = FileHandle::of_file(File::create_new(&path).unwrap()).unwrap();
        let done = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let mut writer = File::options().write(true).open(&path).unwrap();
                for number in 0..appends {
                    writer.write_all_at(&[7; BLOCK as usize], number * BLOCK).unwrap();
                    if number % 64 == 63 {
                        drop(writer);
                        writer = File::options().write(true).open(&path).unwrap();
                    }
                }
                done.store(true, Ordering::Relaxed);
            });
            while !done.load(Ordering::Relaxed) {
                let mut opened = file::open(&watched, &handle, Executables::Never).unwrap();
                let runway = ByteRange { start: Bytes(opened.stat.len()), length: Bytes(4 << 20) };
                longrun_sys::allocate(&opened.file, runway).unwrap();
                settle_open(watched.filesystem, &mut opened, &[GiveBack::ALL]).unwrap();
            }
        });
        let content = std::fs::read(&path).unwrap();
        appends * BLOCK - content.iter().filter(|byte| **byte == 7).count() as u64
    }

    #[test]
    fn loop_without_the_lease_appends_are_lost_and_with_it_none_is() {
        for kind in FileSystemKind::ALL {
            assert_eq!(bytes_lost(kind, 5000), 0, "{kind:?}");
        }
        // That the test bites, where trimming sets the length.
        faults::WITHOUT_LEASE.set(true);
        let lost = (0..20).any(|_| bytes_lost(FileSystemKind::Ext4, 5000) > 0);
        faults::WITHOUT_LEASE.set(false);
        assert!(lost, "no byte was lost without the lease");
    }

    #[test]
    fn loop_what_is_in_memory_only_is_written_back_before_a_window_is_judged() {
        for (without, kind) in
            [false, true].into_iter().flat_map(|w| [FileSystemKind::Xfs, FileSystemKind::Btrfs].map(|kind| (w, kind)))
        {
            let volume = LoopVolume::create(&VolumeSpec::of(kind, 512)).unwrap();
            let watched = Watched::mounted_at(&volume.mount_point()).unwrap().unwrap();
            let path = volume.mount_point().join("sparse");
            let file = File::create_new(&path).unwrap();
            file.set_len(64 << 20).unwrap();
            let window = ByteRange { start: Bytes(16 << 20), length: Bytes(16 << 20) };
            longrun_sys::allocate(&file, window).unwrap();
            longrun_sys::sync_file(&file).unwrap();
            file.write_all_at(&[9; 1 << 20], 20 << 20).unwrap();
            let handle = FileHandle::of_file(&file).unwrap();
            drop(file);
            let mut opened = file::open(&watched, &handle, Executables::Never).unwrap();
            faults::WITHOUT_WRITE_BACK.set(without);
            // A child that another test has just forked has everything open until it executes its program.
            let given_back = (0..500).find_map(|_| {
                std::thread::sleep(std::time::Duration::from_millis(10));
                settle_open(watched.filesystem, &mut opened, &[GiveBack::Window(window)]).unwrap()
            });
            faults::WITHOUT_WRITE_BACK.set(false);
            assert!(given_back.is_some_and(|back| back.bytes.0 > 0), "{kind:?}: {given_back:?}");
            let content = std::fs::read(&path).unwrap();
            let kept = content[20 << 20..21 << 20].iter().all(|byte| *byte == 9);
            // The second round shows that the test bites: the map of XFS alone says that the place was never written.
            assert_eq!(kept, !(without && kind == FileSystemKind::Xfs), "{kind:?}");
        }
    }
}
