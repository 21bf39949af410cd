//! Gives back the parts of windows inside a file that no one has written.
//!
//! Owns the method: the kernel compares the range with a hole, under the locks of the file, and replaces the range by
//! the hole if both read as zeros. What others have written meanwhile stays.

use super::exclusive::Exclusive;
use super::give_back::LARGEST_BLOCK;
use crate::Watched;
use crate::policy::{Stretch, StretchState, give_back};
use longrun_layout::Bytes;
use longrun_sys::FileSystem;
use longrun_sys::{ByteRange, Errno, Mapping, Shared};
use std::fs::{File, Metadata};
use std::io;
use std::os::unix::fs::MetadataExt as _;

/// So much is compared at a time: who waits for the lease meanwhile waits no longer than that.
const STEP: u64 = 1 << 20;

pub(super) fn write_back(file: &File) -> io::Result<()> {
    #[cfg(test)]
    if faults::WITHOUT_WRITE_BACK.get() {
        return Ok(());
    }
    Ok(longrun_sys::sync_file(file)?)
}

/// Whether the map tells all: what was written into a window and is in memory only looks unwritten in it.
pub(super) fn is_written_back(file: &File, stat: &Metadata) -> io::Result<bool> {
    #[cfg(test)]
    if faults::WITHOUT_WRITE_BACK.get() {
        return Ok(true);
    }
    match longrun_sys::cache_state(file, ByteRange { start: Bytes(0), length: Bytes(stat.len()) }) {
        Ok(cache) => Ok(cache.dirty_pages == 0 && cache.writeback_pages == 0),
        // A kernel that does not tell: then it is written back once more, while no one can write.
        Err(_) => write_back(file).map(|()| true),
    }
}

/// Gives back what windows hold and no one has written, as the policy says; `None` when the file is not ours alone any more.
pub(super) fn give_back_inside(
    volume: &Watched,
    file: &File,
    stat: &Metadata,
    windows: &[ByteRange],
    alone: &Exclusive<'_>,
) -> io::Result<Option<Bytes>> {
    if windows.is_empty() {
        return Ok(Some(Bytes(0)));
    }
    let whole = ByteRange { start: Bytes(0), length: Bytes(stat.len()) };
    let ranges = give_back(&stretches(file, whole, windows)?);
    if ranges.is_empty() {
        return Ok(Some(Bytes(0)));
    }
    let hole = hole(volume, file)?;
    // Only whole blocks can be compared: the one that holds the end stays.
    let last = Bytes(stat.len() - stat.len() % stat.blksize().clamp(4096, LARGEST_BLOCK));
    let mut given_back = 0;
    for range in ranges {
        let Some(bytes) = release(file, &hole, range, last, alone)? else { return Ok(None) };
        given_back += bytes;
    }
    Ok(Some(Bytes(given_back)))
}

/// A file without a name that is nothing but a hole, and can share blocks with `file`.
fn hole(volume: &Watched, file: &File) -> io::Result<File> {
    let hole = File::from(longrun_sys::temporary_file(volume.open_root()?)?);
    if volume.filesystem == FileSystem::Btrfs {
        // What has checksums and what has none do not mix.
        longrun_sys::set_written_in_place(&hole, longrun_sys::attributes(file)?.is_written_in_place())?;
    }
    longrun_sys::set_length(&hole, Bytes(STEP))?;
    Ok(hole)
}

fn release(file: &File, hole: &File, range: ByteRange, last: Bytes, alone: &Exclusive<'_>) -> io::Result<Option<u64>> {
    let (mut released, mut start) = (0, range.start);
    let end = Bytes(range.start.0.saturating_add(range.length.0)).min(last);
    while start < end {
        let part = ByteRange { start, length: Bytes(STEP.min(end.0 - start.0)) };
        if !alone.permits_change()? {
            return Ok(None);
        }
        #[cfg(test)]
        super::give_back::faults::reached(super::give_back::faults::Step::Asked);
        released += put_hole(file, hole, part)?;
        start.0 += part.length.0;
    }
    Ok(Some(released))
}

/// How much of `part` is a hole now that was none.
fn put_hole(file: &File, hole: &File, part: ByteRange) -> io::Result<u64> {
    #[cfg(test)]
    if super::give_back::faults::AS_BEFORE.get() {
        longrun_sys::punch(file, part)?;
        return Ok(part.length.0);
    }
    let shared = longrun_sys::share_hole_if_zeros(hole, file, part);
    match shared {
        Ok(Shared::Same(bytes)) => Ok(bytes.0),
        Ok(Shared::Differs) => Ok(0),
        // XFS without shared blocks. Between the question and this call lies nothing but the call itself (docs/hazards.md).
        Err(Errno::OPNOTSUPP | Errno::INVAL) => {
            longrun_sys::punch(file, part)?;
            Ok(part.length.0)
        }
        Err(other) => Err(other.into()),
    }
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

/// A switch by which a test shows that a rule is needed.
#[cfg(test)]
pub(super) mod faults {
    use std::cell::Cell;
    thread_local! {
        /// Believe the map although memory may be newer.
        pub(crate) static WITHOUT_WRITE_BACK: Cell<bool> = const { Cell::new(false) };
    }
}
