//! The foreground work that should not be disturbed.

use crate::BenchError;
use longrun_sys::AlignedBuffer;
use longrun_sys::{ByteRange, OFlags};
use std::fs::{File, OpenOptions};
use std::io::{Read, Write};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, Scope, ScopedJoinHandle};
use std::time::{Duration, Instant};

/// What is copied, and read from.
pub(super) const SOURCE: &str = "source";
/// What is copied to.
pub(super) const COPY: &str = "copy";
const AT_ONCE: usize = 1 << 20;
/// The size of the small reads and writes.
pub(super) const SMALL: u64 = 4096;

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

/// Requests at random times.
#[derive(Clone, Copy, Debug)]
pub(super) struct Load {
    /// Small reads in all.
    pub(super) reads: u32,
    /// How many of them come in a second, on average.
    pub(super) reads_per_second: f64,
    /// Small durable writes in a second, on average, for as long as the reads take.
    pub(super) writes_per_second: f64,
}

/// How long each request took, in milliseconds.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Times {
    pub(super) reads: Vec<f64>,
    /// From the write until it was durable (fsync).
    pub(super) writes: Vec<f64>,
}

/// So many requests a second one thread makes at most: with more, a slow request would keep others from coming.
const PER_THREAD: (f64, f64) = (250.0, 50.0);

/// Reads and writes at random places at random times, reads past the page cache.
pub(super) fn load(directory: &Path, load: Load, seed: u64, stop: &AtomicBool) -> Result<Times, BenchError> {
    let [read_from, written_to] = [SOURCE, COPY].map(|name| directory.join(name));
    let failed = |e| BenchError::io("reading it", &read_from, e);
    let direct = OFlags::DIRECT.bits().cast_signed();
    let source = OpenOptions::new().read(true).custom_flags(direct).open(&read_from).map_err(failed)?;
    let target = OpenOptions::new().write(true).open(&written_to);
    let target = target.map_err(|e| BenchError::io("writing to it", &written_to, e))?;
    let writes = f64::from(load.reads) * load.writes_per_second / load.reads_per_second.max(0.01);
    let reads = Stream::new(source, read_from, f64::from(load.reads), load.reads_per_second, PER_THREAD.0)?;
    let writes = Stream::new(target, written_to, writes, load.writes_per_second, PER_THREAD.1)?;
    let read = |file: &File, at, buffer: &mut [u8]| file.read_at(buffer, at).map(drop);
    let write = |file: &File, at, buffer: &mut [u8]| file.write_all_at(buffer, at).and_then(|()| file.sync_all());
    thread::scope(|scope| {
        let reading = reads.start(scope, seed, stop, read);
        let writing = writes.start(scope, seed ^ u64::MAX, stop, write);
        let all = |threads: Vec<ScopedJoinHandle<'_, _>>| -> Result<Vec<f64>, BenchError> {
            let ended = |thread: ScopedJoinHandle<'_, _>| thread.join().unwrap_or(Err(BenchError::Interrupted));
            Ok(threads.into_iter().map(ended).collect::<Result<Vec<Vec<f64>>, _>>()?.concat())
        };
        Ok(Times { reads: all(reading)?, writes: all(writing)? })
    })
}

/// Requests of one kind.
struct Stream {
    file: File,
    path: PathBuf,
    /// Blocks of the file.
    places: u64,
    threads: u32,
    /// Requests of a thread, and how many of them come in a second.
    count: u32,
    rate: f64,
}

impl Stream {
    fn new(file: File, path: PathBuf, count: f64, rate: f64, per_thread: f64) -> Result<Self, BenchError> {
        let places = (file.metadata().map_err(|e| BenchError::io("reading it", &path, e))?.len() / SMALL).max(1);
        let threads = (rate / per_thread).ceil().max(1.0);
        let count = (count / threads).ceil() as u32;
        Ok(Self { file, path, places, threads: threads as u32, count, rate: rate / threads })
    }

    fn start<'scope, 'env>(
        &'env self,
        scope: &'scope Scope<'scope, 'env>,
        seed: u64,
        stop: &'env AtomicBool,
        request: impl Fn(&File, u64, &mut [u8]) -> std::io::Result<()> + Copy + Send + 'scope,
    ) -> Vec<ScopedJoinHandle<'scope, Result<Vec<f64>, BenchError>>> {
        let start = |thread: u32| {
            let random = fastrand::Rng::with_seed(seed.wrapping_add(u64::from(thread) << 32));
            scope.spawn(move || self.requests(random, stop, request))
        };
        (0..self.threads).filter(|_| self.count > 0).map(start).collect()
    }

    fn requests(
        &self,
        mut random: fastrand::Rng,
        stop: &AtomicBool,
        request: impl Fn(&File, u64, &mut [u8]) -> std::io::Result<()>,
    ) -> Result<Vec<f64>, BenchError> {
        let mut buffer = AlignedBuffer::new(SMALL as usize);
        let (mut took, mut due) = (Vec::new(), Instant::now());
        for _ in 0..self.count {
            // As independent users come: the pauses are exponentially distributed.
            let pause = -(1.0 - random.f64()).ln() / self.rate.max(0.01);
            due += Duration::from_secs_f64(pause.min(60.0));
            let early = due.saturating_duration_since(Instant::now());
            thread::sleep(early);
            if stop.load(Ordering::Relaxed) {
                return Err(BenchError::Interrupted);
            }
            let at = random.u64(0..self.places) * SMALL;
            // Who would have come while the last request was under way has waited since then.
            let start = if early.is_zero() { due } else { Instant::now() };
            request(&self.file, at, buffer.prefix(SMALL as usize))
                .map_err(|e| BenchError::io("using it", &self.path, e))?;
            took.push(start.elapsed().as_secs_f64() * 1000.0);
        }
        Ok(took)
    }
}
