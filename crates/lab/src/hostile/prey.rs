//! Files that grow in directories of a user who removes these directories and puts them back. The content that each
//! file must have is known.

use anyhow::{Context, Result, ensure};
use longrun_sys::AlignedBuffer;
use rustix::fs::{CWD, OFlags, ResolveFlags, openat2};
use rustix::io::Errno;
use std::fs::{self, File};
use std::io::Write;
use std::os::unix::fs::{MetadataExt, chown};
use std::path::{Path, PathBuf};
use std::sync::Mutex;

/// Directories that the files lie in.
pub(super) const DIRECTORIES: usize = 4;
/// A longer file is started again.
const MOST: u64 = 12 << 20;
/// No append is longer, in bytes; direct ones are of whole blocks.
const LONGEST: usize = 64 << 10;
const BLOCK: usize = 4096;
/// The user without privileges.
pub(super) const NOBODY: u32 = 65534;

/// What the file of a writer is called.
pub(super) fn file_name(number: usize) -> String {
    format!("f{number}")
}

/// What a directory of the files is called.
pub(super) fn directory_name(number: usize) -> String {
    format!("d{}", number % DIRECTORIES)
}

/// A file, and what must be in it.
pub(super) struct Writer {
    path: PathBuf,
    inode: u64,
    file: Option<File>,
    /// For a file that is written past the page cache: these are the ones that get runways.
    direct: Option<AlignedBuffer>,
    length: u64,
    /// Determines the content; a new value each time the file is started again, so that old content is detected.
    life: u64,
}

impl Writer {
    /// Makes the files in `prey`, all of it the user's.
    pub(super) fn create(prey: &Path, count: usize, seed: u64) -> Result<Vec<Mutex<Self>>> {
        fs::create_dir(prey)?;
        let prey = prey.canonicalize()?;
        for number in 0..DIRECTORIES {
            fs::create_dir(prey.join(directory_name(number)))?;
            chown(prey.join(directory_name(number)), Some(NOBODY), Some(NOBODY))?;
        }
        chown(&prey, Some(NOBODY), Some(NOBODY))?;
        let create = |number: usize| -> Result<Mutex<Self>> {
            let path = prey.join(directory_name(number)).join(file_name(number));
            let file = File::create_new(&path)?;
            let inode = file.metadata()?.ino();
            let life = seed.wrapping_mul(1 << 20) + number as u64 * 1000;
            // One in four by the page cache, at any length.
            let direct = (number % 4 != 3).then(|| AlignedBuffer::new(LONGEST));
            Ok(Mutex::new(Self { path, inode, file: None, direct, length: 0, life }))
        };
        (0..count).map(create).collect()
    }

    /// Opens, appends or closes; whether something was appended.
    pub(super) fn step(&mut self, rng: &mut fastrand::Rng) -> Result<bool> {
        if self.file.is_none() {
            self.file = self.open()?;
        }
        let Some(file) = &mut self.file else { return Ok(false) };
        if self.length > MOST {
            file.set_len(0)?;
            (self.length, self.life) = (0, self.life + 1);
        }
        let expected = (self.length..).map(|at| content(self.life, at));
        let length = match &mut self.direct {
            Some(buffer) => {
                let bytes = buffer.prefix(rng.usize(1..=LONGEST / BLOCK) * BLOCK);
                bytes.iter_mut().zip(expected).for_each(|(byte, expected)| *byte = expected);
                file.write_all(bytes).map(|()| bytes.len())
            }
            None => {
                let bytes: Vec<u8> = expected.take(rng.usize(1..LONGEST)).collect();
                file.write_all(&bytes).map(|()| bytes.len())
            }
        };
        self.length += length.with_context(|| format!("cannot append to {}", self.path.display()))? as u64;
        if rng.bool() {
            file.sync_data()?;
        }
        if rng.u8(..6) == 0 {
            self.close();
        }
        Ok(true)
    }

    pub(super) fn is_closed(&self) -> bool {
        self.file.is_none()
    }

    pub(super) fn close(&mut self) {
        self.file = None;
    }

    /// The file, if it is in its place at the moment, and no process holds a lease on it.
    fn open(&self) -> Result<Option<File>> {
        let direct = if self.direct.is_some() { OFlags::DIRECT } else { OFlags::empty() };
        let flags = OFlags::WRONLY | OFlags::APPEND | OFlags::NONBLOCK | OFlags::CLOEXEC | direct;
        // A writer who followed the user's links would be the one who opens what lies outside.
        let file: File = match openat2(CWD, &self.path, flags, 0.into(), ResolveFlags::NO_SYMLINKS) {
            Ok(file) => file.into(),
            Err(
                Errno::NOENT | Errno::LOOP | Errno::NXIO | Errno::INVAL | Errno::NOTDIR | Errno::ISDIR | Errno::AGAIN,
            ) => {
                return Ok(None);
            }
            Err(errno) => return Err(errno).with_context(|| format!("cannot open {}", self.path.display())),
        };
        Ok((file.metadata()?.ino() == self.inode).then_some(file))
    }

    /// Compares the file with what was written.
    pub(super) fn verify(&self) -> Result<()> {
        let seen = fs::read(&self.path).with_context(|| format!("cannot read {}", self.path.display()))?;
        let wrong = (0..).zip(&seen).find(|(at, byte)| **byte != content(self.life, *at));
        ensure!(
            seen.len() as u64 == self.length && wrong.is_none(),
            "{}: {} bytes, must be {}; the first wrong one at {:?}",
            self.path.display(),
            seen.len(),
            self.length,
            wrong.map(|(at, _)| at)
        );
        Ok(())
    }
}

/// The byte of a file at an offset, in one of its lives.
pub(super) fn content(life: u64, at: u64) -> u8 {
    (life.wrapping_mul(0x9e37_79b9) ^ (at >> 3).wrapping_mul(0x85eb_ca6b) ^ at).wrapping_mul(31).to_le_bytes()[1]
}
