//! The donor: a nameless file of ours in one new place, to which the data is copied.
//!
//! Owns its blocks until the files have taken them; the end of the process gives back what it still has. Never takes more
//! than the data needs, and nothing that others need.

use super::LeftReason;
use super::extents::left_for;
use super::unit::{UnitPlan, are_worth_taking};
use crate::SkipReason;
use crate::engine::file_map::FileMap;
use longrun_layout::{BlockSize, Blocks, Bytes, LogicalBlock, Run};
use longrun_sys::{ByteRange, Errno, Mapping};
use std::fs::File;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;

/// Free space that stays with others: a fiftieth of the volume within these bounds.
const FLOOR_DIVISOR: u64 = 50;
const FLOOR_LEAST: Bytes = Bytes(32 << 20);
const FLOOR_MOST: Bytes = Bytes(1 << 30);

/// How much is copied at a time.
pub(super) const COPIED_AT_ONCE: usize = 1 << 20;

/// What stays with others.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Floor(Bytes);

impl Floor {
    /// As asked for, or by the size of the volume.
    pub(crate) fn of(asked: Option<Bytes>, root: &File) -> Result<Self, Errno> {
        let capacity = longrun_sys::capacity(root)?;
        let share = capacity.block_size.to_bytes(capacity.total).0 / FLOOR_DIVISOR;
        Ok(Self(asked.unwrap_or(Bytes(share.clamp(FLOOR_LEAST.0, FLOOR_MOST.0)))))
    }

    fn left(root: &File) -> Result<Bytes, LeftReason> {
        let capacity = longrun_sys::capacity(root).map_err(|errno| left_for(errno, SkipReason::Unreadable))?;
        Ok(capacity.block_size.to_bytes(capacity.available))
    }

    /// Whether `more` can be taken, so that some more is left than must be.
    pub(crate) fn permits(self, more: Bytes, root: &File) -> Result<(), LeftReason> {
        if Self::left(root)?.0 < more.0.saturating_add(self.0.0.saturating_mul(2)) {
            Err(LeftReason::LowSpace)
        } else {
            Ok(())
        }
    }

    /// Whether what is taken may be kept: somebody else may be filling the volume. What btrfs tells lags behind by 32 MiB.
    pub(crate) fn holds(self, root: &File) -> Result<(), LeftReason> {
        if Self::left(root)?.0 < self.0.0 { Err(LeftReason::LowSpace) } else { Ok(()) }
    }
}

/// A donor, and where it lies.
#[derive(Debug)]
pub(super) struct Donor {
    pub(super) file: File,
    pub(super) map: FileMap,
}

/// How a donor on btrfs gets its space. Elsewhere both are the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Pieces {
    /// An allocation for each call. Extents are given back as a whole only, so none that was taken in part then keeps the
    /// rest from others.
    Calls,
    /// One for all, for which the allocator looks for one place: for when the pieces came apart. If the file changes while
    /// it takes them, what it did not take is held until it is written anew.
    One,
}

/// What donors are made for.
#[derive(Clone, Copy)]
pub(super) struct Wanted<'a> {
    pub(super) plan: &'a UnitPlan,
    /// The length of each copy, its last block cut where the source ends in it.
    pub(super) bytes: &'a [Bytes],
    pub(super) block_size: BlockSize,
    /// As the files are.
    pub(super) in_place: bool,
    /// The excess fragments as things are.
    pub(super) excess: u64,
}

impl Wanted<'_> {
    fn total(&self) -> Bytes {
        self.bytes.iter().copied().sum()
    }
}

/// The donors with which the files would lie best, one for each copy. They are made beside a file, where the file
/// system would look for space for it, or at the root of the volume. `excess_with` tells what the files would lie in.
pub(super) fn best(
    root: &File,
    beside: Option<&File>,
    wanted: Wanted<'_>,
    floor: Floor,
    excess_with: impl Fn(&[Donor]) -> u64,
) -> Result<Vec<Donor>, LeftReason> {
    let mut best: Option<(u64, Vec<Donor>)> = None;
    let mut trouble = LeftReason::NoGain;
    let beside = beside.and_then(directory_of);
    let places = beside.as_ref().into_iter().chain([root, root]).map(|place| (place, Pieces::Calls));
    for (directory, pieces) in places.chain([(root, Pieces::One)]) {
        if best.is_some() {
            // The best so far are kept, so that the next are put elsewhere: as far as others can spare it.
            if floor.permits(wanted.total(), root).is_err() {
                break;
            }
        }
        let made: Result<Vec<Donor>, Errno> =
            (0..wanted.plan.copies.len()).map(|copy| Donor::allocate(directory, &wanted, copy, pieces)).collect();
        match made {
            Ok(donors) => {
                let excess = excess_with(&donors);
                if best.as_ref().is_none_or(|(least, _)| excess < *least) {
                    best = Some((excess, donors));
                }
                if excess == 0 {
                    break;
                }
            }
            Err(errno) => trouble = left_for(errno, SkipReason::Unreadable),
        }
    }
    let (excess, donors) = best.ok_or(trouble)?;
    if are_worth_taking(wanted.excess, excess) { Ok(donors) } else { Err(LeftReason::NoGain) }
}

impl Donor {
    fn allocate(directory: &File, wanted: &Wanted<'_>, copy: usize, pieces: Pieces) -> Result<Self, Errno> {
        let (plan, block_size) = (wanted.plan, wanted.block_size);
        let (planned, size) = plan.copies.get(copy).zip(wanted.bytes.get(copy)).ok_or(Errno::INVAL)?;
        let file = File::from(longrun_sys::temporary_file(directory)?);
        if longrun_sys::attributes(&file)?.is_written_in_place() != wanted.in_place {
            longrun_sys::set_written_in_place(&file, wanted.in_place)?;
        }
        // Before the length is set: else btrfs first writes zeros to the block that the file would end in, elsewhere.
        let by_calls = longrun_sys::file_system_magic(directory)? == longrun_sys::FileSystemMagic::BTRFS;
        if by_calls && pieces == Pieces::Calls {
            for take in plan.takes.iter().filter(|take| take.copy == copy && take.member == planned.source) {
                longrun_sys::allocate(&file, ByteRange::of_blocks(block_size, take.call.donor, take.call.length))?;
            }
        } else {
            longrun_sys::allocate(&file, ByteRange { start: Bytes(0), length: *size })?;
        }
        longrun_sys::set_length(&file, *size)?;
        let extents = longrun_sys::map_file(&file, ByteRange::ALL, Mapping::AsIs)?;
        let runs: Vec<Run> = extents.iter().filter_map(|extent| extent.run(block_size)).collect();
        let found: Blocks = runs.iter().map(|run| run.length).sum();
        if found < planned.length {
            return Err(Errno::OPNOTSUPP);
        }
        Ok(Self { file, map: FileMap::new(runs) })
    }

    /// Copies a range of `file`; `range` is in bytes of the file, `to` the place in the donor.
    pub(super) fn copy(&self, file: &File, range: ByteRange, to: Bytes, buffer: &mut [u8]) -> std::io::Result<()> {
        let mut done = 0;
        while done < range.length.0 {
            let next = buffer.len().min(usize::try_from(range.length.0 - done).unwrap_or(usize::MAX));
            let Some(part) = buffer.get_mut(..next) else { break };
            file.read_exact_at(part, range.start.0 + done)?;
            self.file.write_all_at(part, to.0 + done)?;
            done += next as u64;
        }
        Ok(())
    }

    /// Parts with a range that the file has taken: as long as both have it, whoever writes to the file would get new
    /// blocks for that. When it fails, closing the donor does it later.
    pub(super) fn part_with(&self, block_size: BlockSize, start: LogicalBlock, length: Blocks) {
        let _ = longrun_sys::punch(&self.file, ByteRange::of_blocks(block_size, start, length));
    }
}

impl Drop for Donor {
    /// Emptied here and now: closed only, btrfs would give its space back at leisure, while others may be waiting for it.
    fn drop(&mut self) {
        let _ = longrun_sys::set_length(&self.file, Bytes(0));
    }
}

/// The directory that a file lies in, if it can be found and is on the same (sub)volume.
fn directory_of(file: &File) -> Option<File> {
    let path = std::fs::read_link(format!("/proc/self/fd/{}", file.as_raw_fd())).ok()?;
    let directory = File::open(path.parent().filter(|parent| *parent != Path::new(""))?).ok()?;
    let (of_file, of_directory) = (file.metadata().ok()?, directory.metadata().ok()?);
    (of_directory.is_dir() && of_file.dev() == of_directory.dev()).then_some(directory)
}
