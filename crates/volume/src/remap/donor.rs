//! The donor: a nameless file in one new place, to which the data is copied.
//!
//! Owns its blocks until the files have taken them; the end of the process frees the rest. Never takes more space than
//! the data needs, and no space that others need.

use super::extents::left_for;
use longrun_engine::share::NotMended;
use longrun_engine::share::unit::UnitPlan;
use longrun_engine::{FileMap, SkipReason};
use longrun_layout::{BlockSize, Blocks, Bytes, Extent, LogicalBlock, LogicalRange, Run};
use longrun_sys::{ByteRange, Errno, FileSystem, Mapping};
use std::fs::File;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;

/// Free space that stays with others: a fiftieth of the volume within these bounds.
const FLOOR_DIVISOR: u64 = 50;
const FLOOR_LEAST: Bytes = Bytes(32 << 20);
const FLOOR_MOST: Bytes = Bytes(1 << 30);

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

    fn left(root: &File) -> Result<Bytes, NotMended> {
        let capacity = longrun_sys::capacity(root).map_err(|errno| left_for(errno, SkipReason::Unreadable))?;
        Ok(capacity.block_size.to_bytes(capacity.available))
    }

    /// Whether `more` can be taken, so that some more is left than must be.
    pub(crate) fn permits(self, more: Bytes, root: &File) -> Result<(), NotMended> {
        if Self::left(root)?.0 < more.0.saturating_add(self.0.0.saturating_mul(2)) {
            Err(NotMended::LowSpace)
        } else {
            Ok(())
        }
    }

    /// Whether what is taken may be kept: another process may be filling the volume. What btrfs tells lags behind by 32 MiB.
    pub(crate) fn holds(self, root: &File) -> Result<(), NotMended> {
        if Self::left(root)?.0 < self.0.0 { Err(NotMended::LowSpace) } else { Ok(()) }
    }
}

/// A donor, and where it lies.
#[derive(Debug)]
pub(crate) struct Donor {
    pub(super) file: File,
    pub(super) map: FileMap,
    /// The copy begins so many blocks behind the beginning of the file.
    shift: Blocks,
}

/// A place directly beside a block of a file, and that block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Beside {
    /// The place, which was free when it was looked at.
    pub(crate) place: Extent,
    /// The block in the file.
    pub(crate) neighbour: LogicalBlock,
    /// Whether the neighbour comes first.
    pub(crate) behind: bool,
}

impl Donor {
    /// Allocates the copy that `plan` has at `copy`, `size` bytes long.
    pub(super) fn allocate(
        directory: &File,
        block_size: BlockSize,
        in_place: bool,
        (plan, copy, size): (&UnitPlan, usize, Bytes),
        in_one: bool,
    ) -> Result<Self, Errno> {
        let planned = plan.copies.get(copy).ok_or(Errno::INVAL)?;
        let file = File::from(longrun_sys::temporary_file(directory)?);
        if longrun_sys::attributes(&file)?.is_written_in_place() != in_place {
            longrun_sys::set_written_in_place(&file, in_place)?;
        }
        // On btrfs extents are given back as a whole only: an allocation for each call leaves none that was taken in part and
        // keeps the rest from others. When the pieces came apart, one for all is tried: if the file changes while it takes
        // them, what it did not take is held until it is written anew.
        let by_calls = FileSystem::of(directory)? == Some(FileSystem::Btrfs) && !in_one;
        // Before the length is set: else btrfs first writes zeros to the block that the file would end in, elsewhere.
        if by_calls {
            for take in plan.takes.iter().filter(|take| take.copy == copy && take.member == planned.source) {
                longrun_sys::allocate(&file, ByteRange::of_blocks(block_size, take.call.donor, take.call.length))?;
            }
        } else {
            longrun_sys::allocate(&file, ByteRange { start: Bytes(0), length: size })?;
        }
        longrun_sys::set_length(&file, size)?;
        let extents = longrun_sys::map_file(&file, ByteRange::ALL, Mapping::AsIs)?;
        let runs: Vec<Run> = extents.iter().filter_map(|extent| extent.run(block_size)).collect();
        let found: Blocks = runs.iter().map(|run| run.length).sum();
        if found < planned.length {
            return Err(Errno::OPNOTSUPP);
        }
        Ok(Self { file, map: FileMap::new(runs), shift: Blocks(0) })
    }

    /// Allocates a copy of `size` bytes at a place directly beside a block of `source`, on XFS; `None` when it cannot be had.
    ///
    /// The allocator of XFS aims at the blocks next to those that the file has at that place already. So the donor shares the
    /// neighbour first, and is allocated right in front of it or behind it.
    pub(super) fn beside(
        directory: &File,
        block_size: BlockSize,
        source: &File,
        at: Beside,
        size: Bytes,
    ) -> Result<Option<Self>, Errno> {
        let length = at.place.length;
        let (shift, anchor) = if at.behind { (Blocks(1), Blocks(0)) } else { (Blocks(0), length) };
        // Whatever becomes of it, its share of the neighbour goes back when it is dropped.
        let mut donor =
            Self { file: File::from(longrun_sys::temporary_file(directory)?), map: FileMap::default(), shift };
        let neighbour = ByteRange::of_blocks(block_size, at.neighbour, Blocks(1));
        longrun_sys::share_blocks_of(source, neighbour, &donor.file, block_size.to_bytes(anchor))?;
        let begin = LogicalBlock(shift.0);
        match longrun_sys::allocate(&donor.file, ByteRange::of_blocks(block_size, begin, length)) {
            Ok(()) => {}
            Err(Errno::NOSPC) => return Ok(None),
            Err(errno) => return Err(errno),
        }
        if at.behind {
            // Where the data ends the file must end.
            longrun_sys::set_length(&donor.file, block_size.to_bytes(shift) + size)?;
        }
        let extents = longrun_sys::map_file(&donor.file, ByteRange::ALL, Mapping::AsIs)?;
        let whole = FileMap::new(extents.iter().filter_map(|extent| extent.run(block_size)));
        let copy = LogicalRange { start: begin, length };
        donor.map = FileMap::new(whole.within(copy).map(|run| Run { logical: run.logical - shift, ..run }));
        let lies = donor.map.lies(LogicalBlock(0), at.place.start, length) == length;
        Ok(lies.then_some(donor))
    }

    /// Where a block of the copy is in the donor's file.
    pub(super) fn place(&self, block: LogicalBlock) -> LogicalBlock {
        block + self.shift
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

    /// Parts with a range that the file has taken: as long as both have it, a process that writes to the file would get new
    /// blocks for that. When it fails, closing the donor does it later.
    pub(super) fn part_with(&self, block_size: BlockSize, start: LogicalBlock, length: Blocks) {
        let _ = longrun_sys::punch(&self.file, ByteRange::of_blocks(block_size, self.place(start), length));
    }
}

impl Drop for Donor {
    /// Emptied here and now: closed only, btrfs would give its space back at leisure, while others may be waiting for it.
    fn drop(&mut self) {
        let _ = longrun_sys::set_length(&self.file, Bytes(0));
    }
}

/// The directory that a file lies in, if it can be found and is on the same (sub)volume. Its owner may have put anything in
/// its place since the kernel told the path: a FIFO, a device, a link to one.
pub(super) fn directory_of(file: &File) -> Option<File> {
    let path = std::fs::read_link(longrun_sys::descriptor_path(file)).ok()?;
    directory_at(path.parent()?, file)
}

/// The directory `path`, if it is one and on the same (sub)volume as `file`.
fn directory_at(path: &Path, file: &File) -> Option<File> {
    let directory = File::from(longrun_sys::open_trusted_directory(path).ok()?);
    (file.metadata().ok()?.dev() == directory.metadata().ok()?.dev()).then_some(directory)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::symlink;

    #[test]
    fn only_a_directory_of_the_volume_that_no_link_leads_to_is_a_place_for_a_donor() {
        let top = tempfile::tempdir().unwrap();
        let top = fs::canonicalize(top.path()).unwrap();
        fs::create_dir(top.join("directory")).unwrap();
        fs::write(top.join("directory/file"), "content").unwrap();
        let file = File::open(top.join("directory/file")).unwrap();
        assert!(directory_of(&file).is_some());
        // What its owner may put in place of the directory between the look at the path and the opening of it.
        symlink(top.join("directory"), top.join("link")).unwrap();
        assert!(std::process::Command::new("mkfifo").arg(top.join("fifo")).status().unwrap().success());
        for other in ["link", "fifo", "directory/file", "none"] {
            assert!(directory_at(&top.join(other), &file).is_none(), "{other}");
        }
        for other in ["/dev/null", "/proc", ""] {
            assert!(directory_at(Path::new(other), &file).is_none(), "{other}");
        }
    }
}
