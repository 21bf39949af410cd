//! Files written anew on a mounted btrfs, with all who share their extents.
//!
//! Owns the last look before it: are they still the files of the scan, does nobody else share by now? The work is
//! [`crate::rewrite`]'s.

use super::units::Remainder;
use super::{Owner, SubvolumeId};
use crate::chunked::{Halt, Pace, Task};
use crate::engine::{Observer, Permission, Stop, Turn};
use crate::live::Named;
use crate::rewrite::{Durable, Ended, Floor, LeftReason, Place, Request, Sharers, Subject, open, rewrite};
use crate::{SkipReason, VolumeError};
use longrun_layout::{BlockSize, Bytes, FileIndex, InodeNumber, LogicalBlock, PhysicalBlock, Pin, Run};
use longrun_sys::{Errno, FileHandle, TreeId};
use std::collections::BTreeSet;
use std::fs::File;
use std::time::Duration;

/// Free space below which nothing is begun, whatever the pass says: the file system's own figure lags behind.
const LEAST_FREE: Bytes = Bytes(8 << 20);

/// Writes what `task` names anew.
pub(super) fn gather(
    name: &Named,
    root: &File,
    block_size: BlockSize,
    scan: &Remainder,
    task: &Task,
    pace: &mut dyn Pace,
) -> Result<Option<SkipReason>, Halt> {
    let subjects = match subjects(root, block_size, scan, task) {
        Ok(subjects) => subjects,
        Err(reason) => return ended(Ended::Left(reason), pace),
    };
    let floor = Floor::of(Some(LEAST_FREE), root).map_err(|errno| name.failed("asking for the free space")(errno))?;
    let place = Place { root, point: &name.0 };
    let request = Request {
        place,
        subjects: &subjects,
        parts: &task.parts,
        floor,
        durable: Durable::WithTheCommit,
        beside: false,
    };
    let mut written = Bytes(0);
    let done = rewrite(&request, &mut Paced { pace }, &mut written);
    pace.wrote(written);
    match done {
        Ok(()) => Ok(None),
        Err(why) => ended(why, pace),
    }
}

fn ended(why: Ended, pace: &dyn Pace) -> Result<Option<SkipReason>, Halt> {
    let reason = match why {
        Ended::Failed(error) => return Err(error.into()),
        Ended::Left(reason) => reason,
    };
    Ok(Some(match reason {
        LeftReason::Cancelled => return Err(pace.stop().unwrap_or(Stop::Cancelled).into()),
        LeftReason::Skipped(reason) => reason,
        // By the scan nobody else shared it.
        LeftReason::Shared => SkipReason::Changed,
        LeftReason::Compressed => SkipReason::Compressed,
        LeftReason::NoGain | LeftReason::WholeEnough => SkipReason::TargetTaken,
        LeftReason::LowSpace | LeftReason::Budget => SkipReason::SpaceNeeded,
        LeftReason::OtherOptimizer => SkipReason::Busy,
    }))
}

/// All files of a task, open, and as the scan has seen them.
fn subjects(root: &File, block_size: BlockSize, scan: &Remainder, task: &Task) -> Result<Vec<Subject>, LeftReason> {
    let owner = |file: &FileIndex| scan.owners.get(file.0 as usize);
    let shares = task.members.len() > 1 || task.members.iter().filter_map(owner).any(|owner| owner.traits.is_shared());
    let sharers = if shares { Sharers::Known } else { Sharers::None };
    let mut subjects = Vec::with_capacity(task.members.len());
    for file in &task.members {
        let owner = owner(file).ok_or(LeftReason::Skipped(SkipReason::Vanished))?;
        let handle = handle(owner).ok_or(LeftReason::Skipped(SkipReason::Pinned(Pin::NoGeneration)))?;
        let subject = Subject::of(open(root, &handle)?, block_size, sharers)?;
        if shares && !lies_as_seen(scan, *file, block_size, &subject) {
            return Err(LeftReason::Skipped(SkipReason::Changed));
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
fn refuse_other_sharers(root: &File, scan: &Remainder, task: &Task) -> Result<(), LeftReason> {
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
            Ok(()) | Err(Errno::NOENT) => return Err(LeftReason::Skipped(SkipReason::Changed)),
            Err(Errno::OVERFLOW) => return Err(LeftReason::Skipped(SkipReason::Pinned(Pin::Shared))),
            Err(_) => return Err(LeftReason::Skipped(SkipReason::Unreadable)),
        }
    }
    Ok(())
}

/// A pace, asked as observers are.
struct Paced<'a> {
    pace: &'a mut dyn Pace,
}

impl Observer for Paced<'_> {
    fn permission(&mut self, next: Bytes) -> Permission {
        self.pace.permission(next)
    }

    fn turn(&self) -> Turn {
        self.pace.turn()
    }

    fn cancelled(&self) -> bool {
        self.pace.stop().is_some()
    }

    fn wait(&mut self, time: Duration) {
        self.pace.wait(time);
    }
}

/// That a volume cannot be worked on now.
pub(super) fn in_use(name: &Named, holder: String) -> VolumeError {
    VolumeError::InUse { path: name.0.clone(), holder }
}
