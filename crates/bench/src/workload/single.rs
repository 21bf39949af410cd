//! Control: one writer, one file after the other. No other file takes the blocks behind its end, so nothing can be
//! gained.

use super::writer::{REQUEST, alone};
use super::{Done, Job};
use crate::BenchError;
use longrun_layout::Bytes;
use longrun_sys::OFlags;

pub(super) fn run(job: &Job<'_>) -> Result<Done, BenchError> {
    let done = alone(job, |writer| {
        for file in 0..job.parameters.writers {
            let mut output = writer.create(&format!("single-{file}"), OFlags::DIRECT)?;
            writer.grow(&mut output, job.parameters.bytes.0, REQUEST)?;
            output.sync()?;
        }
        Ok(())
    })?;
    Ok(Done { request: Bytes(REQUEST), ..done })
}
