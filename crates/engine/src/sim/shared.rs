//! A simulated file system that compares blocks and then shares them, for a few files: live and durable contents, a
//! journal of maps, crashes, failing calls, and another user who writes to the files.
//!
//! Owns a model of the guarantees of XFS and btrfs. The content of a copy is durable after a sync of it, or, if a
//! commit flushes the device first, with the commit that makes its sharing durable. Maps become durable in the order of
//! their changes.

use crate::share::unit::{Member, UnitPlan};
use crate::share::{Attempt, Compared, Ended, MemberRange, NotMended, Sharing};
use crate::{FileMap, SkipReason, VolumeError};
use fastrand::Rng;
use longrun_layout::{Blocks, Bytes, Extent, ExtentSet, LogicalBlock, LogicalRange, PhysicalBlock, Run};
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;

/// Bytes in a block.
pub const BLOCK: u64 = 4096;
/// The largest piece that one allocation gives.
const LARGEST_PIECE: u64 = 24;
/// What a block holds that was never written.
const GARBAGE: u64 = 0;

/// The faults to inject.
#[derive(Clone, Copy, Debug, Default)]
pub struct ShareFaults {
    /// The machine loses power at this call, counted from 1.
    pub crash_at: Option<u64>,
    /// This call fails.
    pub fail_at: Option<u64>,
    /// Before this call another process writes to a block of a file.
    pub write_at: Option<u64>,
    /// The file system takes a copy without comparing: what no kernel does, to show what the comparison is for.
    pub compares_nothing: bool,
}

/// Who else has written a block of a file: (file, block) and what it held before.
type Overwritten = BTreeMap<(usize, u64), u64>;

#[derive(Debug)]
struct State {
    /// By physical block: what is read from it.
    live: BTreeMap<u64, u64>,
    /// What lies on the medium.
    durable: BTreeMap<u64, u64>,
    /// On its way to the medium: may be there after a crash, or not.
    sent: BTreeMap<u64, u64>,
    maps: Vec<FileMap>,
    /// All changes of the files' maps, in order.
    journal: Vec<(usize, Run)>,
    first_maps: Vec<FileMap>,
    free: ExtentSet,
    modified: Vec<bool>,
    overwritten: Overwritten,
    calls: u64,
    crashed: bool,
}

/// The file system, and the files that are written again.
#[derive(Debug)]
pub struct SimShared {
    state: Rc<RefCell<State>>,
    members: Vec<Member>,
    faults: ShareFaults,
    /// A commit flushes the device, as on btrfs; else only a sync does.
    commit_flushes: bool,
    rng: RefCell<Rng>,
}

/// A copy. Dropping it frees its blocks, except those that files have taken.
#[derive(Debug)]
pub struct SimCopy {
    state: Rc<RefCell<State>>,
    map: FileMap,
}

impl State {
    fn has(&self, physical: u64) -> bool {
        self.maps.iter().any(|map| map.runs().any(|run| run.extent().contains(&Extent::new(physical, 1))))
    }

    fn block_of(&self, file: usize, logical: u64) -> Option<u64> {
        let run = self.maps.get(file)?.within(LogicalRange::one(LogicalBlock(logical))).next()?;
        Some(run.physical.0)
    }

    fn give_up(&mut self, extent: Extent) {
        for block in extent.start.0..extent.end().0 {
            if !self.has(block) {
                self.free.insert(Extent::new(block, 1));
            }
        }
    }
}

impl Drop for SimCopy {
    fn drop(&mut self) {
        let mut state = self.state.borrow_mut();
        self.map.runs().for_each(|run| state.give_up(run.extent()));
    }
}

fn failed(act: &'static str) -> Ended {
    Ended::Failed(VolumeError::Io { path: "simulated".into(), act, source: std::io::Error::other("injected") })
}

impl SimShared {
    /// Files that lie as `members` do on a volume of so many blocks; every block has a content of its own.
    #[must_use]
    pub fn new(members: &[Member], total: Blocks, commit_flushes: bool, faults: ShareFaults, seed: u64) -> Self {
        let maps: Vec<FileMap> = members.iter().map(|member| FileMap::new(member.runs.iter().copied())).collect();
        let mut free: ExtentSet = [Extent::new(0, total.0)].into_iter().collect();
        let mut live = BTreeMap::new();
        for run in members.iter().flat_map(|member| &member.runs) {
            free.remove(run.extent());
            live.extend((run.physical.0..run.extent().end().0).map(|block| (block, block + 1)));
        }
        let state = State {
            durable: live.clone(),
            live,
            sent: BTreeMap::new(),
            first_maps: maps.clone(),
            modified: vec![false; maps.len()],
            maps,
            journal: Vec::new(),
            free,
            overwritten: Overwritten::new(),
            calls: 0,
            crashed: false,
        };
        Self {
            state: Rc::new(RefCell::new(state)),
            members: members.to_vec(),
            faults,
            commit_flushes,
            rng: RefCell::new(Rng::with_seed(seed)),
        }
    }

    /// Whether the fault that was asked for has happened.
    #[must_use]
    pub fn was_reached(&self, call: u64) -> bool {
        self.state.borrow().calls >= call
    }

    /// Free blocks.
    #[must_use]
    pub fn free(&self) -> Blocks {
        self.state.borrow().free.total()
    }

    /// Fragments of all files.
    #[must_use]
    pub fn fragments(&self) -> u64 {
        self.state.borrow().maps.iter().map(FileMap::fragments).sum()
    }

    /// How many blocks the files have between them.
    #[must_use]
    pub fn blocks(&self) -> Blocks {
        let state = self.state.borrow();
        let all: ExtentSet = state.maps.iter().flat_map(FileMap::runs).map(|run| run.extent()).collect();
        all.total()
    }

    /// Checks that every file reads as it did before, but for what another process has written to it.
    ///
    /// # Errors
    /// The first block that does not.
    pub fn check(&self) -> Result<(), String> {
        let state = self.state.borrow();
        self.compare(&state, &state.maps, &state.live, false)
    }

    /// The same after a loss of power at this moment; the generator decides which writes had reached the medium.
    ///
    /// # Errors
    /// The first block that does not hold what it did, or what another process has written since.
    pub fn check_after_crash(&self) -> Result<(), String> {
        let state = self.state.borrow();
        let mut rng = self.rng.borrow_mut();
        let (mut disk, mut maps) = (state.durable.clone(), state.first_maps.clone());
        // Either no commit since the beginning, or one at some moment; where commits flush, the last moment flushed most.
        let committed = rng.usize(..=state.journal.len());
        let flushed = self.commit_flushes && committed > 0;
        for (block, content) in &state.sent {
            if flushed || rng.bool() {
                disk.insert(*block, *content);
            }
        }
        for (file, run) in state.journal.iter().take(committed) {
            if let Some(map) = maps.get_mut(*file) {
                map.put(run.logical, run.physical, run.length);
            }
        }
        self.compare(&state, &maps, &disk, true)
    }

    fn compare(
        &self,
        state: &State,
        maps: &[FileMap],
        disk: &BTreeMap<u64, u64>,
        may_be_old: bool,
    ) -> Result<(), String> {
        for (file, (member, map)) in self.members.iter().zip(maps).enumerate() {
            for run in &member.data {
                for offset in 0..run.length.0 {
                    let logical = run.logical.0 + offset;
                    let before = run.physical.0 + offset + 1;
                    let place = map.within(LogicalRange::one(LogicalBlock(logical))).next().map(|run| run.physical.0);
                    let found = place.and_then(|place| disk.get(&place).copied()).unwrap_or(GARBAGE);
                    let written = state.overwritten.get(&(file, logical)).copied();
                    let expected = written.unwrap_or(before);
                    if found != expected && !(may_be_old && written.is_some() && found == before) {
                        return Err(format!("file {file}, block {logical}: {found} in place of {expected}"));
                    }
                }
            }
        }
        Ok(())
    }

    /// One call of ours.
    fn call(&self, act: &'static str) -> Result<(), Ended> {
        let mut state = self.state.borrow_mut();
        state.calls += 1;
        if self.faults.write_at == Some(state.calls) {
            self.somebody_writes(&mut state);
        }
        if self.faults.crash_at.is_some_and(|at| state.calls >= at) {
            state.crashed = true;
            return Err(failed(act));
        }
        if self.faults.fail_at == Some(state.calls) { Err(failed(act)) } else { Ok(()) }
    }

    /// To a block of a file's own in its place, to a new place where others share it.
    fn somebody_writes(&self, state: &mut State) {
        let mut rng = self.rng.borrow_mut();
        let file = rng.usize(..self.members.len());
        let Some(run) = self.members.get(file).and_then(|member| rng.choice(&member.data).copied()) else { return };
        let logical = run.logical.0 + rng.u64(..run.length.0);
        let Some(place) = state.block_of(file, logical) else { return };
        let content = 1_000_000 + rng.u64(..1_000_000);
        let owners =
            state.maps.iter().filter(|map| map.runs().any(|run| run.extent().contains(&Extent::new(place, 1))));
        let place = if owners.count() == 1 {
            place
        } else {
            let Some(free) = state.free.largest() else { return };
            state.free.remove(Extent::new(free.start.0, 1));
            let run = Run { logical: LogicalBlock(logical), physical: free.start, length: Blocks(1) };
            state.journal.push((file, run));
            if let Some(map) = state.maps.get_mut(file) {
                map.put(run.logical, run.physical, run.length);
            }
            free.start.0
        };
        state.live.insert(place, content);
        state.sent.insert(place, content);
        state.overwritten.insert((file, logical), content);
        if let Some(modified) = state.modified.get_mut(file) {
            // What is written through a mapping shows late.
            *modified = rng.bool();
        }
    }
}

impl Sharing for SimShared {
    type Copy = SimCopy;

    fn permits(&self, more: Bytes) -> Result<(), NotMended> {
        if self.free().0 * BLOCK < more.0 { Err(NotMended::LowSpace) } else { Ok(()) }
    }

    fn leaves_enough(&self) -> Result<(), NotMended> {
        Ok(())
    }

    fn allocate(&mut self, plan: &UnitPlan, copy: usize, _: Bytes, attempt: Attempt) -> Result<SimCopy, NotMended> {
        self.call("allocating").map_err(|_| NotMended::LowSpace)?;
        let length = plan.copies.get(copy).map_or(Blocks(0), |copy| copy.length);
        let mut made = SimCopy { state: Rc::clone(&self.state), map: FileMap::default() };
        let mut done = Blocks(0);
        while done < length {
            let mut state = self.state.borrow_mut();
            let largest = state.free.largest();
            let longest = if attempt == Attempt::InOne { u64::MAX } else { LARGEST_PIECE };
            let Some(piece) = largest else {
                drop(state);
                return Err(NotMended::LowSpace);
            };
            let part = Extent { start: piece.start, length: piece.length.min(length - done).min(Blocks(longest)) };
            state.free.remove(part);
            for block in part.start.0..part.end().0 {
                state.live.insert(block, GARBAGE);
            }
            made.map.put(LogicalBlock(done.0), part.start, part.length);
            done += part.length;
        }
        Ok(made)
    }

    fn map<'c>(&self, copy: &'c SimCopy) -> &'c FileMap {
        &copy.map
    }

    fn is_unchanged(&self, member: usize) -> bool {
        !self.state.borrow().modified.get(member).copied().unwrap_or(true)
    }

    fn ask_for(&self, _: usize, _: &[Run]) {}

    fn await_read(&self, _: usize, _: &[Run]) {}

    fn copy(&mut self, from: MemberRange, copy: &SimCopy, to: LogicalBlock) -> Result<(), Ended> {
        self.call("copying")?;
        let mut state = self.state.borrow_mut();
        for offset in 0..from.length.0 {
            let content = state.block_of(from.member, from.logical.0 + offset);
            let content = content.and_then(|block| state.live.get(&block).copied());
            let place = copy.map.within(LogicalRange::one(to + Blocks(offset))).next();
            let (Some(content), Some(place)) = (content, place) else {
                return Err(NotMended::Skipped(SkipReason::Changed).into());
            };
            state.live.insert(place.physical.0, content);
        }
        Ok(())
    }

    fn sync(&mut self, copy: &SimCopy) -> Result<(), Ended> {
        self.call("syncing")?;
        let mut state = self.state.borrow_mut();
        for block in copy.map.runs().flat_map(|run| run.physical.0..run.extent().end().0) {
            if let Some(content) = state.live.get(&block).copied() {
                state.durable.insert(block, content);
                state.sent.remove(&block);
            }
        }
        Ok(())
    }

    fn start_writing(&mut self, _: &SimCopy) {}

    fn share_if_same(
        &mut self,
        copy: &SimCopy,
        at: LogicalBlock,
        range: MemberRange,
        done: Bytes,
    ) -> Result<Compared, Ended> {
        self.call("sharing")?;
        let mut state = self.state.borrow_mut();
        // Sometimes a part only, as the kernel may.
        let most = if self.rng.borrow_mut().u8(..4) == 0 { 1 + range.length.0 / 2 } else { u64::MAX };
        let first = done.0 / BLOCK;
        let mut same = 0;
        for offset in first..range.length.0 {
            if same >= most {
                break;
            }
            let logical = range.logical.0 + offset;
            let theirs = state.block_of(range.member, logical);
            let Some(ours) = copy.map.within(LogicalRange::one(at + Blocks(offset))).next().map(|run| run.physical.0)
            else {
                break;
            };
            let content = |block: Option<u64>| block.and_then(|block| state.live.get(&block).copied());
            if content(theirs) != content(Some(ours)) && !self.faults.compares_nothing {
                break;
            }
            // What is shared is written first; whether it is on the medium is another matter.
            let (sent, physical) = (content(Some(ours)).unwrap_or(GARBAGE), PhysicalBlock(ours));
            if state.durable.get(&ours) != Some(&sent) {
                state.sent.insert(ours, sent);
            }
            let run = Run { logical: LogicalBlock(logical), physical, length: Blocks(1) };
            state.journal.push((range.member, run));
            if let Some(map) = state.maps.get_mut(range.member) {
                map.put(run.logical, run.physical, run.length);
            }
            if let Some(left) = theirs.filter(|left| !state.has(*left)) {
                state.free.insert(Extent::new(left, 1));
            }
            same += 1;
        }
        Ok(if same == 0 { Compared::Differs } else { Compared::Same(Bytes(same * BLOCK)) })
    }

    fn part_with(&mut self, copy: &SimCopy, start: LogicalBlock, length: Blocks) {
        let mut state = self.state.borrow_mut();
        let runs: Vec<Run> = copy.map.within(LogicalRange { start, length }).collect();
        runs.iter().for_each(|run| state.give_up(run.extent()));
    }

    fn is_cached(&self, _: MemberRange) -> bool {
        false
    }

    fn read_ahead(&self, _: MemberRange) {}
}
