//! Control: several files that grow at once through the page cache, where the kernel itself allocates late and in one go.

use super::writer::{REQUEST, together};
use super::{Done, Job};
use crate::BenchError;
use longrun_layout::Bytes;
use longrun_sys::OFlags;

pub(super) fn run(job: &Job<'_>) -> Result<Done, BenchError> {
    let done = together(job, |writer| {
        let mut output = writer.create("buffered", OFlags::empty())?;
        writer.grow(&mut output, job.parameters.bytes.0, REQUEST)?;
        output.sync()
    })?;
    Ok(Done { request: Bytes(REQUEST), ..done })
}
