//! The use of a volume, day by day: files are deleted, others of similar sizes are created and grow beside each other,
//! and logs are appended to and rotated.
//!
//! Owns the events of a day. They depend only on the seed, never on the state of the volume, so they are the same for
//! every method of maintenance.

use crate::tree::{Made, Manner, Stream, Tree, log_uniform};
use crate::{AgeError, Progress};
use longrun_layout::Bytes;
use serde::Serialize;
use std::ops::ControlFlow;
use std::path::Path;

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;
const DIRECTORIES: u64 = 32;
/// Files that grow at the same time.
const GROWING: usize = 8;
/// Files that live on and are added to every day.
const LOGS: usize = 6;
/// A log of this length is deleted and started again.
const ROTATED: u64 = 24 * MIB;
/// The shortest file, and the longest.
const LEAST: u64 = 16 * KIB;
const MOST: u64 = 8 * MIB;
const MANNERS: [Manner; 3] = [Manner::Direct, Manner::Synchronous, Manner::Buffered];

/// The amount of activity.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LifePlan {
    /// How many bytes are in files at the end of each day, about; the first day fills them.
    pub live: Bytes,
    /// How many are written on each day after the first.
    pub daily: Bytes,
}

/// What happened on a day.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Day {
    /// Bytes written.
    pub written: Bytes,
    /// Files that were begun.
    pub created: u64,
    /// Files that were deleted.
    pub deleted: u64,
}

/// A volume in simulated use. Its files stay when this value is dropped.
pub struct Life<'a> {
    tree: Tree<'a>,
    plan: LifePlan,
    logs: Vec<Made>,
    begun: u64,
}

impl<'a> Life<'a> {
    /// Begins in a new directory `life-SEED` in `directory`. `progress` is called often and ends the work by `Break`.
    ///
    /// # Errors
    /// [`AgeError`], when the volume is too small among others.
    pub fn begin(
        directory: &Path,
        plan: LifePlan,
        seed: u64,
        progress: &'a mut dyn FnMut(&Progress) -> ControlFlow<()>,
    ) -> Result<Self, AgeError> {
        let mut tree = Tree::create(directory.join(format!("life-{seed}")), seed, progress)?;
        tree.add_directories(DIRECTORIES)?;
        Ok(Self { tree, plan, logs: Vec::new(), begun: 0 })
    }

    /// Simulates one day. At its end no file is open, and everything is durable.
    ///
    /// # Errors
    /// [`AgeError`]; [`AgeError::Full`] when something did not fit: the day would not be the same elsewhere.
    pub fn day(&mut self) -> Result<Day, AgeError> {
        let mut day = Day::default();
        let mut to_come = if self.begun == 0 { self.first_files() } else { self.make_room(&mut day)? };
        let mut logs = self.open_logs(&mut day)?;
        let mut growing: Vec<(Stream, u64)> = Vec::new();
        loop {
            while growing.len() < GROWING
                && let Some(size) = to_come.pop()
            {
                growing.push((self.begin_file(&mut day)?, size));
            }
            if growing.is_empty() {
                break;
            }
            // Now and then a log, or else one of the files.
            let turn =
                if self.tree.rng.usize(..=GROWING) < GROWING { self.tree.rng.usize(..growing.len()) } else { GROWING };
            let bytes = (4 * KIB) << self.tree.rng.u64(..5);
            let (stream, bytes) = match growing.get_mut(turn) {
                Some((stream, size)) => {
                    let missing = size.saturating_sub(stream.bytes());
                    (stream, bytes.min(missing))
                }
                None => {
                    let log = self.tree.rng.usize(..LOGS);
                    let Some(log) = logs.get_mut(log) else { break };
                    (log, bytes)
                }
            };
            if !self.tree.append(stream, bytes)? {
                return Err(AgeError::Full(self.tree.root().to_owned()));
            }
            day.written += Bytes(bytes);
            if growing.get(turn).is_some_and(|(stream, size)| stream.bytes() >= *size) {
                let (stream, _) = growing.swap_remove(turn);
                self.tree.close(vec![stream], true);
            }
        }
        self.logs = logs.iter().map(Stream::made).collect();
        drop(logs);
        self.tree.sync()?;
        Ok(day)
    }

    /// The sizes of the files of the first day.
    fn first_files(&mut self) -> Vec<u64> {
        let (mut sizes, mut sum) = (Vec::new(), 0);
        while sum < but_for_logs(self.plan.live) {
            let size = log_uniform(&mut self.tree.rng, LEAST, MOST);
            sizes.push(size);
            sum += size;
        }
        sizes
    }

    /// Deletes files at random, as many bytes as are written on a day. The sizes of those that take their place:
    /// each of the same class as one that is gone, within a factor of two, so that neither the number of files nor
    /// what they hold changes much.
    fn make_room(&mut self, day: &mut Day) -> Result<Vec<u64>, AgeError> {
        let (mut sizes, mut sum) = (Vec::new(), 0);
        while sum < but_for_logs(self.plan.daily) && !self.tree.live.is_empty() {
            let position = self.tree.rng.usize(..self.tree.live.len());
            let gone = self.tree.live.get(position).map_or(0, |made| made.bytes);
            self.tree.delete(position)?;
            let class = 1 << gone.saturating_sub(1).max(1).ilog2();
            sizes.push(log_uniform(&mut self.tree.rng, class, 2 * class));
            sum += gone;
            day.deleted += 1;
        }
        self.tree.sync()?;
        Ok(sizes)
    }

    fn begin_file(&mut self, day: &mut Day) -> Result<Stream, AgeError> {
        let manner = MANNERS.get(self.tree.rng.usize(..MANNERS.len())).copied().unwrap_or(Manner::Buffered);
        let stream = self.tree.open_stream_in(self.begun % DIRECTORIES, manner)?;
        (self.begun, day.created) = (self.begun + 1, day.created + 1);
        Ok(stream)
    }

    /// Opens yesterday's logs, and new ones for those that have become too long.
    fn open_logs(&mut self, day: &mut Day) -> Result<Vec<Stream>, AgeError> {
        let mut logs = Vec::new();
        let old = std::mem::take(&mut self.logs);
        for (number, manner) in (0..LOGS).zip(MANNERS.into_iter().cycle()) {
            let stream = match old.get(number) {
                Some(log) if log.bytes < ROTATED => self.tree.reopen(log, manner)?,
                too_long => {
                    if let Some(log) = too_long {
                        self.tree.unlink(log)?;
                        day.deleted += 1;
                    }
                    day.created += 1;
                    self.tree.open_stream_in(number as u64, manner)?
                }
            };
            logs.push(stream);
        }
        Ok(logs)
    }
}

/// The part of the bytes that is written to files: one turn in nine belongs to a log.
fn but_for_logs(bytes: Bytes) -> u64 {
    bytes.0 / (GROWING as u64 + 1) * GROWING as u64
}
