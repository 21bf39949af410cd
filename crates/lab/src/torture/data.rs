//! Files that are written in every way that a process can use: each writer keeps the expected content of its file in
//! memory.

use super::Participant;
use anyhow::{Context, Result, ensure};
use longrun_sys::AlignedBuffer;
use longrun_sys::SharedMapping;
use rustix::fs::{FallocateFlags, OFlags};
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

/// Size of each file at first, and the most that one may grow to, in bytes.
const SIZE: usize = 6 << 20;
const MOST: usize = 8 << 20;
/// The unit of direct writes in bytes.
const BLOCK: usize = 4096;

/// How a writer writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Habit {
    Buffered,
    Synced,
    Direct,
    Mapped,
    Resize,
    Punch,
    Append,
}

impl Habit {
    pub(super) const ALL: [Self; 7] =
        [Self::Buffered, Self::Synced, Self::Direct, Self::Mapped, Self::Resize, Self::Punch, Self::Append];
}

/// A writer, its file, and what the file must hold.
pub(super) struct DataWriter {
    habit: Habit,
    path: PathBuf,
    file: File,
    expected: Vec<u8>,
    mapping: Option<SharedMapping>,
    buffer: AlignedBuffer,
}

impl DataWriter {
    /// Makes the file, full of random bytes.
    pub(super) fn create(directory: &Path, habit: Habit, rng: &mut fastrand::Rng) -> Result<Self> {
        let path = directory.join(format!("{habit:?}.prey"));
        let mut expected = vec![0; SIZE];
        rng.fill(&mut expected);
        std::fs::write(&path, &expected)?;
        let direct = if habit == Habit::Direct { OFlags::DIRECT } else { OFlags::empty() };
        let file: File = rustix::fs::open(&path, OFlags::RDWR | OFlags::CLOEXEC | direct, 0.into())?.into();
        let mapping = (habit == Habit::Mapped).then(|| SharedMapping::new(&file, SIZE)).transpose()?;
        Ok(Self { habit, path, file, expected, mapping, buffer: AlignedBuffer::new(64 * BLOCK) })
    }

    /// Overwrites a random range, by whatever way is the writer's.
    fn overwrite(&mut self, rng: &mut fastrand::Rng) -> Result<()> {
        let length = rng.usize(1..=64 * BLOCK).min(self.expected.len());
        let offset = rng.usize(..=self.expected.len() - length);
        let mut bytes = vec![0; length];
        rng.fill(&mut bytes);
        match &mut self.mapping {
            Some(mapping) => mapping.write(offset, &bytes)?,
            None => self.file.write_all_at(&bytes, offset as u64)?,
        }
        self.expected.get_mut(offset..offset + length).context("range")?.copy_from_slice(&bytes);
        Ok(())
    }

    fn write_direct(&mut self, rng: &mut fastrand::Rng) -> Result<()> {
        let length = rng.usize(1..=64) * BLOCK;
        let offset = rng.usize(..=(self.expected.len() - length) / BLOCK) * BLOCK;
        let buffer = self.buffer.prefix(length);
        rng.fill(buffer);
        self.file.write_all_at(buffer, offset as u64)?;
        self.expected.get_mut(offset..offset + length).context("range")?.copy_from_slice(buffer);
        Ok(())
    }

    /// Shortens or lengthens the file; what is added reads as zeros.
    fn resize(&mut self, rng: &mut fastrand::Rng) -> Result<()> {
        let size = rng.usize(MOST / 4..MOST);
        self.file.set_len(size as u64)?;
        self.expected.resize(size, 0);
        self.overwrite(rng)
    }

    fn punch(&mut self, rng: &mut fastrand::Rng) -> Result<()> {
        let length = rng.usize(1..=32 * BLOCK);
        let offset = rng.usize(..=self.expected.len() - length);
        let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        rustix::fs::fallocate(&self.file, flags, offset as u64, length as u64)?;
        self.expected.get_mut(offset..offset + length).context("range")?.fill(0);
        self.overwrite(rng)
    }

    /// Grows the file, as a log does, and starts it again when it is large.
    fn append(&mut self, rng: &mut fastrand::Rng) -> Result<()> {
        if self.expected.len() > MOST {
            self.file.set_len(0)?;
            self.expected.clear();
        }
        let mut bytes = vec![0; rng.usize(1..32 * BLOCK)];
        rng.fill(&mut bytes);
        self.file.write_all_at(&bytes, self.expected.len() as u64)?;
        self.expected.extend_from_slice(&bytes);
        Ok(())
    }
}

impl Participant for DataWriter {
    fn kind(&self) -> String {
        format!("{:?}", self.habit).to_lowercase()
    }

    fn step(&mut self, rng: &mut fastrand::Rng) -> Result<()> {
        match self.habit {
            Habit::Buffered => self.overwrite(rng),
            Habit::Synced => {
                self.overwrite(rng)?;
                Ok(self.file.sync_data()?)
            }
            Habit::Direct => self.write_direct(rng),
            Habit::Mapped => {
                self.overwrite(rng)?;
                if rng.u32(..16) == 0 {
                    self.mapping.as_ref().map_or(Ok(()), SharedMapping::sync)?;
                }
                Ok(())
            }
            Habit::Resize => self.resize(rng),
            Habit::Punch => self.punch(rng),
            Habit::Append => self.append(rng),
        }
    }

    fn verify(&mut self) -> Result<()> {
        let seen = std::fs::read(&self.path)?;
        ensure!(seen.len() == self.expected.len(), "{} bytes, must be {}", seen.len(), self.expected.len());
        let wrong = seen.iter().zip(&self.expected).filter(|(a, b)| a != b).count();
        let first = seen.iter().zip(&self.expected).position(|(a, b)| a != b);
        ensure!(wrong == 0, "{}: {wrong} bytes wrong, the first at {first:?}", self.path.display());
        Ok(())
    }
}
