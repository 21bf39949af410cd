//! Writers that make files grow in every possible way and know the expected content.

use super::Told;
use anyhow::{Context, Result, ensure};
use longrun_layout::Bytes;
use longrun_prevention::{FileKey, SignalKind};
use longrun_sys::{DeviceNumber, FileHandle, SharedMapping};
use std::fs::File;
use std::io::Write as _;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

/// No append is longer.
const LONGEST: usize = 12 << 10;
/// Of a sparse file, so much is there before anything is written.
const SPARSE: u64 = 8 << 20;

/// How a file grows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Habit {
    /// By writes at the offset where the writer believes the end to be.
    AtOffset,
    /// By `O_APPEND`.
    Append,
    /// By ftruncate, and stores into a mapping whose descriptor is closed.
    Mapped,
    /// By a child that inherited the descriptor, which its parent has closed.
    Inherited,
    /// Not at all: its holes are written to.
    Sparse,
}

impl Habit {
    /// An inheritor costs a process, so it is chosen less often.
    pub(super) fn choose(rng: &mut fastrand::Rng) -> Self {
        match rng.u8(..16) {
            0..5 => Self::AtOffset,
            5..10 => Self::Append,
            10..12 => Self::Mapped,
            12 => Self::Inherited,
            _ => Self::Sparse,
        }
    }
}

/// A file, and what must be in it.
pub(super) struct Grower {
    pub(super) path: PathBuf,
    habit: Habit,
    seed: u64,
    size: u64,
    /// Of a sparse file.
    written: Vec<(u64, usize)>,
    open: Option<File>,
    child: Option<Child>,
    pub(super) key: FileKey,
}

impl Grower {
    pub(super) fn create(directory: &Path, name: u64, habit: Habit, volume: DeviceNumber) -> Result<Self> {
        let path = directory.join(format!("{name}.grows"));
        let file = File::options().read(true).write(true).create_new(true).open(&path)?;
        let key = FileKey { volume, handle: FileHandle::of_file(&file)? };
        let mut size = 0;
        if habit == Habit::Sparse {
            file.set_len(SPARSE)?;
            size = SPARSE;
        }
        Ok(Self { path, habit, seed: name, size, written: Vec::new(), open: None, child: None, key })
    }

    /// One append, or one write into a hole; and what a sensor would have told of it.
    pub(super) fn grow(&mut self, told: &Told, rng: &mut fastrand::Rng) -> Result<()> {
        let length = rng.usize(1..=LONGEST);
        match self.habit {
            Habit::AtOffset => {
                let (bytes, end) = (self.expected(self.size, length), self.size);
                self.file()?.write_all_at(&bytes, end)?;
                self.size += length as u64;
            }
            Habit::Append => {
                let bytes = self.expected(self.size, length);
                self.file()?.write_all(&bytes)?;
                self.size += length as u64;
            }
            Habit::Mapped => self.grow_mapped(length)?,
            Habit::Inherited => {
                let bytes = self.expected(self.size, length);
                let child = self.inheritor()?;
                child.stdin.as_mut().context("the child has no input")?.write_all(&bytes)?;
                self.size += length as u64;
            }
            Habit::Sparse => {
                let at = rng.u64(..SPARSE - LONGEST as u64);
                let bytes = self.expected(at, length);
                self.file()?.write_all_at(&bytes, at)?;
                self.written.push((at, length));
                if rng.u8(..8) == 0 {
                    self.file()?.sync_data()?;
                }
                if rng.bool() {
                    let kind = SignalKind::Scattered { at: Bytes(at), allocations: 8, bytes: Bytes(8 * 4096) };
                    told.tell(self.key, self.size, kind);
                }
            }
        }
        if self.habit != Habit::Sparse && rng.u8(..4) == 0 {
            told.tell_of_growth(self.key, self.size);
        }
        // Close and open again: here the trimming meets the next append.
        if rng.u8(..4) == 0 {
            self.close()?;
            told.tell(self.key, self.size, SignalKind::Closed);
            if rng.bool() {
                std::thread::sleep(std::time::Duration::from_micros(rng.u64(..3000)));
            }
        }
        Ok(())
    }

    fn grow_mapped(&mut self, length: usize) -> Result<()> {
        let bytes = self.expected(self.size, length);
        let end = self.size + length as u64;
        let file = File::options().read(true).write(true).open(&self.path)?;
        file.set_len(end)?;
        let mut mapping = SharedMapping::new(&file, usize::try_from(end)?)?;
        drop(file);
        mapping.write(usize::try_from(self.size)?, &bytes)?;
        self.size = end;
        Ok(())
    }

    fn file(&mut self) -> Result<&mut File> {
        if self.open.is_none() {
            let append = self.habit == Habit::Append;
            let file = File::options().read(true).write(true).append(append).open(&self.path)?;
            self.open = Some(file);
        }
        self.open.as_mut().context("just opened")
    }

    fn inheritor(&mut self) -> Result<&mut Child> {
        if self.child.is_none() {
            let file = File::options().append(true).open(&self.path)?;
            let child = Command::new("cat").stdin(Stdio::piped()).stdout(file).spawn()?;
            self.child = Some(child);
        }
        self.child.as_mut().context("just started")
    }

    pub(super) fn close(&mut self) -> Result<()> {
        self.open = None;
        if let Some(mut child) = self.child.take() {
            drop(child.stdin.take());
            ensure!(child.wait()?.success(), "the inheriting child failed");
        }
        Ok(())
    }

    /// Whether every byte is there.
    pub(super) fn verify(&self) -> Result<()> {
        let content = std::fs::read(&self.path)?;
        ensure!(content.len() as u64 == self.size, "{:?}: {} bytes, must be {}", self.habit, content.len(), self.size);
        let ranges = match self.habit {
            Habit::Sparse => self.written.clone(),
            _ => vec![(0, content.len())],
        };
        for (at, length) in ranges {
            let start = usize::try_from(at)?;
            let wrong = self.expected(at, length).iter().zip(content.iter().skip(start)).position(|(a, b)| a != b);
            if let Some(wrong) = wrong {
                let at = start + wrong;
                anyhow::bail!("{:?}: byte {at} of {} is {:?}", self.habit, self.size, content.get(at));
            }
        }
        Ok(())
    }

    /// What the file holds there. Never zero, which is what a lost byte reads as.
    fn expected(&self, at: u64, length: usize) -> Vec<u8> {
        let byte = |offset: u64| {
            let mixed = (offset / 7).wrapping_add(self.seed << 20).wrapping_mul(0x9e37_79b9_7f4a_7c15);
            u8::try_from(mixed >> 56).unwrap_or(1) | 1
        };
        (at..at + length as u64).map(byte).collect()
    }
}

impl Drop for Grower {
    fn drop(&mut self) {
        // A failed test must not leave a child behind.
        if let Some(mut child) = self.child.take() {
            _ = child.kill();
            _ = child.wait();
        }
    }
}
