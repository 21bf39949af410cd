//! The journal of runways: what has to be given back, whatever becomes of us.
//!
//! Owns its file, and the rule that a record is durable before the first byte of a runway exists. Removal may come late: a
//! file that is listed and has nothing to give back costs a look at the next start, no more. Never touches a file of a
//! watched volume.

use super::record::{self, GiveBack, Record, VolumeId};
use crate::PreventionError;
use longrun_sys::{Errno, FileHandle, FlockOperation, lock_file, sync_file, sync_file_data};
use std::collections::{BTreeMap, VecDeque};
use std::fs::{self, File};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

const NAME: &str = "runways.journal";
const DAMAGED: &str = "runways.journal.damaged";
const LOCK: &str = "runways.lock";
/// So long after a file was settled it is struck out. By then each of the file systems has made durable that the space was
/// given back (they commit every 5 to 30 seconds); struck out at once, a power cut could bring the runway back and
/// nobody would know of it.
const RETIRE_AFTER: Duration = Duration::from_secs(60);
/// The file is written anew when it has this many lines, and several times as many as there are files in it.
const COMPACT_FROM: u64 = 4096;
/// The most that somebody who makes records durable waits for others whose records are on their way. Files that grow
/// together fragment together: without it the first would have the device flushed for itself, and the rest, who all came
/// meanwhile, would wait for a second flush.
const GATHER: Duration = Duration::from_millis(2);
/// After a failure the journal is tried again no sooner than this.
const TRY_AGAIN: Duration = Duration::from_secs(2);

/// What is to be given back of one file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Entry {
    /// What lies behind its end, and windows inside.
    pub(crate) give_back: Vec<GiveBack>,
    /// The number of its last record.
    sequence: u64,
    /// Settled at that time, and to be struck out.
    retired: Option<Instant>,
}

struct State {
    file: Arc<File>,
    entries: BTreeMap<VolumeId, BTreeMap<FileHandle, Entry>>,
    retiring: VecDeque<(Instant, VolumeId, FileHandle)>,
    /// Records appended, and how many of them are durable.
    appended: u64,
    durable: u64,
    lines: u64,
    syncing: bool,
    /// Announced, and neither appended nor given up yet.
    coming: usize,
    trouble: Option<(Instant, String)>,
}

/// Somebody may have something to remember soon: whoever syncs before that waits a moment for it.
pub(crate) struct Coming<'a>(&'a Journal);

impl Coming<'_> {
    /// Returns when it is durable that `give_back` has to be given back of the file. Costs nothing when it was known.
    ///
    /// # Errors
    /// When that cannot be made durable: then nothing may be granted.
    pub(crate) fn remember(self, volume: VolumeId, file: FileHandle, give_back: &[GiveBack]) -> io::Result<()> {
        let journal = self.0;
        let mut state = journal.lock();
        let sequence = journal.note(&mut state, volume, file, give_back);
        journal.arrived(&mut state);
        // It has arrived: nothing is left to be told when this is dropped.
        std::mem::forget(self);
        journal.wait(state, sequence?)
    }
}

impl Drop for Coming<'_> {
    fn drop(&mut self) {
        self.0.arrived(&mut self.0.lock());
    }
}

/// The journal, held by one process.
pub(crate) struct Journal {
    directory: PathBuf,
    state: Mutex<State>,
    synced: Condvar,
    /// Somebody who was announced has come, or will not.
    gathered: Condvar,
    /// Released by the kernel when we are gone, however that came.
    _lock: File,
    /// What could not be read when it was opened.
    pub(crate) damage: Option<String>,
}

impl Journal {
    /// Opens the journal in `directory` (made when it is missing), and reads what an earlier run has left.
    pub(crate) fn open(directory: &Path) -> Result<Self, PreventionError> {
        let failed = |path: &Path, act| {
            let path = path.to_owned();
            move |source: io::Error| PreventionError::Journal { path, act, source }
        };
        fs::create_dir_all(directory).map_err(failed(directory, "making the state directory"))?;
        let path = directory.join(LOCK);
        let lock = File::options().create(true).truncate(false).write(true).open(&path);
        let lock = lock.map_err(failed(&path, "opening the lock"))?;
        lock_file(&lock, FlockOperation::NonBlockingLockExclusive).map_err(|errno| match errno {
            Errno::WOULDBLOCK => PreventionError::InUse { path: path.clone() },
            other => failed(&path, "locking")(other.into()),
        })?;
        let path = directory.join(NAME);
        let content = match fs::read(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Vec::new(),
            content => content.map_err(failed(&path, "reading"))?,
        };
        let read = record::read(&content);
        let mut entries = BTreeMap::<VolumeId, BTreeMap<FileHandle, Entry>>::new();
        for record in &read.records {
            apply(&mut entries, record);
        }
        let damage = (read.damaged > 0).then(|| {
            let kept = directory.join(DAMAGED);
            let kept = match fs::write(&kept, &content) {
                Ok(()) => format!("kept as {}", kept.display()),
                Err(error) => format!("could not be kept: {error}"),
            };
            format!(
                "{}: {} of its lines could not be read; files named only there may keep a runway (the damaged journal {kept})",
                path.display(),
                read.damaged
            )
        });
        // Written anew at once: a torn last line must not swallow the first new one.
        let (file, lines) =
            write_anew(directory, &entries).map_err(|source| failed(&path, "writing it anew")(source))?;
        let state = State {
            file: Arc::new(file),
            entries,
            retiring: VecDeque::new(),
            appended: 0,
            durable: 0,
            lines,
            syncing: false,
            coming: 0,
            trouble: None,
        };
        Ok(Self {
            directory: directory.to_owned(),
            state: Mutex::new(state),
            synced: Condvar::new(),
            gathered: Condvar::new(),
            _lock: lock,
            damage,
        })
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Announces something to remember, which may not come.
    pub(crate) fn announce(&self) -> Coming<'_> {
        self.lock().coming += 1;
        Coming(self)
    }

    /// Appends what is new, and tells which record has to be durable.
    fn note(&self, state: &mut State, volume: VolumeId, file: FileHandle, give_back: &[GiveBack]) -> io::Result<u64> {
        self.mend(state)?;
        let entry = state.entries.entry(volume).or_default().entry(file).or_default();
        entry.retired = None;
        let new: Vec<GiveBack> = give_back.iter().filter(|g| g.add_to(&mut entry.give_back)).copied().collect();
        if !new.is_empty() {
            let text: String = new.iter().map(|g| record::line(&Record::Remember(volume, file, *g))).collect();
            let appended = append(state, &text, new.len() as u64);
            if let Err(error) = appended {
                fail(state, &error);
                return Err(error);
            }
            let sequence = state.appended;
            if let Some(entry) = state.entries.get_mut(&volume).and_then(|files| files.get_mut(&file)) {
                entry.sequence = sequence;
            }
        }
        Ok(state.entries.get(&volume).and_then(|files| files.get(&file)).map_or(0, |e| e.sequence))
    }

    /// Waits until the records up to `sequence` are durable: one of those who wait does it for all.
    fn wait<'a>(&'a self, mut state: MutexGuard<'a, State>, sequence: u64) -> io::Result<()> {
        loop {
            if let Some((_, trouble)) = &state.trouble {
                return Err(io::Error::other(trouble.clone()));
            }
            if state.durable >= sequence {
                return Ok(());
            }
            if state.syncing {
                state = self.synced.wait(state).unwrap_or_else(PoisonError::into_inner);
                continue;
            }
            state.syncing = true;
            state = self.gather(state);
            let (target, file) = (state.appended, Arc::clone(&state.file));
            drop(state);
            let result = sync_file_data(&*file);
            state = self.lock();
            state.syncing = false;
            match result {
                Ok(()) => state.durable = state.durable.max(target),
                // What the kernel could not write it forgets: only a new file makes anything sure again.
                Err(errno) => fail(&mut state, &errno.into()),
            }
            self.synced.notify_all();
        }
    }

    fn arrived(&self, state: &mut State) {
        state.coming = state.coming.saturating_sub(1);
        if state.coming == 0 {
            self.gathered.notify_all();
        }
    }

    /// Waits for those whose records are on their way, for a moment at most.
    fn gather<'a>(&'a self, mut state: MutexGuard<'a, State>) -> MutexGuard<'a, State> {
        let deadline = Instant::now() + GATHER;
        while state.coming > 0 {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                break;
            }
            state = self.gathered.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0;
        }
        state
    }

    /// The file has nothing left to give back: to be struck out a while later, unless it gets something anew.
    pub(crate) fn retire(&self, volume: VolumeId, file: FileHandle) {
        let mut state = self.lock();
        let now = Instant::now();
        let Some(entry) = state.entries.get_mut(&volume).and_then(|files| files.get_mut(&file)) else { return };
        entry.retired = Some(now);
        state.retiring.push_back((now, volume, file));
    }

    /// The file is gone: nothing can bring its runway back.
    pub(crate) fn forget(&self, volume: VolumeId, file: FileHandle) {
        strike(&mut self.lock(), volume, file);
    }

    /// What is due now and then: striking out, writing anew.
    pub(crate) fn tend(&self, now: Instant) {
        let mut state = self.lock();
        while let Some(&(at, volume, file)) = state.retiring.front().filter(|(at, ..)| now >= *at + RETIRE_AFTER) {
            state.retiring.pop_front();
            let entry = state.entries.get(&volume).and_then(|files| files.get(&file));
            if entry.is_some_and(|entry| entry.retired == Some(at)) {
                strike(&mut state, volume, file);
            }
        }
        let files: usize = state.entries.values().map(BTreeMap::len).sum();
        if state.lines > COMPACT_FROM.max(4 * files as u64) && !state.syncing && state.trouble.is_none() {
            self.compact(&mut state);
        }
    }

    /// What is to be given back on a volume.
    pub(crate) fn of_volume(&self, volume: VolumeId) -> Vec<(FileHandle, Entry)> {
        let state = self.lock();
        let files = state.entries.get(&volume).into_iter().flatten();
        files.map(|(file, entry)| (*file, entry.clone())).collect()
    }

    /// How many files are in it.
    pub(crate) fn files(&self) -> u64 {
        self.lock().entries.values().map(|files| files.len() as u64).sum()
    }

    /// What is wrong with it now.
    pub(crate) fn trouble(&self) -> Option<String> {
        self.lock().trouble.as_ref().map(|(_, text)| text.clone())
    }

    /// After a failure: tries to write everything anew, which makes the journal good again.
    fn mend(&self, state: &mut State) -> io::Result<()> {
        let Some((at, trouble)) = &state.trouble else { return Ok(()) };
        if state.syncing || at.elapsed() < TRY_AGAIN {
            return Err(io::Error::other(trouble.clone()));
        }
        self.compact(state);
        match &state.trouble {
            None => Ok(()),
            Some((_, trouble)) => Err(io::Error::other(trouble.clone())),
        }
    }

    fn compact(&self, state: &mut State) {
        match write_anew(&self.directory, &state.entries) {
            Ok((file, lines)) => {
                state.file = Arc::new(file);
                (state.lines, state.durable, state.trouble) = (lines, state.appended, None);
            }
            Err(error) => fail(state, &error),
        }
    }
}

fn fail(state: &mut State, error: &io::Error) {
    state.trouble = Some((Instant::now(), format!("the journal of runways cannot be written: {error}")));
}

fn append(state: &mut State, text: &str, records: u64) -> io::Result<()> {
    (&*state.file).write_all(text.as_bytes())?;
    state.appended += records;
    state.lines += records;
    Ok(())
}

fn strike(state: &mut State, volume: VolumeId, file: FileHandle) {
    let record = Record::Forget(volume, file);
    if state.entries.get(&volume).is_some_and(|files| files.contains_key(&file)) {
        apply(&mut state.entries, &record);
        if state.trouble.is_none()
            && let Err(error) = append(state, &record::line(&record), 1)
        {
            fail(state, &error);
        }
    }
}

fn apply(entries: &mut BTreeMap<VolumeId, BTreeMap<FileHandle, Entry>>, record: &Record) {
    match *record {
        Record::Remember(volume, file, give_back) => {
            let entry = entries.entry(volume).or_default().entry(file).or_default();
            give_back.add_to(&mut entry.give_back);
        }
        Record::Forget(volume, file) => {
            if let Some(files) = entries.get_mut(&volume) {
                files.remove(&file);
                if files.is_empty() {
                    entries.remove(&volume);
                }
            }
        }
    }
}

/// Writes all entries to a new file that takes the old one's place when it is durable, and is open for appending.
fn write_anew(directory: &Path, entries: &BTreeMap<VolumeId, BTreeMap<FileHandle, Entry>>) -> io::Result<(File, u64)> {
    let (path, new) = (directory.join(NAME), directory.join(format!("{NAME}.new")));
    let mut text = String::new();
    let mut lines = 0;
    for (volume, files) in entries {
        for (file, entry) in files {
            for give_back in &entry.give_back {
                text.push_str(&record::line(&Record::Remember(*volume, *file, *give_back)));
                lines += 1;
            }
        }
    }
    match fs::remove_file(&new) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let mut file = File::options().append(true).create_new(true).open(&new)?;
    file.write_all(text.as_bytes())?;
    sync_file(&file)?;
    fs::rename(&new, &path)?;
    sync_file(File::open(directory)?)?;
    Ok((file, lines))
}

#[cfg(test)]
mod tests;
