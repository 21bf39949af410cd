//! `optimize` by the running service: asks it for a job, shows how far that is, and prints its report.
//!
//! Owns when the service is asked, and what is said of its job. How the job works is decided there ([decision
//! 26](../../../../../docs/decisions/0026-a-pass-is-a-process-of-its-own.md)).

use crate::args::optimize::{DEFAULT_STATE, ModeName, OptimizeArgs};
use crate::exit::{Failure, Status};
use crate::progress::{Unit, Watch, say};
use crate::report::{print, print_json};
use crate::text::{duration, printable, size};
use clap::ValueEnum as _;
use longrun_api::jobs::{Job, JobMode, JobReport, JobRequest, JobState, Task};
use longrun_api::model::Volume;
use longrun_api::{Client, ClientError};
use longrun_engine::Progress as _;
use longrun_layout::Bytes;
use longrun_volume::Target;
use longrun_volume::target::Subject;
use std::path::Path;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// How often the service is asked how far the job is.
const ROUND: Duration = Duration::from_millis(500);
/// Progress is shown in so many steps.
const STEPS: u64 = 1000;

/// Whether the service did it. If not, nothing was done: the work is this process's.
///
/// # Errors
/// The service refuses the job, the job failed, or it can no longer be followed.
pub(super) fn run(args: &OptimizeArgs, target: &Target, watch: &Watch) -> Result<bool, Failure> {
    let is_alone = args.alone || args.dry_run || args.state != Path::new(DEFAULT_STATE);
    if is_alone || target.subject != Subject::Volume {
        return Ok(false);
    }
    let client = Client::new(&args.socket);
    let volume = match client.get::<Vec<Volume>>("/v1/volumes") {
        Ok(volumes) => volumes.into_iter().find(|volume| is_of(volume, target)),
        Err(ClientError::NotRunning { .. }) => None,
        // Whether the other one is at work on the volume, the lock knows.
        Err(error) => {
            say(&format!("{error}; the volume is optimized without the service"));
            None
        }
    };
    let Some(volume) = volume else { return Ok(false) };
    let job: Job = client.post("/v1/jobs", &request(args, volume.id))?;
    say(&format!("the service does it as its job {}; with --alone it is done without the service", job.id));
    let job = follow(&client, job, watch)?;
    let report: Option<JobReport> = match client.get(&format!("/v1/jobs/{}/report", job.id)) {
        Ok(report) => Some(report),
        // It was cancelled before it began.
        Err(ClientError::Refused { .. }) => None,
        Err(error) => return Err(lost(&job, &error)),
    };
    if let Some(report) = &report {
        if report.too_large {
            let why = report.error.as_deref().unwrap_or_default();
            say(&printable(&format!("{why}; now it is optimized without the service")));
            return Ok(false);
        }
        if !args.json {
            print(&report.text)?;
        } else if !report.report.is_null() {
            print_json(&report.report)?;
        }
    }
    conclude(&job, report.as_ref()).map(|()| true)
}

/// Whether the service means the same volume, and looks after it. A mount point may be another one's in another mount namespace.
fn is_of(volume: &Volume, target: &Target) -> bool {
    target.mount.as_ref().is_some_and(|mount| {
        let has_point = volume.mounts.iter().any(|point| Path::new(point) == mount.point);
        volume.enabled && has_point && Path::new(&volume.device) == mount.source
    })
}

fn request(args: &OptimizeArgs, volume: String) -> JobRequest {
    let mode = match args.mode {
        None => JobMode::Auto,
        Some(ModeName::Efficient) => JobMode::Efficient,
        Some(ModeName::Full) => JobMode::Full,
        Some(ModeName::Files) => JobMode::Files,
    };
    let name = |value: Option<clap::builder::PossibleValue>| value.map(|value| value.get_name().to_owned());
    JobRequest {
        volume,
        task: Task::Optimize,
        mode,
        budget: args.budget.map(|budget| budget.0),
        deadline: args.deadline.map(|time| time.as_secs().max(1)),
        pace: name(args.manner.pace.to_possible_value()),
        max_duty: args.manner.max_duty.map(|duty| duty.to_string()),
        min_progress: Some(args.manner.min_progress.to_string()),
        placement: name(args.placement.and_then(|placement| placement.to_possible_value())),
        explain: args.explain,
        ..JobRequest::default()
    }
}

/// Shows the job until it has ended. A signal to this process cancels it.
fn follow(client: &Client, mut job: Job, watch: &Watch) -> Result<Job, Failure> {
    let path = format!("/v1/jobs/{}", job.id);
    let mut is_cancelled = false;
    watch.phase(&doing(&job), Unit::Steps);
    while !job.state.has_ended() {
        if !is_cancelled && watch.stop().load(Ordering::Relaxed) {
            is_cancelled = true;
            match client.delete(&path) {
                // Refused: it has ended meanwhile.
                Ok(()) | Err(ClientError::Refused { .. }) => {}
                Err(error) => return Err(lost(&job, &error)),
            }
        }
        std::thread::sleep(ROUND);
        job = client.get(&path).map_err(|error| lost(&job, &error))?;
        watch.rename(&doing(&job));
        watch.at((job.progress.fraction * STEPS as f64) as u64, STEPS);
    }
    watch.finish();
    Ok(job)
}

/// What the job does now, or what it waits for.
fn doing(job: &Job) -> String {
    let text = match (job.state, &job.reason) {
        (JobState::Running, Some(why)) => why.clone(),
        (JobState::Running, None) => {
            let progress = &job.progress;
            let moved = (job.moved_bytes > 0).then(|| format!(", {} so far", size(Bytes(job.moved_bytes))));
            let left = progress.eta_seconds.map(|left| format!(", about {} left", duration(Duration::from_secs(left))));
            format!("{}{}{}", progress.phase, moved.unwrap_or_default(), left.unwrap_or_default())
        }
        (_, Some(why)) => format!("waiting: {why}"),
        (_, None) => "waiting".to_owned(),
    };
    printable(&text)
}

/// How the command ends.
fn conclude(job: &Job, report: Option<&JobReport>) -> Result<(), Failure> {
    let status = match job.state {
        JobState::Finished => return Ok(()),
        JobState::Cancelled => Status::Interrupted,
        _ => report.map_or(Status::Failed, |report| Status::of_code(report.status)),
    };
    let told = report.and_then(|report| report.error.clone()).or_else(|| job.reason.clone());
    let why = told.unwrap_or_else(|| format!("it is {}", job.state.name()));
    Err(Failure::new(status, format!("job {} of the service: {why}", job.id)))
}

/// The job goes on, or ended with the service.
fn lost(job: &Job, error: &ClientError) -> Failure {
    let text = format!(
        "job {} of the service cannot be followed any more: {error}; no data is lost: see longrun status for what became of it",
        job.id
    );
    Failure::new(Status::Failed, text)
}
