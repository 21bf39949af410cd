//! Sparse files that are filled at random places, like the disks of virtual machines.

use super::writer::{REQUEST, together};
use super::{Done, Job};
use crate::BenchError;
use longrun_layout::Bytes;
use longrun_sys::OFlags;

pub(super) fn run(job: &Job<'_>) -> Result<Done, BenchError> {
    let length = job.parameters.bytes;
    let done = together(job, |writer| {
        let output = writer.create("sparse", OFlags::DIRECT)?;
        longrun_sys::set_length(&output.file, length)
            .map_err(|e| BenchError::io("setting its length", &output.path, e))?;
        let mut pieces: Vec<u64> = (0..length.0 / REQUEST).collect();
        writer.rng.shuffle(&mut pieces);
        for piece in pieces {
            writer.write_at(&output, piece * REQUEST, REQUEST)?;
        }
        output.sync()
    })?;
    Ok(Done { request: Bytes(REQUEST), ..done })
}
