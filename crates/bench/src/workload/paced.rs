//! Writes at a fixed rate to many files, as in ordinary use of a machine, to measure the cost of watching it.

use super::writer::{Output, Writer};
use super::{Done, Job};
use crate::BenchError;
use longrun_sys::OFlags;
use std::time::{Duration, Instant};

/// How fast and for how long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rate {
    /// Writes a second.
    pub per_second: u32,
    /// The duration.
    pub time: Duration,
}

/// Files that are written by turns.
const FILES: u32 = 200;
/// Size of each write, and how large files become before new ones are begun.
const REQUEST: u64 = 4 << 10;
const LENGTH: u64 = 2 << 20;
/// The number of writes that are done at once before it sleeps until the next ones are due.
const BATCH: u32 = 10;

/// Writes to many files at a fixed rate, buffered.
///
/// # Errors
/// As [`super::run`].
pub fn paced(job: &Job<'_>, rate: Rate) -> Result<Done, BenchError> {
    let mut writer = Writer::new(job, 0);
    let mut files: Vec<Output> = Vec::new();
    let start = Instant::now();
    for batch in 0u32.. {
        let due = Duration::from_secs_f64(f64::from(batch) * f64::from(BATCH) / f64::from(rate.per_second.max(1)));
        if due >= rate.time {
            break;
        }
        std::thread::sleep(due.saturating_sub(start.elapsed()));
        for write in batch * BATCH..(batch + 1) * BATCH {
            let at = (write % FILES) as usize;
            if at >= files.len() {
                files.push(writer.create(&format!("paced-{at}"), OFlags::empty())?);
            }
            let Some(output) = files.get_mut(at) else { continue };
            if output.length >= LENGTH {
                *output = writer.open(&output.path.clone(), OFlags::TRUNC)?;
            }
            writer.append(output, REQUEST)?;
        }
    }
    Ok(writer.done)
}
