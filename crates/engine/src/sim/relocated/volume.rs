//! The simulated volume as an implementation of the trait.

use super::faults::{ChunkFaults, Fate};
use super::space::Space;
use crate::Halt;
use crate::file_map::FileMap;
use crate::relocated::{ChunkKey, Evacuated, Meter, Picture, Relocated, Task, UnitOfFiles};
use crate::share::MOVED_AT_ONCE;
use crate::share::unit::{Member, UnitPlan, are_worth_taking, blocks_of};
use crate::{Progress, SkipReason, Volume, VolumeError, VolumeInfo};
use longrun_layout::{
    BlockSize, Blocks, Bytes, Extent, ExtentSet, FileId, FileIndex, InodeNumber, LayoutBuilder, LogicalBlock,
    LogicalRange, NO_DIRECTORY, PhysicalBlock, Pin, Run, VolumeLayout,
};
use std::collections::{BTreeMap, BTreeSet};

#[derive(Clone, Debug)]
struct SimFile {
    id: FileId,
    directory: u32,
    is_directory: bool,
    pin: Option<Pin>,
    runs: Vec<Run>,
    /// Another process wrote to it since the last scan.
    changed: bool,
    /// Another process made it, or wrote to it at any time.
    foreign: bool,
}

/// A volume in memory that allocates its space in chunks.
#[derive(Clone, Debug)]
pub struct SimChunkedVolume {
    block_size: BlockSize,
    total_blocks: Blocks,
    space: Space,
    files: Vec<SimFile>,
    units: Vec<UnitOfFiles>,
    staying: Vec<(FileIndex, SkipReason)>,
    chunk_length: Blocks,
    fate: Fate,
    /// Chunks that refuse, once decided.
    stubborn: BTreeSet<ChunkKey>,
    meek: BTreeSet<ChunkKey>,
    refused: BTreeMap<ChunkKey, Vec<u64>>,
    least_unclaimed: Blocks,
    initial: Vec<Vec<Run>>,
}

impl SimChunkedVolume {
    /// A volume that looks like `picture`, without faults and other users.
    #[must_use]
    pub fn new(picture: &Picture) -> Self {
        let files: Vec<SimFile> = picture
            .layout
            .files()
            .map(|file| SimFile {
                id: file.id(),
                directory: file.record.directory,
                is_directory: file.record.is_directory,
                pin: file.record.pin,
                runs: file.runs().collect(),
                changed: false,
                foreign: false,
            })
            .collect();
        Self {
            block_size: picture.layout.block_size(),
            total_blocks: picture.layout.total_blocks(),
            space: Space::of(picture),
            initial: files.iter().map(|file| file.runs.clone()).collect(),
            files,
            units: picture.units.clone(),
            staying: picture.staying.clone(),
            chunk_length: picture.chunk_length,
            fate: Fate::new(ChunkFaults::default(), 0),
            stubborn: BTreeSet::new(),
            meek: BTreeSet::new(),
            refused: BTreeMap::new(),
            least_unclaimed: Blocks(u64::MAX),
        }
    }

    /// The same volume with things going wrong; `seed` decides everything that is random.
    #[must_use]
    pub fn with_faults(mut self, faults: ChunkFaults, seed: u64) -> Self {
        self.fate = Fate::new(faults, seed);
        self
    }

    /// Whether the fault that was asked for has happened.
    #[must_use]
    pub fn fault_happened(&self) -> bool {
        self.fate.hit
    }

    /// The least that was free while something was being written by us.
    #[must_use]
    pub fn least_unclaimed(&self) -> Blocks {
        self.least_unclaimed
    }

    /// What each chunk that refused to be emptied held whenever it was asked.
    pub fn refusals(&self) -> impl Iterator<Item = &[u64]> + '_ {
        self.refused.values().map(Vec::as_slice)
    }

    /// What everything looks like.
    #[must_use]
    pub fn layout(&self) -> VolumeLayout {
        let mut builder = LayoutBuilder::new(self.block_size, self.total_blocks).sharing(true);
        for file in &self.files {
            builder.push_file(file.id, file.directory, file.is_directory, file.pin, &mut file.runs.clone());
        }
        self.space.free_extents().for_each(|extent| builder.push_free(extent));
        builder.build().unwrap_or_else(|error| unreachable!("the simulated volume is always consistent: {error}"))
    }

    /// Checks that no space was lost or given out twice, that every file has all its blocks, and that what was shared is.
    ///
    /// # Errors
    /// The first contradiction.
    pub fn check(&self) -> Result<(), String> {
        let free: ExtentSet = self.space.free_extents().collect();
        let listed: Blocks = self.space.free_blocks();
        if free.total() != listed {
            return Err(format!("{} free blocks, but {listed} are listed", free.total()));
        }
        for file in &self.files {
            for run in &file.runs {
                if free.overlapping(run.extent()).next().is_some() {
                    return Err(format!("{:?}: {run:?} is free", file.id));
                }
            }
        }
        let mut once: Vec<(Extent, Extent)> = Vec::new();
        for (file, initial) in self.files.iter().zip(&self.initial).filter(|(file, _)| !file.foreign) {
            let now = FileMap::new(file.runs.iter().copied());
            for run in initial {
                let mut at = run.logical;
                for part in now.within(run.logical_range()) {
                    if part.logical != at {
                        return Err(format!("{:?} has lost block {at}", file.id));
                    }
                    let old = run.physical + (part.logical - run.logical);
                    once.push((Extent { start: old, length: part.length }, part.extent()));
                    at = part.logical_end();
                }
                if at != run.logical_end() {
                    return Err(format!("{:?} has lost block {at}", file.id));
                }
            }
        }
        self.check_sharing(once)
    }

    /// Old blocks and new ones must correspond one to one: then what was shared is, and nothing else.
    fn check_sharing(&self, mut pairs: Vec<(Extent, Extent)>) -> Result<(), String> {
        for _ in 0..2 {
            pairs.sort_unstable();
            for pair in pairs.windows(2) {
                let [(a, new_a), (b, new_b)] = pair else { continue };
                if a.end() > b.start {
                    let expected = new_a.start + (b.start - a.start);
                    if expected != new_b.start {
                        return Err(format!("block {} has become {expected} and {}", b.start, new_b.start));
                    }
                }
            }
            pairs.iter_mut().for_each(|(old, new)| std::mem::swap(old, new));
        }
        Ok(())
    }

    /// All space that there is, in chunks or not.
    #[must_use]
    pub fn total(&self) -> Blocks {
        self.space.total()
    }

    /// A call begins: others may have done something before it, and it may fail.
    fn call(&mut self, act: &'static str) -> Result<(), VolumeError> {
        if self.fate.somebody_acts() {
            self.somebody_does_something();
        }
        if self.fate.is_hungry() {
            self.somebody_takes_everything();
        }
        if self.fate.strikes() {
            let source = std::io::Error::from_raw_os_error(5);
            return Err(VolumeError::Io { path: "simulated".into(), act, source });
        }
        Ok(())
    }

    fn somebody_does_something(&mut self) {
        let size = Blocks(self.fate.rng.u64(1..64));
        match self.fate.rng.u8(..3) {
            0 => self.somebody_writes(size),
            1 => {
                let foreign: Vec<usize> = (self.initial.len()..self.files.len()).collect();
                if let Some(at) = self.fate.rng.choice(foreign) {
                    self.give_up(at);
                }
            }
            _ => {
                // Another process writes a file of the volume anew that no one shares.
                let alone: Vec<usize> =
                    self.units.iter().filter(|u| u.members.len() == 1).map(|u| u.members[0].0.0 as usize).collect();
                let Some(at) = self.fate.rng.choice(alone) else { return };
                let Some(pieces) = self.space.pieces(size) else { return };
                self.give_up(at);
                if let Some(file) = self.files.get_mut(at) {
                    file.runs = runs_of(&pieces);
                }
            }
        }
    }

    fn somebody_writes(&mut self, size: Blocks) {
        let Some(pieces) = self.space.pieces(size) else { return };
        let id = FileId { inode: InodeNumber(1_000_000 + self.files.len() as u64), generation: 7 };
        self.files.push(SimFile {
            id,
            directory: NO_DIRECTORY,
            is_directory: false,
            pin: None,
            runs: runs_of(&pieces),
            changed: true,
            foreign: true,
        });
    }

    fn somebody_takes_everything(&mut self) {
        while self.space.free_blocks().0 > 0 {
            let size = self.space.free_blocks();
            let before = self.files.len();
            self.somebody_writes(size);
            if self.files.len() == before {
                break;
            }
        }
    }

    fn give_up(&mut self, at: usize) {
        if let Some(file) = self.files.get_mut(at) {
            let old: ExtentSet = file.runs.iter().map(Run::extent).collect();
            file.runs.clear();
            (file.changed, file.foreign) = (true, true);
            self.space.free(&old);
        }
    }

    fn members(&self, task: &Task) -> Vec<Member> {
        let all = [LogicalRange::ALL];
        let within = if task.parts.is_empty() { &all[..] } else { &task.parts };
        let data = |file: &SimFile| {
            let map = FileMap::new(file.runs.iter().copied());
            within.iter().flat_map(|part| map.within(*part).collect::<Vec<Run>>()).collect::<Vec<Run>>()
        };
        let size =
            |runs: &[Run]| Bytes(runs.last().map_or(0, |run| run.logical_end().0) * u64::from(self.block_size.bytes()));
        task.members
            .iter()
            .filter_map(|index| self.files.get(index.0 as usize))
            .map(|file| Member { runs: file.runs.clone(), data: data(file), size: size(&file.runs) })
            .collect()
    }

    /// Copies for a plan, or none when there is no space.
    fn copies(&mut self, plan: &UnitPlan) -> Option<Vec<FileMap>> {
        let mut copies: Vec<FileMap> = Vec::new();
        for copy in &plan.copies {
            let Some(pieces) = self.space.pieces(copy.length) else {
                self.drop_copies(&copies);
                return None;
            };
            copies.push(FileMap::new(runs_of(&pieces)));
        }
        Some(copies)
    }

    fn drop_copies(&mut self, copies: &[FileMap]) {
        let extents: Vec<Extent> = copies.iter().flat_map(|copy| copy.runs().map(|run| run.extent())).collect();
        extents.into_iter().for_each(|extent| self.space.unused(extent));
    }
}

fn runs_of(pieces: &[Extent]) -> Vec<Run> {
    let mut logical = LogicalBlock(0);
    pieces
        .iter()
        .map(|piece| {
            let run = Run { logical, physical: piece.start, length: piece.length };
            logical = logical + piece.length;
            run
        })
        .collect()
}

impl Volume for SimChunkedVolume {
    type Scan = Picture;

    fn info(&self) -> VolumeInfo {
        VolumeInfo { target: "simulated".into(), device: "simulated".into(), filesystem: "sim".to_owned() }
    }

    fn scan(&mut self, _progress: &dyn Progress) -> Result<Picture, VolumeError> {
        self.call("reading the volume")?;
        self.files.iter_mut().for_each(|file| file.changed = false);
        let layout = self.layout();
        let in_pieces = |file: &FileIndex| layout.file(*file).is_some_and(|file| file.fragments() > 1);
        Ok(Picture {
            chunks: self.space.data_chunks(),
            unallocated: self.space.unallocated().total(),
            chunk_length: self.chunk_length,
            units: self.units.clone(),
            staying: self.staying.iter().filter(|(file, _)| in_pieces(file)).copied().collect(),
            layout,
            only_files: None,
        })
    }

    fn unclaimed(&mut self) -> Result<Blocks, VolumeError> {
        self.call("reading the free space")?;
        Ok(self.space.free_blocks())
    }

    fn commit(&mut self) -> Result<(), VolumeError> {
        self.call("committing")?;
        self.space.commit();
        Ok(())
    }
}

impl Relocated for SimChunkedVolume {
    fn gather(&mut self, task: &Task, meter: &mut dyn Meter) -> Result<Option<SkipReason>, Halt> {
        self.call("moving a file")?;
        let is_changed = |index: &FileIndex| self.files.get(index.0 as usize).is_none_or(|file| file.changed);
        if task.members.iter().any(is_changed) {
            return Ok(Some(SkipReason::Changed));
        }
        let members = self.members(task);
        let most = self.block_size.to_blocks(MOVED_AT_ONCE);
        let Some(plan) = UnitPlan::new(&members, self.block_size, most) else {
            return Ok(Some(SkipReason::NotExchangeable));
        };
        meter.before(self.block_size.to_bytes(plan.written()))?;
        let Some(copies) = self.copies(&plan) else { return Ok(Some(SkipReason::SpaceNeeded)) };
        self.least_unclaimed = self.least_unclaimed.min(self.space.free_blocks());
        let before: u64 = members.iter().map(Member::fragments).sum();
        let at_best = plan.fragments_at_best(&members);
        let excess = |fragments: u64| fragments.saturating_sub(at_best);
        if !are_worth_taking(excess(before), excess(plan.fragments_with(&members, &copies))) {
            self.drop_copies(&copies);
            return Ok(Some(SkipReason::TargetTaken));
        }
        meter.wrote(self.block_size.to_bytes(plan.written()));
        self.space.free(&blocks_of(&members));
        for (number, index) in task.members.iter().enumerate() {
            let Some(file) = self.files.get_mut(index.0 as usize) else { continue };
            let whole = Member::plain(std::mem::take(&mut file.runs), Bytes(0));
            file.runs = plan.map_after(number, &whole, &copies).runs().collect();
        }
        Ok(None)
    }

    fn evacuate(&mut self, chunk: ChunkKey, meter: &mut dyn Meter) -> Result<Evacuated, Halt> {
        self.call("emptying a chunk")?;
        let Some((extent, mut used)) = self.space.used_in(chunk) else { return Ok(Evacuated::Gone) };
        if !self.stubborn.contains(&chunk) && !self.meek.contains(&chunk) {
            let refuses = self.fate.rng.u8(..100) < self.fate.faults.stubborn;
            if refuses {
                self.stubborn.insert(chunk)
            } else {
                self.meek.insert(chunk)
            };
        }
        if self.stubborn.contains(&chunk) {
            self.refused.entry(chunk).or_default().push(used.total().0);
            return Ok(Evacuated::NoSpace);
        }
        let mut cuts: BTreeSet<PhysicalBlock> = BTreeSet::new();
        for run in self.files.iter().flat_map(|file| &file.runs) {
            if let Some(part) = run.extent().intersection(&extent) {
                cuts.extend([part.start, part.end()]);
            }
        }
        let segments: Vec<Extent> = used.iter().flat_map(|piece| cut(piece, &cuts)).collect();
        let mut moved: Vec<(Extent, PhysicalBlock)> = Vec::with_capacity(segments.len());
        let mut hint = None;
        for segment in segments {
            let Some(place) = self.space.whole(segment.length, hint, Some(chunk)) else {
                moved.iter().for_each(|(old, new)| self.space.unused(Extent { start: *new, length: old.length }));
                return Ok(Evacuated::NoSpace);
            };
            hint = Some(place.end());
            moved.push((segment, place.start));
        }
        self.least_unclaimed = self.least_unclaimed.min(self.space.free_blocks());
        meter.wrote(self.block_size.to_bytes(used.total()));
        for file in &mut self.files {
            if file.runs.iter().any(|run| run.extent().intersection(&extent).is_some()) {
                file.runs = file.runs.iter().flat_map(|run| relocated(run, &extent, &moved)).collect();
            }
        }
        used.remove(extent);
        self.space.remove(chunk);
        Ok(Evacuated::Emptied)
    }
}

/// A piece, cut where extents begin or end.
fn cut(piece: Extent, cuts: &BTreeSet<PhysicalBlock>) -> Vec<Extent> {
    let mut at = piece.start;
    let inside = cuts.range(PhysicalBlock(piece.start.0 + 1)..piece.end()).copied();
    let mut parts = Vec::new();
    for end in inside.chain([piece.end()]) {
        parts.push(Extent::between(at, end));
        at = end;
    }
    parts
}

/// A run of which the part inside a chunk has moved; the moved extents are ascending and cut where runs are.
fn relocated(run: &Run, chunk: &Extent, moved: &[(Extent, PhysicalBlock)]) -> Vec<Run> {
    let Some(inside) = run.extent().intersection(chunk) else { return vec![*run] };
    let mut parts = Vec::new();
    let logical = |physical: PhysicalBlock| run.logical + (physical - run.physical);
    if run.physical < inside.start {
        parts.push(Run { length: inside.start - run.physical, ..*run });
    }
    let first = moved.partition_point(|(old, _)| old.start < inside.start);
    for (old, new) in moved.get(first..).unwrap_or_default().iter().take_while(|(old, _)| old.start < inside.end()) {
        parts.push(Run { logical: logical(old.start), physical: *new, length: old.length });
    }
    if inside.end() < run.extent().end() {
        parts.push(Run {
            logical: logical(inside.end()),
            physical: inside.end(),
            length: run.extent().end() - inside.end(),
        });
    }
    parts
}
