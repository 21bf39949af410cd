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
    phase: (String, Instant, u64),
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
        let phase = (String::new(), Instant::now(), 0);
        let child = Self { id, since: Instant::now(), moved_before, ending: None, input, phase, rounds: 0, last: 0 };
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
        let now = Instant::now();
        if said.waits.is_none() && self.phase.0 != said.phase {
            self.phase = (said.phase.clone(), now, said.done);
        }
        let fraction = said.done as f64 / said.total.max(1) as f64;
        let (spent, done) = (now.duration_since(self.phase.1).as_secs_f64(), said.done.saturating_sub(self.phase.2));
        let left = said.total.saturating_sub(said.done) as f64;
        let known = said.is_bytes && said.waits.is_none() && done > 0 && spent > 1.0;
        job.progress = JobProgress {
            phase: said.phase.clone(),
            done_bytes: said.done,
            total_bytes: said.total,
            fraction: fraction.clamp(0.0, 1.0),
            eta_seconds: known.then(|| (left * spent / done as f64).min(1e9) as u64),
        };
        if self.ending.is_none() {
            job.reason = said.waits.as_ref().map(|why| format!("it gives way: {why}"));
        }
        if said.is_bytes {
            if said.done < self.last {
                self.rounds += self.last;
            }
            self.last = said.done;
            job.moved_bytes = self.moved_before + self.rounds + self.last;
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
