//! Reads all files once more in order, from a cold cache: the cost of fragments for readers.

use crate::device::{Activity, Device};
use crate::extents::for_each_file;
use crate::{BenchError, layout_of};
use longrun_layout::Bytes;
use longrun_sys::AlignedBuffer;
use longrun_sys::{ByteRange, OFlags};
use serde::{Deserialize, Serialize};
use std::fs::OpenOptions;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

/// The size of the requests. It is small enough that no current device must split one whose blocks are contiguous.
pub const READ_REQUEST: Bytes = Bytes(256 << 10);

/// What reading everything took.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Reread {
    /// How long.
    pub seconds: f64,
    /// Requests of [`READ_REQUEST`] or, at ends, less.
    pub requests: u64,
    /// The requests whose blocks are in more than one place.
    pub split: u64,
    /// Transfers of the device beyond the requests, as counted: split requests, and reading where files lie.
    pub more_transfers: u64,
    /// What the device did.
    pub device: Activity,
}

/// Reads all files below `directory` from the device, one after the other.
///
/// # Errors
/// [`BenchError`] when something cannot be read, or the benchmark was asked to stop.
pub fn reread(directory: &Path, device: &Device, stop: &AtomicBool) -> Result<Reread, BenchError> {
    let (_, splits) = layout_of(directory, &[READ_REQUEST])?;
    let mut buffer = AlignedBuffer::new(READ_REQUEST.0 as usize);
    let (before, start) = (device.sample()?, Instant::now());
    let mut result = Reread { split: splits.iter().map(|s| s.split).sum(), ..Reread::default() };
    for_each_file(directory, &mut |path| {
        if stop.load(Ordering::Relaxed) {
            return Err(BenchError::Interrupted);
        }
        result.requests += read(path, &mut buffer)?;
        Ok(())
    })?;
    result.seconds = start.elapsed().as_secs_f64();
    result.device = device.sample()?.since(&before);
    result.more_transfers = result.device.reads.saturating_sub(result.requests);
    Ok(result)
}

/// Reads a file past the page cache; returns the number of requests.
fn read(path: &Path, buffer: &mut AlignedBuffer) -> Result<u64, BenchError> {
    let failed = |e| BenchError::io("reading it", path, e);
    let file = OpenOptions::new().read(true).custom_flags(OFlags::DIRECT.bits().cast_signed()).open(path);
    let file = file.map_err(failed)?;
    let length = file.metadata().map_err(failed)?.len();
    // Where the file system serves direct reads from memory all the same, it shall have none of this in memory.
    longrun_sys::drop_cache(&file, ByteRange::ALL).map_err(|e| failed(e.into()))?;
    let (mut at, mut requests) = (0, 0);
    while at < length {
        let got = file.read_at(buffer.prefix(READ_REQUEST.0 as usize), at).map_err(failed)?;
        if got == 0 {
            break;
        }
        at += got as u64;
        requests += 1;
    }
    Ok(requests)
}
