//! The work that waits for a worker. Each file is in the queue at most once, however many signals arrive for it.
//!
//! Owns the order: first in, first out. No volume may occupy all workers, because a frozen or failing volume would then
//! stop prevention everywhere. Never does the work.

use crate::{FileKey, Signal, SignalKind};
use longrun_layout::Bytes;
use longrun_sys::{DeviceNumber, FileHandle};
use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

/// Signals of so many files of a volume wait at most. More come only when files grow faster than they can be looked at: those
/// whose signals are dropped fragment as they would without us, and tell again when they go on.
const MOST_WAITING: usize = 8192;

/// What is to be done about one file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Task {
    /// The newest signal.
    pub(super) signal: Option<Signal>,
    /// It is to be settled, if no one has it open.
    pub(super) settle: bool,
}

#[derive(Default)]
struct Lane {
    order: VecDeque<FileHandle>,
    tasks: HashMap<FileHandle, Task>,
    running: HashSet<FileHandle>,
}

#[derive(Default)]
struct State {
    lanes: BTreeMap<DeviceNumber, Lane>,
    /// Whose turn was last.
    last: Option<DeviceNumber>,
    /// Signals that were dropped, since too many files wait.
    dropped: u64,
    ended: bool,
}

/// The queue of all volumes.
pub(super) struct Queue {
    state: Mutex<State>,
    ready: Condvar,
    idle: Condvar,
    /// So many workers one volume may have at a time.
    per_volume: usize,
}

impl Queue {
    pub(super) fn new(workers: usize) -> Self {
        Self {
            state: Mutex::default(),
            ready: Condvar::new(),
            idle: Condvar::new(),
            per_volume: workers.saturating_sub(1).max(1),
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Something was noticed about a file.
    pub(super) fn signal(&self, signal: Signal) {
        self.put(signal.file, MOST_WAITING, |task| {
            task.signal = Some(task.signal.map_or(signal, |old| merged(old, signal)));
        });
    }

    /// A file is to be settled. Never dropped: only files of the table are, which is bounded.
    pub(super) fn settle(&self, file: FileKey) {
        self.put(file, usize::MAX, |task| task.settle = true);
    }

    fn put(&self, file: FileKey, most: usize, change: impl FnOnce(&mut Task)) {
        let mut state = self.lock();
        if state.ended {
            return;
        }
        let lane = state.lanes.entry(file.volume).or_default();
        let waits = lane.tasks.contains_key(&file.handle);
        if !waits && lane.tasks.len() >= most {
            state.dropped += 1;
            return;
        }
        change(lane.tasks.entry(file.handle).or_default());
        // What is being worked on is queued again when that is done.
        if !waits && !lane.running.contains(&file.handle) {
            lane.order.push_back(file.handle);
            self.ready.notify_one();
        }
    }

    /// The next piece of work; nothing when the queue has ended.
    pub(super) fn take(&self) -> Option<(FileKey, Task)> {
        let mut state = self.lock();
        loop {
            if state.ended {
                return None;
            }
            if let Some(found) = self.next(&mut state) {
                return Some(found);
            }
            state = self.ready.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// The volumes take turns.
    fn next(&self, state: &mut State) -> Option<(FileKey, Task)> {
        let can = |lane: &Lane| !lane.order.is_empty() && lane.running.len() < self.per_volume;
        let turn = |volume: &DeviceNumber| state.last.is_some_and(|last| *volume <= last);
        let volume = *state.lanes.iter().filter(|(_, lane)| can(lane)).min_by_key(|(v, _)| (turn(v), **v))?.0;
        state.last = Some(volume);
        let lane = state.lanes.get_mut(&volume)?;
        let handle = lane.order.pop_front()?;
        let task = lane.tasks.remove(&handle).unwrap_or_default();
        lane.running.insert(handle);
        Some((FileKey { volume, handle }, task))
    }

    /// The work on a file is done.
    pub(super) fn done(&self, file: &FileKey) {
        let mut state = self.lock();
        if let Some(lane) = state.lanes.get_mut(&file.volume) {
            lane.running.remove(&file.handle);
            if lane.tasks.contains_key(&file.handle) {
                lane.order.push_back(file.handle);
            }
            if lane.order.is_empty() && lane.running.is_empty() {
                state.lanes.remove(&file.volume);
            }
        }
        self.ready.notify_one();
        self.idle.notify_all();
    }

    /// Drops what waits for a volume, and waits (not for ever) until no one works on it; whether that is so.
    pub(super) fn clear(&self, volume: DeviceNumber, patience: std::time::Duration) -> bool {
        let mut state = self.lock();
        if let Some(lane) = state.lanes.get_mut(&volume) {
            lane.order.clear();
            lane.tasks.clear();
        }
        let busy = |state: &mut State| state.lanes.get(&volume).is_some_and(|lane| !lane.running.is_empty());
        self.idle.wait_timeout_while(state, patience, busy).is_ok_and(|(_, waited)| !waited.timed_out())
    }

    /// How many files wait.
    pub(super) fn len(&self) -> u64 {
        self.lock().lanes.values().map(|lane| lane.order.len() as u64).sum()
    }

    /// How many signals were dropped since the start.
    pub(super) fn dropped(&self) -> u64 {
        self.lock().dropped
    }

    /// Sends everybody home.
    pub(super) fn end(&self) {
        self.lock().ended = true;
        self.ready.notify_all();
    }
}

/// The newest signal wins, but for one that a file is to be looked at, which any other makes happen, too; what two counted of the
/// same growth is added up, since the policy reckons with the rate.
fn merged(old: Signal, new: Signal) -> Signal {
    if matches!(new.kind, SignalKind::InPieces) {
        return old;
    }
    let mut signal = new;
    let counted = match old.kind {
        SignalKind::Fragmenting { allocations, bytes, .. } | SignalKind::Scattered { allocations, bytes, .. } => {
            (allocations, bytes)
        }
        SignalKind::HalfUsed { .. } | SignalKind::InPieces | SignalKind::Closed => return signal,
    };
    if let SignalKind::Fragmenting { allocations, bytes, .. } | SignalKind::Scattered { allocations, bytes, .. } =
        &mut signal.kind
    {
        *allocations = allocations.saturating_add(counted.0);
        *bytes = Bytes(bytes.0.saturating_add(counted.1.0));
        // The reaction is measured from the first of them.
        signal.at = old.at;
    }
    signal
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Nanos, ProcessName};

    fn key(volume: u32, file: u8) -> FileKey {
        FileKey { volume: DeviceNumber { major: 7, minor: volume }, handle: FileHandle::new(1, &[file; 8]).unwrap() }
    }

    fn fragmenting(file: FileKey, allocations: u32) -> Signal {
        let kind = SignalKind::Fragmenting { allocations, bytes: Bytes(4096), end: Bytes(u64::from(allocations)) };
        Signal { at: Nanos(u64::from(allocations)), file, size: Bytes(0), by: ProcessName::default(), kind }
    }

    #[test]
    fn a_file_waits_once_and_its_signals_add_up() {
        let queue = Queue::new(8);
        queue.signal(fragmenting(key(0, 1), 2));
        queue.settle(key(0, 1));
        queue.signal(fragmenting(key(0, 1), 3));
        assert_eq!(queue.len(), 1);
        let (file, task) = queue.take().unwrap();
        assert_eq!((file, task.settle), (key(0, 1), true));
        let signal = task.signal.unwrap();
        assert_eq!(signal.at, Nanos(2));
        assert_eq!(signal.kind, SignalKind::Fragmenting { allocations: 5, bytes: Bytes(8192), end: Bytes(3) });
    }

    #[test]
    fn a_file_that_grows_and_is_in_pieces_grows() {
        let in_pieces = Signal { kind: SignalKind::InPieces, ..fragmenting(key(0, 1), 3) };
        for signals in [[in_pieces, fragmenting(key(0, 1), 2)], [fragmenting(key(0, 1), 2), in_pieces]] {
            let queue = Queue::new(8);
            signals.into_iter().for_each(|signal| queue.signal(signal));
            assert_eq!(queue.take().unwrap().1.signal, Some(fragmenting(key(0, 1), 2)));
        }
    }

    #[test]
    fn nobody_works_on_a_file_that_somebody_works_on() {
        let queue = Queue::new(8);
        queue.signal(fragmenting(key(0, 1), 1));
        let (file, _) = queue.take().unwrap();
        queue.signal(fragmenting(key(0, 1), 2));
        assert_eq!(queue.len(), 0);
        queue.done(&file);
        assert_eq!(queue.take().unwrap().0, file);
    }

    #[test]
    fn one_volume_alone_cannot_keep_all_workers() {
        let queue = Queue::new(4);
        for file in 0..10 {
            queue.signal(fragmenting(key(0, file), 1));
        }
        for _ in 0..3 {
            assert_eq!(queue.take().unwrap().0.volume.minor, 0);
        }
        queue.signal(fragmenting(key(1, 1), 1));
        // Without the bound this is a file of the first volume, whose workers may hang for ever.
        assert_eq!(queue.take().unwrap().0, key(1, 1));
    }

    #[test]
    fn a_flood_of_files_is_dropped_and_counted_and_what_is_known_is_settled_all_the_same() {
        let queue = Queue::new(8);
        let numbered = |number: u32| FileKey {
            handle: FileHandle::new(1, &u64::from(number).to_ne_bytes()).unwrap(),
            ..key(0, 0)
        };
        let most = u32::try_from(MOST_WAITING).unwrap();
        for file in 0..2 * most {
            queue.signal(fragmenting(numbered(file), 1));
        }
        assert_eq!((queue.len(), queue.dropped()), (MOST_WAITING as u64, MOST_WAITING as u64));
        // Those that wait already hear more, …
        queue.signal(fragmenting(numbered(0), 1));
        assert_eq!((queue.len(), queue.dropped()), (MOST_WAITING as u64, MOST_WAITING as u64));
        // … and another volume has a lane of its own.
        queue.signal(fragmenting(key(1, 1), 1));
        queue.settle(numbered(2 * most));
        assert_eq!((queue.len(), queue.dropped()), (MOST_WAITING as u64 + 2, MOST_WAITING as u64));
    }

    #[test]
    fn volumes_take_turns() {
        let queue = Queue::new(8);
        for file in 0..2 {
            for volume in 0..3 {
                queue.signal(fragmenting(key(volume, file), 1));
            }
        }
        let order: Vec<u32> = (0..6).map(|_| queue.take().unwrap().0.volume.minor).collect();
        assert_eq!(order, [0, 1, 2, 0, 1, 2]);
    }

    #[test]
    fn after_the_end_nobody_waits() {
        let queue = Queue::new(2);
        std::thread::scope(|scope| {
            let waiting = scope.spawn(|| queue.take());
            queue.end();
            assert!(waiting.join().unwrap().is_none());
        });
    }
}
