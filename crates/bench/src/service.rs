//! The service under test: `longrun prevent` as a child process, with a state directory of its own.
//!
//! Owns starting it, querying what it uses, and stopping it. The child ends when this value is dropped, or when the
//! thread that started it ends.

use crate::device::per;
use crate::{BenchError, child};
use longrun_layout::Bytes;
use rustix::process::Signal;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::os::fd::OwnedFd;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Longer than a start takes, with the sweep of an earlier run.
const START: Duration = Duration::from_secs(60);
const POLL: Duration = Duration::from_millis(5);

/// What a process has used.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Usage {
    /// Processor time of all its threads.
    pub processor: Duration,
    /// The run time of its BPF programs, which is part of the time of the watched processes; `None` if it is not
    /// measured.
    pub in_kernel: Option<Duration>,
    /// The most memory that it had at a time.
    pub peak_memory: Bytes,
}

impl Usage {
    /// The use since `before`, in per cent of one core over the given seconds: by its own threads, and in the kernel.
    #[must_use]
    pub fn percent_since(&self, before: &Self, seconds: f64) -> (f64, Option<f64>) {
        let percent = |now: Duration, then: Duration| 100.0 * per(now.saturating_sub(then).as_secs_f64(), seconds);
        let in_kernel = self.in_kernel.zip(before.in_kernel).map(|(now, then)| percent(now, then));
        (percent(self.processor, before.processor), in_kernel)
    }
}

/// A running service.
#[derive(Debug)]
pub struct Service {
    child: Child,
    output: Option<JoinHandle<Vec<Value>>>,
    complaints: Option<JoinHandle<String>>,
    /// As long as it is there, the kernel measures what it spends on watching.
    _measured: Option<OwnedFd>,
    /// Removed with the journal in it when this is dropped.
    _state: tempfile::TempDir,
}

impl Service {
    /// Starts `program prevent` on a volume, and waits until it is at work.
    ///
    /// # Errors
    /// [`BenchError::Service`] with what it said, when it does not start.
    pub fn start(program: &Path, mount_point: &Path) -> Result<Self, BenchError> {
        let failed = |e| BenchError::io("starting it", program, e);
        let state = tempfile::Builder::new().prefix("longrun-bench-state-").tempdir().map_err(failed)?;
        let mut command = Command::new(program);
        longrun_sys::end_with_us(&mut command);
        command.arg("prevent").arg(mount_point).args(["--json", "--state"]).arg(state.path());
        let mut child =
            command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().map_err(failed)?;
        let (said, ready) = channel();
        let output = child.stdout.take().map(|pipe| std::thread::spawn(move || listen(pipe, &said)));
        let complaints = child.stderr.take().map(|pipe| std::thread::spawn(move || remember(pipe)));
        let measured = longrun_sys::measure_bpf().ok();
        let mut service = Self { child, output, complaints, _measured: measured, _state: state };
        if service.wait_until_ready(&ready) {
            return Ok(service);
        }
        Err(BenchError::Service { problem: format!("does not start: {}", service.end().1) })
    }

    fn wait_until_ready(&mut self, ready: &Receiver<()>) -> bool {
        let deadline = Instant::now() + START;
        loop {
            match ready.recv_timeout(POLL) {
                Ok(()) => return true,
                Err(RecvTimeoutError::Disconnected) => return false,
                Err(RecvTimeoutError::Timeout) => {}
            }
            if Instant::now() > deadline || !matches!(self.child.try_wait(), Ok(None)) {
                return ready.try_recv().is_ok();
            }
        }
    }

    /// The number of its process.
    #[must_use]
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// What it has used so far.
    ///
    /// # Errors
    /// [`BenchError::Service`] when it has ended.
    pub fn usage(&mut self) -> Result<Usage, BenchError> {
        let id = self.child.id();
        match (self.child.try_wait(), usage(id)) {
            (Ok(None), Some(usage)) => Ok(usage),
            _ => Err(BenchError::Service { problem: format!("ended too early: {}", self.end().1) }),
        }
    }

    /// Ends it in good order: it gives everything back. Returns what it printed last.
    ///
    /// # Errors
    /// [`BenchError::Service`] when it does not end well.
    pub fn stop(mut self) -> Result<Value, BenchError> {
        let (mut printed, said) = self.end();
        match self.child.try_wait() {
            Ok(Some(status)) if status.success() || status.code() == Some(130) => Ok(printed.pop().unwrap_or_default()),
            Ok(Some(status)) => Err(BenchError::Service { problem: format!("ended with {status}: {said}") }),
            _ => Err(BenchError::Service { problem: format!("did not end when it was told to: {said}") }),
        }
    }

    /// Asks it to end, and waits; then reads what it said to the end.
    fn end(&mut self) -> (Vec<Value>, String) {
        child::end(&mut self.child, Signal::TERM);
        let printed = self.output.take().and_then(|thread| thread.join().ok()).unwrap_or_default();
        let said = self.complaints.take().and_then(|thread| thread.join().ok()).unwrap_or_default();
        (printed, said.trim().to_owned())
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        if self.output.is_some() {
            self.end();
        }
    }
}

/// Reads objects line by line; the first says that it is at work. The last, which may take several lines, are the totals.
fn listen(pipe: impl Read, ready: &std::sync::mpsc::Sender<()>) -> Vec<Value> {
    let mut found = Vec::new();
    let mut open = String::new();
    for line in BufReader::new(pipe).lines().map_while(Result::ok) {
        open.push_str(&line);
        open.push('\n');
        if let Ok(value) = serde_json::from_str(&open) {
            found.push(value);
            open.clear();
            // Nobody waits any more after the first.
            _ = ready.send(());
        }
    }
    found
}

fn remember(mut pipe: impl Read) -> String {
    let mut bytes = Vec::new();
    // What could be read is all that can be told.
    _ = pipe.read_to_end(&mut bytes);
    String::from_utf8_lossy(&bytes).into_owned()
}

fn usage(id: u32) -> Option<Usage> {
    let status = fs::read_to_string(format!("/proc/{id}/status")).ok()?;
    let peak = status.lines().find_map(|l| l.strip_prefix("VmHWM:")?.trim().strip_suffix(" kB")?.parse::<u64>().ok());
    let processor = by_scheduler(id).max(by_ticks(id)?);
    Some(Usage { processor, in_kernel: longrun_sys::time_in_bpf(id), peak_memory: Bytes(peak? << 10) })
}

/// To the nanosecond, of the threads that live.
fn by_scheduler(id: u32) -> Duration {
    let Ok(threads) = fs::read_dir(format!("/proc/{id}/task")) else { return Duration::ZERO };
    let nanoseconds = threads.flatten().filter_map(|thread| {
        let text = fs::read_to_string(thread.path().join("schedstat")).ok()?;
        text.split_whitespace().next()?.parse::<u64>().ok()
    });
    Duration::from_nanos(nanoseconds.sum())
}

/// To the hundredth of a second, of all threads that ever were.
fn by_ticks(id: u32) -> Option<Duration> {
    const TICKS_PER_SECOND: u64 = 100;
    let stat = fs::read_to_string(format!("/proc/{id}/stat")).ok()?;
    // The name, in parentheses, may hold spaces: count from its end. User and system time are fields 14 and 15.
    let mut fields = stat.rsplit_once(')')?.1.split_whitespace().skip(11);
    let ticks = fields.next()?.parse::<u64>().ok()? + fields.next()?.parse::<u64>().ok()?;
    Some(Duration::from_millis(ticks * 1000 / TICKS_PER_SECOND))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_processor_time_and_memory_of_a_process_are_found() {
        // However little of the processor a busy machine gives: it comes to that.
        let usage = loop {
            (0..1_000_000u64).for_each(|number| _ = std::hint::black_box(number));
            let usage = usage(std::process::id()).unwrap();
            if usage.processor > Duration::from_millis(10) {
                break usage;
            }
        };
        assert!(usage.peak_memory > Bytes(1 << 20), "{usage:?}");
    }

    #[test]
    fn objects_are_found_in_lines_and_over_lines() {
        let (ready, said) = channel();
        let text = "{\"ready\": true}\n{\n \"last\": 1\n}\n";
        let found = listen(text.as_bytes(), &ready);
        assert_eq!(found, [serde_json::json!({"ready": true}), serde_json::json!({"last": 1})]);
        assert!(said.recv().is_ok());
    }

    #[test]
    fn a_service_that_does_not_start_is_told_with_what_it_said() {
        for (program, said) in [("/bin/false", "does not start"), ("/no/such/program", "starting it failed")] {
            let error = Service::start(Path::new(program), Path::new("/")).unwrap_err().to_string();
            assert!(error.contains(said), "{error}");
        }
    }
}
