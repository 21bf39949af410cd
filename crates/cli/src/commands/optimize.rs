//! `optimize`: plans, prints the plan, carries it out, and tells what came of it.

use crate::args::OptimizeArgs;
use crate::exit::{Failure, Status};
use crate::progress::{Unit, Watch};
use crate::report::analysis::Analysis;
use crate::report::optimization::{Optimization, Plan, PlannedFile, ended};
use crate::report::{print, print_json};
use crate::survey::{Picture, Survey};
use crate::text::size;
use longrun_governor::{Duty, Governor};
use longrun_layout::{Bytes, FileId, InodeNumber, VolumeLayout};
use longrun_planner::Mode;
use longrun_sys::{Errno, FileHandle};
use longrun_volume::btrfs::{self, BtrfsScan};
use longrun_volume::chunked;
use longrun_volume::engine::{self, Expected, PassError, Report, ScanProgress, Settings, Stop};
use longrun_volume::subset::{Subset, restrict};
use longrun_volume::target::Subject;
use longrun_volume::{Opened, Progress, Target, VolumeError};
use serde::Serialize;
use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// How many files of a plan are shown by name.
const FILES_SHOWN: usize = 10;
/// How many of the most fragmented files a report names.
const WORST_SHOWN: usize = 10;

/// Optimizes, or only says what that would do.
pub fn run(args: &OptimizeArgs) -> Result<(), Failure> {
    let target = Target::resolve(&args.target)?;
    let mode = mode_for(args, &target)?;
    let scope = Scope::of(&target)?;
    let settings =
        Settings { mode, only: scope.only(), budget: args.budget, deadline: args.deadline, ..Settings::default() };
    let mut watch = Watch::start()?;
    let duty = args.max_duty.unwrap_or(Duty::ALL);
    watch.govern(Governor::new(target.device_number, args.pace.into()).at_most(duty));
    if args.dry_run {
        let (before, plan) = foresee(&target, &scope, &settings, &mut watch)?;
        return if args.json { print_json(&DryRun { before, plan }) } else { print(&preview(&before, &plan)) };
    }
    watch.refuse_stops()?;
    // The lock first: nobody else then changes what the plan is made from.
    let volume = longrun_volume::open(&target)?;
    let (before, plan) = foresee(&target, &scope, &settings, &mut watch)?;
    if !args.json {
        print(&preview(&before, &plan))?;
    }
    let report = carry_out(volume, scope, &settings, &mut watch)?;
    // Also of a run that was stopped the result is told: this look at the volume does not ask whether to go on.
    let progress = ScanProgress::new(&mut watch, 0).to_the_end();
    let after = Survey::read(&target, &progress).and_then(|survey| survey.findings(WORST_SHOWN, &progress));
    watch.finish();
    let after = Analysis::new(&after?);
    let optimization = Optimization::new(before, after, plan, &report, watch.loads());
    if args.json {
        print_json(&optimization)?;
    } else {
        print(&optimization.text())?;
    }
    conclude(&target, report.stop)
}

/// What a dry run prints as JSON.
#[derive(Serialize)]
struct DryRun {
    before: Analysis,
    plan: Plan,
}

/// On a file or a directory only its files are put together: free space belongs to the volume as a whole.
fn mode_for(args: &OptimizeArgs, target: &Target) -> Result<Mode, Failure> {
    let is_part = matches!(target.subject, Subject::File | Subject::Directory);
    match args.mode.map(Mode::from) {
        Some(Mode::Full) if is_part => Err(Failure::new(
            Status::Usage,
            format!(
                "{}: full optimization takes a whole volume; name its mount point, or leave --mode out to put only these \
                 files together",
                target.given.display()
            ),
        )),
        Some(mode) => Ok(mode),
        None if is_part => Ok(Mode::Files),
        None => Ok(Mode::Full),
    }
}

/// What the user wants to have optimized.
enum Scope {
    /// The whole volume.
    Volume,
    /// One file.
    File(FileId),
    /// The files below a directory.
    Below {
        /// Their numbers.
        chosen: BTreeSet<InodeNumber>,
        /// The subvolume that the directory lies in; 0 where there are none.
        subvolume: u32,
    },
}

impl Scope {
    fn of(target: &Target) -> Result<Self, Failure> {
        let path = &target.given;
        match target.subject {
            Subject::Volume | Subject::Image => Ok(Self::Volume),
            Subject::File => {
                let file = File::open(path).map_err(|e| Failure::io(path, "opening", &e))?;
                let id = id_of_file(&file);
                id.map(Self::File).map_err(|e| Failure::io(path, "asking for its identity", &e.into()))
            }
            Subject::Directory => {
                let chosen = files_below(path)?;
                let directory = File::open(path).map_err(|e| Failure::io(path, "opening", &e))?;
                let subvolume = longrun_sys::subvolume_of_file(&directory).map_or(0, |tree| tree.0 as u32);
                Ok(Self::Below { chosen, subvolume })
            }
        }
    }

    /// The same for volumes whose space comes in chunks.
    fn in_chunks(&self) -> chunked::Scope {
        match self {
            Self::Volume => chunked::Scope::All,
            Self::File(id) => chunked::Scope::These([*id].into()),
            Self::Below { chosen, subvolume } => {
                let id = |inode: &InodeNumber| FileId { inode: *inode, generation: *subvolume };
                chunked::Scope::These(chosen.iter().map(id).collect())
            }
        }
    }

    fn only(&self) -> Option<FileId> {
        match self {
            Self::File(id) => Some(*id),
            _ => None,
        }
    }
}

/// The identity of a file as layouts have it.
fn id_of_file(file: &File) -> Result<FileId, Errno> {
    match FileHandle::of_file(file)?.as_btrfs() {
        // An inode's number is its own in each subvolume only.
        Some((subvolume, inode, _)) => Ok(FileId { inode, generation: subvolume.0 as u32 }),
        None => longrun_sys::id_of_file(file),
    }
}

/// The inodes of the regular files below `top`, on its device.
fn files_below(top: &Path) -> Result<BTreeSet<InodeNumber>, Failure> {
    let failed = |path: &Path, error| Failure::io(path, "reading the directory", &error);
    let device = fs::metadata(top).map_err(|e| failed(top, e))?.dev();
    let (mut found, mut open) = (BTreeSet::new(), vec![top.to_owned()]);
    while let Some(directory) = open.pop() {
        let entries = match fs::read_dir(&directory) {
            // What vanishes while it is looked at is not to be optimized.
            Err(error) if directory != top && has_vanished(&error) => continue,
            entries => entries.map_err(|e| failed(&directory, e))?,
        };
        for entry in entries {
            let entry = match entry {
                Err(error) if has_vanished(&error) => break,
                entry => entry.map_err(|e| failed(&directory, e))?,
            };
            let Ok(meta) = entry.metadata() else { continue };
            if meta.dev() != device {
                continue;
            }
            if meta.is_dir() {
                open.push(entry.path());
            } else if meta.is_file() {
                found.insert(InodeNumber(meta.ino()));
            }
        }
    }
    Ok(found)
}

/// Whether a directory is gone, or is none any more.
fn has_vanished(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory)
}

/// The volume as it is, and the plan for it. Holds a layout only meanwhile.
fn foresee(
    target: &Target,
    scope: &Scope,
    settings: &Settings,
    watch: &mut Watch,
) -> Result<(Analysis, Plan), Failure> {
    watch.phase("reading the volume", Unit::Steps);
    let survey = Survey::read(target, &ScanProgress::new(watch, 0))?;
    if let Some(what) = survey.refusal() {
        let path = target.given.clone();
        return Err(VolumeError::Unsupported { path, what }.into());
    }
    watch.phase("planning", Unit::Steps);
    let progress = ScanProgress::new(watch, 0);
    let before = Analysis::new(&survey.findings(WORST_SHOWN, &progress)?);
    let plan = match (&survey.picture, scope) {
        (Picture::Btrfs(scan, _), _) => plan_in_chunks(&survey, scan, scope, settings, &progress)?,
        (_, Scope::Volume | Scope::File(_)) => plan_for(&survey, survey.layout(), settings, &progress)?,
        (_, Scope::Below { chosen, .. }) => {
            plan_for(&survey, &restrict(survey.layout(), chosen)?, settings, &progress)?
        }
    };
    watch.finish();
    Ok((before, plan))
}

fn plan_for(
    survey: &Survey,
    layout: &VolumeLayout,
    settings: &Settings,
    progress: &dyn Progress,
) -> Result<Plan, Failure> {
    let policy = settings.policy(layout, Bytes(0));
    let expected = engine::dry_run(layout, policy, settings.only);
    let expected = expected.map_err(|error| contradiction(survey, format!("{error:?}")))?;
    named(survey, layout, policy.mode, &expected, progress)
}

/// Where things come to lie is the volume's decision there: the pass is carried out on a simulation of it.
fn plan_in_chunks(
    survey: &Survey,
    scan: &BtrfsScan,
    scope: &Scope,
    settings: &Settings,
    progress: &dyn Progress,
) -> Result<Plan, Failure> {
    let picture = btrfs::picture(scan);
    let expected = chunked::foresee(&picture, &scope.in_chunks(), settings);
    let expected = expected.map_err(|error| contradiction(survey, error.to_string()))?;
    named(survey, &picture.layout, settings.mode, &expected, progress)
}

fn contradiction(survey: &Survey, error: String) -> Failure {
    let volume = survey.target.given.display();
    let text = format!("{volume}: the plan contradicts the volume ({error}); nothing was changed; please report it");
    Failure::new(Status::Failed, text)
}

/// The plan with the names of the files that gain most.
fn named(
    survey: &Survey,
    layout: &VolumeLayout,
    mode: Mode,
    expected: &Expected,
    progress: &dyn Progress,
) -> Result<Plan, Failure> {
    let worst: Vec<_> = expected.most_improved.iter().take(FILES_SHOWN).collect();
    let ids: Vec<_> = worst.iter().filter_map(|w| layout.file(w.file).map(|f| f.id())).collect();
    let files: Vec<PlannedFile> = survey
        .names(&ids, progress)?
        .into_iter()
        .zip(worst)
        .map(|(path, w)| PlannedFile {
            path,
            fragments: w.fragments,
            expected_fragments: w.expected_fragments,
            bytes: w.bytes,
        })
        .collect();
    Ok(Plan::new(mode, expected, &files))
}

fn preview(before: &Analysis, plan: &Plan) -> String {
    format!("{}\n{}\n\n{}\n", before.title(), before.verdict(), plan.text())
}

fn carry_out(volume: Opened, scope: Scope, settings: &Settings, watch: &mut Watch) -> Result<Report, Failure> {
    let report = match (volume, scope) {
        (Opened::Chunked(mut volume), scope) => chunked::optimize(&mut *volume, &scope.in_chunks(), settings, watch),
        (Opened::Placed(mut volume), Scope::Volume | Scope::File(_)) => engine::optimize(&mut *volume, settings, watch),
        (Opened::Placed(mut volume), Scope::Below { chosen, .. }) => {
            engine::optimize(&mut Subset::new(&mut *volume, chosen), settings, watch)
        }
    };
    watch.finish();
    Ok(report?)
}

/// A run that its user stopped is not done, and neither is one that others drove out.
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
            moved => format!("{error} ({} had been moved before)", size(moved)),
        };
        Self::from(error.cause).with_message(text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicBool, Ordering};

    #[test]
    fn directories_that_vanish_during_the_walk_are_no_error() {
        let top = tempfile::tempdir().unwrap();
        fs::write(top.path().join("stays"), "").unwrap();
        let done = AtomicBool::new(false);
        std::thread::scope(|threads| {
            threads.spawn(|| {
                while !done.load(Ordering::Relaxed) {
                    for number in 0..20 {
                        fs::create_dir(top.path().join(number.to_string())).unwrap();
                    }
                    for number in 0..20 {
                        fs::remove_dir(top.path().join(number.to_string())).unwrap();
                    }
                }
            });
            let walked = (0..300).all(|_| files_below(top.path()).is_ok_and(|found| found.len() == 1));
            done.store(true, Ordering::Relaxed);
            assert!(walked);
        });
        assert!(files_below(&top.path().join("none")).is_err(), "what the user named must be there");
    }
}
