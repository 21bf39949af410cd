//! The process of a running job.
//!
//! Owns its start, the end that it is asked for, and the reading of its messages. Never kills it: it stops by itself when its
//! input is closed, since only so it gives back the space that it holds.

use super::protocol::{End, Message, Order, Progress};
use longrun_api::jobs::{Job, JobProgress};
use std::io::{self, BufRead as _, BufReader, Read as _, Write as _};
use std::os::unix::process::ExitStatusExt as _;
use std::path::Path;
use std::process::{self, ChildStdin, Command, Stdio};
use std::time::Instant;

/// No message is longer.
const LONGEST: u64 = 4 << 20;

/// Why a process is asked to end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ending {
    /// The job is cancelled.
    Cancel,
    /// The job goes on later; why, in a sentence.
    Pause(String),
    /// The service ends.
    Service,
}

/// The process of a job, as the list of the jobs knows it.
#[derive(Debug)]
pub struct Child {
    /// The job.
    pub id: u64,
    /// Since when it works.
    pub since: Instant,
    /// What the job had moved before this process began.
    pub moved_before: u64,
    /// Why it was asked to end.
    pub ending: Option<Ending>,
    /// It works while this is open.
    input: Option<ChildStdin>,
    /// Since when it moves data.
    moves_since: Option<Instant>,
    /// Moved in earlier rounds of this process.
    rounds: u64,
    last: u64,
}

/// The other end: what waits for the process.
#[derive(Debug)]
pub struct Follower {
    process: process::Child,
}

impl Child {
    /// Starts `program` with `order` for the job `id`.
    ///
    /// # Errors
    /// The system's.
    pub fn start(program: &Path, id: u64, moved_before: u64, order: &Order) -> io::Result<(Self, Follower)> {
        let mut command = Command::new(program);
        command.arg("job").stdin(Stdio::piped()).stdout(Stdio::piped());
        // A name that can be read in lists of processes.
        std::os::unix::process::CommandExt::arg0(&mut command, "longrun");
        let mut process = command.spawn()?;
        let mut input = process.stdin.take();
        if let Some(input) = &mut input {
            // A process that is gone already tells by its end.
            _ = writeln!(input, "{}", serde_json::to_string(order)?);
        }
        let child = Self {
            id,
            since: Instant::now(),
            moved_before,
            ending: None,
            input,
            moves_since: None,
            rounds: 0,
            last: 0,
        };
        Ok((child, Follower { process }))
    }

    /// Asks it to end. A cancellation replaces another reason.
    pub fn halt(&mut self, why: Ending) {
        if self.ending.is_none() || why == Ending::Cancel {
            self.ending = Some(why);
        }
        self.input = None;
    }

    /// Puts what it says into its job.
    pub(super) fn progressed(&mut self, said: &Progress, job: &mut Job) {
        if self.ending.is_none() {
            job.reason = said.waits.as_ref().map(|why| format!("it gives way: {why}"));
        }
        if !said.is_bytes {
            let fraction = said.done as f64 / said.total.max(1) as f64;
            job.progress = JobProgress {
                phase: said.phase.clone(),
                done_bytes: said.done,
                total_bytes: said.total,
                fraction: fraction.clamp(0.0, 1.0),
                eta_seconds: None,
            };
            return;
        }
        // Each round begins at 0. For its job they are one.
        if said.done < self.last {
            self.rounds += self.last;
        }
        self.last = said.done;
        let moved = self.rounds + self.last;
        job.moved_bytes = self.moved_before + moved;
        job.progress.phase.clone_from(&said.phase);
        let since = *self.moves_since.get_or_insert_with(Instant::now);
        // A round that has not planned anything yet does not know.
        if said.total > 0 {
            let total = self.rounds + said.total;
            let spent = since.elapsed().as_secs_f64();
            let left = spent * total.saturating_sub(moved) as f64 / moved.max(1) as f64;
            job.progress.done_bytes = moved;
            job.progress.total_bytes = total;
            job.progress.fraction = (moved as f64 / total as f64).clamp(0.0, 1.0);
            job.progress.eta_seconds = (moved > 0 && spent > 1.0).then(|| left.min(1e9) as u64);
        }
    }
}

impl Follower {
    /// Reads what it says until it ends. Blocks.
    ///
    /// # Errors
    /// That it ended without a report, in a sentence.
    pub fn follow(mut self, told: impl Fn(&Progress)) -> Result<End, String> {
        let mut end = None;
        if let Some(output) = self.process.stdout.take() {
            let mut lines = BufReader::new(output);
            let mut line = Vec::new();
            while lines.by_ref().take(LONGEST).read_until(b'\n', &mut line).is_ok_and(|length| length > 0) {
                match serde_json::from_slice(&line) {
                    Ok(Message::Progress(progress)) => told(&progress),
                    Ok(Message::End(last)) => end = Some(*last),
                    Err(error) => tracing::warn!("a message of a job cannot be read: {error}"),
                }
                line.clear();
            }
        }
        let status = self.process.wait().map_err(|error| format!("waiting for its process failed: {error}"))?;
        end.ok_or_else(|| match status.signal() {
            Some(9) => {
                "its process was killed (signal 9), perhaps because memory ran out; all space that it held is free \
                        again, and no data is lost: see dmesg, and raise MemoryMax"
                    .to_owned()
            }
            Some(signal) => format!("its process was ended by signal {signal}; no data is lost: see the log"),
            None => format!("its process ended without a report (status {}): see the log", status.code().unwrap_or(-1)),
        })
    }
}
