//! Placing by heat, at the end of `optimize`: hot files go to where the disk reads faster, within a day's allowance.
//!
//! Owns whether that is done, and what it may cost. What goes where the planner decides, and how it is moved the engine.

use crate::args::optimize::{OptimizeArgs, PlacementName};
use crate::commands::heat::{Counted, below, counted};
use crate::exit::Failure;
use crate::progress::{Unit, Watch};
use crate::report::placing::{Expected, Placed};
use crate::report::print;
use jiff::Timestamp;
use longrun_engine::{Opened, Report, Scan, ScanProgress, Settings};
use longrun_heat::{Day, Found, HeatTable, Kept, Minute, Placing, seconds_per_read};
use longrun_layout::{Blocks, Bytes, FileId, VolumeLayout};
use longrun_planner::{Batch, FastEnd, FileUse, Placement, ZonePlan};
use longrun_profile::{Fastest, Kept as Profiles, Profile, members};
use longrun_volume::Target;
use longrun_volume::target::Subject;
use std::collections::BTreeSet;
use std::path::Path;
use std::time::Instant;

/// Of what is used this part may be moved a day because of its heat.
const A_DAY: u64 = 100;
/// When all is placed, the disk must need no more than this part of the time before.
const LEAST_GAIN: f64 = 0.98;
/// So many reads must have been counted.
const LEAST_READS: f64 = 1000.0;

/// Everything that placing needs.
pub(super) struct Placer {
    table: HeatTable,
    now: Minute,
    profile: Profile,
    placement: Placement,
    kept: Kept,
    id: String,
    today: Day,
    only_plan: bool,
}

/// Whether files are placed.
pub(super) enum Choice {
    /// Not asked for, and nothing to say.
    Silent,
    /// It was asked for, and does not pay or cannot be done: why.
    No(Placed),
    /// It pays here.
    Yes(Box<Placer>),
}

impl Choice {
    /// For a volume. What goes wrong here is a reason not to place files, not to fail.
    pub(super) fn of(args: &OptimizeArgs, target: &Target) -> Self {
        let asked = args.placement;
        let is_volume = target.subject == Subject::Volume && target.mount.is_some();
        if asked == Some(PlacementName::Off) || (!is_volume && asked.is_none()) {
            return Self::Silent;
        }
        match Placer::of(args, target) {
            Ok(placer) => Self::Yes(Box::new(placer)),
            Err(why) if asked.is_some() => Self::No(Placed::refused(why)),
            Err(_) => Self::Silent,
        }
    }
}

impl Placer {
    fn of(args: &OptimizeArgs, target: &Target) -> Result<Self, String> {
        let told = |failure: Failure| failure.to_string();
        let Counted { id, uuid, .. } = counted(target, &args.state).map_err(told)?;
        let filesystem = longrun_volume::file_system_name(target);
        let below = below(target.device_number, &args.state).map_err(told)?;
        let placing = Placing::on(&filesystem, &below);
        let given = target.given.display().to_string();
        let fastest = placing.fastest().ok_or_else(|| placing.sentence(&given, &filesystem, &below))?;
        let kept = Kept::within(&args.state);
        let table = match kept.find(&id, uuid).map_err(|error| error.to_string())? {
            Found::Table(table) => table,
            Found::Nothing => {
                return Err("no reads were counted yet: the service counts them while it runs (heat)".to_owned());
            }
            Found::Damaged(what) => return Err(format!("the table of reads cannot be used: {what}")),
        };
        let second = Timestamp::now().as_second();
        let now = Minute::of_seconds(second).max(table.updated());
        if table.totals(now).reads < LEAST_READS {
            return Err("too few reads were counted to tell hot files from others".to_owned());
        }
        let profile = profile(target, &args.state).ok_or("the disk was not measured")?;
        let uses = table
            .files(now)
            .map(|(file, heat)| (file, FileUse { reads: heat.reads.into(), changes: heat.changes.into() }))
            .collect();
        let fast = if fastest == Fastest::Beginning { FastEnd::Beginning } else { FastEnd::End };
        let placement = Placement { uses, stay: BTreeSet::new(), fast, budget: Blocks(0) };
        let today = Day(u32::try_from(second / 86_400).unwrap_or_default());
        let only_plan = args.placement == Some(PlacementName::Plan);
        Ok(Self { table, now, profile, placement, kept, id, today, only_plan })
    }

    /// The same, but for files that must stay where they are.
    pub(super) fn without(mut self: Box<Self>, stay: &BTreeSet<FileId>) -> Box<Self> {
        self.placement.stay.clone_from(stay);
        self
    }

    /// Plans for the last scan of a volume, of which `left` bytes may be moved by this run.
    fn plan(&mut self, scan: &mut Scan, settings: &Settings, left: Option<Bytes>) -> Option<(ZonePlan, Placed)> {
        // What is gained shows when all is placed, which takes days; a day's part alone can look worse.
        self.placement.budget = Blocks(u64::MAX);
        let whole = longrun_engine::plan_placement(scan, &self.placement, settings)?;
        let layout = scan.layout();
        let after = self.seconds_after(layout, &whole);
        let expected = self.seconds(layout).zip(after).map(|(before, after)| Expected { before, after });
        let pays = expected.as_ref().is_none_or(|expected| expected.after <= expected.before * LEAST_GAIN);
        if !whole.batches.is_empty() && !pays {
            return Some((ZonePlan::default(), Placed { expected, ..Placed::refused(NO_GAIN.to_owned()) }));
        }
        let size = u64::from(layout.block_size().bytes());
        let allowed = layout.fragmentation().used_bytes.0 / A_DAY;
        let today = allowed.saturating_sub(self.kept.moved_on(&self.id, self.today));
        self.placement.budget = Blocks(left.map_or(today, |left| left.0.min(today)) / size);
        let plan = if whole.moved <= self.placement.budget {
            whole
        } else {
            longrun_engine::plan_placement(scan, &self.placement, settings)?
        };
        let placed = Placed {
            expected_now: self.seconds_after(scan.layout(), &plan),
            files: plan.placed,
            bytes: Bytes(plan.moved.0 * size),
            allowed_today: Bytes(today),
            without_partner: plan.without_partner,
            over_budget: plan.over_budget,
            expected,
            ..Placed::default()
        };
        Some((plan, placed))
    }

    /// What would be placed. Changes nothing.
    pub(super) fn foresee(&mut self, scan: &mut Scan, settings: &Settings) -> Placed {
        match self.plan(scan, settings, settings.budget) {
            Some((_, placed)) => Placed { only_planned: true, ..placed },
            None => Placed::refused(NO_PLACES.to_owned()),
        }
    }

    /// Places hot files of a volume of which this run has moved `moved` before.
    pub(super) fn place(
        &mut self,
        volume: &mut Opened,
        settings: &Settings,
        moved: Bytes,
        is_told: bool,
        watch: &mut Watch,
    ) -> Result<(Placed, Option<(Report, VolumeLayout)>), Failure> {
        let begun = Instant::now();
        watch.phase("planning by heat", Unit::Steps);
        let mut scan = volume.scan(&ScanProgress::new(watch, 0))?;
        let left = settings.budget.map(|budget| budget.saturating_sub(moved));
        let Some((plan, mut placed)) = self.plan(&mut scan, settings, left) else {
            return Ok((Placed::refused(NO_PLACES.to_owned()), None));
        };
        placed.only_planned = self.only_plan;
        if is_told {
            watch.finish();
            print(&placed.text())?;
        }
        if self.only_plan || plan.batches.is_empty() {
            return Ok((placed, None));
        }
        // What is moved counts for today even if this run does not live to see the end of it.
        self.kept.note_moved(&self.id, self.today, placed.bytes.0)?;
        let settings = Settings { budget: None, ..settings.clone() };
        let (report, layout) = longrun_engine::place(volume, scan, plan.batches, begun, &settings, watch)?;
        placed.moved = Some(report.bytes_moved);
        placed.reached = self.seconds(&layout);
        Ok((placed, Some((report, layout))))
    }

    /// When a plan has been carried out as it is.
    fn seconds_after(&self, layout: &VolumeLayout, plan: &ZonePlan) -> Option<f64> {
        let moves = plan.batches.iter().flat_map(Batch::moves).map(|planned| planned.step);
        self.seconds(&longrun_layout::apply_moves(layout, moves).ok()?)
    }

    fn seconds(&self, layout: &VolumeLayout) -> Option<f64> {
        seconds_per_read(layout, &self.table, self.now, &self.profile)
    }
}

const NO_GAIN: &str = "not done: even with all hot files placed, the disk would hardly be faster";
const NO_PLACES: &str = "not done: on this volume no place can be chosen";

/// The kept profile of the one device.
fn profile(target: &Target, state: &Path) -> Option<Profile> {
    let members = members(target.device_number?);
    let identity = members.first()?.identity()?;
    Profiles::within(state).find(&identity, Timestamp::now()).ok().flatten()
}
