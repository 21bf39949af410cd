//! The list of the jobs without a process: what is kept, what ends how, and what a restart makes of it.

use super::protocol::{End, Progress};
use super::*;
use longrun_api::jobs::JobFigures;

const TODAY: &str = "2026-01-31";

fn jobs(directory: &tempfile::TempDir) -> Jobs {
    Jobs::open(directory.path().join("jobs"), "/bin/cat".into())
}

fn record(by: JobOrigin) -> Record {
    let job = Job { volume: "v".into(), mount: "/srv".into(), task: Task::Optimize, by, ..Job::default() };
    Record { job, ..Record::default() }
}

/// A job at work whose process does nothing.
fn running(jobs: &Jobs, by: JobOrigin) -> u64 {
    let job = jobs.add(record(by));
    let before = jobs.get(job.id).unwrap().moved_bytes;
    let (child, follower) = Child::start(&jobs.program, job.id, before, &protocol::Order::default()).unwrap();
    drop(follower);
    jobs.began(child);
    job.id
}

fn interrupted(moved: u64) -> Result<End, String> {
    Ok(End { status: 130, moved, error: Some("interrupted".into()), ..End::default() })
}

#[test]
fn the_state_after_its_process_follows_from_the_end_and_from_what_was_asked() {
    let directory = tempfile::tempdir().unwrap();
    let jobs = jobs(&directory);
    let pause = || Some(Ending::Pause("its window is over".to_owned()));
    let (by_hand, by_plan) = (JobOrigin::Operator, JobOrigin::Schedule);
    let after = |by, asked: Option<Ending>, end, stopping| {
        let id = running(&jobs, by);
        assert!(asked.is_none_or(|why| jobs.halt(id, why)));
        jobs.ended(end, stopping, TODAY).unwrap().0.state
    };
    let done = || Ok(End::default());
    assert_eq!(after(by_hand, None, done(), false), JobState::Finished);
    assert_eq!(after(by_hand, pause(), done(), false), JobState::Finished, "it was done before it heard of it");
    assert_eq!(after(by_hand, Some(Ending::Cancel), interrupted(1), false), JobState::Cancelled);
    assert_eq!(after(by_hand, pause(), interrupted(1), false), JobState::Paused);
    assert_eq!(after(by_plan, Some(Ending::Service), interrupted(1), true), JobState::Paused);
    assert_eq!(after(by_plan, None, interrupted(1), true), JobState::Paused, "systemd has sent it the signal");
    assert_eq!(after(by_hand, Some(Ending::Service), interrupted(1), true), JobState::Cancelled);
    assert_eq!(after(by_plan, None, Err("killed".into()), false), JobState::Failed);
    assert_eq!(after(by_hand, None, Ok(End { status: 3, ..End::default() }), false), JobState::Failed);
    let in_use = || Ok(End { status: 3, in_use: true, ..End::default() });
    assert_eq!(after(by_hand, None, in_use(), false), JobState::Waiting);
    let spent = || Ok(End { budget_spent: true, ..End::default() });
    assert_eq!(after(by_plan, None, spent(), false), JobState::Paused, "there is a budget tomorrow, too");
    assert_eq!(after(by_hand, None, spent(), false), JobState::Finished);
}

#[test]
fn what_was_moved_and_the_first_figures_outlast_a_pause_and_a_restart() {
    let directory = tempfile::tempdir().unwrap();
    let figures = |excess| Some(JobFigures { excess, ..JobFigures::default() });
    let id = {
        let jobs = jobs(&directory);
        let id = running(&jobs, JobOrigin::Schedule);
        jobs.progressed(&Progress { phase: "moving".into(), done: 5, total: 20, is_bytes: true, waits: None });
        let job = jobs.get(id).unwrap();
        assert_eq!((job.moved_bytes, job.progress.fraction), (5, 0.25));
        jobs.halt(id, Ending::Pause("its window is over".into()));
        let end = End { before: figures(9), after: figures(4), ..interrupted(7).unwrap() };
        let (job, done) = jobs.ended(Ok(end), false, TODAY).unwrap();
        assert_eq!((job.state, job.moved_bytes, done.fragments), (JobState::Paused, 7, 5));
        // Another one of an operator is at work when the service is killed.
        running(&jobs, JobOrigin::Operator);
        jobs.keep();
        id
    };
    let jobs = jobs(&directory);
    let states: Vec<JobState> = jobs.list().iter().map(|job| job.state).collect();
    assert_eq!(states, [JobState::Paused, JobState::Cancelled]);
    assert_eq!((jobs.moved_on("v", TODAY), jobs.moved_on("v", "2026-02-01"), jobs.moved_on("w", TODAY)), (7, 0, 0));
    let (child, _) = Child::start(&jobs.program, id, 7, &protocol::Order::default()).unwrap();
    jobs.began(child);
    let end = End { before: figures(4), after: figures(0), moved: 3, ..End::default() };
    let (job, _) = jobs.ended(Ok(end), false, TODAY).unwrap();
    assert_eq!((job.state, job.moved_bytes, job.runs), (JobState::Finished, 10, 2));
    assert_eq!((job.before, job.after), (figures(9), figures(0)));
    assert!(jobs.last_pass("v").is_some() && jobs.pass_of("v").is_none());
    assert!(jobs.add(record(JobOrigin::Operator)).id > id + 1, "numbers are not used again");
}

#[test]
fn fifty_ended_jobs_are_kept_and_a_damaged_record_is_left_out() {
    let directory = tempfile::tempdir().unwrap();
    let jobs_of = |jobs: &Jobs| jobs.list().len();
    {
        let jobs = jobs(&directory);
        for _ in 0..KEPT + 5 {
            let job = jobs.add(record(JobOrigin::Operator));
            jobs.keep();
            assert!(matches!(jobs.cancel(job.id), Some(Ok(_))));
            assert!(matches!(jobs.cancel(job.id), Some(Err(JobState::Cancelled)) | None));
        }
        jobs.keep();
        assert_eq!(jobs_of(&jobs), KEPT);
    }
    std::fs::write(directory.path().join("jobs/99.json"), "{\"job\": 3}").unwrap();
    assert_eq!(jobs_of(&jobs(&directory)), KEPT);
}
