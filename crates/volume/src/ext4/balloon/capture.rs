//! Captures chosen free blocks.
//!
//! Owns the method by which the kernel's allocator is led to these blocks. ext4 has no call to allocate at a chosen
//! place. But it first searches the block group of the allocation goal, which is the block nearest to the request in
//! the file, and its choice inside a group can be predicted (see `allocator`). Donors therefore keep logical = physical
//! plus a constant, every request is made at the logical address of the expected place, and the actual place of every
//! allocation is read afterwards.
//!
//! Never keeps a block that was not wanted, and never takes so many that others run short.

use super::allocator::{GroupModel, Request};
use super::discards::Discards;
use super::donor::{Donor, DonorId, END};
use super::guard::Shared;
use crate::ext4::Named;
use crate::ext4::scan::Geometry;
use crate::ext4::tuning::Tuning;
use longrun_engine::VolumeError;
use longrun_layout::{Blocks, Extent, ExtentSet, LogicalBlock, PhysicalBlock, Run};
use longrun_sys::{ByteRange, Errno};
use std::cell::Cell;
use std::collections::BTreeMap;
use std::fs::File;
use std::sync::Arc;

/// Where the first block of a donor goes: in the middle, so that there is as much room on either side. Places
/// further from it than 2^30 blocks (4 TiB at 4 KiB) cannot be aimed at: in larger volumes captures there bring
/// nothing, and files are not moved to them. The kernel chooses its place, and prefers the group of the root
/// directory.
const ANCHOR: LogicalBlock = LogicalBlock(1 << 30);

/// After so many requests that brought nothing wanted, a group is given up: another process is allocating there.
const FRUITLESS: u32 = 8;

/// After so many requests in a row that landed in another group, though this one has what was asked for, a group is
/// given up: the allocator does not follow goals there.
const MOST_STRAYS: u32 = 16;

/// And after so many groups in a row that were given up for that, the capture: it would not be otherwise elsewhere.
const MOST_LOST_GROUPS: u32 = 4;

/// Small requests are first served from what the kernel has preallocated for small files, 512 blocks at a time for
/// each processor. Such blocks do not count as free, and cannot be obtained otherwise: they are used up and given
/// back, but not without end.
const MOST_DRAINED: u32 = 8192;

/// What capturing needs.
pub(in crate::ext4) struct Capturer<'a> {
    pub(in crate::ext4) name: &'a Named,
    pub(in crate::ext4) root: &'a File,
    pub(in crate::ext4) shared: &'a Shared,
    pub(in crate::ext4) tuning: &'a Tuning,
    pub(in crate::ext4) geometry: Geometry,
    /// In blocks; 0 without one.
    pub(in crate::ext4) stripe: Blocks,
    /// System calls made so far: allocations, look-ups and what is given back.
    pub(in crate::ext4) calls: &'a Cell<u64>,
}

/// What became of one group.
enum Outcome {
    /// All of it that is free is ours, or as much as could be had.
    Done,
    /// Others need what is left.
    NoRoom,
    /// What was asked for here landed elsewhere.
    Strayed,
}

/// Where an allocation landed.
enum Landing {
    /// At least in part where the group had free space.
    Inside,
    /// In space that was preallocated.
    Preallocated,
    /// In free space of another group.
    Stray,
}

impl Capturer<'_> {
    /// Tries to own the free blocks in `wanted`; returns those it got.
    pub(in crate::ext4) fn capture(&self, wanted: &ExtentSet) -> Result<ExtentSet, VolumeError> {
        self.shared.balloon().forget_yield();
        let mut missing = wanted.clone();
        for extent in self.shared.balloon().owned().iter() {
            missing.remove(extent);
        }
        if missing.is_empty() {
            return Ok(missing);
        }
        let mut session = Session {
            capturer: self,
            filling: None,
            anchors: Vec::new(),
            got: ExtentSet::new(),
            drained: 0,
            free: None,
            lost_groups: 0,
        };
        let result = session.run(&missing);
        // Also after an error: nothing that was not wanted stays with us.
        let tidied = session.tidy(&missing);
        result.and(tidied)?;
        Ok(session.got)
    }

    fn count(&self, calls: usize) {
        self.calls.set(self.calls.get() + calls as u64);
    }

    /// Gives back what is not wanted.
    fn release(&self, extents: &ExtentSet) -> Result<(), VolumeError> {
        self.count(extents.pieces());
        let released = self.shared.release(extents, self.geometry.block_size);
        released.map_err(self.name.failed("giving back free space"))
    }

    fn free_in(&self, group: Extent) -> Result<ExtentSet, VolumeError> {
        self.count(1);
        let free = longrun_sys::free_extents(self.root, self.geometry.block_size, group)
            .map_err(self.name.failed("reading the free space"))?;
        Ok(free.iter().filter_map(|piece| piece.intersection(&group)).collect())
    }

    /// How many extents a donor may have so that its tree needs no more than one block: tree blocks are free space lost.
    fn extents_per_donor(&self) -> usize {
        let records = (self.geometry.block_size.bytes() as usize).saturating_sub(16) / 12;
        records.saturating_sub(8)
    }
}

/// A donor that is being filled.
struct Filling {
    donor: Arc<Donor>,
    id: DonorId,
    /// What it holds, by logical address.
    runs: BTreeMap<LogicalBlock, Run>,
}

impl Filling {
    /// The logical address that stands for `block`, if it is in reach.
    fn address_of(&self, block: PhysicalBlock) -> Option<LogicalBlock> {
        let (_, anchor) = self.runs.first_key_value()?;
        let constant = i128::from(anchor.logical.0) - i128::from(anchor.physical.0);
        let address = u64::try_from(i128::from(block.0) + constant).ok()?;
        (address < END.0).then_some(LogicalBlock(address))
    }

    /// The place that the allocator will aim at when `logical` is allocated.
    fn goal(&self, logical: LogicalBlock) -> Option<PhysicalBlock> {
        let (_, near) = self.runs.range(..=logical).next_back().or_else(|| self.runs.first_key_value())?;
        let goal = i128::from(near.physical.0) + i128::from(logical.0) - i128::from(near.logical.0);
        u64::try_from(goal).ok().map(PhysicalBlock)
    }

    fn is_free(&self, start: LogicalBlock, length: Blocks) -> bool {
        let end = start + length;
        end <= END && self.runs.range(..end).next_back().is_none_or(|(_, run)| run.logical_end() <= start)
    }

    /// Where to allocate so that `request` aims at its group: at the address of its landing, or, where an allocation
    /// that landed otherwise than expected has taken that, behind another run in the same group.
    fn slot(&self, request: Request, group: Extent) -> Option<LogicalBlock> {
        let length = request.lands.length;
        let aims_well = |at: &LogicalBlock| {
            self.is_free(*at, length) && self.goal(*at).is_some_and(|goal| group.start <= goal && goal < group.end())
        };
        let direct = self.address_of(request.lands.start)?;
        if aims_well(&direct) {
            return Some(direct);
        }
        let (from, to) = (self.address_of(group.start)?, self.address_of(group.end())?);
        self.runs.range(from..to).map(|(_, run)| run.logical_end()).find(aims_well)
    }
}

/// One call of `capture`.
struct Session<'a> {
    capturer: &'a Capturer<'a>,
    filling: Option<Filling>,
    /// The first blocks of donors: they lie wherever the kernel put them.
    anchors: Vec<Extent>,
    got: ExtentSet,
    /// Requests that were served from preallocated space.
    drained: u32,
    /// What was free in the whole volume when a landing first made us ask.
    free: Option<ExtentSet>,
    /// Groups in a row in which goals were not followed.
    lost_groups: u32,
}

impl Session<'_> {
    fn run(&mut self, missing: &ExtentSet) -> Result<(), VolumeError> {
        let left = self.pass(missing)?;
        let in_vain = self.lost_groups >= MOST_LOST_GROUPS;
        if left.is_empty() || in_vain || self.capturer.shared.balloon().has_yielded() {
            return Ok(());
        }
        // What was freed lately, by others or by us, can be obtained only after a commit.
        self.capturer.count(1);
        longrun_sys::sync_volume(self.capturer.root).map_err(self.capturer.name.failed("committing freed space"))?;
        self.await_discards(&left)?;
        self.pass(&left).map(drop)
    }

    /// On a volume that is mounted with `discard`, what has just been freed is out of the allocator's reach once more, run by
    /// run, and free blocks beside it are, too: returns when all of `missing` is there, or is not being discarded.
    fn await_discards(&self, missing: &ExtentSet) -> Result<(), VolumeError> {
        let Some(discards) = Discards::of(self.capturer.root) else { return Ok(()) };
        let Some((first, last)) = missing.iter().next().zip(missing.iter().last()) else { return Ok(()) };
        let span = Extent::between(first.start, last.end());
        discards.wait(|| {
            let free: ExtentSet = self.capturer.free_in(span)?.iter().collect();
            Ok(missing.iter().all(|extent| free.covers(extent)))
        })
    }

    /// Goes through the groups once; returns what it did not get.
    fn pass(&mut self, wanted: &ExtentSet) -> Result<ExtentSet, VolumeError> {
        let mut left = wanted.clone();
        let goals = self.capturer.tuning.honour_goals()?;
        let mut next = wanted.iter().next().map(|e| e.start);
        while let Some(block) = next {
            let group = self.capturer.geometry.group_around(block);
            let outcome = self.capture_group(group, &left)?;
            for extent in self.got.overlapping(group) {
                left.remove(extent);
            }
            self.lost_groups = if let Outcome::Strayed = outcome { self.lost_groups + 1 } else { 0 };
            if matches!(outcome, Outcome::NoRoom) || self.lost_groups >= MOST_LOST_GROUPS {
                break;
            }
            let behind = Extent::between(group.end(), PhysicalBlock(u64::MAX));
            next = wanted.overlapping(behind).next().map(|e| e.start);
        }
        drop(goals);
        Ok(left)
    }

    fn capture_group(&mut self, group: Extent, wanted: &ExtentSet) -> Result<Outcome, VolumeError> {
        let block_bytes = self.capturer.geometry.block_size.bytes();
        let mut model = GroupModel::new(group, self.capturer.free_in(group)?, block_bytes, self.capturer.stripe);
        let mut missing = within(wanted, &model.free, group);
        let mut surplus = ExtentSet::new();
        let (mut fruitless, mut strays) = (0, 0);
        let mut outcome = Outcome::Done;
        while !missing.is_empty() && fruitless < FRUITLESS {
            let mut room = self.room()?;
            if room <= surplus.total() {
                // What lies in front of the wanted blocks is more than there is room for. Given back now, it counts as free for
                // others at once, but is not handed out before the next commit: we get to what lies behind it.
                self.release_surplus(std::mem::take(&mut surplus))?;
                room = self.room()?;
            }
            if room.0 == 0 {
                outcome = Outcome::NoRoom;
                break;
            }
            let Some(request) = model.next_request(&missing, room) else { break };
            let Some(landed) = self.allocate(request, group)? else { break };
            match self.landing(&landed, &model)? {
                Landing::Inside => strays = 0,
                elsewhere => {
                    self.give_back(&landed)?;
                    if matches!(elsewhere, Landing::Preallocated) && self.drained < MOST_DRAINED {
                        self.drained += 1;
                    } else {
                        strays += 1;
                    }
                    if strays == MOST_STRAYS {
                        outcome = Outcome::Strayed;
                        break;
                    }
                    // Each commit makes free what was freed before it, and others allocate: what was read is old.
                    self.read_again(&mut model, &mut missing)?;
                    continue;
                }
            }
            let before = missing.total();
            let as_expected = matches!(landed.as_slice(), [run] if run.extent() == request.lands);
            for run in landed {
                model.taken(run.extent());
                missing.remove(run.extent());
                for part in wanted.overlapping(run.extent()) {
                    self.got.insert(part);
                }
                for part in wanted.gaps(run.extent()) {
                    surplus.insert(part);
                }
            }
            if !as_expected {
                self.read_again(&mut model, &mut missing)?;
            }
            // Blocks in front of wanted ones are progress too, as long as the group shrinks.
            fruitless = if missing.total() < before || as_expected { 0 } else { fruitless + 1 };
        }
        self.release_surplus(surplus)?;
        Ok(outcome)
    }

    /// Reads what is free in the group once more; of `missing`, what is not is given up.
    fn read_again(&self, model: &mut GroupModel, missing: &mut ExtentSet) -> Result<(), VolumeError> {
        model.free = self.capturer.free_in(model.group)?;
        *missing = within(missing, &model.free, model.group);
        Ok(())
    }

    /// Gives back what is not wanted, and reads what the donor that is being filled still holds: goals are counted from that. From
    /// runs that are gone they were up to a whole group off, and beyond the end of the volume the kernel begins at its start.
    fn release_surplus(&mut self, surplus: ExtentSet) -> Result<(), VolumeError> {
        if surplus.is_empty() {
            return Ok(());
        }
        self.capturer.release(&surplus)?;
        let Some(filling) = &mut self.filling else { return Ok(()) };
        self.capturer.count(1);
        let held = filling.donor.map(self.capturer.geometry.block_size, LogicalBlock(0), Blocks(END.0));
        let held = held.map_err(self.capturer.name.failed("mapping allocated space"))?;
        filling.runs = held.into_iter().map(|run| (run.logical, run)).collect();
        Ok(())
    }

    /// Whether an allocation landed where it was aimed at. Outside of the group it was served from preallocated
    /// space, which does not count as free, or the goal was not followed. The first such one, which no one has
    /// looked for, counts as that.
    fn landing(&mut self, landed: &[Run], model: &GroupModel) -> Result<Landing, VolumeError> {
        let touches = |free: &ExtentSet| landed.iter().any(|run| free.overlapping(run.extent()).next().is_some());
        if touches(&model.free) {
            return Ok(Landing::Inside);
        }
        if landed.iter().any(|run| run.extent().intersection(&model.group).is_some()) {
            return Ok(Landing::Preallocated);
        }
        let Some(free) = &self.free else {
            self.free = Some(self.capturer.free_in(Extent::new(0, self.capturer.geometry.total.0))?);
            return Ok(Landing::Stray);
        };
        Ok(if touches(free) { Landing::Stray } else { Landing::Preallocated })
    }

    fn room(&self) -> Result<Blocks, VolumeError> {
        if self.capturer.shared.balloon().has_yielded() {
            return Ok(Blocks(0));
        }
        self.capturer.shared.room().map_err(self.capturer.name.failed("reading the free space"))
    }

    /// Performs a request; answers where it landed, or nothing when the space ran out.
    fn allocate(&mut self, request: Request, group: Extent) -> Result<Option<Vec<Run>>, VolumeError> {
        let block_size = self.capturer.geometry.block_size;
        let full = |f: &Filling| f.runs.len() >= self.capturer.extents_per_donor();
        let slot = self.filling.as_ref().filter(|f| !full(f)).and_then(|f| f.slot(request, group));
        let slot = match slot {
            Some(slot) => slot,
            None => match self.begin_donor()?.and_then(|f| f.slot(request, group)) {
                Some(slot) => slot,
                None => return Ok(None),
            },
        };
        let Some(filling) = &mut self.filling else { return Ok(None) };
        let range = ByteRange::of_blocks(block_size, slot, request.lands.length);
        self.capturer.count(2);
        match longrun_sys::allocate(&filling.donor, range) {
            // What it allocated before it ran out of space, or of the quota of the owner of our files, shows
            // in the map.
            Ok(()) | Err(Errno::NOSPC | Errno::DQUOT) => {}
            Err(errno) => return Err(self.capturer.name.failed("allocating free space")(errno)),
        }
        let runs = filling
            .donor
            .map(block_size, slot, request.lands.length)
            .map_err(self.capturer.name.failed("mapping allocated space"))?;
        let mut balloon = self.capturer.shared.balloon();
        for run in &runs {
            filling.runs.insert(run.logical, *run);
            if !balloon.hold(filling.id, *run) {
                return Ok(None);
            }
        }
        Ok((!runs.is_empty()).then_some(runs))
    }

    /// Gives back what has just been allocated, so that its logical addresses can be used again.
    fn give_back(&mut self, landed: &[Run]) -> Result<(), VolumeError> {
        if let Some(filling) = &mut self.filling {
            for run in landed {
                filling.runs.remove(&run.logical);
            }
        }
        let extents = landed.iter().map(|run| run.extent()).collect();
        self.capturer.release(&extents)
    }

    /// Starts a donor with one block, from which distances are counted.
    fn begin_donor(&mut self) -> Result<Option<&Filling>, VolumeError> {
        let block_size = self.capturer.geometry.block_size;
        let failed = |act| self.capturer.name.failed(act);
        // Made, lengthened, allocated to and mapped.
        self.capturer.count(4);
        let donor = match Donor::create(self.capturer.root, block_size) {
            Ok(donor) => Arc::new(donor),
            Err(Errno::NOSPC | Errno::DQUOT) => return Ok(None),
            Err(errno) => return Err(failed("creating a temporary file")(errno)),
        };
        match longrun_sys::allocate(&donor, ByteRange::of_blocks(block_size, ANCHOR, Blocks(1))) {
            Ok(()) => {}
            Err(Errno::NOSPC | Errno::DQUOT) => return Ok(None),
            Err(errno) => return Err(failed("allocating free space")(errno)),
        }
        let runs = donor.map(block_size, ANCHOR, Blocks(1)).map_err(failed("mapping allocated space"))?;
        let mut balloon = self.capturer.shared.balloon();
        let id = balloon.add(Arc::clone(&donor));
        for run in &runs {
            balloon.hold(id, *run);
            self.anchors.push(run.extent());
        }
        drop(balloon);
        let runs = runs.into_iter().map(|run| (run.logical, run)).collect();
        Ok(Some(self.filling.insert(Filling { donor, id, runs })))
    }

    /// Keeps anchors that were wanted, gives the others back, closes what is empty.
    fn tidy(&mut self, wanted: &ExtentSet) -> Result<(), VolumeError> {
        let mut unwanted = ExtentSet::new();
        for anchor in std::mem::take(&mut self.anchors) {
            if wanted.covers(anchor) {
                self.got.insert(anchor);
            } else {
                unwanted.insert(anchor);
            }
        }
        self.capturer.release(&unwanted)?;
        let mut balloon = self.capturer.shared.balloon();
        balloon.close_empty();
        // The guard may have given everything back meanwhile.
        let owned: Vec<Extent> =
            self.got.iter().flat_map(|e| balloon.owned().overlapping(e).collect::<Vec<_>>()).collect();
        self.got = owned.into_iter().collect();
        Ok(())
    }
}

/// The parts of `wanted` inside `group` that are free.
fn within(wanted: &ExtentSet, free: &ExtentSet, group: Extent) -> ExtentSet {
    wanted.overlapping(group).flat_map(|part| free.overlapping(part)).collect()
}
