//! The life of a volume, day by day: files come, grow beside each other and go, logs are added to and rotated.
//!
//! Owns what happens on a day. It follows from the seed alone, never from how the volume is: volumes that are looked after
//! in several ways live through the same.

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
/// A log that has become so long is deleted, and begun anew.
const ROTATED: u64 = 24 * MIB;
const MANNERS: [Manner; 3] = [Manner::Direct, Manner::Synchronous, Manner::Buffered];

/// How much goes on.
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

/// A volume that is lived on. Its files stay when this is dropped.
pub struct Life<'a> {
    tree: Tree<'a>,
    plan: LifePlan,
    logs: Vec<Made>,
    /// Bytes in files.
    live: u64,
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
        Ok(Self { tree, plan, logs: Vec::new(), live: 0, begun: 0 })
    }

    /// Lives through a day. At its end nothing is open, and everything is durable.
    ///
    /// # Errors
    /// [`AgeError`]; [`AgeError::Full`] when something did not fit: the day would not be the same elsewhere.
    pub fn day(&mut self) -> Result<Day, AgeError> {
        let daily = if self.begun == 0 { self.plan.live.0 } else { self.plan.daily.0 };
        let mut day = Day::default();
        self.make_room(daily, &mut day)?;
        let mut logs = self.open_logs(&mut day)?;
        let mut growing: Vec<(Stream, u64)> = Vec::new();
        while day.written.0 < daily {
            while growing.len() < GROWING {
                growing.push(self.begin_file(&mut day)?);
            }
            // Now and then a log, or else one of the files.
            let turn = self.tree.rng.usize(..=GROWING);
            let bytes = (4 * KIB) << self.tree.rng.u64(..5);
            let stream = match growing.get_mut(turn) {
                Some((stream, _)) => stream,
                None => {
                    let log = self.tree.rng.usize(..LOGS);
                    let Some(log) = logs.get_mut(log) else { break };
                    log
                }
            };
            if !self.tree.append(stream, bytes)? {
                return Err(AgeError::Full(self.tree.root().to_owned()));
            }
            (day.written, self.live) = (Bytes(day.written.0 + bytes), self.live + bytes);
            if growing.get(turn).is_some_and(|(stream, size)| stream.bytes() >= *size) {
                let (stream, _) = growing.swap_remove(turn);
                self.tree.close(vec![stream], true);
            }
        }
        self.tree.close(growing.into_iter().map(|(stream, _)| stream).collect(), true);
        self.logs = logs.iter().map(Stream::made).collect();
        drop(logs);
        self.tree.sync()?;
        Ok(day)
    }

    /// Deletes files at random until so much may be written.
    fn make_room(&mut self, bytes: u64, day: &mut Day) -> Result<(), AgeError> {
        while self.live + bytes > self.plan.live.0 && !self.tree.live.is_empty() {
            let position = self.tree.rng.usize(..self.tree.live.len());
            let gone = self.tree.live.get(position).map_or(0, |made| made.bytes);
            self.tree.delete(position)?;
            self.live -= gone;
            day.deleted += 1;
        }
        self.tree.sync()
    }

    fn begin_file(&mut self, day: &mut Day) -> Result<(Stream, u64), AgeError> {
        let manner = MANNERS.get(self.tree.rng.usize(..MANNERS.len())).copied().unwrap_or(Manner::Buffered);
        let size = log_uniform(&mut self.tree.rng, 16 * KIB, 8 * MIB);
        let stream = self.tree.open_stream_in(self.begun % DIRECTORIES, manner)?;
        (self.begun, day.created) = (self.begun + 1, day.created + 1);
        Ok((stream, size))
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
                        self.live -= log.bytes;
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
