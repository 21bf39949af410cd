//! A disk in memory of which one change fails, as Linux shows it: a failed flush is reported once, what it should have made durable is
//! lost, and reads go on finding it.
//!
//! Owns the choice of the change that fails, and the states that can be found afterwards. Never decides whether a state is good.

use super::cuts::Cuts;
use anyhow::{Context, Result, ensure};
use longrun_engine::VolumeError;
use longrun_image::{Disk, MemoryDisk, MemoryImage};
use longrun_layout::Bytes;
use std::fs;
use std::io;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

const SECTOR: usize = 512;

/// How a change fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Failure {
    /// With EIO. Nothing of it is done.
    Error,
    /// A write with ENOSPC, a discard with EIO, each after the first half of it was done. A flush as before.
    Half,
}

/// A disk in memory whose changes are counted.
pub struct Failing {
    /// What reads find: the cache of the kernel.
    seen: MemoryDisk,
    /// What the medium holds.
    stored: MemoryDisk,
    fails: Option<(usize, Failure)>,
    state: Mutex<State>,
}

#[derive(Clone, Default)]
struct State {
    /// Changes so far.
    changes: usize,
    /// Which of them were flushes.
    flushes: Vec<usize>,
    /// What was written since the last flush.
    waiting: Vec<(Bytes, Vec<u8>)>,
}

impl Failing {
    /// A disk with this content. The change with the number of `fails` fails; the first is number 0.
    #[must_use]
    pub fn new(content: &MemoryImage, fails: Option<(usize, Failure)>) -> Self {
        Self::of(content, content, State::default(), fails)
    }

    fn of(seen: &MemoryImage, stored: &MemoryImage, state: State, fails: Option<(usize, Failure)>) -> Self {
        let [seen, stored] = [seen, stored].map(|image| MemoryDisk::from_image(image.clone()));
        Self { seen, stored, fails, state: Mutex::new(state) }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// How many changes came after the one that failed; `None` when none has failed.
    #[must_use]
    pub fn changes_after_failure(&self) -> Option<usize> {
        self.fails.and_then(|(at, _)| self.state().changes.checked_sub(at + 1))
    }

    /// What the medium holds.
    #[must_use]
    pub fn stored(&self) -> MemoryImage {
        self.stored.image()
    }

    /// What a later run can find: the medium as it is, or with all that was written since the last flush; or, on the machine that was
    /// not started again, what was seen.
    fn found(&self) -> [Arc<Self>; 3] {
        let state = self.state();
        let (seen, stored) = (self.seen.image(), self.stored.image());
        let landed = MemoryDisk::from_image(stored.clone());
        for (at, data) in &state.waiting {
            // It was on the disk when it was written.
            _ = landed.write(*at, data);
        }
        let landed = landed.image();
        let waiting = State { waiting: state.waiting.clone(), ..State::default() };
        let fresh = |image| Self::of(image, image, State::default(), None);
        [fresh(&stored), fresh(&landed), Self::of(&seen, &stored, waiting, None)].map(Arc::new)
    }

    /// Counts a change, and says how it fails.
    fn change(&self) -> (MutexGuard<'_, State>, Option<Failure>) {
        let mut state = self.state();
        let how = self.fails.filter(|(at, _)| *at == state.changes).map(|(_, how)| how);
        state.changes += 1;
        (state, how)
    }
}

fn io_error() -> io::Error {
    io::Error::from_raw_os_error(5)
}

impl Disk for Failing {
    fn path(&self) -> &Path {
        self.seen.path()
    }

    fn length(&self) -> Bytes {
        self.seen.length()
    }

    fn read(&self, at: Bytes, buffer: &mut [u8]) -> io::Result<()> {
        self.seen.read(at, buffer)
    }

    fn write(&self, at: Bytes, data: &[u8]) -> io::Result<()> {
        let (mut state, how) = self.change();
        let done = match how {
            None => data,
            Some(Failure::Error) => return Err(io_error()),
            Some(Failure::Half) => data.get(..data.len() / 2 / SECTOR * SECTOR).unwrap_or_default(),
        };
        self.seen.write(at, done)?;
        state.waiting.push((at, done.to_vec()));
        if how.is_some() { Err(io::ErrorKind::StorageFull.into()) } else { Ok(()) }
    }

    fn flush(&self) -> io::Result<()> {
        let (mut state, how) = self.change();
        let number = state.changes - 1;
        state.flushes.push(number);
        let waiting = std::mem::take(&mut state.waiting);
        if how.is_some() {
            return Err(io_error());
        }
        waiting.iter().try_for_each(|(at, data)| self.stored.write(*at, data))
    }

    fn discard(&self, at: Bytes, length: Bytes) -> io::Result<()> {
        let (mut state, how) = self.change();
        let done = match how {
            None => length,
            Some(Failure::Error) => return Err(io_error()),
            Some(Failure::Half) => Bytes(length.0 / 2),
        };
        // What is not defined is anything but what it was.
        let undefined = vec![0xdd; done.0 as usize];
        self.seen.write(at, &undefined)?;
        state.waiting.push((at, undefined));
        if how.is_some() { Err(io_error()) } else { Ok(()) }
    }
}

/// Runs whose changes fail, one in each.
pub struct Failures<'a> {
    /// The volume before each run.
    pub content: &'a MemoryImage,
    /// What its journal holds then.
    pub journal: Option<&'a [u8]>,
    /// How many of the run's changes fail at most, unless [`Cuts::MOMENTS`] says otherwise; half of them are flushes.
    pub most: usize,
}

/// Which runs were judged.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FailureTally {
    /// Changes of a run in which none fails.
    pub changes: usize,
    /// Runs in which one failed.
    pub failures: usize,
    /// States that were judged after them.
    pub states: usize,
}

impl Failures<'_> {
    /// Names one failure, as a failed test printed it, to which a test is confined: the number of the change.
    pub const VARIABLE: &'static str = "LONGRUN_FAILURE";

    /// Does `work` on the volume and the journal again and again, with another change failing each time. It must report that, and change
    /// nothing afterwards. Then each state that may be found is given to `again`, which must leave no journal, and judged.
    ///
    /// # Errors
    /// With the first failure after which something is not as it must be, and how to repeat it.
    pub fn judge(
        &self,
        directory: &Path,
        work: impl Fn(Arc<dyn Disk>, &Path) -> Result<(), VolumeError>,
        again: impl Fn(Arc<dyn Disk>, &Path) -> Result<(), VolumeError>,
        mut judge: impl FnMut(&MemoryDisk) -> Result<()>,
    ) -> Result<FailureTally> {
        let (journal, found) = (directory.join("journal"), directory.join("found"));
        let run = |fails| {
            put(&journal, self.journal)?;
            let disk = Arc::new(Failing::new(self.content, fails));
            let outcome = work(Arc::clone(&disk) as Arc<dyn Disk>, &journal);
            anyhow::Ok((disk, outcome))
        };
        let (sound, outcome) = run(None)?;
        outcome.context("the run in which nothing fails")?;
        let State { changes, flushes, .. } = sound.state().clone();
        let mut tally = FailureTally { changes, ..FailureTally::default() };
        for (at, how) in self.chosen(changes, &flushes) {
            let (disk, outcome) = run(Some((at, how)))?;
            // A run that takes more time commits more often.
            let Some(after) = disk.changes_after_failure() else { continue };
            tally.failures += 1;
            let one = || -> Result<()> {
                ensure!(after == 0, "{after} changes came after the one that failed");
                let error = outcome.err().context("the run says that it is done")?;
                let is_failure = matches!(error, VolumeError::WriteFailed { .. } | VolumeError::Io { .. });
                ensure!(is_failure, "the failure is reported as something else: {error}");
                let left = fs::read(&journal).ok();
                for (number, state) in disk.found().into_iter().enumerate() {
                    put(&found, left.as_deref())?;
                    again(Arc::clone(&state) as Arc<dyn Disk>, &found)
                        .with_context(|| format!("the next run, in state {number}"))?;
                    ensure!(!found.exists(), "state {number}: the journal is left");
                    judge(&state.stored).with_context(|| format!("state {number}"))?;
                }
                Ok(())
            };
            one().with_context(|| {
                format!("change {at} of {changes} failed ({how:?}); repeat with {}={at}", Self::VARIABLE)
            })?;
            tally.states += 3;
        }
        eprintln!("{tally:?}");
        Ok(tally)
    }

    fn chosen(&self, changes: usize, flushes: &[usize]) -> Vec<(usize, Failure)> {
        let both = |at: usize| [(at, Failure::Error), (at, Failure::Half)];
        if let Some(at) = std::env::var(Self::VARIABLE).ok().and_then(|at| at.parse().ok()) {
            return both(at).to_vec();
        }
        let most = match std::env::var(Cuts::MOMENTS) {
            Ok(moments) if moments == "all" => return (0..changes).flat_map(both).collect(),
            Ok(moments) => moments.parse().unwrap_or(self.most),
            Err(_) => self.most,
        };
        let mut random = fastrand::Rng::with_seed(crate::seed());
        let mut chosen = random.choose_multiple(flushes.iter().copied(), most / 2);
        let others = (0..changes).filter(|at| !flushes.contains(at));
        chosen.extend(random.choose_multiple(others, most - chosen.len()));
        chosen.into_iter().map(|at| (at, if random.bool() { Failure::Error } else { Failure::Half })).collect()
    }
}

/// Has a file hold this, or not be there.
fn put(path: &Path, content: Option<&[u8]>) -> io::Result<()> {
    match content {
        Some(content) => fs::write(path, content),
        None => match fs::remove_file(path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            _ => Ok(()),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn write(disk: &Failing, at: u64, byte: u8) -> io::Result<()> {
        disk.write(Bytes(at * 1024), &[byte; 1024])
    }

    fn bytes(disk: &MemoryDisk) -> [u8; 4] {
        let content = disk.content();
        [content[0], content[512], content[1024], content[1536]]
    }

    fn blank() -> MemoryImage {
        MemoryDisk::new(vec![0; 2048]).image()
    }

    #[test]
    fn a_failed_flush_loses_what_was_written_and_reads_find_it() {
        let disk = Failing::new(&blank(), None);
        write(&disk, 0, 1).unwrap();
        assert_eq!((bytes(&disk.seen), bytes(&disk.stored)), ([1, 1, 0, 0], [0; 4]));
        disk.flush().unwrap();
        assert_eq!((bytes(&disk.stored), disk.changes_after_failure()), ([1, 1, 0, 0], None));
        let disk = Failing::new(&blank(), Some((1, Failure::Error)));
        write(&disk, 0, 1).unwrap();
        assert_eq!(disk.flush().unwrap_err().raw_os_error(), Some(5));
        assert_eq!(disk.changes_after_failure(), Some(0));
        write(&disk, 1, 2).unwrap();
        disk.flush().unwrap();
        assert_eq!((bytes(&disk.seen), bytes(&disk.stored)), ([1, 1, 2, 2], [0, 0, 2, 2]));
        assert_eq!(disk.changes_after_failure(), Some(2));
    }

    #[test]
    fn a_write_that_fails_half_way_has_written_the_first_half() {
        let disk = Failing::new(&blank(), Some((0, Failure::Half)));
        assert_eq!(write(&disk, 0, 1).unwrap_err().kind(), io::ErrorKind::StorageFull);
        let [none, all, same] = disk.found();
        assert_eq!([&none, &all, &same].map(|state| bytes(&state.seen)), [[0; 4], [1, 0, 0, 0], [1, 0, 0, 0]]);
        assert_eq!([&none, &all, &same].map(|state| bytes(&state.stored)), [[0; 4], [1, 0, 0, 0], [0; 4]]);
        same.flush().unwrap();
        assert_eq!(bytes(&same.stored), [1, 0, 0, 0]);
    }
}
