//! The types of jobs: work on a whole volume that the service starts, shows and cancels.
//!
//! Owns the names and types of the fields. They are a contract: fields are added, never renamed or removed. No I/O.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// What a job does.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum Task {
    /// Reads the volume and reports how fragmented it is.
    #[default]
    Analyze,
    /// Defragments files and free space.
    Optimize,
    /// Gives free space back to the storage below.
    Reclaim,
}

impl Task {
    /// As it is written.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Analyze => "analyze",
            Self::Optimize => "optimize",
            Self::Reclaim => "reclaim",
        }
    }
}

/// What is optimized.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum JobMode {
    /// What gains enough, or nothing.
    #[default]
    Auto,
    /// Most of the excess fragments for the fewest bytes moved.
    Efficient,
    /// Every file, and the free space.
    Full,
    /// Fragmented files only.
    Files,
}

/// A request to start a job.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct JobRequest {
    /// The id of the volume.
    pub volume: String,
    /// What to do.
    pub task: Task,
    /// What is optimized.
    #[serde(default)]
    pub mode: JobMode,
    /// Report what would be done, and change nothing.
    #[serde(default)]
    pub dry_run: bool,
    /// For `reclaim`: consolidate the free space first, where that gains enough.
    #[serde(default)]
    pub consolidate: bool,
    /// For `optimize`: move at most this many bytes.
    #[serde(default)]
    pub budget: Option<u64>,
    /// Stop after this many seconds of work.
    #[serde(default)]
    pub deadline: Option<u64>,
    /// How much to give way: `invisible`, `balanced` or `fast`; the setting of the volume if it is absent.
    #[serde(default)]
    pub pace: Option<String>,
    /// The largest share of the time that it works, such as "40%"; the setting of the volume if it is absent.
    #[serde(default)]
    pub max_duty: Option<String>,
    /// The share of the time that it works even if others have to wait; the setting of the volume if it is absent.
    #[serde(default)]
    pub min_progress: Option<String>,
    /// For `optimize`: what is done about hot files: `auto`, `off` or `plan`; by default they are placed where that pays.
    #[serde(default)]
    pub placement: Option<String>,
    /// For `optimize`: report also what each round planned, moved and left, and why it ended.
    #[serde(default)]
    pub explain: bool,
}

/// Where a job stands.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum JobState {
    /// It has not begun, or begins again soon.
    #[default]
    Waiting,
    /// It is at work.
    Running,
    /// It holds nothing, and goes on by itself later.
    Paused,
    /// It did what there was to do, or used up its budget or its time.
    Finished,
    /// It could not do it.
    Failed,
    /// It was cancelled. What it had done stays done.
    Cancelled,
}

impl JobState {
    /// Whether nothing follows any more.
    #[must_use]
    pub const fn has_ended(self) -> bool {
        matches!(self, Self::Finished | Self::Failed | Self::Cancelled)
    }

    /// As it is written.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Waiting => "waiting",
            Self::Running => "running",
            Self::Paused => "paused",
            Self::Finished => "finished",
            Self::Failed => "failed",
            Self::Cancelled => "cancelled",
        }
    }
}

/// Who started a job.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum JobOrigin {
    /// An operator.
    #[default]
    Operator,
    /// The schedule of the configuration.
    Schedule,
}

/// How far a job is.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct JobProgress {
    /// What it does now.
    pub phase: String,
    /// Done in this phase: bytes where data is moved, steps elsewhere.
    pub done_bytes: u64,
    /// Of so many.
    pub total_bytes: u64,
    /// The same as a part of the whole, 0 to 1.
    pub fraction: f64,
    /// Seconds left of this phase, where a rate is known.
    pub eta_seconds: Option<u64>,
}

/// The figures of a volume before or after a job.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct JobFigures {
    /// Excess fragments.
    pub excess: u64,
    /// Pieces of free space; null where it is not known.
    pub free_pieces: Option<u64>,
    /// The largest of them; null where it is not known.
    pub largest_free_bytes: Option<u64>,
}

/// Work on a whole volume.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Job {
    /// Its number.
    pub id: u64,
    /// The id of the volume.
    pub volume: String,
    /// The mount point of the volume.
    pub mount: String,
    /// What it does.
    pub task: Task,
    /// What is optimized.
    pub mode: JobMode,
    /// Whether it changes nothing.
    pub dry_run: bool,
    /// Whether it consolidates the free space before it is given back.
    #[serde(default)]
    pub consolidate: bool,
    /// The most that it moves, in bytes.
    #[serde(default)]
    pub budget: Option<u64>,
    /// The longest that it works, in seconds.
    #[serde(default)]
    pub deadline: Option<u64>,
    /// Who started it.
    pub by: JobOrigin,
    /// Where it stands.
    pub state: JobState,
    /// Why it waits, is paused or failed, in a sentence.
    pub reason: Option<String>,
    /// When it was asked for (RFC 3339).
    pub created: String,
    /// When its work began.
    pub started: Option<String>,
    /// When it ended.
    pub ended: Option<String>,
    /// How far it is.
    pub progress: JobProgress,
    /// Bytes moved so far.
    pub moved_bytes: u64,
    /// Seconds of work so far, without pauses between runs.
    #[serde(default)]
    pub worked_seconds: u64,
    /// How often it began: once, and once more after each pause.
    #[serde(default)]
    pub runs: u32,
    /// The figures before.
    pub before: Option<JobFigures>,
    /// The figures after; of a dry run those that are foreseen.
    pub after: Option<JobFigures>,
    /// The result in a sentence.
    pub summary: Option<String>,
}

/// What a job that has ended has to report: what the command of the same name prints.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct JobReport {
    /// The exit status of the command.
    pub status: u8,
    /// Why it is not 0.
    pub error: Option<String>,
    /// It would have needed more memory than a job may take.
    #[serde(default)]
    pub too_large: bool,
    /// The report as text.
    pub text: String,
    /// The report as JSON; null if there is none.
    pub report: serde_json::Value,
}
