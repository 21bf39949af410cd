//! What is read at boot comes together on a disk that rotates, after the pass: reading it ahead needs no seeks then.
//!
//! Owns whether that is done, and what it may cost. Which files these are, and whether it pays, says the list of boots; where they go the
//! planner decides, and how they are moved the engine. Every pass leaves them where they came together.

use super::Job;
use crate::args::optimize::{OptimizeArgs, PlacementName};
use crate::commands::heat::{Counted, below, counted};
use crate::exit::Failure;
use crate::progress::{Unit, Watch, say};
use crate::report::at_boot::Together as Told;
use crate::report::print;
use longrun_boot::{Lies, List, Names, Next, Order, Root, Store, Together, Volume, replan};
use longrun_engine::{Opened, Scan, ScanProgress, Settings, Stop};
use longrun_layout::{Bytes, FileId, FileView, VolumeLayout};
use longrun_planner::{FastEnd, Gathering, Mode};
use longrun_profile::Fastest;
use longrun_sys::{ByteRange, Errno, FileSystem, OFlags, open_by_id};
use longrun_volume::Target;
use longrun_volume::target::Subject;
use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

/// The list of boots of a volume.
pub(super) struct AtBoot {
    root: Root,
    store: Store,
    list: List,
    mount_point: PathBuf,
    fast: FastEnd,
    only_plan: bool,
}

/// For what they leave to be filled again, at most so many times their size is moved.
const FILL: u64 = 2;

/// What came of it.
#[derive(Default)]
pub(super) struct Came {
    /// What the report says of it, if anything.
    pub told: Option<Told>,
    /// What stays in its place from now on.
    pub stay: BTreeSet<FileId>,
    /// The volume after it and what was moved, if anything was.
    pub then: Option<(VolumeLayout, Bytes)>,
    /// Why it was stopped, if it was.
    pub stop: Option<Stop>,
}

impl AtBoot {
    /// For a volume; `None` where no boot was recorded on it, or places of files do not matter or cannot be chosen exactly. What goes wrong
    /// here is a reason not to gather, not to fail.
    pub(super) fn of(args: &OptimizeArgs, target: &Target) -> Option<Self> {
        let mount = target.mount.as_ref().filter(|_| target.subject == Subject::Volume)?;
        let is_full = |mode: Option<Mode>| mode.is_none_or(|mode| mode == Mode::Full);
        let may_be_full = is_full(args.mode.map(Mode::from)) && is_full(args.at_most.map(Mode::from));
        if args.placement == Some(PlacementName::Off) || !may_be_full {
            return None;
        }
        let Counted { uuid, filesystem, .. } = counted(target, &args.state).ok()?;
        let below = below(target.device_number, &args.state).ok()?;
        if filesystem != FileSystem::Ext4 || !below.rotates || below.gradients.len() > 1 {
            return None;
        }
        let root = Root::open(Path::new("/")).ok()?;
        let store = Store::find(&root, &args.state).ok()??;
        let list = store.list(&Names::boot()).ok()?.filter(|list| list.uuid == uuid)?;
        let is_off = store.history(&Names::boot()).is_ok_and(|history| history.next() == Next::Off);
        let at_end = below.gradients.first() == Some(&Some(Some(Fastest::End)));
        (!is_off).then(|| Self {
            root,
            store,
            list,
            mount_point: mount.point.clone(),
            fast: if at_end { FastEnd::End } else { FastEnd::Beginning },
            only_plan: args.placement == Some(PlacementName::Plan),
        })
    }

    /// What would be done. Changes nothing.
    pub(super) fn foresee(&self, scan: &mut Scan, settings: &Settings) -> Option<Told> {
        let together = self.together(scan.layout());
        together.pays().then(|| self.plan(&together, scan, settings)).flatten().map(|(_, told)| told)
    }

    /// What a pass must leave in its place: what lies together, unless it is about to come together elsewhere.
    pub(super) fn stay(&self, layout: &VolumeLayout) -> BTreeSet<FileId> {
        staying(&self.together(layout))
    }

    /// Has the files come together where that pays, and what they left filled again. A run has moved `moved` before, since `begun`.
    pub(super) fn gather(
        &self,
        volume: &mut Opened,
        job: &Job<'_>,
        moved: Bytes,
        begun: Instant,
        watch: &mut Watch,
    ) -> Result<Came, Failure> {
        watch.phase("reading the volume", Unit::Steps);
        let mut scan = volume.scan(&ScanProgress::new(watch, 0))?;
        let budget = job.settings.budget.map(|budget| budget.saturating_sub(moved));
        let settings = Settings { mode: Mode::Full, budget, ..job.settings.clone() };
        let together = self.together(scan.layout());
        if !together.pays() {
            return Ok(Came { stay: staying(&together), ..Came::default() });
        }
        let Some((plan, mut told)) = self.plan(&together, &mut scan, &settings) else { return Ok(Came::default()) };
        if job.is_told {
            watch.finish();
            print(&told.text(self.only_plan))?;
        }
        if self.only_plan {
            return Ok(Came { told: Some(told), ..Came::default() });
        }
        let (report, layout) = longrun_engine::place(volume, scan, plan.batches, begun, &settings, watch)?;
        let then = self.together(&layout);
        let stay = staying(&then);
        told.reached = Some(then.now().as_secs_f64());
        let (mut bytes, mut stop, mut then) = (report.bytes_moved, report.stop, layout);
        if stop.is_none() {
            let least = Bytes(bytes.0 * FILL);
            let budget = budget.map_or(least, |budget| budget.saturating_sub(bytes).min(least));
            let settings = Settings { budget: Some(budget), stay: Arc::new(stay.clone()), ..settings };
            let scan = volume.scan(&ScanProgress::new(watch, 0))?;
            let plan = job.plan(scan, &settings, &ScanProgress::new(watch, 0))?;
            let (report, layout) = longrun_engine::carry_out(volume, plan, begun, &settings, watch)?;
            // The budget is what this may cost: a run that spends it has done what it should.
            stop = report.stop.filter(|stop| *stop != Stop::Budget);
            (bytes, then) = (bytes + report.bytes_moved, layout);
        }
        told.moved = Some(bytes);
        Ok(Came { told: Some(told), stay, then: Some((then, bytes)), stop })
    }

    fn plan(&self, together: &Together, scan: &mut Scan, settings: &Settings) -> Option<(Gathering, Told)> {
        let plan = longrun_engine::plan_gathering(scan, together.files(), self.fast, settings)?;
        let bytes = Bytes(plan.moved.0 * u64::from(scan.layout().block_size().bytes()));
        let told = Told::planned(plan.files.len() as u64, bytes, together.now(), together.side_by_side());
        Some((plan, told))
    }

    /// Plans reading ahead anew, now that files lie elsewhere. Without it the next boot seeks; the one after that has a new plan anyway.
    pub(super) fn plan_anew(&self) {
        let planned = File::open(&self.mount_point).map_err(|error| error.to_string()).and_then(|directory| {
            let volume = Volume::of(directory.into(), &self.root).map_err(|error| error.to_string())?;
            replan(&self.store, &Names::boot(), &volume, Order::Disk).map_err(|error| error.to_string())
        });
        if let Err(error) = planned {
            say(&format!("reading ahead at boot is not planned anew: {error}; run longrun boot plan"));
        }
    }

    fn together(&self, layout: &VolumeLayout) -> Together {
        let size = u64::from(layout.block_size().bytes());
        let listed: BTreeSet<FileId> = self.list.files().into_iter().collect();
        let bytes = |blocks: u64| Bytes(blocks.saturating_mul(size));
        let files = || layout.files().filter(|file| listed.contains(&file.id()));
        let movable: BTreeSet<FileId> = files().filter(FileView::is_movable).map(|file| file.id()).collect();
        let places: BTreeMap<FileId, Vec<Lies>> = files()
            .map(|file| {
                let lies = file.runs().map(|run| Lies {
                    range: ByteRange { start: bytes(run.logical.0), length: bytes(run.length.0) },
                    at: bytes(run.physical.0),
                });
                (file.id(), lies.collect())
            })
            .collect();
        let together =
            |can_move: &dyn Fn(FileId) -> bool| Together::of(&self.list, |file| places.get(&file).cloned(), can_move);
        let all = together(&|file| movable.contains(&file));
        if !all.pays() {
            return all;
        }
        let running = self.running(all.files());
        together(&|file| movable.contains(&file) && !running.contains(&file))
    }

    /// Programs that run: they cannot be opened for writing, and so not be moved. /proc tells a service with few capabilities little of them.
    fn running(&self, files: &[FileId]) -> BTreeSet<FileId> {
        let Ok(directory) = File::open(&self.mount_point) else { return BTreeSet::new() };
        let flags = OFlags::RDWR | OFlags::NOATIME | OFlags::NONBLOCK;
        let runs = |file: &FileId| open_by_id(&directory, *file, flags).is_err_and(|error| error == Errno::TXTBSY);
        files.iter().copied().filter(runs).collect()
    }
}

fn staying(together: &Together) -> BTreeSet<FileId> {
    if together.pays() { BTreeSet::new() } else { together.files().iter().copied().collect() }
}
