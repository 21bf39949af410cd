//! `bench`: measures what Longrun gains, and what it costs.

mod ageing;
mod install;
mod invisibility;
mod layouts;
mod tell;
mod write;

use crate::args::bench::{Bench as Benchmark, PreventionArgs};
use crate::exit::{Failure, Status};
use crate::progress::{Unit, Watch};
use crate::report::prevention::{Report, page, text};
use crate::report::{print, print_json};
use longrun_bench::protocol::{Bench, Comparison, Settings, Side};
use longrun_bench::{BenchError, Parameters, Profile};
use longrun_engine::Progress as _;
use std::path::PathBuf;
use std::time::Instant;

/// Runs the benchmark that was asked for.
pub fn run(benchmark: &Benchmark) -> Result<(), Failure> {
    match benchmark {
        Benchmark::Prevention(args) => prevention(args),
        Benchmark::Reads(args) => layouts::reads(args),
        Benchmark::Copy(args) => layouts::copy(args),
        Benchmark::Oltp(args) => layouts::oltp(args),
        Benchmark::Install(args) => install::run(args),
        Benchmark::Invisibility(args) => invisibility::run(args),
        Benchmark::Ageing(args) => ageing::run(args),
        Benchmark::Write(args) => write::run(args),
    }
}

fn prevention(args: &PreventionArgs) -> Result<(), Failure> {
    refuse_without_root("this benchmark runs prevention, which")?;
    let mut profiles: Vec<Profile> = args.profiles.iter().flat_map(|profiles| profiles.list()).collect();
    profiles.sort();
    profiles.dedup();
    let started = Instant::now();
    let watch = Watch::start()?;
    let parameters = Parameters::from(&args.work);
    let settings = Settings { program: this_program()?, iterations: args.iterations, parameters, reread: true };
    let bench = Bench::new(&args.target, &profiles, settings, watch.stop())?;
    watch.phase("measuring", Unit::Steps);
    let all = profiles.len() as u64 * u64::from(args.iterations) * 2;
    let (mut done, mut comparisons) = (0, Vec::new());
    for profile in profiles {
        let compared = bench.compare(profile, &mut |profile, side, iteration| {
            watch.rename(&format!("{profile}, {}, iteration {}", side_name(side), iteration + 1));
            watch.at(done, all);
            done += 1;
        });
        let comparison = compared?;
        // Each result is printed as soon as it is known.
        if !args.output.json {
            watch.suspend(|| print(&text(&comparison)))?;
        }
        comparisons.push(comparison);
    }
    watch.finish();
    finish(args, &bench, comparisons, started)
}

fn finish(
    args: &PreventionArgs,
    bench: &Bench<'_>,
    comparisons: Vec<Comparison>,
    started: Instant,
) -> Result<(), Failure> {
    let report = Report::new(&args.target, bench, comparisons, started.elapsed());
    if let Some(path) = &args.output.html {
        tell::write_page(path, &page(&report))?;
    }
    if args.output.json { print_json(&report) } else { print(&report.summary()) }
}

fn refuse_without_root(what: &str) -> Result<(), Failure> {
    if longrun_sys::is_root() {
        return Ok(());
    }
    Err(Failure::new(Status::Refused, format!("{what} needs root; run it with sudo")))
}

const fn side_name(side: Side) -> &'static str {
    match side {
        Side::Off => "without prevention",
        Side::On => "with prevention",
    }
}

/// The path of this program, which is the one that is measured.
fn this_program() -> Result<PathBuf, Failure> {
    std::env::current_exe().map_err(|e| {
        Failure::new(Status::Failed, format!("finding the path of this program failed: {e}; start it by its full path"))
    })
}

impl From<BenchError> for Failure {
    fn from(error: BenchError) -> Self {
        let status = match &error {
            BenchError::TooLittleSpace { .. } | BenchError::Unsuitable { .. } => Status::Refused,
            BenchError::Interrupted => Status::Interrupted,
            BenchError::Io { .. } | BenchError::Database { .. } | BenchError::Service { .. } => Status::Failed,
        };
        Self::new(status, error.to_string())
    }
}
