//! Writes files again on a mounted btrfs, together with all files that share their extents.
//!
//! Owns the final check before it: the files are still those of the scan, and no other file shares them by now.
//! [`crate::remap`] does the work.

use super::units::Remainder;
use super::{Owner, SubvolumeId};
use crate::mounted::Named;
use crate::remap::{Floor, Place, Sharers, Subject, Unit, open, rewrite};
use longrun_engine::relocated::{Meter, Task, left};
use longrun_engine::share::{Durable, Ended, NotMended};
use longrun_engine::{Halt, SkipReason, VolumeError};
use longrun_layout::{BlockSize, Bytes, FileIndex, InodeNumber, LogicalBlock, PhysicalBlock, Pin, Run};
use longrun_sys::{Errno, FileHandle, TreeId};
use std::collections::BTreeSet;
use std::fs::File;

/// Free space below which nothing is begun, whatever the pass says: the file system's own figure lags behind.
const LEAST_FREE: Bytes = Bytes(8 << 20);

/// Rewrites the files of `task`.
pub(super) fn gather(
    name: &Named,
    root: &File,
    block_size: BlockSize,
    scan: &Remainder,
    task: &Task,
    meter: &mut dyn Meter,
) -> Result<Option<SkipReason>, Halt> {
    let subjects = match subjects(root, block_size, scan, task) {
        Ok(subjects) => subjects,
        Err(reason) => return ended(Ended::Left(reason), meter),
    };
    let floor = Floor::of(Some(LEAST_FREE), root).map_err(|errno| name.failed("reading the free space")(errno))?;
    let place = Place { root, point: &name.0 };
    let unit = Unit {
        place,
        subjects: &subjects,
        parts: &task.parts,
        floor,
        durable: Durable::WithTheCommit,
        beside: false,
        at: None,
    };
    let mut written = Bytes(0);
    let done = rewrite(unit, meter, &mut written);
    meter.wrote(written);
    match done {
        Ok(()) => Ok(None),
        Err(why) => ended(why, meter),
    }
}

fn ended(why: Ended, meter: &dyn Meter) -> Result<Option<SkipReason>, Halt> {
    match why {
        Ended::Failed(error) => Err(error.into()),
        Ended::Left(reason) => left(reason, meter).map(Some),
    }
}

/// All files of a task, open, and as the scan has seen them.
fn subjects(root: &File, block_size: BlockSize, scan: &Remainder, task: &Task) -> Result<Vec<Subject>, NotMended> {
    let owner = |file: &FileIndex| scan.owners.get(file.0 as usize);
    let shares = task.members.len() > 1 || task.members.iter().filter_map(owner).any(|owner| owner.traits.is_shared());
    let sharers = if shares { Sharers::Known } else { Sharers::None };
    let mut subjects = Vec::with_capacity(task.members.len());
    for file in &task.members {
        let owner = owner(file).ok_or(NotMended::Skipped(SkipReason::Vanished))?;
        let handle = handle(owner).ok_or(NotMended::Skipped(SkipReason::Pinned(Pin::NoGeneration)))?;
        let subject = Subject::of(open(root, &handle)?, block_size, sharers)?;
        if shares && !lies_as_seen(scan, *file, block_size, &subject) {
            return Err(NotMended::Skipped(SkipReason::Changed));
        }
        subjects.push(subject);
    }
    if shares {
        refuse_other_sharers(root, scan, task)?;
    }
    Ok(subjects)
}

fn handle(owner: &Owner) -> Option<FileHandle> {
    // Handles have the low 32 bits of the generation.
    FileHandle::on_btrfs(TreeId(owner.subvolume.0), owner.inode, owner.generation as u32)
}

/// Whether a file's data still is where the scan saw it: only then are those who share it known.
fn lies_as_seen(scan: &Remainder, file: FileIndex, block_size: BlockSize, subject: &Subject) -> bool {
    let joined = |runs: &mut dyn Iterator<Item = Run>| {
        let mut joined: Vec<Run> = Vec::new();
        for run in runs {
            match joined.last_mut().filter(|last| last.continues_into(&run)) {
                Some(last) => last.length += run.length,
                None => joined.push(run),
            }
        }
        joined
    };
    let end = LogicalBlock(block_size.to_blocks(subject.survey.size).0);
    let seen = scan.extents.of(file).filter_map(|extent| {
        let (address, bytes) = extent.read();
        let logical = LogicalBlock(block_size.to_blocks(extent.logical).0);
        let physical = PhysicalBlock(address.0 / u64::from(block_size.bytes()));
        let run = Run { logical, physical, length: block_size.to_blocks(bytes) };
        (logical < end).then(|| Run { length: run.length.min(end - logical), ..run })
    });
    joined(&mut { seen }) == joined(&mut subject.survey.data.iter().copied())
}

/// Refuses when a snapshot or clone was made since the scan: it would keep the old extents, and space would be lost.
fn refuse_other_sharers(root: &File, scan: &Remainder, task: &Task) -> Result<(), NotMended> {
    let known: BTreeSet<(SubvolumeId, InodeNumber)> = task
        .members
        .iter()
        .filter_map(|file| scan.owners.get(file.0 as usize))
        .map(|owner| (owner.subvolume, owner.inode))
        .collect();
    let extents: BTreeSet<u64> =
        task.members.iter().flat_map(|file| scan.extents.of(*file).map(|extent| extent.disk.0)).collect();
    for address in extents {
        let mut others = false;
        let asked = longrun_sys::for_each_reference(root, address, |reference| {
            others |= !known.contains(&(SubvolumeId(reference.subvolume.0), reference.inode));
        });
        match asked {
            Ok(()) if !others => {}
            Ok(()) | Err(Errno::NOENT) => return Err(NotMended::Skipped(SkipReason::Changed)),
            Err(Errno::OVERFLOW) => return Err(NotMended::Skipped(SkipReason::Pinned(Pin::Shared))),
            Err(_) => return Err(NotMended::Skipped(SkipReason::Unreadable)),
        }
    }
    Ok(())
}

/// That a volume cannot be worked on now.
pub(super) fn in_use(name: &Named, holder: String) -> VolumeError {
    VolumeError::InUse { path: name.0.clone(), holder }
}
