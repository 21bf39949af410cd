//! Donors: the temporary files whose blocks are exchanged with those of users' files.

use longrun_engine::{RangeMap, Slide};
use longrun_layout::{BlockSize, Blocks, Bytes, Extent, ExtentSet, LogicalBlock, Run};
use longrun_sys::{ByteRange, Errno, Mapping};
use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The end of a donor: one block less than 2^31, because allocations of longer files ignore the file's goal, however the
/// allocator is set.
pub(super) const END: LogicalBlock = LogicalBlock((1 << 31) - 2);

/// A temporary file without a name. Its blocks go back to everybody when it is dropped, when the process dies, and at
/// journal recovery.
#[derive(Debug)]
pub(in crate::ext4) struct Donor {
    file: OwnedFd,
    /// Its blocks were given back: what it held is no longer ours.
    revoked: AtomicBool,
    /// It has a name.
    kept: AtomicBool,
    /// Ranges whose exchange is under way or not yet written: whatever happens, they are not given back.
    engaged: Mutex<ExtentSet>,
}

/// A range of a donor that takes part in an exchange: the only good copy of a file's data lies there until the data
/// has been written at its new place.
#[derive(Debug)]
pub(in crate::ext4) struct Engaged {
    donor: Arc<Donor>,
    range: Extent,
}

impl Drop for Engaged {
    fn drop(&mut self) {
        self.donor.engaged().remove(self.range);
    }
}

impl AsFd for Donor {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

impl Donor {
    pub(in crate::ext4) fn create(root: &File, block_size: BlockSize) -> Result<Self, Errno> {
        let file = longrun_sys::temporary_file(root)?;
        // Exchanges and punches need the length to cover the range.
        longrun_sys::set_length(&file, block_size.to_bytes(Blocks(END.0)))?;
        Ok(Self::of(file))
    }

    pub(super) fn of(file: OwnedFd) -> Self {
        Self { file, revoked: AtomicBool::new(false), kept: AtomicBool::new(false), engaged: Mutex::default() }
    }

    fn engaged(&self) -> MutexGuard<'_, ExtentSet> {
        self.engaged.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Keeps a range from being given back until the answer is dropped; nothing when that has already happened.
    pub(in crate::ext4) fn engage(self: &Arc<Self>, start: LogicalBlock, length: Blocks) -> Option<Engaged> {
        let range = Extent::new(start.0, length.0);
        self.engaged().insert(range);
        let engaged = Engaged { donor: Arc::clone(self), range };
        // Asked afterwards: the thread that revokes it examines what is engaged after that.
        (!self.is_revoked()).then_some(engaged)
    }

    /// Gives the file a name: what it holds outlives us, and is never given back.
    pub(in crate::ext4) fn keep_as(&self, root: &File, name: &Path) -> Result<(), Errno> {
        longrun_sys::give_name(&self.file, root, name)?;
        self.kept.store(true, Ordering::Release);
        Ok(())
    }

    pub(in crate::ext4) fn is_revoked(&self) -> bool {
        self.revoked.load(Ordering::Acquire)
    }

    /// Gives all its blocks back, at once, unless it is kept. Those that take part in an exchange follow when no one
    /// has the file open any more.
    pub(in crate::ext4) fn empty(&self, block_size: BlockSize) -> Result<(), Errno> {
        if self.kept.load(Ordering::Acquire) {
            return Ok(());
        }
        let engaged = self.engaged().clone();
        if engaged.is_empty() {
            return longrun_sys::set_length(&self.file, Bytes(0));
        }
        let whole = Extent::new(0, END.0);
        let gaps = engaged.gaps(whole).into_iter();
        gaps.map(|gap| self.punch(block_size, LogicalBlock(gap.start.0), gap.length)).fold(Ok(()), Result::and)
    }

    /// Where `length` blocks from `start` lie, clipped to that range.
    pub(in crate::ext4) fn map(
        &self,
        block_size: BlockSize,
        start: LogicalBlock,
        length: Blocks,
    ) -> Result<Vec<Run>, Errno> {
        let extents =
            longrun_sys::map_file(&self.file, ByteRange::of_blocks(block_size, start, length), Mapping::AsIs)?;
        let end = start + length;
        Ok(extents.iter().filter_map(|e| e.run(block_size)).filter_map(|run| clip(run, start, end)).collect())
    }

    fn punch(&self, block_size: BlockSize, start: LogicalBlock, length: Blocks) -> Result<(), Errno> {
        longrun_sys::punch(&self.file, ByteRange::of_blocks(block_size, start, length))
    }
}

/// FIEMAP answers with whole extents; this is the part of one inside the range that was asked for.
fn clip(run: Run, start: LogicalBlock, end: LogicalBlock) -> Option<Run> {
    let (from, to) = (run.logical.max(start), run.logical_end().min(end));
    (from < to).then(|| Run { logical: from, physical: run.physical + (from - run.logical), length: to - from })
}

/// Names a donor.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(in crate::ext4) struct DonorId(u32);

/// Where an owned block lies in the donors.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Place {
    donor: DonorId,
    logical: LogicalBlock,
}

impl Slide for Place {
    fn slide(self, by: u64) -> Self {
        Self { logical: self.logical + Blocks(by), ..self }
    }
}

/// A range of owned blocks in one donor.
#[derive(Clone, Debug)]
pub(in crate::ext4) struct Stock {
    pub(in crate::ext4) id: DonorId,
    pub(in crate::ext4) donor: Arc<Donor>,
    /// Where it starts in the donor.
    pub(in crate::ext4) logical: LogicalBlock,
    /// The physical blocks.
    pub(in crate::ext4) extent: Extent,
}

/// All donors, and which of their blocks is where.
#[derive(Debug, Default)]
pub(in crate::ext4) struct Balloon {
    donors: BTreeMap<DonorId, Arc<Donor>>,
    next: u32,
    places: RangeMap<Place>,
    owned: ExtentSet,
    /// Everything was given back because others needed the space.
    yielded: bool,
}

impl Balloon {
    pub(in crate::ext4) fn add(&mut self, donor: Arc<Donor>) -> DonorId {
        let id = DonorId(self.next);
        self.next += 1;
        self.donors.insert(id, donor);
        id
    }

    /// All owned blocks.
    pub(in crate::ext4) fn owned(&self) -> &ExtentSet {
        &self.owned
    }

    /// Whether everything was given back under pressure since the last [`Self::forget_yield`].
    pub(in crate::ext4) fn has_yielded(&self) -> bool {
        self.yielded
    }

    /// Starts again after pressure.
    pub(in crate::ext4) fn forget_yield(&mut self) {
        self.yielded = false;
    }

    /// Notes that `donor` holds `run`, unless it was revoked meanwhile.
    pub(in crate::ext4) fn hold(&mut self, id: DonorId, run: Run) -> bool {
        let ours = self.donors.get(&id).is_some_and(|donor| !donor.is_revoked());
        if ours {
            self.places.assign(run.extent(), Place { donor: id, logical: run.logical });
            self.owned.insert(run.extent());
        }
        ours
    }

    /// Notes that `extent` is no longer held.
    pub(in crate::ext4) fn forget(&mut self, extent: Extent) {
        self.places.clear(extent);
        self.owned.remove(extent);
    }

    /// The owned blocks at the start of `extent` that lie together in one donor.
    pub(in crate::ext4) fn at(&self, extent: Extent) -> Option<Stock> {
        let (part, place) = self.places.overlapping(extent).next().filter(|(part, _)| part.start == extent.start)?;
        let donor = Arc::clone(self.donors.get(&place.donor)?);
        Some(Stock { id: place.donor, donor, logical: place.logical, extent: part })
    }

    /// Gives the owned blocks of `extent` back.
    pub(super) fn release(&mut self, extent: Extent, block_size: BlockSize) -> Result<(), Errno> {
        let parts: Vec<(Extent, Place)> = self.places.overlapping(extent).collect();
        for (part, place) in parts {
            if let Some(donor) = self.donors.get(&place.donor) {
                donor.punch(block_size, place.logical, part.length)?;
            }
            self.forget(part);
        }
        Ok(())
    }

    /// Lets go of a donor that another process keeps: nothing in it is ours any more.
    pub(in crate::ext4) fn disown(&mut self, donor: &Arc<Donor>) {
        let Some(id) = self.donors.iter().find_map(|(id, known)| Arc::ptr_eq(known, donor).then_some(*id)) else {
            return;
        };
        self.donors.remove(&id);
        let all = Extent::new(0, u64::MAX);
        let its = self.places.overlapping(all).filter(|(_, place)| place.donor == id).map(|(part, _)| part);
        for part in its.collect::<Vec<_>>() {
            self.forget(part);
        }
    }

    /// Closes donors that hold nothing.
    pub(in crate::ext4) fn close_empty(&mut self) {
        let all = Extent::new(0, u64::MAX);
        let used: BTreeSet<DonorId> = self.places.overlapping(all).map(|(_, place)| place.donor).collect();
        self.donors.retain(|id, _| used.contains(id));
    }

    /// Asks the file system what the donors hold, and corrects what was noted. Returns how many blocks were noted
    /// wrongly.
    pub(in crate::ext4) fn verify(&mut self, block_size: BlockSize) -> Result<Blocks, Errno> {
        let mut truth = (RangeMap::default(), ExtentSet::new());
        let mut wrong = 0;
        for (id, donor) in &self.donors {
            for run in donor.map(block_size, LogicalBlock(0), Blocks(END.0))? {
                let place = Place { donor: *id, logical: run.logical };
                let noted: u64 = self
                    .places
                    .overlapping(run.extent())
                    .filter(|(part, noted)| *noted == place.slide(part.start.0 - run.physical.0))
                    .map(|(part, _)| part.length.0)
                    .sum();
                wrong += run.length.0 - noted;
                truth.0.assign(run.extent(), place);
                truth.1.insert(run.extent());
            }
        }
        wrong += self.owned.iter().flat_map(|e| truth.1.gaps(e)).map(|gap| gap.length.0).sum::<u64>();
        (self.places, self.owned) = truth;
        Ok(Blocks(wrong))
    }

    /// Takes everything away; the caller empties the donors, without a lock being held.
    pub(in crate::ext4) fn revoke(&mut self) -> Vec<Arc<Donor>> {
        let donors: Vec<_> = std::mem::take(&mut self.donors).into_values().collect();
        for donor in &donors {
            donor.revoked.store(true, Ordering::Release);
        }
        self.places = RangeMap::default();
        self.owned = ExtentSet::new();
        self.yielded = true;
        donors
    }
}
