//! Gives unused space of a file back without risk to its data.
//!
//! Owns the order that makes this safe. Slow steps come first. Then the lease ensures that no one else has the file
//! open, and is checked immediately before each call that changes the file. Even without the lease, nothing that others
//! have appended or written is lost: the kernel finds the end of the file itself, and compares the content of a window.
//! The time stamps are restored. The final test is the torture test of `longrun-lab`.

use super::exclusive::Exclusive;
use super::file::{self, Closed, Executables, Opened};
use super::record::GiveBack;
use super::window;
use crate::Watched;
use longrun_layout::Bytes;
use longrun_sys::FileSystem;
use longrun_sys::{ByteRange, FileHandle};
use std::fs::{File, Metadata};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::time::SystemTime;

/// No file system that we know has larger blocks.
pub(super) const LARGEST_BLOCK: u64 = 64 << 10;

/// What became of an attempt.
#[derive(Debug)]
pub(super) enum Outcome {
    /// Nothing of ours is left on the file.
    Settled(Box<Settled>),
    /// Another process has it open, executes it, or is about to.
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
    /// Space that stays, as far as it may be ours.
    pub(super) kept: Bytes,
    /// Something lies behind its end, and stays: another process's own preallocation, or what cannot be given back without harm.
    pub(super) foreign: bool,
    pub(super) file: Opened,
}

/// Gives back what is listed of a file, if no one has it open.
pub(super) fn settle(volume: &Watched, handle: &FileHandle, what: &[GiveBack]) -> Outcome {
    let mut opened = match file::open(volume, handle, Executables::Rested) {
        Ok(opened) => opened,
        Err(Closed::Gone) => return Outcome::Gone,
        Err(Closed::Busy | Closed::Executable) => return Outcome::Open,
        Err(Closed::Refused) => return Outcome::Refused,
        Err(Closed::Volume(error)) => return unreachable(volume, &error),
    };
    match settle_open(volume, &mut opened, what) {
        Ok(Some(Back { bytes, kept, foreign })) => {
            Outcome::Settled(Box::new(Settled { given_back: bytes, kept, foreign, file: opened }))
        }
        Ok(None) => Outcome::Open,
        Err(error) => unreachable(volume, &error),
    }
}

/// What one attempt gave back.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Back {
    pub(super) bytes: Bytes,
    /// As in [`Settled`].
    pub(super) kept: Bytes,
    /// As in [`Settled`].
    pub(super) foreign: bool,
}

fn unreachable(volume: &Watched, error: &io::Error) -> Outcome {
    tracing::debug!("{}: giving back unused space failed: {error}", volume.point.display());
    Outcome::Unreachable
}

/// As [`settle`], with the file open already; `None` when another process has it open, too, or had just now.
pub(super) fn settle_open(volume: &Watched, opened: &mut Opened, what: &[GiveBack]) -> io::Result<Option<Back>> {
    let filesystem = volume.filesystem;
    let windows: Vec<ByteRange> = what.iter().filter_map(window).collect();
    let file = &opened.file;
    if !windows.is_empty() {
        // Asked once without holding up anybody, since writing back can take long.
        if Exclusive::take(file)?.is_none() {
            return Ok(None);
        }
        window::write_back(file)?;
    }
    // The map can be long, so it is read before anybody has to wait for us.
    // Where no runway was, nothing behind the end is ours.
    let end = End::look(filesystem, file, GiveBack::reach(what).unwrap_or(Bytes(0)))?;
    #[cfg(test)]
    faults::reached(faults::Step::Mapped);
    let Some(alone) = Exclusive::take(file)? else { return Ok(None) };
    #[cfg(test)]
    faults::reached(faults::Step::Leased);
    let before = file.metadata()?;
    if !end.is_of(&before) || (!windows.is_empty() && !window::is_written_back(file, &before)?) {
        return Ok(None);
    }
    if longrun_sys::gives_privileges(file)? {
        drop(alone);
        let kept = windows.iter().fold(end.all, |kept, window| Bytes(kept.0.saturating_add(window.length.0)));
        tracing::info!(
            "{}: up to {} bytes of a runway stay with inode {}: to give them back would take its set-user-ID bit or capabilities away",
            volume.point.display(),
            kept.0,
            before.ino()
        );
        opened.stat = before;
        return Ok(Some(Back { bytes: Bytes(0), kept, foreign: true }));
    }
    let Some(mut back) = end.give_back(filesystem, file, &alone)? else { return Ok(None) };
    let Some(inside) = window::give_back_inside(volume, file, &before, &windows, &alone)? else { return Ok(None) };
    back.bytes.0 += inside.0;
    if back.bytes.0 > 0 && filesystem != FileSystem::Xfs {
        restore_modified(file, &before, &alone)?;
    }
    if alone.can_have_ended() {
        tracing::warn!(
            "{}: giving back unused space took longer than the lease on the file lasts",
            volume.point.display()
        );
    }
    drop(alone);
    opened.stat = before;
    Ok(Some(back))
}

fn window(what: &GiveBack) -> Option<ByteRange> {
    match what {
        GiveBack::End(_) => None,
        GiveBack::Window(range) => Some(*range),
    }
}

/// What lies behind the end of a file.
struct End {
    stat: Metadata,
    /// From where on nothing is data: the block that holds the end is.
    start: Bytes,
    /// Up to where it is ours; `None` when nothing of it can be given back.
    stop: Option<Bytes>,
    /// All that is allocated there.
    all: Bytes,
    foreign: bool,
}

impl End {
    /// Looks what is allocated behind the end and is ours: none of our runways went beyond `reach`.
    fn look(filesystem: FileSystem, file: &File, reach: Bytes) -> io::Result<Self> {
        let stat = file.metadata()?;
        let start = Bytes(stat.len().next_multiple_of(stat.blksize().clamp(4096, LARGEST_BLOCK)));
        let Some(all) = file::allocated_behind(file, start)? else {
            return Ok(Self { stat, start, stop: None, all: Bytes(0), foreign: false });
        };
        let theirs = file::foreign_behind(filesystem, file, &stat, reach)?;
        let stop = match theirs {
            None => Some(all.last),
            // A process that preallocated right behind our runway asked for the place of the runway, too. And ext4
            // cannot give back a part.
            Some(theirs) if theirs.adjoins || filesystem == FileSystem::Ext4 => None,
            Some(theirs) => Some(theirs.behind.first),
        };
        let foreign = theirs.is_some();
        Ok(Self { stat, start, stop: stop.filter(|stop| *stop > start), all: all.bytes, foreign })
    }

    /// Whether it is still the file that was looked at.
    fn is_of(&self, now: &Metadata) -> bool {
        #[cfg(test)]
        if faults::AS_BEFORE.get() {
            return true;
        }
        let of = |stat: &Metadata| (stat.len(), stat.blocks(), stat.mtime(), stat.mtime_nsec());
        of(&self.stat) == of(now)
    }

    /// Gives back what is ours; `None` when the file is not ours alone any more.
    fn give_back(&self, filesystem: FileSystem, file: &File, alone: &Exclusive<'_>) -> io::Result<Option<Back>> {
        let Some(stop) = self.stop else {
            return Ok(Some(Back { bytes: Bytes(0), kept: self.all, foreign: self.foreign }));
        };
        if !alone.permits_change()? {
            return Ok(None);
        }
        #[cfg(test)]
        faults::reached(faults::Step::Asked);
        self.release(filesystem, file, stop)?;
        let left = file::allocated_behind(file, self.start)?.map_or(0, |left| left.bytes.0);
        let bytes = Bytes(self.all.0.saturating_sub(left));
        Ok(Some(Back { bytes, kept: Bytes(0), foreign: self.foreign }))
    }

    /// None of these calls goes by the length that was read before: what has been appended since stays.
    fn release(&self, filesystem: FileSystem, file: &File, stop: Bytes) -> io::Result<()> {
        let (end, length) = (Bytes(self.stat.len()), stop.saturating_sub(self.start));
        #[cfg(test)]
        if faults::AS_BEFORE.get() {
            return match filesystem {
                FileSystem::Ext4 => longrun_sys::set_length(file, end),
                _ => longrun_sys::punch(file, ByteRange { start: self.start, length }),
            }
            .map_err(Into::into);
        }
        match filesystem {
            FileSystem::Xfs | FileSystem::Btrfs => {
                longrun_sys::punch_behind_end(file, self.start.saturating_sub(end), length)?;
            }
            // It punches nothing behind the end.
            FileSystem::Ext4 => longrun_sys::free_behind_end(file, end)?,
        }
        Ok(())
    }
}

/// Sets the time of the last modification back to what it was, unless another process has set it, or changed the
/// file, since.
fn restore_modified(file: &File, before: &Metadata, alone: &Exclusive<'_>) -> io::Result<()> {
    let now = file.metadata()?;
    let ours = now.modified()? != before.modified()? && is_now(now.modified()?) && now.len() == before.len();
    #[cfg(test)]
    faults::reached(faults::Step::Released);
    if ours && alone.holds()? {
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
    use std::cell::{Cell, RefCell};

    /// Where a process can be stopped, or a call be held up.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub(crate) enum Step {
        /// The map is read.
        Mapped,
        /// The lease is taken.
        Leased,
        /// The lease was found to hold, and the next call changes the file.
        Asked,
        /// The space is given back.
        Released,
    }

    type Happens = Box<dyn FnOnce()>;

    thread_local! {
        /// Go by the length and the map that were read before.
        pub(crate) static AS_BEFORE: Cell<bool> = const { Cell::new(false) };
        /// What happens when a step is reached: once.
        static AT: RefCell<Option<(Step, Happens)>> = const { RefCell::new(None) };
    }

    pub(crate) fn at(step: Step, happens: impl FnOnce() + 'static) {
        AT.set(Some((step, Box::new(happens))));
    }

    pub(crate) fn reached(step: Step) {
        let due = AT.with_borrow_mut(|at| if at.as_ref().is_some_and(|(s, _)| *s == step) { at.take() } else { None });
        if let Some((_, happens)) = due {
            happens();
        }
    }

    /// Whether what is to happen has not happened yet.
    pub(crate) fn is_due() -> bool {
        AT.with_borrow(Option::is_some)
    }

    /// Whether what was to happen has happened. It does not happen any more.
    pub(crate) fn has_happened() -> bool {
        AT.take().is_none()
    }
}

#[cfg(test)]
#[path = "give_back/tests.rs"]
mod tests;
