//! Several files that grow at the same time by direct writes: each write gets its blocks at once, next to those of the
//! other files.

use super::writer::{REQUEST, together};
use super::{Done, Job};
use crate::BenchError;
use longrun_layout::Bytes;
use longrun_sys::OFlags;

pub(super) fn run(job: &Job<'_>) -> Result<Done, BenchError> {
    let done = together(job, |writer| {
        let mut output = writer.create("direct", OFlags::DIRECT)?;
        writer.grow(&mut output, job.parameters.bytes.0, REQUEST)?;
        output.sync()
    })?;
    Ok(Done { request: Bytes(REQUEST), ..done })
}
