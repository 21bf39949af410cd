//! The tree of files that ageing makes: it creates, appends, rewrites and deletes files until the volume is as full as
//! requested.

use crate::content::{self, CONTENT_BLOCK};
use crate::{AgeError, Progress, Summary};
use longrun_sys::AlignedBuffer;
use rustix::fs::{Mode, OFlags};
use std::fs::File;
use std::io;
use std::ops::ControlFlow;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

/// Bytes written by one call at most.
const CHUNK: usize = 1 << 20;
/// The volume for which the recipes state their numbers, in bytes.
const REFERENCE_VOLUME: u64 = 4 << 30;
/// The smallest volume for which a recipe is useful, in bytes.
const LEAST_VOLUME: u64 = 48 << 20;

/// A file of the tree.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Made {
    /// Its number: name and content follow from it.
    pub(crate) id: u64,
    /// The number of its directory.
    pub(crate) directory: u64,
    /// Its size in bytes.
    pub(crate) bytes: u64,
}

/// How appends reach the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Manner {
    /// Direct writes: every append gets its blocks at once.
    Direct,
    /// Each append is on the device when it is done.
    Synchronous,
    /// Through memory, and synced now and then.
    Buffered,
}

/// A file that is kept open and grows.
#[derive(Debug)]
pub(crate) struct Stream {
    file: File,
    made: Made,
    manner: Manner,
}

impl Stream {
    /// Its length.
    pub(crate) fn bytes(&self) -> u64 {
        self.made.bytes
    }

    /// What it is now.
    pub(crate) fn made(&self) -> Made {
        self.made
    }
}

/// The tree while it is being made.
pub(crate) struct Tree<'a> {
    root: PathBuf,
    root_handle: File,
    seed: u64,
    /// The only source of randomness.
    pub(crate) rng: fastrand::Rng,
    /// The files there now, in an order that only the seed decides.
    pub(crate) live: Vec<Made>,
    progress: &'a mut dyn FnMut(&Progress) -> ControlFlow<()>,
    phase: (&'static str, f64),
    next_id: u64,
    directories: u64,
    bytes_written: u64,
    last_report: u64,
    buffer: AlignedBuffer,
    /// On btrfs, which keeps much of a small volume for its trees: what there was for files in the beginning, in bytes.
    room: Option<u64>,
}

impl<'a> Tree<'a> {
    /// Makes the empty tree at `root`, which must not exist.
    pub(crate) fn create(
        root: PathBuf,
        seed: u64,
        progress: &'a mut dyn FnMut(&Progress) -> ControlFlow<()>,
    ) -> Result<Self, AgeError> {
        match std::fs::create_dir(&root) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => return Err(AgeError::Exists(root)),
            other => other.map_err(|e| AgeError::io("create", &root, e))?,
        }
        let root_handle = File::open(&root).map_err(|e| AgeError::io("open", &root, e))?;
        let is_btrfs = longrun_sys::FileSystem::of(&root_handle) == Ok(Some(longrun_sys::FileSystem::Btrfs));
        let mut tree = Self {
            root,
            root_handle,
            room: None,
            seed,
            rng: fastrand::Rng::with_seed(seed),
            live: Vec::new(),
            progress,
            phase: ("start", 0.0),
            next_id: 0,
            directories: 0,
            bytes_written: 0,
            last_report: 0,
            buffer: AlignedBuffer::new(CHUNK),
        };
        let (total, free) = tree.space()?;
        if total < LEAST_VOLUME || free < total / 2 {
            let needed = LEAST_VOLUME.max(total / 2);
            std::fs::remove_dir(&tree.root).map_err(|e| AgeError::io("remove", &tree.root, e))?;
            return Err(AgeError::TooSmall { path: tree.root, available: free, needed });
        }
        if is_btrfs {
            tree.room = Some(tree.available()?);
        }
        Ok(tree)
    }

    /// Bytes of the volume and bytes free in it, the reserve for root included.
    fn space(&self) -> Result<(u64, u64), AgeError> {
        let stat = rustix::fs::fstatvfs(&self.root_handle)
            .map_err(|e| AgeError::io("read the free space of", &self.root, e))?;
        Ok((stat.f_blocks * stat.f_frsize, stat.f_bfree * stat.f_frsize))
    }

    fn available(&self) -> Result<u64, AgeError> {
        let stat = rustix::fs::fstatvfs(&self.root_handle)
            .map_err(|e| AgeError::io("read the free space of", &self.root, e))?;
        Ok(stat.f_bavail * stat.f_frsize)
    }

    /// The used share of the volume, 0 to 1; on btrfs, of what there is for files.
    pub(crate) fn fill(&self) -> Result<f64, AgeError> {
        let (total, free) = match self.room {
            Some(room) => (room, self.available()?),
            None => self.space()?,
        };
        Ok(1.0 - free as f64 / total.max(1) as f64)
    }

    /// `count` for the reference volume, scaled to this one; at least 1.
    pub(crate) fn scaled(&self, count: u64) -> Result<u64, AgeError> {
        let (total, _) = self.space()?;
        Ok(((u128::from(count) * u128::from(total) / u128::from(REFERENCE_VOLUME)) as u64).max(1))
    }

    /// Names the phase that begins, and how much of the recipe is done before it (0 to 1).
    pub(crate) fn phase(&mut self, name: &'static str, done: f64) -> Result<(), AgeError> {
        self.phase = (name, done);
        self.report()
    }

    fn report(&mut self) -> Result<(), AgeError> {
        let (phase, done) = self.phase;
        let now = Progress {
            phase,
            done,
            bytes_written: self.bytes_written,
            files: self.live.len() as u64,
            fill: self.fill()?,
        };
        match (self.progress)(&now) {
            ControlFlow::Continue(()) => Ok(()),
            ControlFlow::Break(()) => Err(AgeError::Interrupted(self.root.clone())),
        }
    }

    /// Reports the progress: often enough for a progress bar, rarely enough to cost nothing.
    fn tick(&mut self) -> Result<(), AgeError> {
        if self.bytes_written - self.last_report < 8 << 20 {
            return Ok(());
        }
        self.last_report = self.bytes_written;
        self.report()
    }

    /// Makes new directories; returns the number of the first.
    pub(crate) fn add_directories(&mut self, count: u64) -> Result<u64, AgeError> {
        let first = self.directories;
        for number in first..first + count {
            let path = self.directory_path(number);
            std::fs::create_dir(&path).map_err(|e| AgeError::io("create", &path, e))?;
        }
        self.directories += count;
        Ok(first)
    }

    fn directory_path(&self, number: u64) -> PathBuf {
        self.root.join(format!("d{number:03}"))
    }

    /// The directory of all of it.
    pub(crate) fn root(&self) -> &Path {
        &self.root
    }

    /// Where the file lies.
    pub(crate) fn path(&self, made: &Made) -> PathBuf {
        self.directory_path(made.directory).join(format!("f{:07}", made.id))
    }

    fn new_made(&mut self, directory: u64) -> Made {
        let id = self.next_id;
        self.next_id += 1;
        Made { id, directory, bytes: 0 }
    }

    /// Writes a new file of `bytes` bytes in one go, buffered; `None` when the volume is full.
    pub(crate) fn write_file(&mut self, directory: u64, bytes: u64) -> Result<Option<Made>, AgeError> {
        let mut made = self.new_made(directory);
        let path = self.path(&made);
        let file = File::create_new(&path).map_err(|e| AgeError::io("create", &path, e))?;
        while made.bytes < bytes {
            let length = (bytes - made.bytes).min(CHUNK as u64) as usize;
            let chunk = self.buffer.prefix(length);
            content::fill(chunk, self.seed, made.id, made.bytes);
            if !fits(file.write_all_at(chunk, made.bytes), &path)? {
                std::fs::remove_file(&path).map_err(|e| AgeError::io("remove", &path, e))?;
                return Ok(None);
            }
            made.bytes += length as u64;
            self.bytes_written += length as u64;
        }
        self.tick()?;
        Ok(Some(made))
    }

    /// As [`Self::write_file`], and the file joins the live ones; false when the volume is full.
    pub(crate) fn add_file(&mut self, directory: u64, bytes: u64) -> Result<bool, AgeError> {
        let made = self.write_file(directory, bytes)?;
        self.live.extend(made);
        Ok(made.is_some())
    }

    /// Opens a new file for direct appends.
    pub(crate) fn open_stream(&mut self, directory: u64) -> Result<Stream, AgeError> {
        self.open_stream_in(directory, Manner::Direct)
    }

    /// Opens a new file for appends in some manner.
    pub(crate) fn open_stream_in(&mut self, directory: u64, manner: Manner) -> Result<Stream, AgeError> {
        let made = self.new_made(directory);
        self.open(made, manner, OFlags::CREATE | OFlags::EXCL)
    }

    /// Opens a file that was closed for more appends.
    pub(crate) fn reopen(&mut self, made: &Made, manner: Manner) -> Result<Stream, AgeError> {
        self.open(*made, manner, OFlags::empty())
    }

    fn open(&self, made: Made, manner: Manner, create: OFlags) -> Result<Stream, AgeError> {
        let path = self.path(&made);
        let how = match manner {
            Manner::Direct => OFlags::DIRECT,
            Manner::Synchronous => OFlags::SYNC,
            Manner::Buffered => OFlags::empty(),
        };
        let flags = create | OFlags::WRONLY | OFlags::CLOEXEC | how;
        let file = rustix::fs::open(&path, flags, Mode::from_raw_mode(0o644))
            .map_err(|e| AgeError::io("open for appends", &path, e))?;
        Ok(Stream { file: file.into(), made, manner })
    }

    /// Appends `bytes` (rounded up to blocks) to a stream; false when the volume is full.
    pub(crate) fn append(&mut self, stream: &mut Stream, bytes: u64) -> Result<bool, AgeError> {
        let end = stream.made.bytes + bytes.next_multiple_of(CONTENT_BLOCK as u64);
        while stream.made.bytes < end {
            let length = (end - stream.made.bytes).min(CHUNK as u64) as usize;
            let chunk = self.buffer.prefix(length);
            content::fill(chunk, self.seed, stream.made.id, stream.made.bytes);
            let written = stream.file.write_all_at(chunk, stream.made.bytes);
            if !fits(written, &self.path(&stream.made))? {
                return Ok(false);
            }
            stream.made.bytes += length as u64;
            self.bytes_written += length as u64;
        }
        if stream.manner == Manner::Buffered && self.rng.u8(..4) == 0 {
            let synced = rustix::fs::fdatasync(&stream.file);
            synced.map_err(|e| AgeError::io("sync", &self.path(&stream.made), e))?;
        }
        self.tick()?;
        Ok(true)
    }

    /// Closes streams; their files join the live ones when `mortal`, and are never deleted otherwise.
    pub(crate) fn close(&mut self, streams: Vec<Stream>, mortal: bool) {
        if mortal {
            self.live.extend(streams.iter().map(|s| s.made));
        }
    }

    /// Deletes the live file at `position`, which the last one takes.
    pub(crate) fn delete(&mut self, position: usize) -> Result<(), AgeError> {
        let made = self.live.swap_remove(position);
        self.unlink(&made)
    }

    /// Deletes a file that is not among the live ones.
    pub(crate) fn unlink(&self, made: &Made) -> Result<(), AgeError> {
        let path = self.path(made);
        std::fs::remove_file(&path).map_err(|e| AgeError::io("remove", &path, e))
    }

    /// Deletes live files at random until the volume is at most `fill` full. Ends with [`Self::sync`].
    pub(crate) fn delete_down_to(&mut self, fill: f64) -> Result<(), AgeError> {
        while self.fill()? > fill && !self.live.is_empty() {
            let position = self.rng.usize(..self.live.len());
            self.delete(position)?;
        }
        self.sync()
    }

    /// Commits: only then may the blocks of deleted files be used again.
    pub(crate) fn sync(&mut self) -> Result<(), AgeError> {
        rustix::fs::syncfs(&self.root_handle).map_err(|e| AgeError::io("sync", &self.root, e))?;
        self.report()
    }

    /// Ends: everything on disk.
    pub(crate) fn finish(mut self) -> Result<Summary, AgeError> {
        self.phase("done", 1.0)?;
        self.sync()?;
        let (files, bytes) = count(&self.root)?;
        Ok(Summary { fill: self.fill()?, directory: self.root, files, bytes, bytes_written: self.bytes_written })
    }
}

/// Whether a write had room; other errors are errors.
fn fits(result: io::Result<()>, path: &Path) -> Result<bool, AgeError> {
    match result {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == io::ErrorKind::StorageFull => Ok(false),
        Err(error) => Err(AgeError::io("write", path, error)),
    }
}

/// Files and bytes below `directory`.
fn count(directory: &Path) -> Result<(u64, u64), AgeError> {
    let (mut files, mut bytes) = (0, 0);
    for entry in std::fs::read_dir(directory).map_err(|e| AgeError::io("read", directory, e))? {
        let entry = entry.map_err(|e| AgeError::io("read", directory, e))?;
        let meta = entry.metadata().map_err(|e| AgeError::io("stat", &entry.path(), e))?;
        let (f, b) = if meta.is_dir() { count(&entry.path())? } else { (1, meta.len()) };
        files += f;
        bytes += b;
    }
    Ok((files, bytes))
}

/// A size between `least` and `most` bytes, each doubling equally likely: how file sizes are distributed in practice.
pub(crate) fn log_uniform(rng: &mut fastrand::Rng, least: u64, most: u64) -> u64 {
    let (low, high) = ((least as f64).ln(), (most as f64).ln());
    (low + rng.f64() * (high - low)).exp() as u64
}
