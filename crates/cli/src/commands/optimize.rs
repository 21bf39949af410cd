//! `optimize`: reads the volume, plans, prints the plan, executes that plan, and reports the result.

mod at_boot;
mod by_service;
mod placing;
mod scope;

use self::at_boot::AtBoot;
use self::placing::Choice;
use super::disk::{Disk, Outcome};
use crate::args::optimize::OptimizeArgs;
use crate::exit::{Failure, Status, after};
use crate::progress::{Unit, Watch};
use crate::report::analysis::Analysis;
use crate::report::at_boot::Together;
use crate::report::came::Came;
use crate::report::nothing::NothingFigures;
use crate::report::optimization::{Optimization, Plan as Told, PlannedFile, ended};
use crate::report::placing::Placed;
use crate::report::{print, print_json};
use crate::survey::{Survey, findings};
use crate::text::size;
use longrun_api::jobs::JobFigures;
use longrun_engine::{
    CompactedDirectories, Expected, Opened, PassError, Plan, PlanError, Progress, Report, Scan, ScanProgress, Scope,
    Settings, Stop, VolumeError,
};
use longrun_image::Access;
use longrun_layout::{Bytes, FileId, Fragmentation, VolumeLayout};
use longrun_planner::Mode;
use longrun_volume::Target;
use longrun_volume::target::Subject;
use serde::Serialize;
use std::fmt::Display;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How many files of a plan are listed.
const FILES_SHOWN: usize = 10;
/// How many of the most fragmented files are listed.
const WORST_SHOWN: usize = 10;

/// Optimizes, or prints the plan only.
pub fn run(args: &OptimizeArgs) -> Result<(), Failure> {
    if let Some(disk) = Disk::find(&args.target) {
        let access = if args.dry_run { Access::Read } else { Access::Write };
        let disk = disk.of_machine_that_is_off(args.machine_is_off);
        return disk.on_each(access, args.json, |target, watch| on_volume(args, target, watch));
    }
    let target = Target::resolve(&args.target)?;
    let mut watch = Watch::start()?;
    if by_service::run(args, &target, &watch)? {
        return Ok(());
    }
    let (output, end) = on_volume(args, &target, &mut watch)?;
    if args.json {
        print_json(&output)?;
    }
    end
}

/// The same for one volume. Prints text, but no JSON.
pub(super) fn on_volume(args: &OptimizeArgs, target: &Target, watch: &mut Watch) -> Result<Outcome<Output>, Failure> {
    let target = &Target { spoils_shadow_copies: args.spoil_shadow_copies, ..target.clone() };
    let asked = asked_mode(args, target)?;
    let scope = scope::of(target)?;
    let settings = Settings { scope, budget: args.budget, deadline: args.deadline, ..Settings::default() };
    watch.govern(args.manner.governor(target.device_number));
    let at_most = args.at_most.map(Mode::from);
    let job = Job { target, settings, asked, at_most, is_told: !args.json, at_boot: AtBoot::of(args, target) };
    let placing = Choice::of(args, target);
    if args.dry_run {
        return Ok((Output::DryRun(Box::new(job.foresee(placing, watch)?)), Ok(())));
    }
    let optimization = job.carry_out(placing, watch)?;
    if !args.json {
        print(&outcome(&optimization, args.explain))?;
    }
    let end = conclude(target, optimization.stop());
    Ok((Output::Done(Box::new(optimization)), end))
}

/// What `optimize --mode full` does with the volume of `target`, within `deadline`. With `is_told` the plan is printed as text.
pub(super) fn consolidate(
    target: &Target,
    deadline: Option<Duration>,
    is_told: bool,
    watch: &mut Watch,
) -> Result<Optimization, Failure> {
    whole(target, deadline, is_told).carry_out(Choice::Silent, watch)
}

/// The plan of that. Changes nothing.
pub(super) fn foresee_consolidation(target: &Target, is_told: bool, watch: &mut Watch) -> Result<Told, Failure> {
    whole(target, None, is_told).foresee(Choice::Silent, watch).map(|run| run.plan)
}

fn whole(target: &Target, deadline: Option<Duration>, is_told: bool) -> Job<'_> {
    Job {
        target,
        settings: Settings { deadline, ..Settings::default() },
        asked: Some(Mode::Full),
        at_most: None,
        is_told,
        at_boot: None,
    }
}

/// What is printed as JSON.
#[derive(Serialize)]
#[serde(untagged)]
pub(super) enum Output {
    DryRun(Box<DryRun>),
    Done(Box<Optimization>),
}

impl Output {
    /// Everything that is printed as text, with the rounds if `explain` is set.
    pub(super) fn text(&self, explain: bool) -> String {
        match self {
            Self::DryRun(run) => opening(&run.before, &run.plan),
            Self::Done(done) => opening(&done.before, &done.plan) + &outcome(done, explain),
        }
    }

    /// The figures before and after; of a dry run those that are foreseen.
    pub(super) fn figures(&self) -> (JobFigures, JobFigures) {
        match self {
            Self::DryRun(run) => (run.before.figures(), run.plan.foreseen()),
            Self::Done(done) => (done.before.figures(), done.after.figures()),
        }
    }
}

/// What is printed when the work is done.
fn outcome(done: &Optimization, explain: bool) -> String {
    let rounds = if explain { done.rounds() } else { String::new() };
    done.text() + &rounds
}

/// What is printed before the work begins.
fn opening(before: &Analysis, plan: &Told) -> String {
    format!("{}\n{}\n{}\n{}\n", before.title(), before.verdict(), before.directories(), plan.text())
}

/// What a dry run prints as JSON.
#[derive(Serialize)]
pub(super) struct DryRun {
    before: Analysis,
    pub(super) plan: Told,
    #[serde(skip_serializing_if = "Option::is_none")]
    at_boot: Option<Together>,
    #[serde(skip_serializing_if = "Option::is_none")]
    placement: Option<Placed>,
}

/// The mode that the user asked for. For a file or a directory only its files are defragmented, because free space belongs to
/// the whole volume.
fn asked_mode(args: &OptimizeArgs, target: &Target) -> Result<Option<Mode>, Failure> {
    let is_part = matches!(target.subject, Subject::File | Subject::Directory);
    match args.mode.map(Mode::from) {
        Some(Mode::Full) if is_part => Err(Failure::new(
            Status::Usage,
            format!(
                "{}: --mode full works on whole volumes only; name the mount point, or omit --mode to defragment only these \
                 files",
                target.given.display()
            ),
        )),
        Some(mode) => Ok(Some(mode)),
        None => Ok(is_part.then_some(Mode::Files)),
    }
}

/// What to optimize, and how.
struct Job<'a> {
    target: &'a Target,
    /// But for the mode.
    settings: Settings,
    /// The mode that was asked for; `None` leaves it to the verdict.
    asked: Option<Mode>,
    /// Instead of full mode, when the verdict names that.
    at_most: Option<Mode>,
    /// Whether the plan is printed as text as soon as there is one.
    is_told: bool,
    /// What is read at boot, where its places matter.
    at_boot: Option<AtBoot>,
}

/// The result of a run.
struct Moved {
    before: Analysis,
    plan: Told,
    report: Report,
    after: Analysis,
    directories: CompactedDirectories,
}

impl Job<'_> {
    /// Plans, and does what was planned.
    fn carry_out(&self, placing: Choice, watch: &mut Watch) -> Result<Optimization, Failure> {
        watch.refuse_stops()?;
        let begun = Instant::now();
        // The lock comes first, so that no other optimizer changes the volume that is planned for.
        let mut volume = longrun_volume::open(self.target)?;
        let (recovered, leaked) = (volume.was_interrupted(), volume.leaked());
        let outcome = self.run(&mut volume, watch).and_then(|moved| {
            let at_boot = self.gather(&mut volume, &moved.report, begun, watch)?;
            let placed = self.place(&mut volume, placing, &moved.report, &at_boot, watch)?;
            let then = match &at_boot.then {
                Some((layout, bytes)) => Some((self.after(&mut volume, layout, watch)?, *bytes)),
                None => None,
            };
            Ok((moved, Came { told: at_boot.told, then, stop: at_boot.stop }, placed))
        });
        let outcome = after(outcome, volume.close());
        watch.finish();
        // Whatever was moved, also by a run that failed then.
        self.at_boot.iter().for_each(AtBoot::plan_anew);
        let (Moved { before, plan, report, after, directories }, at_boot, placed) = outcome?;
        let optimization = Optimization::new(before, after, plan, &report, watch.loads());
        let optimization = optimization.with_what_is_read_at_boot(at_boot).with_placement(placed);
        Ok(optimization.after_completion(recovered).with_leaked(leaked).with_directories(&directories))
    }

    /// Places hot files, when everything else is done; the volume after that, and how much was moved.
    fn place(
        &self,
        volume: &mut Opened,
        placing: Choice,
        report: &Report,
        at_boot: &at_boot::Came,
        watch: &mut Watch,
    ) -> Result<Came<Placed>, Failure> {
        let mut placer = match placing {
            Choice::Silent => return Ok(Came::nothing(None)),
            Choice::No(why) => {
                if self.is_told {
                    print(&why.text())?;
                }
                return Ok(Came::nothing(Some(why)));
            }
            Choice::Yes(_) if report.stop.or(at_boot.stop).is_some() => return Ok(Came::nothing(None)),
            Choice::Yes(placer) => placer.without(&at_boot.stay),
        };
        let moved = report.bytes_moved + at_boot.then.as_ref().map_or(Bytes(0), |(_, bytes)| *bytes);
        let (placed, done) = placer.place(volume, &self.settings, moved, self.is_told, watch)?;
        let Some((report, layout)) = done else { return Ok(Came::nothing(Some(placed))) };
        let after = self.after(volume, &layout, watch)?;
        Ok(Came { told: Some(placed), then: Some((after, report.bytes_moved)), stop: report.stop })
    }

    /// Has what is read at boot come together, when everything else is done.
    fn gather(
        &self,
        volume: &mut Opened,
        report: &Report,
        begun: Instant,
        watch: &mut Watch,
    ) -> Result<at_boot::Came, Failure> {
        match &self.at_boot {
            Some(at_boot) if report.stop.is_none() => at_boot.gather(volume, self, report.bytes_moved, begun, watch),
            _ => Ok(at_boot::Came::default()),
        }
    }

    /// The volume as it was left, also by a run that was stopped.
    fn after(&self, volume: &mut Opened, layout: &VolumeLayout, watch: &mut Watch) -> Result<Analysis, Failure> {
        let (read, progress) = (Instant::now(), ScanProgress::new(watch, 0).to_the_end());
        self.analysis(layout, read, |files| volume.names(layout, files, &progress))
    }

    /// Analyzes the volume and plans as a run would. Changes nothing.
    fn foresee(&self, placing: Choice, watch: &mut Watch) -> Result<DryRun, Failure> {
        watch.phase("reading the volume", Unit::Steps);
        let survey = Survey::read(self.target, &ScanProgress::new(watch, 0))?;
        if let Some(what) = survey.refusal() {
            return Err(VolumeError::Unsupported { path: self.target.given.clone(), what }.into());
        }
        watch.phase("planning", Unit::Steps);
        let progress = ScanProgress::new(watch, 0);
        let before = Analysis::new(&survey.findings(WORST_SHOWN, &progress)?);
        let (mut scan, names) = survey.into_scan();
        // As the volume is now: after a pass they would be other plans.
        let at_boot = self.at_boot.as_ref().and_then(|at_boot| at_boot.foresee(&mut scan, &self.settings));
        let placement = match placing {
            Choice::Silent => None,
            Choice::No(why) => Some(why),
            Choice::Yes(mut placer) => Some(placer.foresee(&mut scan, &self.settings)),
        };
        let told = match self.settings(&before, &scan)? {
            Some(settings) => {
                let plan = self.plan(scan, &settings, &progress)?;
                told(&plan, &settings.scope, names.of(plan.layout(), shown(&plan), &progress)?)
            }
            None => not_worth(&scan.layout().fragmentation()),
        };
        watch.finish();
        self.tell(&before, &told)?;
        if self.is_told {
            let at_boot = at_boot.as_ref().map(|together| together.text(false)).unwrap_or_default();
            print(&(at_boot + &placement.as_ref().map(Placed::text).unwrap_or_default()))?;
        }
        Ok(DryRun { before, plan: told, at_boot, placement })
    }

    fn run(&self, volume: &mut Opened, watch: &mut Watch) -> Result<Moved, Failure> {
        let begun = Instant::now();
        watch.phase("reading the volume", Unit::Steps);
        let scan = volume.scan(&ScanProgress::new(watch, 0))?;
        watch.phase("planning", Unit::Steps);
        let progress = ScanProgress::new(watch, 0);
        let before = self.analysis(scan.layout(), begun, |files| volume.names(scan.layout(), files, &progress))?;
        // First, so that the plan is made for directories as small as they can be, and for the space that they leave.
        let directories = volume.compact_directories(&scan, &progress)?;
        let scan = if directories.directories > 0 { volume.scan(&progress)? } else { scan };
        let Some(settings) = self.settings(&before, &scan)? else {
            let figures = scan.layout().fragmentation();
            let plan = not_worth(&figures);
            let after = match directories.directories {
                0 => before.clone(),
                _ => self.analysis(scan.layout(), begun, |files| volume.names(scan.layout(), files, &progress))?,
            };
            watch.finish();
            self.tell(&before, &plan)?;
            let report = Report { before: figures.clone(), after: figures, ..Report::default() };
            return Ok(Moved { before, plan, report, after, directories });
        };
        let stay = self.at_boot.as_ref().map(|at_boot| at_boot.stay(scan.layout())).unwrap_or_default();
        let settings = Settings { stay: Arc::new(stay), ..settings };
        let plan = self.plan(scan, &settings, &progress)?;
        let names = volume.names(plan.layout(), shown(&plan), &progress)?;
        let told = told(&plan, &settings.scope, names);
        watch.finish();
        self.tell(&before, &told)?;
        let (report, layout) = longrun_engine::carry_out(volume, plan, begun, &settings, watch)?;
        let after = self.after(volume, &layout, watch)?;
        Ok(Moved { before, plan: told, report, after, directories })
    }

    /// With the mode that was asked for, or the one that the verdict names; `None` when that is none.
    fn settings(&self, before: &Analysis, scan: &Scan) -> Result<Option<Settings>, Failure> {
        let mode = match (self.asked, scan.only_files()) {
            (Some(Mode::Full | Mode::Efficient), Some(reason)) => {
                let text = format!("{}: {reason}; use --mode files", self.target.given.display());
                return Err(Failure::new(Status::Refused, text));
            }
            (None, Some(_)) => before.mode().map(|_| Mode::Files),
            (None, None) => before.mode().map(|mode| self.at_most.filter(|_| mode == Mode::Full).unwrap_or(mode)),
            (asked, _) => asked,
        };
        Ok(mode.map(|mode| Settings { mode, ..self.settings.clone() }))
    }

    /// Where the verdict named efficient mode, and nobody ruled full mode out, that takes its place when it alone helps.
    fn plan(&self, scan: Scan, settings: &Settings, progress: &dyn Progress) -> Result<Plan, Failure> {
        let is_open = self.asked.is_none() && self.at_most.is_none() && settings.mode == Mode::Efficient;
        let plan = if is_open { longrun_engine::plan_what_pays } else { longrun_engine::plan };
        plan(scan, settings, progress).map_err(|error| match error {
            PlanError::Cancelled => VolumeError::Interrupted.into(),
            fault => contradiction(self.target, fault),
        })
    }

    fn analysis(
        &self,
        layout: &VolumeLayout,
        begun: Instant,
        names: impl FnOnce(&[FileId]) -> Result<Vec<PathBuf>, VolumeError>,
    ) -> Result<Analysis, Failure> {
        let found = findings(self.target, layout, begun.elapsed(), WORST_SHOWN, |files| Ok(names(files)?));
        Ok(Analysis::new(&found?))
    }

    fn tell(&self, before: &Analysis, plan: &Told) -> Result<(), Failure> {
        if !self.is_told {
            return Ok(());
        }
        print(&opening(before, plan))
    }
}

/// The plan in its reported form, with the names of the files that gain most.
fn told(plan: &Plan, scope: &Scope, names: Vec<PathBuf>) -> Told {
    let expected = &plan.expected;
    let files: Vec<PlannedFile> = names
        .into_iter()
        .zip(&expected.most_improved)
        .map(|(path, w)| PlannedFile {
            path,
            fragments: w.fragments,
            expected_fragments: w.expected_fragments,
            bytes: w.bytes,
        })
        .collect();
    let permitted = |mode: &Mode| scope.permits(*mode);
    let block_size = plan.layout().block_size();
    let nothing =
        expected.nothing.map(|nothing| NothingFigures::new(&nothing, nothing.mode.filter(permitted), block_size));
    Told::new(plan.mode, expected, &files).explained(nothing)
}

/// No mode was asked for, and none is worth its cost.
fn not_worth(figures: &Fragmentation) -> Told {
    let nothing = NothingFigures::not_worth(figures.movable_excess());
    Told::new(Mode::Full, &Expected::none(figures), &[]).explained(Some(nothing))
}

/// The files that a plan shows by name.
fn shown(plan: &Plan) -> &[FileId] {
    plan.files.get(..FILES_SHOWN).unwrap_or(&plan.files)
}

fn contradiction(target: &Target, error: impl Display) -> Failure {
    let volume = target.given.display();
    let text = format!("{volume}: the plan contradicts the volume ({error}); nothing was changed; please report it");
    Failure::new(Status::Failed, text)
}

/// A run that was stopped by a signal, or because other processes needed the space, has not done its work.
fn conclude(target: &Target, stop: Option<Stop>) -> Result<(), Failure> {
    let failure = |status, stop| Err(Failure::new(status, format!("{}: {}", target.given.display(), ended(stop))));
    match stop {
        None | Some(Stop::Deadline | Stop::Budget) => Ok(()),
        Some(Stop::Cancelled) => failure(Status::Interrupted, Stop::Cancelled),
        Some(Stop::SpaceNeeded) => failure(Status::Failed, Stop::SpaceNeeded),
    }
}

impl From<PassError> for Failure {
    fn from(error: PassError) -> Self {
        let text = match error.bytes_moved {
            Bytes(0) => error.to_string(),
            moved => format!("{error} ({} had been moved before that)", size(moved)),
        };
        Self::from(error.cause).with_message(text)
    }
}
