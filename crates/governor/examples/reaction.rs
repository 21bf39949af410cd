//! How soon a governor notices that somebody else uses the device, by BPF and by the counters.
//!
//!     cargo run --release -p longrun-governor --example reaction -- DEVICE [BURSTS [KIB]]
//!
//! As root, on a disk that nobody uses otherwise. This process reads chunks of so many KiB (256) from the device without the
//! cache and asks for permission before each, as a mover does: it reacts when the chunk under way is done, not sooner. Another process makes bursts of reads at random times. From the beginning
//! of a burst to the first refusal is the reaction; the kind of signal alternates from burst to burst.

use longrun_engine::Permission;
use longrun_governor::{Governor, Observed, Pace, Signals};
use longrun_layout::Bytes;
use longrun_sys::{DeviceNumber, OFlags, monotonic_nanoseconds};
use std::fs::{File, OpenOptions};
use std::io::{BufRead, BufReader, Error, Result, Write};
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// The longest chunk.
const CHUNK: usize = 256 << 10;
const REQUEST: usize = 16 << 10;
const BURST: usize = 64;
const LONGEST: Duration = Duration::from_secs(2);

fn main() -> Result<()> {
    let arguments: Vec<String> = std::env::args().collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match words.as_slice() {
        [_, "burst", device] => bursts(device),
        [_, device] => measure(device, 40, CHUNK),
        [_, device, count] => measure(device, count.parse().map_err(Error::other)?, CHUNK),
        [_, device, count, kib] => {
            let chunk = kib.parse::<usize>().map_err(Error::other)? << 10;
            measure(device, count.parse().map_err(Error::other)?, chunk.clamp(4096, CHUNK))
        }
        _ => Err(Error::other("usage: reaction DEVICE [BURSTS [KIB]]")),
    }
}

/// A file past the cache, and a buffer that the kernel takes for that.
struct Reader {
    file: File,
    buffer: Vec<u8>,
    blocks: u64,
}

impl Reader {
    fn open(device: &str) -> Result<Self> {
        let flags = OFlags::DIRECT.bits().cast_signed();
        let file = OpenOptions::new().read(true).custom_flags(flags).open(device)?;
        let number = DeviceNumber::from_stat(file.metadata()?.rdev());
        let size = std::fs::read_to_string(format!("/sys/dev/block/{number}/size"))?;
        let sectors: u64 = size.trim().parse().map_err(Error::other)?;
        Ok(Self { file, buffer: vec![0; CHUNK + 4096], blocks: sectors * 512 / CHUNK as u64 })
    }

    fn read(&mut self, block: u64, length: usize) -> Result<()> {
        let start = self.buffer.as_ptr().align_offset(4096);
        let target = self.buffer.get_mut(start..start + length).ok_or_else(|| Error::other("no buffer"))?;
        self.file.read_exact_at(target, block % self.blocks * CHUNK as u64)
    }
}

/// The other process: for each line a burst, answered by when it began.
fn bursts(device: &str) -> Result<()> {
    let mut reader = Reader::open(device)?;
    for line in std::io::stdin().lines() {
        line?;
        let begun = monotonic_nanoseconds();
        for request in 0..BURST {
            reader.read((request * 7919) as u64, REQUEST)?;
        }
        writeln!(std::io::stdout(), "{begun}")?;
    }
    Ok(())
}

fn measure(device: &str, count: usize, chunk: usize) -> Result<()> {
    let number = DeviceNumber::from_stat(std::fs::metadata(device)?.rdev());
    let mut other = Command::new(std::env::current_exe()?)
        .args(["burst", device])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()?;
    let missing = || Error::other("the other process has no pipes");
    let mut ask = other.stdin.take().ok_or_else(missing)?;
    let mut answers = BufReader::new(other.stdout.take().ok_or_else(missing)?);
    let mut reader = Reader::open(device)?;
    let mut found: [Vec<f64>; 2] = [Vec::new(), Vec::new()];
    let mut random = fastrand::Rng::with_seed(1);
    for burst in 0..count * 2 {
        let signals = if burst % 2 == 0 { Signals::All } else { Signals::Counters };
        let mut governor = Governor::with_signals(Some(number), Pace::Invisible, signals);
        if signals == Signals::All && governor.loads().observed != Observed::Arrivals {
            return Err(Error::other("the kernel refuses the BPF program"));
        }
        work(&mut governor, &mut reader, &mut random, chunk)?;
        writeln!(ask)?;
        let refused = refusal(&mut governor, &mut reader, chunk)?;
        let mut line = String::new();
        answers.read_line(&mut line)?;
        let begun: u64 = line.trim().parse().map_err(Error::other)?;
        if let (Some(refused), Some(times)) = (refused, found.get_mut(burst % 2)) {
            times.push(refused.saturating_sub(begun) as f64 / 1e6);
        }
    }
    drop(ask);
    other.wait()?;
    let mut out = std::io::stdout();
    writeln!(out, "signals    bursts  noticed  median ms  95 % ms  longest ms")?;
    for (name, times) in ["bpf", "counters"].iter().zip(&mut found) {
        times.sort_by(f64::total_cmp);
        let at = |share: f64| times.get((times.len() as f64 * share) as usize).or(times.last()).copied().unwrap_or(0.0);
        let (half, most, longest) = (at(0.5), at(0.95), at(1.0));
        writeln!(out, "{name:<9} {count:>7} {:>8} {half:>10.2} {most:>8.2} {longest:>11.2}", times.len())?;
    }
    Ok(())
}

/// Works undisturbed for a while.
fn work(governor: &mut Governor, reader: &mut Reader, random: &mut fastrand::Rng, chunk: usize) -> Result<()> {
    let end = Instant::now() + Duration::from_millis(300 + random.u64(0..100));
    let mut block = random.u64(0..1 << 20);
    while Instant::now() < end {
        match governor.permission(Bytes(chunk as u64)) {
            Permission::Go => reader.read(block, chunk)?,
            Permission::Wait(time) => std::thread::sleep(time),
        }
        block += 1;
    }
    Ok(())
}

/// Works until it has to pause; when that was. Rests that nobody else is the reason for do not count.
fn refusal(governor: &mut Governor, reader: &mut Reader, chunk: usize) -> Result<Option<u64>> {
    let end = Instant::now() + LONGEST;
    let before = governor.loads().pauses;
    let mut block = 0;
    while Instant::now() < end {
        match governor.permission(Bytes(chunk as u64)) {
            Permission::Go => reader.read(block, chunk)?,
            Permission::Wait(_) if governor.loads().pauses > before => return Ok(Some(monotonic_nanoseconds())),
            Permission::Wait(time) => std::thread::sleep(time),
        }
        block += 1;
    }
    Ok(None)
}
