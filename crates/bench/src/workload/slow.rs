//! Many files that grow in turn: each gets a piece, which is synced, and then the next file follows. Mailboxes,
//! recordings and exports grow like this.

use super::writer::{Output, together};
use super::{Done, Job};
use crate::BenchError;
use longrun_sys::OFlags;

/// Files of each writer.
const FILES: u32 = 8;
/// Each file reaches this fraction of the requested size.
const PART: u64 = 16;

pub(super) fn run(job: &Job<'_>) -> Result<Done, BenchError> {
    let length = (job.parameters.bytes.0 / PART).max(64 << 10);
    together(job, |writer| {
        let mut growing: Vec<Output> =
            (0..FILES).map(|file| writer.create(&format!("slow-{file}"), OFlags::empty())).collect::<Result<_, _>>()?;
        while !growing.is_empty() {
            for output in &mut growing {
                let piece = writer.rng.u64(4 << 10..=32 << 10).min(length - output.length);
                writer.append(output, piece)?;
                output.sync_data()?;
            }
            growing.retain(|output| output.length < length);
        }
        Ok(())
    })
}
