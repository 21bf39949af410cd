//! Writes at a fixed rate to many files: ordinary life of a machine, to see what watching it costs.

use super::writer::{Output, Writer};
use super::{Done, Job};
use crate::BenchError;
use longrun_sys::OFlags;
use std::time::{Duration, Instant};

/// How fast and for how long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pace {
    /// Writes a second.
    pub per_second: u32,
    /// For so long.
    pub time: Duration,
}

/// Files that are written by turns.
const FILES: u32 = 200;
/// Size of each write, and how large files become before new ones are begun.
const REQUEST: u64 = 4 << 10;
const LENGTH: u64 = 2 << 20;
/// So many writes are done at once, then it sleeps until the next are due.
const BATCH: u32 = 10;

/// Writes to many files at a fixed rate, buffered.
///
/// # Errors
/// As [`super::run`].
pub fn paced(job: &Job<'_>, pace: Pace) -> Result<Done, BenchError> {
    let mut writer = Writer::new(job, 0);
    let mut files: Vec<Output> = Vec::new();
    let start = Instant::now();
    for batch in 0u32.. {
        let due = Duration::from_secs_f64(f64::from(batch) * f64::from(BATCH) / f64::from(pace.per_second.max(1)));
        if due >= pace.time {
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
