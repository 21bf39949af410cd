//! The guard of free space for others. While we own blocks it watches how much is free, and gives everything back at
//! once if too little is left. A request that meets the end of the free space waits for a commit (see `tripwire`): where
//! the kernel tells of commits, the guard sleeps until there is one, or until the fastest writer could be near the end.
//!
//! Owns the reserve. Never waits for the run to reach a certain point.

use super::commits::Commits;
use super::donor::{Balloon, Donor};
use super::tripwire::Tripwire;
use longrun_layout::{BlockSize, Blocks, Bytes, ExtentSet};
use longrun_sys::{Bell, Capacity, Errno};
use std::fs::File;
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

/// How often the free space is looked at while we own some and others might soon need it, if nothing tells of commits. A
/// request that meets the end waits for one commit: the guard must have noticed by then.
const PERIOD: Duration = Duration::from_micros(300);
/// And while there is ample space. Not longer: one request can take gigabytes without writing them. Measured on a volume
/// of 8 GiB, half of it ours, it meets the end and the commit behind that within 3 ms; with 2 ms it never failed.
const AMPLE_PERIOD: Duration = Duration::from_millis(1);
/// How often the free space is looked at where commits wake the guard: so often that a writer of this speed (bytes a second)
/// cannot make others short in between, within these bounds. No request is refused because of it: one that meets the end of the
/// space waits for a commit, and that wakes the guard.
const FASTEST: u64 = 4 << 30;
const TOLD_LEAST: Duration = Duration::from_millis(5);
const TOLD_MOST: Duration = Duration::from_millis(100);
/// Others who are farther from the end than this need no tripwire, which adds some blocks to the journal at each commit: the
/// guard is told as soon as they have allocated this part of their way. One request for 20 GiB took 25 ms (Linux 6.18, device in
/// memory): so the guard has 8 ms for the rest of the way, and needs less than one.
const LEAP: Bytes = Bytes(8 << 30);
const LEAP_PART: u64 = 8;
/// And while we own none.
const IDLE_PERIOD: Duration = Duration::from_millis(50);

/// The share of a volume that is left to others whatever we capture, and its bounds.
const RESERVE_DIVISOR: u64 = 200;
const RESERVE_LEAST: Bytes = Bytes(4 << 20);
const RESERVE_MOST: Bytes = Bytes(64 << 20);

/// Space is ample when so many times the reserve is left above it, and at least so much.
const AMPLE_RESERVES: u64 = 64;
const AMPLE_LEAST: Bytes = Bytes(1 << 30);

/// How long the working thread waits for the guard before it looks whether that is still there.
const AWAKENING: Duration = Duration::from_micros(50);

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

/// How much others can allocate until they are short.
fn until_short(capacity: Capacity, owned: Blocks, withheld: Withheld) -> Blocks {
    let away = |s: Shares| s.now.saturating_sub(Blocks(s.floor.0 / 2));
    shares(capacity, owned, withheld).into_iter().flatten().map(away).min().unwrap_or(capacity.free)
}

/// What the guard has seen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Outlook {
    /// How soon to look again.
    again: Duration,
    /// How much others may allocate before that without being watched; none when they are too near to the end.
    leap: Option<Blocks>,
}

impl Outlook {
    /// Others are short, or nothing is known.
    const NEAR: Self = Self { again: PERIOD, leap: None };

    fn of(capacity: Capacity, owned: Blocks, withheld: Withheld, commits_are_told: bool) -> Self {
        if !commits_are_told {
            let again = if is_ample(capacity, owned, withheld) { AMPLE_PERIOD } else { PERIOD };
            return Self { again, leap: None };
        }
        let away = until_short(capacity, owned, withheld);
        let bytes = capacity.block_size.to_bytes(away);
        let again = Duration::from_secs_f64(bytes.0 as f64 / FASTEST as f64).clamp(TOLD_LEAST, TOLD_MOST);
        Self { again, leap: (bytes >= LEAP).then_some(Blocks(away.0 / LEAP_PART)) }
    }
}

/// Whether no one can run short before long.
fn is_ample(capacity: Capacity, owned: Blocks, withheld: Withheld) -> bool {
    let least = capacity.block_size.to_blocks(AMPLE_LEAST);
    let ample = |s: Shares| s.now.saturating_sub(s.floor) >= least.max(Blocks(s.floor.0 * AMPLE_RESERVES));
    shares(capacity, owned, withheld).into_iter().flatten().all(ample)
}

/// The balloon as the working thread and the guard share it.
#[derive(Debug)]
pub(in crate::ext4) struct Shared {
    /// Open for the guard alone: a sync tells each opening of the volume once of a write error.
    root: File,
    withheld: Withheld,
    balloon: Mutex<Balloon>,
    /// A capture is under way: blocks may become ours at any moment.
    capturing: AtomicBool,
    /// The guard looks at the free space at short intervals.
    awake: AtomicBool,
    stopping: AtomicBool,
    /// Rings when one of these has changed.
    bell: Bell,
    /// The first thing that the guard could not do.
    failure: Mutex<Option<Errno>>,
}

impl Shared {
    /// For the volume that `root` is opened on.
    ///
    /// # Errors
    /// The kernel's, when there are too many open files.
    pub(in crate::ext4) fn new(root: File, withheld: Withheld) -> Result<Arc<Self>, Errno> {
        Ok(Arc::new(Self {
            root,
            withheld,
            balloon: Mutex::default(),
            capturing: AtomicBool::new(false),
            awake: AtomicBool::new(false),
            stopping: AtomicBool::new(false),
            bell: Bell::new()?,
            failure: Mutex::default(),
        }))
    }

    /// Why the guard could not give back everything and commit that, if it ever had to and could not: no barrier can be
    /// relied on after that.
    pub(in crate::ext4) fn failure(&self) -> Option<Errno> {
        *self.failure.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn note_failure(&self, errno: Errno) {
        self.failure.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(errno);
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

    /// What any process can still allocate; what root can where no other process can anything.
    pub(in crate::ext4) fn unclaimed(&self) -> Result<Blocks, Errno> {
        let capacity = longrun_sys::capacity(&self.root)?;
        let owned = self.balloon().owned().total();
        let [root, everybody] = shares(capacity, owned, self.withheld);
        Ok(everybody.or(root).map_or(Blocks(0), |s| s.now))
    }

    /// Gives the owned blocks of `extents` back, one by one, so that the guard is never kept waiting.
    ///
    /// A hole inside of an extent can take a block for the donor's tree. There is none when all that is free was freed since the last
    /// commit; for writers the kernel commits then, but not for holes: we do. When that does not help either, others have all the space,
    /// and everything is given back, which takes no block.
    pub(in crate::ext4) fn release(&self, extents: &ExtentSet, block_size: BlockSize) -> Result<(), Errno> {
        let release = |extent| self.balloon().release(extent, block_size);
        let in_full = |extent| {
            longrun_sys::sync_volume(&self.root)?;
            match release(extent) {
                Err(Errno::NOSPC) => {
                    let donors = self.balloon().revoke();
                    empty(donors, block_size)
                }
                released => released,
            }
        };
        extents.iter().try_for_each(|extent| match release(extent) {
            Err(Errno::NOSPC) => in_full(extent),
            released => released,
        })
    }

    /// Gives everything back if others run short.
    fn relieve(&self, tripwire: &mut Tripwire, commits_are_told: bool) -> Result<Outlook, Errno> {
        let capacity = longrun_sys::capacity(&self.root)?;
        let donors = {
            let mut balloon = self.balloon();
            let owned = balloon.owned().total();
            if !is_short(capacity, owned, self.withheld) {
                return Ok(Outlook::of(capacity, owned, self.withheld, commits_are_told));
            }
            balloon.revoke()
        };
        let emptied = empty(donors, capacity.block_size);
        tripwire.put_away();
        // Freed blocks can be allocated only after a commit.
        let committed = longrun_sys::sync_volume(&self.root);
        emptied.and(committed).map(|()| Outlook::NEAR)
    }
}

/// Gives back all that donors which were revoked hold, and closes them.
fn empty(donors: Vec<Arc<Donor>>, block_size: BlockSize) -> Result<(), Errno> {
    // Those that an exchange uses at this moment come last: emptying them waits for it.
    let (idle, busy): (Vec<_>, Vec<_>) = donors.into_iter().partition(|donor| Arc::strong_count(donor) == 1);
    // Where one fails others still need what the rest holds.
    idle.iter().chain(&busy).map(|donor| donor.empty(block_size)).fold(Ok(()), Result::and)
}

/// The thread that watches. Ends when dropped.
#[derive(Debug)]
pub(in crate::ext4) struct Guard {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

impl Guard {
    /// Watches `shared`. The thread itself asks for `commits`, which takes some milliseconds.
    pub(in crate::ext4) fn start(
        shared: &Arc<Shared>,
        block_size: BlockSize,
        commits: impl FnOnce() -> Commits + Send + 'static,
    ) -> std::io::Result<Self> {
        let watched = Arc::clone(shared);
        let watch = move || watch(&watched, Tripwire::new(block_size), &commits());
        let thread = thread::Builder::new().name("longrun-guard".into()).spawn(watch)?;
        Ok(Self { shared: Arc::clone(shared), thread: Some(thread) })
    }

    /// Performs `capture` under watch: the guard is awake before the first block becomes ours.
    pub(in crate::ext4) fn watching<T>(&self, capture: impl FnOnce() -> T) -> T {
        self.shared.capturing.store(true, Ordering::Release);
        self.shared.bell.ring();
        // Without a guard, because it panicked, a capture is as safe as the reserve is large.
        while !self.shared.awake.load(Ordering::Acquire) && self.is_running() {
            thread::sleep(AWAKENING);
        }
        let result = capture();
        self.shared.capturing.store(false, Ordering::Release);
        result
    }

    fn is_running(&self) -> bool {
        self.thread.as_ref().is_some_and(|thread| !thread.is_finished())
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        self.shared.stopping.store(true, Ordering::Release);
        self.shared.bell.ring();
        if let Some(thread) = self.thread.take() {
            // A panic in it has been reported on stderr already.
            let _ = thread.join();
        }
    }
}

fn watch(shared: &Shared, mut tripwire: Tripwire, commits: &Commits) {
    // Where this is not allowed, a busy machine makes the guard slower to notice; it still does.
    let _ = longrun_sys::run_before_others();
    while !shared.stopping.load(Ordering::Acquire) {
        // Silent before anything is looked at: what changes after that rings again.
        shared.bell.silence();
        let commits_so_far = commits.count();
        let outlook = shared.relieve(&mut tripwire, commits.are_told()).unwrap_or_else(|errno| {
            shared.note_failure(errno);
            Outlook::NEAR
        });
        let owns = shared.capturing.load(Ordering::Acquire) || !shared.balloon().owned().is_empty();
        let is_far = outlook.leap.is_some_and(|leap| commits.expect(leap));
        if owns && !is_far {
            // On a volume that is full it cannot be set; then `relieve` is at work.
            let _ = tripwire.set(&shared.root, commits_so_far);
        } else {
            tripwire.put_away();
        }
        shared.awake.store(owns, Ordering::Release);
        commits.wait(shared.bell.as_fd(), if owns { outlook.again } else { IDLE_PERIOD });
    }
}

#[cfg(test)]
mod tests {
    use super::super::donor::Donor;
    use super::*;
    use longrun_layout::{LogicalBlock, PhysicalBlock, Run};

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

    #[test]
    fn who_is_far_from_the_end_is_watched_by_what_he_allocates_and_needs_no_tripwire() {
        let withheld = Withheld { for_root: Blocks(0), for_metadata: Blocks(0) };
        let large = |free| Capacity { total: Blocks(100_000_000), ..capacity(free) };
        // The reserve is 64 MiB, of which half is left to others: 8192 blocks.
        let far = Outlook::of(large((2 << 20) + 8192), Blocks(1), withheld, true);
        assert_eq!(far, Outlook { again: TOLD_MOST, leap: Some(Blocks((2 << 20) / 8)) });
        let near = Outlook::of(large((2 << 20) + 8191), Blocks(1), withheld, true);
        assert_eq!(near.leap, None);
        // Who would be there sooner is looked at sooner.
        let (close, closer) = (large(8192 + 64_000), large(10));
        let soon = Outlook::of(close, Blocks(1), withheld, true).again;
        assert_eq!(soon, Duration::from_secs_f64(64_000.0 * 4096.0 / FASTEST as f64));
        assert_eq!(Outlook::of(closer, Blocks(1), withheld, true).again, TOLD_LEAST);
        // Where nothing is told there is always a tripwire.
        assert_eq!(
            Outlook::of(large(1 << 26), Blocks(1), withheld, false),
            Outlook { again: AMPLE_PERIOD, leap: None }
        );
    }

    #[test]
    fn the_guard_looks_less_often_while_there_is_ample_space() {
        // The reserve is 5000 blocks.
        assert!(is_ample(capacity(400_000), Blocks(1), WITHHELD));
        assert!(!is_ample(capacity(350_000), Blocks(1), WITHHELD));
        let small = |free| Capacity { total: Blocks(30_000), ..capacity(free) };
        assert!(!is_ample(small(200_000), Blocks(1), WITHHELD), "less than 1 GiB is never ample");
    }

    /// A balloon that is in everybody's way, with two donors of which the first cannot be emptied.
    #[test]
    fn what_the_guard_could_not_do_is_remembered_and_keeps_it_from_nothing_else() {
        let directory = tempfile::tempdir().unwrap();
        let path = |name| directory.path().join(name);
        std::fs::write(path("stuck"), "x").unwrap();
        std::fs::write(path("fine"), "x").unwrap();
        let stuck = File::open(path("stuck")).unwrap();
        let fine = File::options().write(true).open(path("fine")).unwrap();
        let withheld = Withheld { for_root: Blocks(1 << 40), for_metadata: Blocks(0) };
        let shared = Shared::new(File::open(directory.path()).unwrap(), withheld).unwrap();
        for (start, file) in [(0, stuck), (1 << 50, fine)] {
            let mut balloon = shared.balloon();
            let id = balloon.add(Arc::new(Donor::of(file.into())));
            let run = Run { logical: LogicalBlock(0), physical: PhysicalBlock(start), length: Blocks(1 << 45) };
            assert!(balloon.hold(id, run));
        }
        let guard = Guard::start(&shared, BlockSize::new(4096).unwrap(), || Commits::Unknown).unwrap();
        guard.watching(|| ());
        drop(guard);
        assert_eq!(shared.failure(), Some(Errno::INVAL));
        assert_eq!(std::fs::metadata(path("fine")).unwrap().len(), 0);
        assert!(shared.balloon().has_yielded());
    }

    #[test]
    fn the_guard_is_awake_before_the_first_block_becomes_ours() {
        let directory = tempfile::tempdir().unwrap();
        let shared = Shared::new(File::open(directory.path()).unwrap(), WITHHELD).unwrap();
        let guard = Guard::start(&shared, BlockSize::new(4096).unwrap(), || Commits::Unknown).unwrap();
        assert!(guard.watching(|| shared.awake.load(Ordering::Acquire)));
    }
}
