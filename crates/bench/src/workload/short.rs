//! Control: short files, each written at once and closed, like most files of most volumes.

use super::writer::together;
use super::{Done, Job};
use crate::BenchError;
use longrun_layout::Bytes;
use longrun_sys::OFlags;

/// Size of each file.
const LENGTH: u64 = 20_000;
/// One file per this many bytes of the other profiles: 10 000 files where eight writers write 64 MiB each.
const BYTES_PER_FILE: u64 = (8 * (64 << 20)) / 10_000;

pub(super) fn run(job: &Job<'_>) -> Result<Done, BenchError> {
    let files = (job.parameters.bytes.0 / BYTES_PER_FILE).max(10);
    let done = together(job, |writer| {
        for file in 0..files {
            let mut output = writer.create(&format!("short-{file}"), OFlags::empty())?;
            writer.append(&mut output, LENGTH)?;
        }
        Ok(())
    })?;
    // Written back within the measured time, or allocation would be left out of it.
    super::sync_directory(job.directory)?;
    Ok(Done { request: Bytes(LENGTH), ..done })
}
