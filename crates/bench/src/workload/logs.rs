//! Many logs: lines of some hundred bytes, synced after every few lines.

use super::writer::{Output, together};
use super::{Done, Job};
use crate::BenchError;
use longrun_sys::OFlags;

/// Logs of each writer.
const FILES: u32 = 4;
/// Each file reaches this fraction of the requested size.
const PART: u64 = 16;
/// Lines between two moments at which the log is made durable.
const LINES: u32 = 8;

pub(super) fn run(job: &Job<'_>) -> Result<Done, BenchError> {
    let length = (job.parameters.bytes.0 / PART).max(64 << 10);
    together(job, |writer| {
        let mut growing: Vec<Output> =
            (0..FILES).map(|file| writer.create(&format!("log-{file}"), OFlags::APPEND)).collect::<Result<_, _>>()?;
        while !growing.is_empty() {
            for output in &mut growing {
                for _ in 0..LINES {
                    let line = writer.rng.u64(200..=1200).min(length - output.length);
                    writer.append(output, line)?;
                }
                output.sync_data()?;
            }
            growing.retain(|output| output.length < length);
        }
        Ok(())
    })
}
