//! The foreground work that should not be disturbed.

use crate::BenchError;
use longrun_ageing::AlignedBuffer;
use longrun_sys::{ByteRange, OFlags};
use std::fs::{File, OpenOptions};
use std::io::{Read, Write};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// What is copied, and read from.
pub(super) const SOURCE: &str = "source";
/// What is copied to.
pub(super) const COPY: &str = "copy";
const AT_ONCE: usize = 1 << 20;
/// The size of the small reads.
const SMALL: u64 = 4096;

/// Copies the file from a cold cache, through the page cache, until the copy is durable; how many seconds that took.
///
/// The copy is written over the one of the last turn. A new file goes wherever the allocator has got to, and on a
/// disk with one arm that alone makes it 3.7 to 4.7 s: it was taken for the optimizer's doing, or for its benefit.
pub(super) fn copy(directory: &Path, stop: &AtomicBool) -> Result<f64, BenchError> {
    let (source, target) = (directory.join(SOURCE), directory.join(COPY));
    let failed = |e| BenchError::io("copying it", &source, e);
    let mut from = File::open(&source).map_err(failed)?;
    let mut to = OpenOptions::new().write(true).open(&target).map_err(failed)?;
    for file in [&from, &to] {
        longrun_sys::drop_cache(file, ByteRange::ALL).map_err(|e| failed(e.into()))?;
    }
    let mut buffer = vec![0; AT_ONCE];
    let start = Instant::now();
    loop {
        let got = from.read(&mut buffer).map_err(failed)?;
        to.write_all(buffer.get(..got).unwrap_or_default()).map_err(failed)?;
        if stop.load(Ordering::Relaxed) {
            return Err(BenchError::Interrupted);
        }
        if got == 0 {
            break;
        }
    }
    to.sync_all().map_err(failed)?;
    Ok(start.elapsed().as_secs_f64())
}

/// Reads at random places at random times, past the page cache; milliseconds of each.
pub(super) fn sparse_reads(
    directory: &Path,
    count: u32,
    per_second: f64,
    seed: u64,
    stop: &AtomicBool,
) -> Result<Vec<f64>, BenchError> {
    let path = directory.join(SOURCE);
    let failed = |e| BenchError::io("reading it", &path, e);
    let file = OpenOptions::new().read(true).custom_flags(OFlags::DIRECT.bits().cast_signed()).open(&path);
    let file = file.map_err(failed)?;
    let places = (file.metadata().map_err(failed)?.len() / SMALL).max(1);
    let mut random = fastrand::Rng::with_seed(seed);
    let mut buffer = AlignedBuffer::new(SMALL as usize);
    let mut took = Vec::new();
    for _ in 0..count {
        // As independent users come: the pauses are exponentially distributed.
        let pause = -(1.0 - random.f64()).ln() / per_second.max(0.01);
        std::thread::sleep(Duration::from_secs_f64(pause.min(60.0)));
        if stop.load(Ordering::Relaxed) {
            return Err(BenchError::Interrupted);
        }
        let at = random.u64(0..places) * SMALL;
        let start = Instant::now();
        file.read_at(buffer.prefix(SMALL as usize), at).map_err(failed)?;
        took.push(start.elapsed().as_secs_f64() * 1000.0);
    }
    Ok(took)
}
