//! `reclaim`: gives the free space of a mounted volume back to what lies below it.

mod compact;
mod image;

use super::disk::{Disk, Outcome};
use super::optimize;
use crate::args::reclaim::ReclaimArgs;
use crate::exit::{Failure, Status};
use crate::progress::{Unit, Watch};
use crate::report::optimization::Optimization;
use crate::report::reclaim::{Consolidation, Foreseen, Reclamation, Volume};
use crate::report::{print, print_json};
use crate::text::size;
use longrun_engine::{ScanProgress, Stop};
use longrun_image::Access;
use longrun_layout::Bytes;
use longrun_volume::reclaim::{Limits, Reclaimed, Space};
use longrun_volume::target::Subject;
use longrun_volume::{Reclaim, Target};
use serde::Serialize;
use std::time::Instant;

/// What is said to a signal that ends the work, and to later ones.
const ANSWERS: [&str; 2] = ["stopping after the current slice", "the current slice is not done yet; please wait"];
/// If not so much of the free space can be given back as it is, consolidating comes first, in per cent.
const ENOUGH: u64 = 90;

/// Gives the free space back, or prints what could be given back.
pub fn run(args: &ReclaimArgs) -> Result<(), Failure> {
    if let Some(disk) = Disk::find(&args.target) {
        let access = if args.dry_run { Access::Read } else { Access::Write };
        let disk = disk.of_machine_that_is_off(args.machine_is_off);
        compact::check(args, disk.path())?;
        let act = |target: &Target, watch: &mut Watch| image::on_volume(args, target, watch);
        return disk.on_each_and_whole(access, args.json, act, |watch| compact::run(args, disk.path(), watch));
    }
    let target = Target::resolve(&args.target)?;
    if longrun_volume::is_offline(&target) {
        compact::check(args, &target.device)?;
        let mut watch = Watch::start_for(&ANSWERS)?;
        let (mut given, mut end) = image::on_volume(args, &target, &mut watch)?;
        if end.is_ok() {
            end = compact::run(args, &target.device, &watch).map(|compaction| given.compaction = compaction);
        }
        if args.json {
            print_json(&given)?;
        }
        return end;
    }
    if args.compact {
        let text = "--compact is for disk images; this is a volume that is mounted, or to be mounted";
        return Err(Failure::new(Status::Usage, format!("{}: {text}", target.given.display())));
    }
    if matches!(target.subject, Subject::File | Subject::Directory) {
        let text = "the free space belongs to the whole volume; name its mount point";
        return Err(Failure::new(Status::Usage, format!("{}: {text}", target.given.display())));
    }
    let (output, end) = on_mounted(args, &target, &mut Watch::start_for(&ANSWERS)?)?;
    if args.json {
        print_json(&output)?;
    }
    end
}

/// What is printed as JSON.
#[derive(Serialize)]
#[serde(untagged)]
pub(super) enum Output {
    Foreseen(Box<Foreseen>),
    Done(Box<Reclamation>),
}

/// The same for a mounted volume. Prints text, but no JSON.
pub(super) fn on_mounted(args: &ReclaimArgs, target: &Target, watch: &mut Watch) -> Result<Outcome<Output>, Failure> {
    let begun = Instant::now();
    watch.govern(args.manner.governor(target.device_number));
    let volume = Reclaim::open(target)?;
    let run = Run { args, target, volume: &volume, begun };
    let before = run.space(watch)?;
    let about = Volume::new(target, &volume, args.min_extent, &before);
    if args.dry_run {
        return Ok((Output::Foreseen(Box::new(run.foresee(about, &before, watch)?)), Ok(())));
    }
    watch.finish();
    if !args.json {
        print(&(about.text() + "\n"))?;
    }
    let consolidation = run.consolidation(&before, watch)?;
    if let Consolidation::Done(done) = &consolidation
        && !args.json
    {
        print(&(done.text() + "\n"))?;
    }
    let ready = if matches!(consolidation, Consolidation::Done(_)) { run.space(watch)? } else { before };
    let limits = Limits { deadline: args.deadline, rate: args.rate };
    let stopped = consolidation.stop() == Some(Stop::Cancelled);
    let done = if stopped {
        Reclaimed { stop: Some(Stop::Cancelled), ..Reclaimed::default() }
    } else {
        volume.run(args.min_extent.unwrap_or_default(), limits, begun, watch)?
    };
    let after = volume.space(args.min_extent.unwrap_or_default(), &ScanProgress::new(watch, 0).to_the_end())?;
    watch.finish();
    let report = Reclamation::new(about, &ready, &after, &done, consolidation, begun.elapsed(), watch.loads());
    if !args.json {
        print(&report.text())?;
    }
    Ok((Output::Done(Box::new(report)), conclude(target, done)))
}

/// A run of the command.
struct Run<'a> {
    args: &'a ReclaimArgs,
    target: &'a Target,
    volume: &'a Reclaim,
    begun: Instant,
}

impl Run<'_> {
    fn space(&self, watch: &mut Watch) -> Result<Space, Failure> {
        watch.phase("reading the free space", Unit::Steps);
        let least = self.args.min_extent.unwrap_or_default();
        Ok(self.volume.space(least, &ScanProgress::new(watch, 0))?)
    }

    /// Prints what a run would do.
    fn foresee(&self, about: Volume, before: &Space, watch: &mut Watch) -> Result<Foreseen, Failure> {
        watch.finish();
        if !self.args.json {
            print(&about.text())?;
        }
        let plan = if self.args.consolidate && gains(before) {
            Some(optimize::foresee_consolidation(self.target, !self.args.json, watch)?)
        } else {
            None
        };
        Ok(Foreseen { about, consolidation: plan })
    }

    /// Consolidates the free space, if that is asked for and gains enough.
    fn consolidation(&self, before: &Space, watch: &mut Watch) -> Result<Consolidation, Failure> {
        if !self.args.consolidate {
            return Ok(Consolidation::NotAsked);
        }
        if !gains(before) {
            return Ok(Consolidation::NotNeeded);
        }
        let deadline = self.args.deadline.map(|deadline| deadline.saturating_sub(self.begun.elapsed()));
        let done: Optimization = optimize::consolidate(self.target, deadline, !self.args.json, watch)?;
        Ok(Consolidation::Done(Box::new(done)))
    }
}

/// Whether much of the free space cannot be given back as it is. Where that is not known, it may be so.
fn gains(space: &Space) -> bool {
    space
        .pieces
        .is_none_or(|pieces| u128::from(pieces.reclaimable.0) * 100 < u128::from(space.free.0) * u128::from(ENOUGH))
}

/// A run that was stopped by a signal, or that failed on the way, has not done its work.
fn conclude(target: &Target, done: Reclaimed) -> Result<(), Failure> {
    if let Some(error) = done.failure {
        let text = match done.bytes {
            Bytes(0) => error.to_string(),
            _ if !done.is_counted => error.to_string(),
            bytes => format!("{error} ({} had been given back before that)", size(bytes)),
        };
        return Err(Failure::from(error).with_message(text));
    }
    if done.stop == Some(Stop::Cancelled) {
        let text = format!("{}: stopped by a signal; the next run goes on from there", target.given.display());
        return Err(Failure::new(Status::Interrupted, text));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use longrun_volume::reclaim::Pieces;

    #[test]
    fn consolidating_comes_first_only_where_more_than_a_tenth_cannot_be_given_back() {
        let space = |free, reclaimable| Space {
            free: Bytes(free),
            pieces: Some(Pieces { count: 1, reclaimable: Bytes(reclaimable) }),
            ..Space::default()
        };
        assert!(gains(&space(100, 89)) && !gains(&space(100, 90)) && !gains(&space(0, 0)));
        assert!(gains(&Space { pieces: None, ..space(100, 100) }), "not known");
    }
}
