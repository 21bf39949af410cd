//! The complete service as a child process, for one volume, with a configuration, a socket and a state directory of
//! its own.
//!
//! Ensures that it works on no other volume, and that it ends with us. It is queried with `longrun status`, as users
//! do.

use crate::{BenchError, child};
use longrun_layout::Bytes;
use rustix::process::Signal;
use serde_json::Value;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Longer than a start takes.
const START: Duration = Duration::from_secs(60);
/// Longer than an evening's mending takes.
const MENDING: Duration = Duration::from_secs(600);
/// How long nothing may be left to do, because a file must be quiet for a second before it is mended.
const QUIET: Duration = Duration::from_millis(2500);
/// After this time, mending of the remaining files has failed three times.
const AGAIN: Duration = Duration::from_secs(15);
const POLL: Duration = Duration::from_millis(100);

/// Refuses if a service is already running.
///
/// # Errors
/// [`BenchError::Unsuitable`].
pub(super) fn refuse_another(program: &Path, target: &Path, stop: &AtomicBool) -> Result<(), BenchError> {
    let asked = child::run(Command::new(program).args(["status", "--json"]), stop)?;
    if asked.status.success() {
        let problem = "the service is running and would work on the volume during the measurement; stop it first (systemctl \
             stop longrun)";
        return Err(BenchError::Unsuitable { path: target.to_owned(), problem: problem.to_owned() });
    }
    Ok(())
}

/// A running service.
#[derive(Debug)]
pub struct Daemon<'a> {
    program: &'a Path,
    stop: &'a AtomicBool,
    child: Child,
    socket: PathBuf,
    /// Removed with all that the service keeps when this is dropped.
    directory: tempfile::TempDir,
}

/// A day takes only seconds here, so the waiting times of the service are shortened.
fn configuration(mount_point: &Path) -> String {
    // What JSON takes for a string TOML does, too.
    let mount_point = Value::from(mount_point.to_string_lossy().as_ref());
    format!(
        "[defaults]\nenabled = false\n[[volume]]\nmount = {mount_point}\nenabled = true\nmending_quiet = \"1s\"\n\
         mending_patience = \"0s\"\nmending_budget = \"0\"\nscan_interval = \"0s\"\npace = \"fast\"\n"
    )
}

impl<'a> Daemon<'a> {
    /// Starts it for the volume at `mount_point`, and waits until it answers.
    ///
    /// # Errors
    /// [`BenchError::Service`] with what it logged, when it does not start.
    pub fn start(program: &'a Path, mount_point: &Path, stop: &'a AtomicBool) -> Result<Self, BenchError> {
        let failed = |e| BenchError::io("starting it", program, e);
        let directory = tempfile::Builder::new().prefix("longrun-bench-service-").tempdir().map_err(failed)?;
        let at = |name: &str| directory.path().join(name);
        fs::write(at("longrun.toml"), configuration(mount_point)).map_err(failed)?;
        let mut command = Command::new(program);
        command.arg("daemon").arg("--config").arg(at("longrun.toml")).arg("--socket").arg(at("socket"));
        command.arg("--state-directory").arg(at("state")).stdin(Stdio::null()).stdout(Stdio::null());
        command.stderr(File::create(at("log")).map_err(failed)?);
        longrun_sys::end_with_us(&mut command);
        let (child, socket) = (command.spawn().map_err(failed)?, at("socket"));
        let mut daemon = Self { program, stop, child, socket, directory };
        let deadline = Instant::now() + START;
        while !daemon.looks_after_it()? {
            daemon.wait(deadline, "does not start")?;
        }
        Ok(daemon)
    }

    fn looks_after_it(&self) -> Result<bool, BenchError> {
        Ok(self.status()?.is_some_and(|status| ours(&status)["prevention"] == true))
    }

    /// The output of `longrun status`; `None` while the service does not answer.
    fn status(&self) -> Result<Option<Value>, BenchError> {
        let mut command = Command::new(self.program);
        let asked = child::run(command.args(["status", "--json", "--socket"]).arg(&self.socket), self.stop)?;
        Ok(asked.status.success().then(|| serde_json::from_slice(&asked.answer).unwrap_or_default()))
    }

    /// Lets some time pass.
    fn wait(&mut self, deadline: Instant, problem: &str) -> Result<(), BenchError> {
        if self.stop.load(Ordering::Relaxed) {
            return Err(BenchError::Interrupted);
        }
        if Instant::now() > deadline || !matches!(self.child.try_wait(), Ok(None)) {
            let log = fs::read_to_string(self.directory.path().join("log")).unwrap_or_default();
            return Err(BenchError::Service { problem: format!("{problem}: {}", log.trim()) });
        }
        std::thread::sleep(POLL);
        Ok(())
    }

    /// Waits until nothing is left to be mended or given back, and returns how much mending has written until then. Files
    /// that could not be mended are tried again at increasing intervals; they are not waited for.
    ///
    /// # Errors
    /// [`BenchError::Service`] when it does not become idle.
    pub fn until_mended(&mut self) -> Result<Bytes, BenchError> {
        let deadline = Instant::now() + MENDING;
        let mut rest = (None, Instant::now());
        loop {
            let state = self.status()?.and_then(|status| at_rest(&status));
            if state != rest.0 {
                rest = (state, Instant::now());
            }
            if let Some((queued, moved)) = rest.0
                && rest.1.elapsed() >= if queued == 0 { QUIET } else { AGAIN }
            {
                return Ok(Bytes(moved));
            }
            self.wait(deadline, "does not become idle")?;
        }
    }

    /// Stops it in good order, so that it gives everything back.
    ///
    /// # Errors
    /// [`BenchError::Service`] when it does not end well.
    pub fn stop(mut self) -> Result<(), BenchError> {
        child::end(&mut self.child, Signal::TERM);
        match self.child.try_wait() {
            Ok(Some(status)) if status.success() => Ok(()),
            Ok(Some(status)) => Err(BenchError::Service { problem: format!("ended with an error ({status})") }),
            Ok(None) => Err(BenchError::Service { problem: "did not end".to_owned() }),
            Err(error) => Err(BenchError::Service { problem: format!("waiting for its end failed: {error}") }),
        }
    }
}

impl Drop for Daemon<'_> {
    fn drop(&mut self) {
        child::end(&mut self.child, Signal::TERM);
    }
}

/// The volume that it works on. All others are disabled.
fn ours(status: &Value) -> &Value {
    let volumes = status["volumes"].as_array().map_or(&[][..], Vec::as_slice);
    volumes.iter().find(|volume| volume["enabled"] == true).unwrap_or(&Value::Null)
}

/// Files that wait to be mended, and bytes moved so far, when there is nothing else to be waited for.
fn at_rest(status: &Value) -> Option<(u64, u64)> {
    let volume = ours(status);
    let waiting = [&status["queue"], &volume["prevented"]["runways"], &volume["prevented"]["to_look_at"]];
    let idle = waiting.iter().all(|count| **count == 0) && status["mending"]["at_work"] == false;
    let known = status["mending"]["queued"].as_u64().zip(volume["mended"]["moved_bytes"].as_u64());
    known.filter(|_| idle)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn it_is_at_rest_when_nothing_is_under_way_and_tells_what_it_moved() {
        let status = |runways: u64, at_work: bool| {
            json!({
                "queue": 0,
                "mending": { "queued": 2, "at_work": at_work },
                "volumes": [
                    { "enabled": false },
                    { "enabled": true, "prevented": { "runways": runways, "to_look_at": 0 }, "mended": { "moved_bytes": 7 } },
                ],
            })
        };
        assert_eq!(at_rest(&status(0, false)), Some((2, 7)));
        assert_eq!((at_rest(&status(1, false)), at_rest(&status(0, true)), at_rest(&json!({}))), (None, None, None));
    }

    #[test]
    fn a_mount_point_of_any_name_stays_inside_its_quotes() {
        let text = configuration(Path::new("/mnt/a \"b\"\n[service]"));
        assert!(text.contains(r#"mount = "/mnt/a \"b\"\n[service]""#), "{text}");
    }

    #[test]
    fn a_service_that_runs_already_is_in_the_way() {
        let stop = AtomicBool::new(false);
        let refused = refuse_another(Path::new("true"), Path::new("/srv"), &stop).unwrap_err().to_string();
        assert!(refused.starts_with("/srv: the service is running"), "{refused}");
        assert!(refuse_another(Path::new("false"), Path::new("/srv"), &stop).is_ok());
    }
}
