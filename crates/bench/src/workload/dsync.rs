//! Several files that grow at the same time, where each write is durable before the next, so that delayed allocation
//! cannot help.

use super::writer::{REQUEST, together};
use super::{Done, Job};
use crate::BenchError;
use longrun_layout::Bytes;
use longrun_sys::OFlags;

pub(super) fn run(job: &Job<'_>) -> Result<Done, BenchError> {
    let done = together(job, |writer| {
        let mut output = writer.create("dsync", OFlags::DSYNC)?;
        writer.grow(&mut output, job.parameters.bytes.0, REQUEST)
    })?;
    Ok(Done { request: Bytes(REQUEST), ..done })
}
