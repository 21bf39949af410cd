//! The guard over others' space: while we own blocks it watches how much is left, and gives everything back at once when
//! that runs short.
//!
//! Owns the reserve. Never waits for a run to come to a convenient point.

use super::donor::Balloon;
use super::tripwire::Tripwire;
use longrun_layout::{BlockSize, Blocks, Bytes, ExtentSet};
use longrun_sys::{Capacity, Errno};
use std::fs::File;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

/// How often the free space is looked at while we own some. A request that
/// meets the end waits for one commit (see `tripwire`): the guard must have noticed by then.
const PERIOD: Duration = Duration::from_micros(300);
/// And while we own none.
const IDLE_PERIOD: Duration = Duration::from_millis(50);

/// The share of a volume that is left to others whatever we capture, and its bounds.
const RESERVE_DIVISOR: u64 = 200;
const RESERVE_LEAST: Bytes = Bytes(4 << 20);
const RESERVE_MOST: Bytes = Bytes(64 << 20);

/// What of a volume's free blocks is not for everybody.
#[derive(Clone, Copy, Debug)]
pub(in crate::ext4) struct Withheld {
    /// For root only.
    pub(in crate::ext4) for_root: Blocks,
    /// For the file system itself.
    pub(in crate::ext4) for_metadata: Blocks,
}

/// Who may still write how much, with and without the blocks that we own.
#[derive(Clone, Copy, Debug)]
struct Shares {
    now: Blocks,
    floor: Blocks,
}

fn shares(capacity: Capacity, owned: Blocks, withheld: Withheld) -> [Option<Shares>; 2] {
    let reserve = reserve(capacity.total, capacity.block_size);
    let share = |withheld: Blocks| {
        let entitled = (capacity.free + owned).saturating_sub(withheld);
        let floor = Blocks(reserve.0.min(entitled.0 / 2));
        // Who could not write without us either loses nothing to us.
        (entitled.0 > 0).then_some(Shares { now: capacity.free.saturating_sub(withheld), floor })
    };
    [share(withheld.for_metadata), share(withheld.for_metadata + withheld.for_root)]
}

/// What stays outside the balloon.
fn reserve(total: Blocks, block_size: BlockSize) -> Blocks {
    let (least, most) = (block_size.to_blocks(RESERVE_LEAST), block_size.to_blocks(RESERVE_MOST));
    Blocks((total.0 / RESERVE_DIVISOR).clamp(least.0, most.0))
}

/// How many more blocks may be captured.
fn room(capacity: Capacity, owned: Blocks, withheld: Withheld) -> Blocks {
    let rooms = shares(capacity, owned, withheld).into_iter().flatten();
    rooms.map(|s| s.now.saturating_sub(s.floor)).min().unwrap_or(Blocks(0))
}

/// Whether others run short. Below half of what captures leave: else the file system's own needs would set it off.
fn is_short(capacity: Capacity, owned: Blocks, withheld: Withheld) -> bool {
    owned.0 > 0 && shares(capacity, owned, withheld).into_iter().flatten().any(|s| s.now.0 < s.floor.0 / 2)
}

/// The balloon as the working thread and the guard share it.
#[derive(Debug)]
pub(in crate::ext4) struct Shared {
    root: File,
    withheld: Withheld,
    balloon: Mutex<Balloon>,
    /// A capture is under way: blocks may become ours at any moment.
    capturing: AtomicBool,
    stopping: AtomicBool,
}

impl Shared {
    pub(in crate::ext4) fn new(root: File, withheld: Withheld) -> Arc<Self> {
        let balloon = Mutex::new(Balloon::default());
        Arc::new(Self { root, withheld, balloon, capturing: AtomicBool::new(false), stopping: AtomicBool::new(false) })
    }

    /// The balloon. Held for bookkeeping only, never while the kernel moves or frees blocks in large amounts: the guard
    /// must be able to act.
    pub(in crate::ext4) fn balloon(&self) -> MutexGuard<'_, Balloon> {
        // The bookkeeping of a thread that panicked is checked against the file system at the next barrier.
        self.balloon.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// How many more blocks may be captured now.
    pub(in crate::ext4) fn room(&self) -> Result<Blocks, Errno> {
        let capacity = longrun_sys::capacity(&self.root)?;
        let owned = self.balloon().owned().total();
        Ok(room(capacity, owned, self.withheld))
    }

    /// What any process can still allocate; what root can where nobody else can anything.
    pub(in crate::ext4) fn unclaimed(&self) -> Result<Blocks, Errno> {
        let capacity = longrun_sys::capacity(&self.root)?;
        let owned = self.balloon().owned().total();
        let [root, everybody] = shares(capacity, owned, self.withheld);
        Ok(everybody.or(root).map_or(Blocks(0), |s| s.now))
    }

    /// Gives the owned blocks of `extents` back, one by one, so that the guard is never kept waiting.
    pub(in crate::ext4) fn release(&self, extents: &ExtentSet, block_size: BlockSize) -> Result<(), Errno> {
        extents.iter().try_for_each(|extent| self.balloon().release(extent, block_size))
    }

    /// Gives everything back if others run short.
    fn relieve(&self, tripwire: &mut Tripwire) -> Result<(), Errno> {
        let capacity = longrun_sys::capacity(&self.root)?;
        let donors = {
            let mut balloon = self.balloon();
            if !is_short(capacity, balloon.owned().total(), self.withheld) {
                return Ok(());
            }
            balloon.revoke()
        };
        // Those that an exchange uses at this moment come last: emptying them waits for it.
        let (idle, busy): (Vec<_>, Vec<_>) = donors.into_iter().partition(|donor| Arc::strong_count(donor) == 1);
        for donor in idle.iter().chain(&busy) {
            donor.empty()?;
        }
        tripwire.put_away();
        // Freed blocks can be allocated only after a commit.
        longrun_sys::sync_volume(&self.root)
    }
}

/// The thread that watches. Ends when dropped.
#[derive(Debug)]
pub(in crate::ext4) struct Guard {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

impl Guard {
    /// Watches `shared`; `tripwire` is set while we own blocks.
    pub(in crate::ext4) fn start(shared: &Arc<Shared>, tripwire: Tripwire) -> std::io::Result<Self> {
        let watched = Arc::clone(shared);
        let thread = thread::Builder::new().name("longrun-guard".into()).spawn(move || watch(&watched, tripwire))?;
        Ok(Self { shared: Arc::clone(shared), thread: Some(thread) })
    }

    /// Performs `capture` under watch: the guard is awake before the first block becomes ours.
    pub(in crate::ext4) fn watching<T>(&self, capture: impl FnOnce() -> T) -> T {
        self.shared.capturing.store(true, Ordering::Release);
        self.wake();
        let result = capture();
        self.shared.capturing.store(false, Ordering::Release);
        result
    }

    fn wake(&self) {
        if let Some(thread) = &self.thread {
            thread.thread().unpark();
        }
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        self.shared.stopping.store(true, Ordering::Release);
        self.wake();
        if let Some(thread) = self.thread.take() {
            // A panic in it has been reported on stderr already.
            let _ = thread.join();
        }
    }
}

fn watch(shared: &Shared, mut tripwire: Tripwire) {
    // Where this is not allowed, a busy machine makes the guard slower to notice; it still does.
    let _ = longrun_sys::run_before_others();
    while !shared.stopping.load(Ordering::Acquire) {
        // An error here is a volume that went away or stopped: the working thread meets it too, and reports it.
        let _ = shared.relieve(&mut tripwire);
        let owns = shared.capturing.load(Ordering::Acquire) || !shared.balloon().owned().is_empty();
        if owns {
            // On a volume that is full it cannot be set; then `relieve` is at work.
            let _ = tripwire.set(&shared.root);
        } else {
            tripwire.put_away();
        }
        thread::park_timeout(if owns { PERIOD } else { IDLE_PERIOD });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const WITHHELD: Withheld = Withheld { for_root: Blocks(50_000), for_metadata: Blocks(4096) };

    fn capacity(free: u64) -> Capacity {
        let block_size = BlockSize::new(4096).unwrap();
        Capacity { block_size, total: Blocks(1_000_000), free: Blocks(free), available: Blocks(0) }
    }

    #[test]
    fn the_reserve_stays_with_users_as_long_as_they_have_any_space() {
        // 100 000 free, 54 096 withheld from users: 45 904 for them, 5000 of which stay.
        assert_eq!(room(capacity(100_000), Blocks(0), WITHHELD), Blocks(40_904));
        assert_eq!(room(capacity(59_096), Blocks(40_904), WITHHELD), Blocks(0));
        assert!(!is_short(capacity(59_096), Blocks(40_904), WITHHELD));
        assert!(is_short(capacity(56_500), Blocks(40_904), WITHHELD));
    }

    #[test]
    fn where_only_root_can_write_its_reserve_counts() {
        assert_eq!(room(capacity(40_000), Blocks(0), WITHHELD), Blocks(30_904));
        assert!(!is_short(capacity(9_096), Blocks(30_904), WITHHELD));
        assert!(is_short(capacity(6_000), Blocks(30_904), WITHHELD));
    }

    #[test]
    fn a_volume_with_next_to_nothing_free_keeps_half_of_it() {
        assert_eq!(room(capacity(4096 + 1000), Blocks(0), WITHHELD), Blocks(500));
    }

    #[test]
    fn who_owns_nothing_is_never_in_the_way() {
        assert!(!is_short(capacity(0), Blocks(0), WITHHELD));
    }
}
