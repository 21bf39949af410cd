//! The journal of runways: what must be given back, also after a crash.
//!
//! Owns its file, and the rule that a record is durable before the first byte of a runway is allocated. A removal may
//! be late: a listed file with nothing to give back costs only a check at the next start. Never touches a file of a
//! watched volume. A thread of its own does the writing. Threads that need a durable record wait for it, for a limited
//! time; no other thread waits for the disk of the journal.

mod writer;

use super::record::{self, GiveBack, Record, VolumeId};
use crate::PreventionError;
use longrun_sys::{FileHandle, FlockOperation, LockFile};
use std::collections::{BTreeMap, VecDeque};
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};
use writer::{text_of, write_anew};

const NAME: &str = "runways.journal";
const DAMAGED: &str = "runways.journal.damaged";
const LOCK: &str = "runways.lock";
/// The record of a file is removed this long after it was settled. By then each file system has made durable that
/// the space was given back (they commit every 5 to 30 seconds). If it were removed at once, a power cut could bring
/// the runway back without a record of it.
const RETIRE_AFTER: Duration = Duration::from_secs(60);
/// The file is rewritten when it has this many lines, and several times as many lines as files.
const COMPACT_FROM: u64 = 4096;
/// The most that a thread that makes records durable waits for others whose records are on their way. Files that grow
/// together fragment together: without it the first would have the device flushed for itself, and the rest, who all came
/// meanwhile, would wait for a second flush.
const COLLECT: Duration = Duration::from_millis(2);
/// After a failure the journal is tried again no sooner than this.
const TRY_AGAIN: Duration = Duration::from_secs(2);
/// What is still to be written when it is closed is waited for so long.
const LAST_WRITE: Duration = Duration::from_secs(1);
/// The longest that anybody waits for the disk.
const PATIENCE: Duration = Duration::from_secs(5);
/// One that has not answered for so long is not waited for any more: nothing is granted until it has.
const STUCK_AFTER: Duration = Duration::from_secs(2);

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

type Entries = BTreeMap<VolumeId, BTreeMap<FileHandle, Entry>>;

struct State {
    file: Arc<File>,
    entries: Entries,
    retiring: VecDeque<(Instant, VolumeId, FileHandle)>,
    /// Lines to be written.
    pending: String,
    /// The file is to be rewritten.
    anew: bool,
    /// Records appended, and how many of them are durable.
    appended: u64,
    durable: u64,
    lines: u64,
    /// So many wait until what they appended is durable.
    waiting: usize,
    /// The thread has been writing since then.
    writing: Option<Instant>,
    /// Announced, and neither appended nor given up yet.
    coming: usize,
    trouble: Option<(Instant, String)>,
    failures: u64,
    /// It may be another process's by now: nothing is written any more.
    ended: bool,
}

impl State {
    /// Whether the disk has stopped responding.
    fn is_stuck(&self) -> bool {
        self.writing.is_some_and(|since| since.elapsed() >= STUCK_AFTER)
    }

    fn has_work(&self) -> bool {
        let waited_for = self.waiting > 0 && self.durable < self.appended && self.trouble.is_none();
        !self.ended && (self.anew || !self.pending.is_empty() || waited_for)
    }
}

/// Another thread may have a record soon: a thread that syncs before that waits a moment for it.
pub(crate) struct Coming<'a>(&'a Journal);

impl Coming<'_> {
    /// Returns when it is durable that `give_back` has to be given back of the file. Costs nothing when it was known.
    ///
    /// # Errors
    /// When that cannot be made durable: then nothing may be granted.
    pub(crate) fn remember(self, volume: &VolumeId, file: FileHandle, give_back: &[GiveBack]) -> io::Result<()> {
        let journal = self.0;
        let mut state = journal.lock();
        let failures = state.failures;
        let sequence = note(&mut state, volume, file, give_back);
        journal.arrived(&mut state);
        // It has arrived: nothing is left to be told when this is dropped.
        std::mem::forget(self);
        journal.wait(state, sequence?, failures)
    }
}

impl Drop for Coming<'_> {
    fn drop(&mut self) {
        self.0.arrived(&mut self.0.lock());
    }
}

/// What the journal and its thread share.
struct Shared {
    directory: PathBuf,
    state: Mutex<State>,
    /// There is something to write.
    work: Condvar,
    /// Something was written, or could not be.
    written: Condvar,
    /// A thread that was announced has come, or will not come.
    collected: Condvar,
    /// Released when it is closed, or by the kernel when we are gone, however that came.
    held: Mutex<Option<LockFile>>,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The journal, held by one process.
pub(crate) struct Journal {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
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
        fs::create_dir_all(directory).map_err(failed(directory, "creating the state directory"))?;
        let path = directory.join(LOCK);
        let lock = File::options().create(true).truncate(false).write(true).open(&path);
        let lock = lock.map_err(failed(&path, "opening the lock"))?;
        let lock = LockFile::new(lock);
        let locked = lock.set(FlockOperation::NonBlockingLockExclusive);
        if !locked.map_err(|errno| failed(&path, "locking")(errno.into()))? {
            return Err(PreventionError::InUse { path });
        }
        let path = directory.join(NAME);
        let content = match fs::read(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Vec::new(),
            content => content.map_err(failed(&path, "reading"))?,
        };
        let read = record::read(&content);
        let mut entries = Entries::new();
        for record in &read.records {
            apply(&mut entries, record);
        }
        let damage = (read.damaged > 0).then(|| {
            let kept = directory.join(DAMAGED);
            let kept = match fs::write(&kept, &content) {
                Ok(()) => format!("is saved as {}", kept.display()),
                Err(error) => format!("could not be saved: {error}"),
            };
            format!(
                "{}: {} of its lines could not be read; files named only in them may keep their runways (the damaged journal \
                 {kept})",
                path.display(),
                read.damaged
            )
        });
        // Rewritten at once, because otherwise a torn last line would damage the first new one.
        let (text, lines) = text_of(&entries);
        let file = write_anew(directory, &text).map_err(failed(&path, "rewriting it"))?;
        let state = State {
            file: Arc::new(file),
            entries,
            retiring: VecDeque::new(),
            pending: String::new(),
            anew: false,
            appended: 0,
            durable: 0,
            lines,
            waiting: 0,
            writing: None,
            coming: 0,
            trouble: None,
            failures: 0,
            ended: false,
        };
        let shared = Arc::new(Shared {
            directory: directory.to_owned(),
            state: Mutex::new(state),
            work: Condvar::new(),
            written: Condvar::new(),
            collected: Condvar::new(),
            held: Mutex::new(Some(lock)),
        });
        let thread = thread::Builder::new().name("runway-journal".into());
        let thread = thread.spawn({
            let shared = Arc::clone(&shared);
            move || shared.write()
        });
        let thread = thread.map_err(|source| PreventionError::Threads { source })?;
        Ok(Self { shared, thread: Some(thread), damage })
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.shared.lock()
    }

    /// Nothing is written from now on, and another process may have it. It stays held where its disk does not answer.
    pub(crate) fn close(&self) {
        self.flush(LAST_WRITE);
        let mut state = self.lock();
        state.ended = true;
        self.shared.work.notify_one();
        if state.writing.is_none() {
            drop(self.shared.held.lock().unwrap_or_else(PoisonError::into_inner).take());
        }
    }

    /// Announces something to remember, which may not come.
    pub(crate) fn announce(&self) -> Coming<'_> {
        self.lock().coming += 1;
        Coming(self)
    }

    /// Waits until the records up to `sequence` are durable, for a bounded time. A failure counts when it is later
    /// than those before.
    fn wait(&self, mut state: MutexGuard<'_, State>, sequence: u64, failures: u64) -> io::Result<()> {
        let until = Instant::now() + PATIENCE;
        state.waiting += 1;
        let result = loop {
            if state.durable >= sequence {
                break Ok(());
            }
            if let Some((_, trouble)) = state.trouble.as_ref().filter(|_| state.failures > failures) {
                break Err(io::Error::other(trouble.clone()));
            }
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                break Err(io::Error::new(io::ErrorKind::TimedOut, STUCK));
            }
            self.shared.work.notify_one();
            state = self.shared.written.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0;
        };
        state.waiting -= 1;
        result
    }

    fn arrived(&self, state: &mut State) {
        state.coming = state.coming.saturating_sub(1);
        if state.coming == 0 {
            self.shared.collected.notify_all();
        }
    }

    /// The file has nothing left to give back. Its record is removed some time later, unless it gets a new runway.
    pub(crate) fn retire(&self, volume: &VolumeId, file: FileHandle) {
        let mut state = self.lock();
        let now = Instant::now();
        let Some(entry) = state.entries.get_mut(volume).and_then(|files| files.get_mut(&file)) else { return };
        entry.retired = Some(now);
        state.retiring.push_back((now, volume.clone(), file));
    }

    /// The file is gone: nothing can bring its runway back.
    pub(crate) fn forget(&self, volume: &VolumeId, file: FileHandle) {
        strike(&mut self.lock(), volume, file);
        self.shared.work.notify_one();
    }

    /// The work that is due at intervals: removing records, rewriting the file.
    pub(crate) fn tend(&self, now: Instant) {
        let mut state = self.lock();
        while state.retiring.front().is_some_and(|(at, ..)| now >= *at + RETIRE_AFTER) {
            let Some((at, volume, file)) = state.retiring.pop_front() else { break };
            let entry = state.entries.get(&volume).and_then(|files| files.get(&file));
            if entry.is_some_and(|entry| entry.retired == Some(at)) {
                strike(&mut state, &volume, file);
            }
        }
        let files: usize = state.entries.values().map(BTreeMap::len).sum();
        state.anew |= state.lines > COMPACT_FROM.max(4 * files as u64) && state.trouble.is_none();
        self.shared.work.notify_one();
    }

    /// How many files are in it of volumes with this UUID on other devices.
    pub(crate) fn elsewhere(&self, volume: &VolumeId) -> usize {
        let state = self.lock();
        let others = state.entries.iter().filter(|(other, _)| other.uuid == volume.uuid && *other != volume);
        others.map(|(_, files)| files.len()).sum()
    }

    /// What is to be given back on a volume.
    pub(crate) fn of_volume(&self, volume: &VolumeId) -> Vec<(FileHandle, Entry)> {
        let state = self.lock();
        let files = state.entries.get(volume).into_iter().flatten();
        files.map(|(file, entry)| (*file, entry.clone())).collect()
    }

    /// How many files are in it.
    pub(crate) fn files(&self) -> u64 {
        self.lock().entries.values().map(|files| files.len() as u64).sum()
    }

    /// What is wrong with it now.
    pub(crate) fn trouble(&self) -> Option<String> {
        let state = self.lock();
        if state.is_stuck() {
            return Some(STUCK.to_owned());
        }
        state.trouble.as_ref().map(|(_, text)| text.clone())
    }

    /// Waits, but no longer than `patience`, until all is written that is to be written; whether it is.
    pub(crate) fn flush(&self, patience: Duration) -> bool {
        self.shared.work.notify_one();
        let busy = |state: &mut State| state.writing.is_some() || state.has_work();
        self.shared.written.wait_timeout_while(self.lock(), patience, busy).is_ok_and(|(_, waited)| !waited.timed_out())
    }
}

impl Drop for Journal {
    /// What is not written within moments is left to the next start: it only has more to look at.
    fn drop(&mut self) {
        self.flush(PATIENCE);
        self.lock().ended = true;
        self.shared.work.notify_one();
        if let Some(thread) = self.thread.take().filter(|_| self.lock().writing.is_none()) {
            _ = thread.join();
        }
    }
}

const STUCK: &str = "the runway journal cannot be written: the disk of the state directory does not respond";

/// Appends what is new, and tells which record has to be durable.
fn note(state: &mut State, volume: &VolumeId, file: FileHandle, give_back: &[GiveBack]) -> io::Result<u64> {
    if state.ended {
        return Err(io::Error::other("the runway journal is closed"));
    }
    if state.is_stuck() {
        return Err(io::Error::new(io::ErrorKind::TimedOut, STUCK));
    }
    if let Some((at, trouble)) = &state.trouble {
        if at.elapsed() < TRY_AGAIN {
            return Err(io::Error::other(trouble.clone()));
        }
        // Rewriting everything repairs the journal.
        state.anew = true;
    }
    let entry = state.entries.entry(volume.clone()).or_default().entry(file).or_default();
    entry.retired = None;
    let new: Vec<GiveBack> = give_back.iter().filter(|g| g.add_to(&mut entry.give_back)).copied().collect();
    if !new.is_empty() {
        let text: String = new.iter().map(|g| record::line(&Record::Remember(volume.clone(), file, *g))).collect();
        append(state, &text, new.len() as u64);
        let sequence = state.appended;
        if let Some(entry) = state.entries.get_mut(volume).and_then(|files| files.get_mut(&file)) {
            entry.sequence = sequence;
        }
    }
    Ok(state.entries.get(volume).and_then(|files| files.get(&file)).map_or(0, |e| e.sequence))
}

fn fail(state: &mut State, error: &io::Error) {
    state.failures += 1;
    // Which file they would get into is not known any more.
    state.pending.clear();
    state.trouble = Some((Instant::now(), format!("the runway journal cannot be written: {error}")));
}

/// To be written soon. After a failure only a new file is of use, which has everything.
fn append(state: &mut State, text: &str, records: u64) {
    if state.trouble.is_none() && !state.anew {
        state.pending.push_str(text);
    }
    state.appended += records;
    state.lines += records;
}

fn strike(state: &mut State, volume: &VolumeId, file: FileHandle) {
    let record = Record::Forget(volume.clone(), file);
    if state.entries.get(volume).is_some_and(|files| files.contains_key(&file)) {
        apply(&mut state.entries, &record);
        append(state, &record::line(&record), 1);
    }
}

fn apply(entries: &mut Entries, record: &Record) {
    match record {
        Record::Remember(volume, file, give_back) => {
            let entry = entries.entry(volume.clone()).or_default().entry(*file).or_default();
            give_back.add_to(&mut entry.give_back);
        }
        Record::Forget(volume, file) => {
            if let Some(files) = entries.get_mut(volume) {
                files.remove(file);
                if files.is_empty() {
                    entries.remove(volume);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests;
