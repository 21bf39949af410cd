//! Mends one file of a mounted volume by the engine, without a scan.
//!
//! Owns a view of the volume that contains only that file and free space that was just allocated for it; everything
//! else is an obstacle. Exchange, verification, the guard of free space and the cleanup are those of every other run.
//! Never examines another file.

use super::Ext4Volume;
use super::balloon::Donor;
use super::files::OpenFile;
use crate::Target;
use crate::mend::{Limits, MendError, Mended, NotMended, Place, await_permission, worth_moving};
use longrun_engine::placed::{PlanSource, optimize_with};
use longrun_engine::share::unit::are_worth_taking;
use longrun_engine::{
    Exchanged, FileMap, MoveError, Observer, Part, Permission, Placed, Progress, Settings, SkipReason, Status, Stop,
    Turn, Volume, VolumeError, VolumeInfo,
};
use longrun_layout::{
    Blocks, Bytes, Extent, ExtentSet, FileId, FileMove, InodeNumber, LayoutBuilder, LogicalBlock, NO_DIRECTORY,
    PhysicalBlock, Run, VolumeLayout, count_fragments,
};
use longrun_planner::{Batch, Mode, PlannedMove, Policy, Step, Why};
use longrun_sys::{ByteRange, Errno, FileHandle};
use std::sync::Arc;
use std::time::Duration;

/// The longest piece that one extent record holds, when nothing has been written to it: longer requests are rounded.
const LONGEST: Blocks = Blocks(32_767);

/// How often a place in one piece is looked for.
const TRIES: u32 = 4;

/// Mends the file `handle`.
pub(crate) fn mend(
    place: Place<'_>,
    handle: &FileHandle,
    limits: Limits,
    observer: &mut dyn Observer,
) -> Result<Mended, MendError> {
    let id = id_of(handle).ok_or_else(|| MendError::left(NotMended::Skipped(SkipReason::Vanished)))?;
    let target = Target::resolve(place.point)?;
    let mut inner = Ext4Volume::open_for_one_file(&target).map_err(MendError::unless_in_use)?;
    let (file, runs) = survey(&mut inner, id)?;
    let before = count_fragments(runs.iter().copied()).saturating_sub(1);
    if before == 0 {
        return Ok(Mended { before, after: 0, moved: Bytes(0) });
    }
    let block_size = inner.geometry.block_size;
    let end = LogicalBlock(block_size.to_blocks(file.length).0);
    let movable: Vec<Run> = runs.iter().filter_map(|run| up_to(*run, end)).collect();
    let parts = worth_moving(&movable, block_size, limits.worth);
    if parts.is_empty() {
        return Err(MendError::left(NotMended::WholeEnough));
    }
    let map = FileMap::new(movable);
    let movable: Vec<Run> = parts.iter().flat_map(|part| map.within(*part)).collect();
    let needed: Blocks = movable.iter().map(|run| run.length).sum();
    if block_size.to_bytes(needed) > limits.budget {
        return Err(MendError::left(NotMended::Budget));
    }
    await_permission(observer, block_size.to_bytes(needed))?;
    let mut one = OneFile { inner, id, file, stock: ExtentSet::new() };
    let pieces = one.stock_up(needed, limits.floor)?;
    let excess_in = |pieces: &[Extent]| fragments_after(&runs, &moves(&movable, pieces)).saturating_sub(1);
    // In one piece far from everything.
    let at_best = excess_in(&[Extent { start: PhysicalBlock(1 << 60), length: needed }]);
    if !are_worth_taking(before.saturating_sub(at_best), excess_in(&pieces).saturating_sub(at_best)) {
        return Err(MendError::left(NotMended::NoGain));
    }
    let moves = moves(&movable, &pieces);
    let settings = Settings { mode: Mode::Files, rounds: 1, patience: Duration::ZERO, ..Settings::default() };
    let mut watch = Watch { observer, skipped: None };
    let report = optimize_with(&mut one, &settings, &mut watch, &IntoStock { moves });
    let skipped = watch.skipped;
    let report = report.map_err(|error| MendError::Volume(error.cause))?;
    let (before, after) = (report.before.excess_fragments, report.after.excess_fragments);
    let mended = Mended { before, after, moved: report.bytes_moved };
    if after < before {
        return Ok(mended);
    }
    let reason = match (report.stop, skipped) {
        (Some(Stop::SpaceNeeded), _) | (_, Some(SkipReason::SpaceNeeded)) => NotMended::LowSpace,
        (Some(_), _) => NotMended::Cancelled,
        (None, Some(reason)) => NotMended::Skipped(reason),
        (None, None) => NotMended::NoGain,
    };
    Err(MendError::Left { reason, written: report.bytes_moved })
}

/// ext4's handles are the inode number and the generation.
fn id_of(handle: &FileHandle) -> Option<FileId> {
    let &[a, b, c, d, e, f, g, h] = handle.bytes() else { return None };
    (handle.kind() == 1).then(|| FileId {
        inode: InodeNumber(u64::from(u32::from_ne_bytes([a, b, c, d]))),
        generation: u32::from_ne_bytes([e, f, g, h]),
    })
}

/// The file, open, and everything that it has.
fn survey(inner: &mut Ext4Volume, id: FileId) -> Result<(Arc<OpenFile>, Vec<Run>), MendError> {
    let translated = |error| match error {
        MoveError::Skip(reason) => MendError::left(NotMended::Skipped(reason)),
        MoveError::Fatal(error) => error.into(),
    };
    let file = inner.files.open(id).map_err(translated)?;
    let runs = inner.map(id).map_err(translated)?;
    Ok((file, runs))
}

/// The part of `run` before `end`: what is preallocated behind the end of a file does not move.
fn up_to(run: Run, end: LogicalBlock) -> Option<Run> {
    let length = run.logical_end().min(end);
    (run.logical < length).then(|| Run { length: length - run.logical, ..run })
}

/// What is asked of the engine: the runs of a file one after the other into `pieces`.
fn moves(runs: &[Run], pieces: &[Extent]) -> Vec<FileMove> {
    let mut moves = Vec::new();
    let mut pieces = pieces.iter().copied();
    let mut piece = Extent::new(0, 0);
    for run in runs {
        let mut done = Blocks(0);
        while done < run.length {
            if piece.length.0 == 0 {
                let Some(next) = pieces.next() else { return moves };
                piece = next;
                continue;
            }
            let length = piece.length.min(run.length - done);
            moves.push(FileMove {
                file: longrun_layout::FileIndex(0),
                logical: run.logical + done,
                source: run.physical + done,
                target: piece.start,
                length,
            });
            piece = Extent { start: piece.start + length, length: piece.length - length };
            done += length;
        }
    }
    moves
}

fn fragments_after(runs: &[Run], moves: &[FileMove]) -> u64 {
    let mut map = FileMap::new(runs.iter().copied());
    moves.iter().for_each(|step| map.put(step.logical, step.target, step.length));
    map.fragments()
}

/// The plan: made already.
struct IntoStock {
    moves: Vec<FileMove>,
}

impl PlanSource for IntoStock {
    fn plan<'l>(&self, _layout: &'l VolumeLayout, _policy: Policy) -> Box<dyn Iterator<Item = Batch> + Send + 'l> {
        let planned = |step: &FileMove| Step::Move(PlannedMove { step: *step, why: Why::Defragment });
        Box::new(std::iter::once(Batch { steps: self.moves.iter().map(planned).collect(), saves: 0 }))
    }
}

/// The caller's observer, and why the file was left.
struct Watch<'a> {
    observer: &'a mut dyn Observer,
    skipped: Option<SkipReason>,
}

impl Observer for Watch<'_> {
    fn status(&mut self, status: Status) {
        self.observer.status(status);
    }

    fn skipped(&mut self, file: FileId, reason: SkipReason) {
        self.skipped = Some(reason);
        self.observer.skipped(file, reason);
    }

    fn permission(&mut self, next: Bytes) -> Permission {
        self.observer.permission(next)
    }

    fn turn(&self) -> Turn {
        self.observer.turn()
    }

    fn cancelled(&self) -> bool {
        self.observer.cancelled()
    }

    fn wait(&mut self, time: Duration) {
        self.observer.wait(time);
    }
}

/// The volume as if there were only this file.
struct OneFile {
    inner: Ext4Volume,
    id: FileId,
    /// Open throughout, so that an error of writing it back is told to us whenever it happens.
    file: Arc<OpenFile>,
    /// Allocated for it, and not asked for by the engine yet.
    stock: ExtentSet,
}

impl OneFile {
    /// Allocates `needed` blocks in as few pieces as the file system gives in some tries. What was given before is kept
    /// meanwhile, so that the next try is put elsewhere; in the end only the best stays.
    fn stock_up(&mut self, needed: Blocks, floor: Option<Bytes>) -> Result<Vec<Extent>, MendError> {
        self.inner.shared.balloon().forget_yield();
        let mut best: Option<Vec<Extent>> = None;
        for _ in 0..TRIES {
            if !self.is_room_for(needed, floor)? {
                break;
            }
            let pieces = match self.inner.guard.watching(|| self.allocate(needed)) {
                Ok(pieces) => pieces,
                Err(Errno::NOSPC | Errno::DQUOT) => break,
                Err(errno) => {
                    return Err(MendError::Volume(self.inner.name.failed("allocating free space")(errno)));
                }
            };
            let whole = pieces.len() == 1;
            if best.as_ref().is_none_or(|best| pieces.len() < best.len()) {
                best = Some(pieces);
            }
            if whole {
                break;
            }
        }
        let pieces = best.ok_or_else(|| MendError::left(NotMended::LowSpace))?;
        self.stock = pieces.iter().copied().collect();
        let mut surplus = self.inner.owned()?;
        for piece in &pieces {
            surplus.remove(*piece);
        }
        self.inner.release(&surplus)?;
        Ok(pieces)
    }

    fn is_room_for(&self, needed: Blocks, floor: Option<Bytes>) -> Result<bool, MendError> {
        let failed = || self.inner.name.failed("reading the free space");
        let room = self.inner.shared.room().map_err(failed())?;
        let unclaimed = self.inner.shared.unclaimed().map_err(failed())?;
        let floor = floor.map_or(Blocks(0), |floor| self.inner.geometry.block_size.to_blocks(floor));
        Ok(room >= needed && unclaimed >= needed + floor)
    }

    /// In pieces that one extent record holds, each of which the file system looks for a place for by its own length.
    fn allocate(&self, needed: Blocks) -> Result<Vec<Extent>, Errno> {
        let block_size = self.inner.geometry.block_size;
        let donor = Arc::new(Donor::create(&self.inner.root, block_size)?);
        let id = self.inner.shared.balloon().add(Arc::clone(&donor));
        let mut done = Blocks(0);
        let mut pieces: Vec<Extent> = Vec::new();
        while done < needed {
            let at = LogicalBlock(done.0);
            let length = LONGEST.min(needed - done);
            longrun_sys::allocate(&donor, ByteRange::of_blocks(block_size, at, length))?;
            for run in donor.map(block_size, at, length)? {
                if !self.inner.shared.balloon().hold(id, run) {
                    return Err(Errno::NOSPC);
                }
                match pieces.last_mut() {
                    Some(last) if last.end() == run.physical => last.length += run.length,
                    _ => pieces.push(run.extent()),
                }
            }
            done += length;
        }
        Ok(pieces)
    }

    fn stocked(&self) -> Blocks {
        self.stock.total()
    }
}

impl Volume for OneFile {
    type Scan = VolumeLayout;

    fn info(&self) -> VolumeInfo {
        self.inner.info()
    }

    fn scan(&mut self, _progress: &dyn Progress) -> Result<VolumeLayout, VolumeError> {
        let geometry = self.inner.geometry;
        let mut builder = LayoutBuilder::new(geometry.block_size, geometry.total);
        let mut runs = match self.inner.map(self.id) {
            Ok(runs) => runs,
            // A file that is gone is in no fragments.
            Err(MoveError::Skip(_)) => Vec::new(),
            Err(MoveError::Fatal(error)) => return Err(error),
        };
        builder.push_file(self.id, NO_DIRECTORY, false, None, &mut runs);
        for piece in self.stock.iter() {
            builder.push_free(piece);
        }
        let VolumeInfo { target: path, filesystem, .. } = self.inner.info();
        builder.build().map_err(|error| VolumeError::Damaged { path, filesystem, detail: error.to_string() })
    }

    fn unclaimed(&mut self) -> Result<Blocks, VolumeError> {
        // What waits for the engine counts as free until it is asked for, as it would if it still were.
        Ok(self.inner.unclaimed()? + self.stocked())
    }

    /// The volume's dirty data is no one's business here, so that this is no sync of all of it. What makes exchanges durable
    /// is a commit of the journal behind them: a file made just now belongs to the transaction of this moment, and syncing it
    /// commits that one and all before it. (Syncing the mended file alone would not do: it commits only what the kernel
    /// noted as a change of that inode, which an exchange in a leaf of its tree need not be.)
    fn commit(&mut self) -> Result<(), VolumeError> {
        self.inner.finish_moves()?;
        let failed = |errno: Errno| VolumeError::Barrier { path: self.inner.name.0.clone(), source: errno.into() };
        longrun_sys::sync_file(&self.file).map_err(failed)?;
        let marker = longrun_sys::temporary_file(&self.inner.root).map_err(failed)?;
        longrun_sys::sync_file(marker).map_err(failed)?;
        longrun_sys::sync_file(&self.inner.root).map_err(failed)?;
        self.inner.shared.balloon().verify(self.inner.geometry.block_size).map_err(failed)?;
        self.inner.shared.failure().map_or(Ok(()), |errno| Err(failed(errno)))
    }
}

impl Placed for OneFile {
    fn capture(&mut self, wanted: &ExtentSet) -> Result<ExtentSet, VolumeError> {
        let owned = self.inner.owned()?;
        let got = wanted.iter().flat_map(|part| owned.overlapping(part).collect::<Vec<_>>()).collect::<ExtentSet>();
        for part in got.iter() {
            self.stock.remove(part);
        }
        Ok(got)
    }

    fn capture_calls(&self) -> u64 {
        self.inner.capture_calls()
    }

    fn release(&mut self, extents: &ExtentSet) -> Result<(), VolumeError> {
        for part in extents.iter() {
            self.stock.remove(part);
        }
        self.inner.release(extents)
    }

    fn owned(&mut self) -> Result<ExtentSet, VolumeError> {
        self.inner.owned()
    }

    fn map(&mut self, file: FileId) -> Result<Vec<Run>, MoveError> {
        self.inner.map(file)
    }

    fn bring_in(&mut self, part: Part, pieces: &[Run]) -> Result<(), MoveError> {
        self.inner.bring_in(part, pieces)
    }

    fn await_pieces(&mut self, part: Part, pieces: &[Run]) -> Result<(), MoveError> {
        self.inner.await_pieces(part, pieces)
    }

    fn exchange(
        &mut self,
        file: FileId,
        logical: LogicalBlock,
        target: PhysicalBlock,
        length: Blocks,
    ) -> Result<Exchanged, MoveError> {
        self.inner.exchange(file, logical, target, length)
    }

    fn pause(&mut self) -> Result<(), VolumeError> {
        self.inner.pause()
    }
}
