//! The common part of all writers: a number, a seed, a buffer, and the count of what they did.
//!
//! Owns opening, writing and counting. Never decides what is written where.

use super::{Done, Job};
use crate::BenchError;
use longrun_ageing::fill_block;
use longrun_layout::Bytes;
use longrun_sys::AlignedBuffer;
use longrun_sys::OFlags;
use std::fs::{File, OpenOptions};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Barrier, Mutex, PoisonError};
use std::thread;

/// The size of one write in most profiles.
pub(super) const REQUEST: u64 = 64 << 10;
/// The largest write of any profile.
const LARGEST: usize = 1 << 20;

/// A file that is being written.
pub(super) struct Output {
    pub(super) file: File,
    pub(super) path: PathBuf,
    pub(super) length: u64,
}

impl Output {
    pub(super) fn sync(&self) -> Result<(), BenchError> {
        self.file.sync_all().map_err(|e| BenchError::io("syncing it", &self.path, e))
    }

    pub(super) fn sync_data(&self) -> Result<(), BenchError> {
        self.file.sync_data().map_err(|e| BenchError::io("syncing it", &self.path, e))
    }
}

/// One of those who write.
pub(super) struct Writer<'a> {
    pub(super) job: &'a Job<'a>,
    pub(super) number: u32,
    pub(super) rng: fastrand::Rng,
    pub(super) done: Done,
    buffer: AlignedBuffer,
}

impl<'a> Writer<'a> {
    pub(super) fn new(job: &'a Job<'a>, number: u32) -> Self {
        let mut buffer = AlignedBuffer::new(LARGEST);
        // Nothing that compresses: what is stored must be what was written.
        fill_block(buffer.prefix(LARGEST), job.parameters.seed, u64::from(number), 0);
        let seed = job.parameters.seed.wrapping_mul(0x9E37_79B9_7F4A_7C15).wrapping_add(u64::from(number));
        Self { job, number, rng: fastrand::Rng::with_seed(seed), done: Done::default(), buffer }
    }

    /// A new file of this writer.
    pub(super) fn create(&self, name: &str, flags: OFlags) -> Result<Output, BenchError> {
        let path = self.job.directory.join(format!("{name}-{}", self.number));
        let mut options = OpenOptions::new();
        options.write(true).create_new(true).custom_flags(flags.bits().cast_signed());
        let file = options.open(&path).map_err(|e| BenchError::io("creating it", &path, e))?;
        Ok(Output { file, path, length: 0 })
    }

    /// An existing file of ours, to be written again.
    pub(super) fn open(&self, path: &Path, flags: OFlags) -> Result<Output, BenchError> {
        let mut options = OpenOptions::new();
        let file = options.write(true).custom_flags(flags.bits().cast_signed()).open(path);
        let file = file.map_err(|e| BenchError::io("opening it", path, e))?;
        let length = file.metadata().map_err(|e| BenchError::io("examining it", path, e))?.len();
        Ok(Output { file, path: path.to_owned(), length })
    }

    /// Appends `length` bytes in one write.
    pub(super) fn append(&mut self, output: &mut Output, length: u64) -> Result<(), BenchError> {
        self.write_at(output, output.length, length)?;
        output.length += length;
        Ok(())
    }

    /// Writes `length` bytes at `offset` in one write.
    pub(super) fn write_at(&mut self, output: &Output, offset: u64, length: u64) -> Result<(), BenchError> {
        self.job.check()?;
        let content = self.buffer.prefix(usize::try_from(length).unwrap_or(LARGEST));
        output.file.write_all_at(content, offset).map_err(|e| BenchError::io("writing to it", &output.path, e))?;
        self.done.requests += 1;
        self.done.bytes += Bytes(content.len() as u64);
        thread::sleep(self.job.parameters.pause);
        Ok(())
    }

    /// Appends in writes of `request` until the file has `length` bytes.
    pub(super) fn grow(&mut self, output: &mut Output, length: u64, request: u64) -> Result<(), BenchError> {
        while output.length < length {
            self.append(output, request.min(length - output.length))?;
        }
        Ok(())
    }

    /// Opens a file for reading as one who must not wait, and counts whether that was refused.
    pub(super) fn open_at_once(&mut self, path: &Path) -> Result<(), BenchError> {
        let opened = OpenOptions::new().read(true).custom_flags(OFlags::NONBLOCK.bits().cast_signed()).open(path);
        self.done.opens += 1;
        match opened {
            Ok(_) => Ok(()),
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {
                self.done.refused_opens += 1;
                Ok(())
            }
            Err(error) => Err(BenchError::io("opening it", path, error)),
        }
    }
}

/// Lets all writers of the job work at the same time; the first error ends them all.
pub(super) fn together<'a>(
    job: &'a Job<'a>,
    work: impl Fn(&mut Writer<'a>) -> Result<(), BenchError> + Sync,
) -> Result<Done, BenchError> {
    let start = Barrier::new(job.parameters.writers as usize);
    let all = Mutex::new(Ok(Done::default()));
    thread::scope(|scope| {
        for number in 0..job.parameters.writers {
            let (start, all, work) = (&start, &all, &work);
            scope.spawn(move || {
                let mut writer = Writer::new(job, number);
                start.wait();
                let result = work(&mut writer);
                let mut all = all.lock().unwrap_or_else(PoisonError::into_inner);
                match (&mut *all, result) {
                    (Ok(done), Ok(())) => done.add(&writer.done),
                    (Ok(_), Err(error)) => *all = Err(error),
                    (Err(_), _) => {}
                }
            });
        }
    });
    all.into_inner().unwrap_or_else(PoisonError::into_inner)
}

/// Lets one writer work alone.
pub(super) fn alone<'a>(
    job: &'a Job<'a>,
    work: impl FnOnce(&mut Writer<'a>) -> Result<(), BenchError>,
) -> Result<Done, BenchError> {
    let mut writer = Writer::new(job, 0);
    work(&mut writer)?;
    Ok(writer.done)
}
