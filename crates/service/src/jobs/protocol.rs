//! What the service and the process of a job say to each other: one order, then messages, a line of JSON each.
//!
//! Owns the names. The order is the first line of the process's standard input. While that input stays open the process
//! works; when it is closed the process stops as at Ctrl-C: it finishes the current move and gives all space back. So it
//! ends in good order when the service is killed, too.

use longrun_api::jobs::{JobFigures, JobMode, Task};
use serde::{Deserialize, Serialize};
use std::path::PathBuf;

/// What the process is to do.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Order {
    /// Where the volume is mounted.
    pub mount: PathBuf,
    /// The device number that files of the volume have; nothing is done if another one is mounted there.
    pub device: String,
    /// What to do.
    pub task: Task,
    /// What is optimized.
    pub mode: JobMode,
    /// With the mode `auto`: never more than efficient mode.
    pub at_most_efficient: bool,
    /// Change nothing.
    pub dry_run: bool,
    /// Consolidate before space is given back.
    pub consolidate: bool,
    /// The most bytes to move.
    pub budget: Option<u64>,
    /// The longest to work, in seconds.
    pub deadline: Option<u64>,
    /// How much to give way.
    pub pace: String,
    /// The largest share of the time.
    pub max_duty: String,
    /// The least share of the time.
    pub min_progress: String,
    /// What is done about hot files, where that was said.
    #[serde(default)]
    pub placement: Option<String>,
    /// Report what came of each round.
    #[serde(default)]
    pub explain: bool,
    /// The most memory that it may hold, in bytes; none is no bound.
    pub memory: Option<u64>,
    /// The state directory, with the counts of reads and the profiles of disks.
    #[serde(default)]
    pub state: Option<PathBuf>,
}

/// A message of the process.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Message {
    /// How far it is.
    Progress(Progress),
    /// It is done: the last message.
    End(Box<End>),
}

/// How far the process is.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Progress {
    /// What it does now.
    pub phase: String,
    /// Done of this phase.
    pub done: u64,
    /// Of so many.
    pub total: u64,
    /// Whether these are bytes that it moves.
    pub is_bytes: bool,
    /// Why it gives way, if it does.
    pub waits: Option<String>,
}

/// How the process ended.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct End {
    /// The exit status of the command of the same name.
    pub status: u8,
    /// Why it is not 0.
    pub error: Option<String>,
    /// Another process is working on the volume: nothing was begun.
    pub in_use: bool,
    /// The budget is used up.
    pub budget_spent: bool,
    /// The time is used up.
    pub time_spent: bool,
    /// It would need more memory than it may take.
    #[serde(default)]
    pub too_large: bool,
    /// The figures before.
    pub before: Option<JobFigures>,
    /// The figures after; of a dry run those that are foreseen.
    pub after: Option<JobFigures>,
    /// Bytes moved.
    pub moved: u64,
    /// Bytes that the storage below took back.
    #[serde(default)]
    pub reclaimed: u64,
    /// The result in a sentence.
    pub summary: Option<String>,
    /// The report as text.
    pub text: String,
    /// The report as JSON.
    pub report: serde_json::Value,
}
