//! The records that wait to be written, shared between callers and the thread that writes.
//!
//! Owns the limit on them. Holds its lock for short operations only, so that callers never wait.

use super::RecorderStatus;
use crate::{Account, Batch, Counter, Day, Hour};
use jiff::Timestamp;
use longrun_layout::Bytes;
use std::collections::BTreeMap;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// The state that callers and the writing thread share.
pub struct Shared {
    limit: usize,
    clock: Box<dyn Fn() -> Timestamp + Send + Sync>,
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    batch: Batch,
    status: RecorderStatus,
    /// Bytes that this process has spent, by day. Does not depend on the database.
    spent: BTreeMap<(Account, Day), u64>,
    /// Bytes that earlier processes spent, from the database.
    spent_before: BTreeMap<(Account, Day), u64>,
    /// The number of requests to write at once, and the last request that was tried.
    asked: u64,
    tried: u64,
    /// The last request that succeeded.
    served: u64,
    stopping: bool,
    ended: bool,
}

impl State {
    fn dropped(&mut self, rows: usize) {
        self.status.dropped = self.status.dropped.saturating_add(u64::try_from(rows).unwrap_or(u64::MAX));
    }
}

/// Why the writing thread was woken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wake {
    /// The interval has passed.
    Time,
    /// A caller waits for the result of the request with this number.
    Asked(u64),
    /// The recorder ends.
    Stop,
}

impl Shared {
    /// Holds at most `limit` rows.
    pub fn new(limit: usize, clock: Box<dyn Fn() -> Timestamp + Send + Sync>) -> Self {
        Self { limit, clock, state: Mutex::default(), changed: Condvar::new() }
    }

    /// The current time of the caller's clock.
    pub fn now(&self) -> Timestamp {
        (self.clock)()
    }

    /// Ignores poisoning: the figures that a panicked thread left are still usable.
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a row to what is pending, if there is room for it.
    pub fn add(&self, change: impl FnOnce(&mut Batch)) {
        let mut state = self.lock();
        if state.batch.len() < self.limit {
            change(&mut state.batch);
        } else {
            state.dropped(1);
        }
    }

    /// Adds to a counter. A counter that has a row for this hour takes no further room, and is never dropped.
    pub fn count(&self, account: &Account, counter: Counter, amount: u64) {
        let now = self.now();
        let mut state = self.lock();
        let known = state.batch.tallies.contains_key(&(account.clone(), Hour::of(now), counter));
        if known || state.batch.len() < self.limit {
            state.batch.count(account, counter, amount, now);
        } else {
            state.dropped(1);
        }
    }

    pub fn spend(&self, account: &Account, bytes: Bytes) {
        let now = self.now();
        let today = Day::of(now);
        let mut state = self.lock();
        state.spent.retain(|(_, day), _| *day >= today);
        let spent = state.spent.entry((account.clone(), today)).or_default();
        *spent = spent.saturating_add(bytes.0);
        // Never dropped, because the daily budget depends on it. There is one row per volume and day.
        state.batch.spend(account, bytes, now);
    }

    pub fn spent_today(&self, account: &Account) -> Bytes {
        let key = (account.clone(), Day::of(self.now()));
        let state = self.lock();
        let of = |map: &BTreeMap<(Account, Day), u64>| map.get(&key).copied().unwrap_or_default();
        Bytes(of(&state.spent).saturating_add(of(&state.spent_before)))
    }

    pub fn status(&self) -> RecorderStatus {
        let state = self.lock();
        let pending = u64::try_from(state.batch.len()).unwrap_or(u64::MAX);
        RecorderStatus { pending, ..state.status.clone() }
    }

    /// Changes the status.
    pub fn tell(&self, change: impl FnOnce(&mut RecorderStatus)) {
        change(&mut self.lock().status);
    }

    /// Sets the bytes that earlier processes spent.
    pub fn learn_spent(&self, spent: BTreeMap<(Account, Day), u64>) {
        self.lock().spent_before = spent;
    }

    /// Tells the writing thread to end. Returns whether it did within `patience`: a disk that does not answer can block it
    /// forever.
    pub fn stop(&self, patience: Duration) -> bool {
        let mut state = self.lock();
        state.stopping = true;
        self.changed.notify_all();
        let waited = self.changed.wait_timeout_while(state, patience, |state| !state.ended);
        waited.unwrap_or_else(PoisonError::into_inner).0.ended
    }

    /// The writing thread has ended.
    pub fn end(&self) {
        self.lock().ended = true;
        self.changed.notify_all();
    }

    /// Takes what is pending, for writing.
    pub fn take(&self) -> Batch {
        std::mem::take(&mut self.lock().batch)
    }

    /// Puts back what could not be written, as far as there is room.
    pub fn put_back(&self, batch: Batch) {
        let mut state = self.lock();
        state.batch.take_over(batch);
        let excess = state.batch.len().saturating_sub(self.limit);
        // The oldest rows are dropped first. Counts are dropped last, because they are small and tell the most.
        let events = excess.min(state.batch.events.len());
        state.batch.events.drain(..events);
        let gauges = (excess - events).min(state.batch.gauges.len());
        state.batch.gauges.drain(..gauges);
        let tallies = (events + gauges..excess).map_while(|_| state.batch.tallies.pop_first()).count();
        state.dropped(events + gauges + tallies);
    }

    /// Waits for `time`, or until a caller asks for a write or the end.
    pub fn wait(&self, time: Duration) -> Wake {
        let woken = |state: &mut State| !state.stopping && state.asked == state.tried;
        let state = self.lock();
        let (state, _) = self.changed.wait_timeout_while(state, time, woken).unwrap_or_else(PoisonError::into_inner);
        match *state {
            State { stopping: true, .. } => Wake::Stop,
            State { asked, tried, .. } if asked > tried => Wake::Asked(asked),
            _ => Wake::Time,
        }
    }

    /// Reports the result of the request with this number and of all before it.
    pub fn answer(&self, request: u64, written: bool) {
        let mut state = self.lock();
        state.tried = state.tried.max(request);
        if written {
            state.served = state.served.max(request);
        }
        drop(state);
        self.changed.notify_all();
    }

    /// Asks for a write at once, and waits for the result.
    pub fn flush(&self, patience: Duration) -> bool {
        let end = Instant::now() + patience;
        let mut state = self.lock();
        state.asked += 1;
        let request = state.asked;
        self.changed.notify_all();
        while state.tried < request {
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return false;
            }
            state = self.changed.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0;
        }
        state.served >= request
    }
}
