//! `bench write`: writes in a way that fragments files, and prints their fragmentation at intervals.

use crate::args::bench::WriteArgs;
use crate::exit::{Failure, Status};
use crate::progress::Watch;
use crate::report::{print, print_json};
use crate::text::{count, size};
use longrun_bench::report::number;
use longrun_bench::{
    BenchError, Done, Job, Layout, Parameters, Scratch, glance, layout_of, refuse_too_little_space, workload,
};
use longrun_engine::Progress as _;
use serde::Serialize;
use std::path::Path;
use std::time::{Duration, Instant};

/// The time between two lines.
const INTERVAL: Duration = Duration::from_millis(500);
/// The time between two checks for the end.
const POLL: Duration = Duration::from_millis(10);

#[derive(Serialize)]
struct Report {
    profile: &'static str,
    seconds: f64,
    done: Done,
    /// Right after the last byte was written.
    written: Layout,
    /// After the time of `--watch`.
    settled: Layout,
}

/// Writes, watches, removes.
pub fn run(args: &WriteArgs) -> Result<(), Failure> {
    let parameters = Parameters::from(&args.work);
    refuse_too_little_space(&args.target, args.profile.space_needed(&parameters))?;
    let watch = Watch::start()?;
    let scratch = Scratch::new(&args.target)?;
    let directory = scratch.fresh()?;
    let job = Job { directory: &directory, parameters, stop: watch.stop() };
    let start = Instant::now();
    let tell = |what: &str| if args.json { Ok(()) } else { show(&directory, start, what) };
    let (done, seconds) = std::thread::scope(|scope| {
        let work = scope.spawn(|| workload::run(args.profile, &job).map(|done| (done, start.elapsed())));
        let mut next = start + INTERVAL;
        while !work.is_finished() {
            std::thread::sleep(POLL);
            if Instant::now() >= next {
                tell("writing")?;
                next += INTERVAL;
            }
        }
        match work.join() {
            Ok(result) => Ok(result?),
            Err(_) => Err(Failure::new(Status::Failed, "a writer ended unexpectedly (panic); please report it")),
        }
    })?;
    let (written, _) = layout_of(&directory, &[])?;
    tell("written")?;
    let mut next = Instant::now() + INTERVAL * 2;
    while start.elapsed() < seconds + args.watch && !watch.cancelled() {
        std::thread::sleep(POLL);
        if Instant::now() >= next {
            tell("closed")?;
            next += INTERVAL * 2;
        }
    }
    if watch.cancelled() {
        return Err(BenchError::Interrupted.into());
    }
    let (settled, _) = layout_of(&directory, &[])?;
    let report = Report { profile: args.profile.name(), seconds: seconds.as_secs_f64(), done, written, settled };
    if args.json { print_json(&report) } else { print(&text(&report)) }
}

/// Prints a line with the current fragmentation.
fn show(directory: &Path, start: Instant, what: &str) -> Result<(), Failure> {
    let layout = glance(directory)?;
    let (spent, bytes, excess) = (start.elapsed().as_secs_f64(), size(layout.bytes), count(layout.excess_fragments));
    print(&format!("  {spent:5.1} s  {what:<8} {bytes:>9} in {} files, {excess} excess fragments\n", layout.files))
}

fn text(report: &Report) -> String {
    let Layout { files, bytes, fragments, excess_fragments, .. } = report.settled;
    format!(
        "{}: {} files of {} together in {:.2} s; {} excess fragments, {} fragments per file\n",
        report.profile,
        count(files),
        size(bytes),
        report.seconds,
        count(excess_fragments),
        number(fragments as f64 / files.max(1) as f64)
    )
}
