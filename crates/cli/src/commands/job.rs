//! `job`: does one job for the service: the process that holds a pass, so that neither its memory nor a crash is the service's.
//!
//! Owns the translation between the service's order and the commands of the same names. Never decides anything about a volume: the
//! commands do. It stops as at Ctrl-C when its standard input is closed.

use super::{analyze, optimize, reclaim};
use crate::args::optimize::{ModeName, OptimizeArgs, PlacementName};
use crate::args::reclaim::ReclaimArgs;
use crate::args::{AnalyzeArgs, Manner, PaceName, ReadingArgs};
use crate::exit::{Failure, Status};
use crate::progress::{Supervisor, Watch};
use crate::report::print;
use crate::text::{count, size};
use clap::ValueEnum as _;
use longrun_api::jobs::{JobFigures, JobMode, Task};
use longrun_engine::Stop;
use longrun_layout::Bytes;
use longrun_service::jobs::protocol::{End, Message, Order};
use longrun_service::jobs::resident;
use longrun_volume::Target;
use longrun_volume::target::Subject;
use serde::Serialize;
use serde_json::Value;
use std::fs;
use std::io::{self, BufRead as _, Read as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// No order is longer.
const LONGEST_ORDER: u64 = 64 << 10;

/// Reads the order, does it, and reports.
pub fn run() -> Result<(), Failure> {
    // When memory runs out, this process is ended, and not the service. To ask for that needs no permission.
    _ = fs::write("/proc/self/oom_score_adj", "1000");
    // Run by way of /proc/self/exe, it would be called "exe" where processes are listed.
    _ = fs::write("/proc/self/comm", "longrun-job");
    let order = read_order()?;
    let too_large = Arc::new(AtomicBool::new(false));
    let (noticed, most) = (Arc::clone(&too_large), order.memory);
    let may_go_on = move || {
        let fits = most.is_none_or(|most| resident().0 <= most);
        noticed.fetch_or(!fits, Ordering::Relaxed);
        fits
    };
    let tell = |progress| send(&Message::Progress(progress));
    let mut watch = Watch::start_supervised(Supervisor { tell: Box::new(tell), may_go_on: Box::new(may_go_on) })?;
    let stop = watch.stopper();
    std::thread::spawn(move || {
        // What comes is not read for its meaning: the end of it is what counts.
        _ = io::copy(&mut io::stdin().lock(), &mut io::sink());
        stop.store(true, Ordering::Relaxed);
    });
    let mut end = carry_out(&order, &mut watch).unwrap_or_else(|failure| End::default().failed(&failure));
    if let Some(most) = order.memory.filter(|_| too_large.load(Ordering::Relaxed)) {
        end.status = Status::Refused.code();
        end.too_large = true;
        end.error = Some(format!(
            "{}: it was ended, because it would need more than the {:.0} MiB of memory that it may take; raise MemoryMax of the \
             service, of which a job may take half, or stop the service and run longrun {} {}",
            order.mount.display(),
            Bytes(most).mebibytes(),
            order.task.name(),
            order.mount.display(),
        ));
    }
    send(&Message::End(Box::new(end)));
    Ok(())
}

fn read_order() -> Result<Order, Failure> {
    let wrong = |why: String| Failure::new(Status::Usage, format!("the order on standard input is not valid: {why}"));
    let mut line = String::new();
    // Not buffered beyond this line's end: the rest is only waited for.
    io::stdin().lock().take(LONGEST_ORDER).read_line(&mut line).map_err(|error| wrong(error.to_string()))?;
    serde_json::from_str(&line).map_err(|error| wrong(error.to_string()))
}

/// A service that is gone does not hear it; then the end of the input has ended the work, too.
fn send(message: &Message) {
    if let Ok(line) = serde_json::to_string(message) {
        _ = print(&(line + "\n"));
    }
}

fn carry_out(order: &Order, watch: &mut Watch) -> Result<End, Failure> {
    let target = find(order)?;
    let end = match order.task {
        Task::Analyze => analyzed(order, watch)?,
        Task::Optimize => optimized(order, &target, watch)?,
        Task::Reclaim => reclaimed(order, &target, watch)?,
    };
    watch.finish();
    Ok(end)
}

/// The volume that the service means, and not what somebody has mounted there since.
fn find(order: &Order) -> Result<Target, Failure> {
    let target = Target::resolve(&order.mount)?;
    let number = target.mount.as_ref().map_or_else(String::new, |mount| mount.device.to_string());
    if number != order.device || target.subject != Subject::Volume {
        let text = format!("{}: the volume is no longer mounted there; nothing was changed", order.mount.display());
        return Err(Failure::new(Status::Refused, text));
    }
    Ok(target)
}

fn analyzed(order: &Order, watch: &mut Watch) -> Result<End, Failure> {
    let reading = ReadingArgs { pace: pace(order)? };
    let args = AnalyzeArgs { target: order.mount.clone(), json: true, top: 10, reading };
    let told = analyze::supervised(&args, watch)?;
    let figures = told.analysis.figures();
    Ok(End {
        before: Some(figures),
        after: Some(figures),
        summary: Some(told.analysis.verdict().to_owned()),
        text: told.text(),
        report: json(&told)?,
        ..End::default()
    })
}

fn optimized(order: &Order, target: &Target, watch: &mut Watch) -> Result<End, Failure> {
    let args = OptimizeArgs {
        target: order.mount.clone(),
        mode: mode(order.mode),
        budget: order.budget.map(Bytes),
        deadline: order.deadline.map(Duration::from_secs),
        manner: manner(order)?,
        dry_run: order.dry_run,
        explain: order.explain,
        machine_is_off: false,
        spoil_shadow_copies: false,
        at_most: order.at_most_efficient.then_some(ModeName::Efficient),
        placement: order.placement.as_ref().and_then(|name| PlacementName::from_str(name, false).ok()),
        state: order.state.clone().unwrap_or_default(),
        alone: true,
        socket: PathBuf::new(),
        json: true,
    };
    let (output, end) = optimize::on_volume(&args, target, watch)?;
    let (before, after) = output.figures();
    let (moved, stop, would) = match &output {
        optimize::Output::Done(done) => (Bytes(done.bytes_moved), done.stop(), false),
        optimize::Output::DryRun(run) => (run.plan.bytes(), None, true),
    };
    let mut summary = summary(&before, &after, moved, would);
    if let optimize::Output::Done(done) = &output {
        let placing = done.placing();
        let placing = placing.trim_end().trim_end_matches('.');
        if !placing.is_empty() {
            summary = format!("{summary}. {placing}");
        }
    }
    let told = End {
        budget_spent: stop == Some(Stop::Budget),
        time_spent: stop == Some(Stop::Deadline),
        before: Some(before),
        after: Some(after),
        moved: if would { 0 } else { moved.0 },
        summary: Some(summary),
        text: output.text(args.explain),
        report: json(&output)?,
        ..End::default()
    };
    Ok(match end {
        Ok(()) => told,
        Err(failure) => told.failed(&failure),
    })
}

fn reclaimed(order: &Order, target: &Target, watch: &mut Watch) -> Result<End, Failure> {
    let args = ReclaimArgs {
        target: order.mount.clone(),
        min_extent: None,
        consolidate: order.consolidate,
        compact: false,
        rate: None,
        manner: manner(order)?,
        deadline: order.deadline.map(Duration::from_secs),
        machine_is_off: false,
        // Only mounted volumes have jobs.
        spoil_shadow_copies: false,
        dry_run: order.dry_run,
        json: true,
    };
    let (output, end) = reclaim::on_mounted(&args, target, watch)?;
    let mut told = End { report: json(&output)?, ..End::default() };
    match &output {
        reclaim::Output::Foreseen(foreseen) => {
            told.text = foreseen.about.text();
            told.after = foreseen.consolidation.as_ref().map(|plan| plan.foreseen());
        }
        reclaim::Output::Done(done) => {
            told.text = done.text();
            told.summary = done.bytes().map(|bytes| format!("{} were given back", size(bytes)));
            told.reclaimed = done.taken_back().0;
            if let Some(first) = done.consolidation() {
                (told.before, told.after) = (Some(first.before.figures()), Some(first.after.figures()));
                told.moved = first.bytes_moved;
            }
        }
    }
    Ok(match end {
        Ok(()) => told,
        Err(failure) => told.failed(&failure),
    })
}

/// The result in a sentence.
fn summary(before: &JobFigures, after: &JobFigures, moved: Bytes, would: bool) -> String {
    if moved.0 == 0 {
        let left = count(after.excess);
        return format!("nothing is worth moving; {left} excess fragments stay");
    }
    let pieces = match (before.free_pieces, after.free_pieces) {
        (Some(before), Some(after)) => format!(", free pieces {} to {}", count(before), count(after)),
        _ => String::new(),
    };
    let moved = format!("{} {}", size(moved), if would { "would be moved" } else { "moved" });
    format!("excess fragments {} to {}{pieces}; {moved}", count(before.excess), count(after.excess))
}

fn json(report: &impl Serialize) -> Result<Value, Failure> {
    serde_json::to_value(report).map_err(|error| Failure::output(error.into()))
}

trait Failed {
    fn failed(self, failure: &Failure) -> Self;
}

impl Failed for End {
    fn failed(self, failure: &Failure) -> Self {
        Self { status: failure.status.code(), error: Some(failure.to_string()), in_use: failure.in_use, ..self }
    }
}

fn mode(mode: JobMode) -> Option<ModeName> {
    match mode {
        JobMode::Auto => None,
        JobMode::Efficient => Some(ModeName::Efficient),
        JobMode::Full => Some(ModeName::Full),
        JobMode::Files => Some(ModeName::Files),
    }
}

fn pace(order: &Order) -> Result<PaceName, Failure> {
    match order.pace.as_str() {
        "invisible" => Ok(PaceName::Invisible),
        "balanced" => Ok(PaceName::Balanced),
        "fast" => Ok(PaceName::Fast),
        _ => Err(unknown(&order.mount, "pace")),
    }
}

fn manner(order: &Order) -> Result<Manner, Failure> {
    let max_duty = order.max_duty.parse().map_err(|_| unknown(&order.mount, "max_duty"))?;
    let min_progress = order.min_progress.parse().map_err(|_| unknown(&order.mount, "min_progress"))?;
    Ok(Manner { pace: pace(order)?, max_duty: Some(max_duty), min_progress })
}

fn unknown(mount: &Path, what: &str) -> Failure {
    Failure::new(Status::Usage, format!("{}: the {what} of the order is not valid", mount.display()))
}
