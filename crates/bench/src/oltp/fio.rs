//! fio as a child process: its command line, and the evaluation of its output.

use super::OltpProfile;
use crate::device::per;
use crate::{BenchError, child};
use serde::Serialize;
use serde_json::Value;
use std::io;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::atomic::AtomicBool;
use std::time::Duration;

/// Requests under way at a time.
pub(super) const DEPTH: u32 = 8;

/// What fio measured.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Rates {
    /// Requests each second, as the user made them.
    pub requests_per_second: f64,
    /// MB (millions of bytes) each second.
    pub mb_per_second: f64,
    /// How long a request took on average, in milliseconds.
    pub milliseconds: f64,
}

/// Whether it can be run.
pub(super) fn require(fio: &Path) -> Result<(), BenchError> {
    let asked = Command::new(fio).arg("--version").stdin(Stdio::null()).stdout(Stdio::null()).status();
    match asked {
        Ok(status) if status.success() => Ok(()),
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(BenchError::io("running it", fio, error)),
        _ => Err(BenchError::Unsuitable {
            path: fio.to_owned(),
            problem: "it is not installed; install the package fio".to_owned(),
        }),
    }
}

/// Makes the requests of a profile to a file for a given time.
pub(super) fn run(
    fio: &Path,
    file: &Path,
    profile: OltpProfile,
    time: Duration,
    seed: u64,
    stop: &AtomicBool,
) -> Result<Rates, BenchError> {
    let mut command = Command::new(fio);
    // Named from its own directory: fio takes colons in names for something else. It must not make or lengthen anything.
    if let (Some(directory), Some(name)) = (file.parent(), file.file_name()) {
        command.current_dir(directory).arg(format!("--filename={}", name.to_string_lossy()));
    }
    command.args(["--name=oltp", "--ioengine=libaio", "--direct=1", "--time_based", "--output-format=json"]);
    command.args(["--allow_file_create=0", "--fallocate=none", "--file_append=0", "--norandommap", "--thread"]);
    command.arg(format!("--iodepth={DEPTH}")).arg(format!("--randseed={seed}"));
    command.arg(format!("--runtime={}ms", time.as_millis().max(1))).args(profile.arguments());
    let finished = child::run(&mut command, stop)?;
    rates(&finished.answer).ok_or_else(|| {
        let problem =
            format!("{} could not run {profile} on it ({}): {}", fio.display(), finished.status, finished.said);
        BenchError::Unsuitable { path: file.to_owned(), problem }
    })
}

/// The figures of its only job; `None` if it reports an error, or in another format.
fn rates(answer: &[u8]) -> Option<Rates> {
    // Notes may stand before the object.
    let object = answer.get(answer.iter().position(|byte| *byte == b'{')?..)?;
    let answer: Value = serde_json::from_slice(object).ok()?;
    let job = answer.get("jobs")?.get(0)?;
    if job.get("error")?.as_i64()? != 0 {
        return None;
    }
    let (mut rates, mut waited, mut all) = (Rates::default(), 0.0, 0.0);
    for direction in ["read", "write"] {
        let side = job.get(direction)?;
        let number = |name: &str| side.get(name).and_then(Value::as_f64);
        let done = number("total_ios")?;
        rates.requests_per_second += number("iops")?;
        rates.mb_per_second += number("bw_bytes")? / 1e6;
        waited += done * side.get("lat_ns")?.get("mean")?.as_f64()?;
        all += done;
    }
    rates.milliseconds = per(waited / 1e6, all);
    (all > 0.0).then_some(rates)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(error: i64, reads: u64, writes: u64) -> Vec<u8> {
        let side = |done: u64, mean: f64| {
            serde_json::json!({ "total_ios": done, "iops": done / 2, "bw_bytes": done * 4096,
                                "lat_ns": { "mean": mean } })
        };
        let job = serde_json::json!({ "error": error, "read": side(reads, 1e6), "write": side(writes, 4e6) });
        format!("note: something\n{}", serde_json::json!({ "jobs": [job] })).into_bytes()
    }

    #[test]
    fn both_directions_are_added_up_and_waited_for_by_their_weight() {
        let rates = rates(&answer(0, 200, 100)).unwrap();
        assert_eq!((rates.requests_per_second, rates.milliseconds), (150.0, 2.0));
        assert!((rates.mb_per_second - 300.0 * 4096.0 / 1e6).abs() < 1e-9);
    }

    #[test]
    fn an_answer_that_tells_nothing_is_none() {
        assert_eq!(rates(&answer(5, 200, 100)), None, "an error");
        assert_eq!(rates(&answer(0, 0, 0)), None, "nothing was done");
        assert_eq!(rates(b"fio: no such file"), None);
    }

    #[test]
    fn a_missing_fio_is_named_with_what_to_do() {
        let _alone = crate::child::one_at_a_time();
        let error = require(Path::new("/no/such/fio")).unwrap_err().to_string();
        assert!(error.starts_with("/no/such/fio: it is not installed") && error.contains("package fio"), "{error}");
    }
}
