//! How often a governor takes a quiet disk for one that somebody outside this machine uses, and how soon it notices when
//! somebody does.
//!
//!     cargo run --release -p longrun-governor --example neighbour -- DEVICE OTHER [SECONDS] [TIMES]
//!
//! As root, on two devices that share one disk (`longrun-lab disk --model san --clients 2`) and that nobody uses. This process
//! reads chunks from DEVICE without the cache and asks for permission before each, as a mover does: first for SECONDS while
//! OTHER is quiet, then TIMES while another process reads from OTHER, several requests at a time.

use longrun_engine::Permission;
use longrun_governor::{Governor, Pace, Pause};
use longrun_layout::Bytes;
use longrun_sys::{DeviceCounters, DeviceNumber, OFlags};
use std::fs::{File, OpenOptions};
use std::io::{Error, Result, Write};
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::process::{Child, Command};
use std::time::{Duration, Instant};

const CHUNK: usize = 256 << 10;
/// The neighbour's requests, and how many of them are under way.
const REQUEST: usize = 16 << 10;
const AT_A_TIME: usize = 6;
/// Nobody waits longer for being noticed.
const LONGEST: Duration = Duration::from_secs(5);
/// Between two visits.
const REST: Duration = Duration::from_secs(5);

fn main() -> Result<()> {
    let arguments: Vec<String> = std::env::args().collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let number = |text: &str| text.parse::<u64>().map_err(Error::other);
    match words.as_slice() {
        [_, "visit", other] => visit(other),
        [_, device, other] => measure(device, other, 600, 20),
        [_, device, other, seconds] => measure(device, other, number(seconds)?, 20),
        [_, device, other, seconds, times] => measure(device, other, number(seconds)?, number(times)?),
        _ => Err(Error::other("usage: neighbour DEVICE OTHER [SECONDS] [TIMES]")),
    }
}

fn open(device: &str) -> Result<File> {
    let flags = OFlags::DIRECT.bits().cast_signed();
    OpenOptions::new().read(true).custom_flags(flags).open(device)
}

fn read(file: &File, buffer: &mut [u8], length: usize, at: u64) -> Result<()> {
    let start = buffer.as_ptr().align_offset(4096);
    let target = buffer.get_mut(start..start + length).ok_or_else(|| Error::other("no buffer"))?;
    file.read_exact_at(target, at)
}

/// How many chunks a device has.
fn chunks(device: &str) -> Result<u64> {
    let number = DeviceNumber::from_stat(std::fs::metadata(device)?.rdev());
    let size = std::fs::read_to_string(format!("/sys/dev/block/{number}/size"))?;
    let sectors: u64 = size.trim().parse().map_err(Error::other)?;
    Ok((sectors * 512 / CHUNK as u64).max(1))
}

/// The neighbour: reads until it is killed.
fn visit(device: &str) -> Result<()> {
    let (file, chunks) = (open(device)?, chunks(device)?);
    std::thread::scope(|scope| {
        for seed in 0..AT_A_TIME {
            let file = &file;
            scope.spawn(move || {
                let mut random = fastrand::Rng::with_seed(seed as u64);
                let mut buffer = vec![0; REQUEST + 4096];
                while read(file, &mut buffer, REQUEST, random.u64(0..chunks) * CHUNK as u64).is_ok() {}
            });
        }
    });
    Ok(())
}

/// Ends when it is dropped, whatever happens.
struct Visitor(Child);

impl Drop for Visitor {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The mover, and what it was kept from.
struct Mover {
    governor: Governor,
    file: File,
    buffer: Vec<u8>,
    chunks: u64,
    random: fastrand::Rng,
    /// Chunks read.
    read: u64,
}

impl Mover {
    /// One question; true when work is paused because of somebody outside.
    fn step(&mut self) -> Result<bool> {
        match self.governor.permission(Bytes(CHUNK as u64)) {
            Permission::Go => {
                let at = self.random.u64(0..self.chunks) * CHUNK as u64;
                self.read += 1;
                read(&self.file, &mut self.buffer, CHUNK, at)?;
            }
            Permission::Wait(time) => std::thread::sleep(time),
        }
        Ok(self.governor.pausing() == Some(Pause::External))
    }
}

fn measure(device: &str, other: &str, seconds: u64, times: u64) -> Result<()> {
    let number = DeviceNumber::from_stat(std::fs::metadata(device)?.rdev());
    let counters = DeviceCounters::open(number)?;
    let mut mover = Mover {
        governor: Governor::new(Some(number), Pace::Invisible),
        file: open(device)?,
        buffer: vec![0; CHUNK + 4096],
        chunks: chunks(device)?,
        random: fastrand::Rng::with_seed(1),
        read: 0,
    };
    let mut out = std::io::stdout();
    let before = counters.read()?;
    let (begun, mut alarms, mut paused) = (Instant::now(), 0_u64, false);
    let mut in_alarm = Duration::ZERO;
    while begun.elapsed() < Duration::from_secs(seconds) {
        let step = Instant::now();
        let external = mover.step()?;
        if external {
            in_alarm += step.elapsed();
        }
        alarms += u64::from(external && !paused);
        paused = external;
    }
    let probes = (counters.read()?.reads - before.reads).saturating_sub(mover.read);
    let shares = [alarms as f64 / probes.max(1) as f64, in_alarm.as_secs_f64() / begun.elapsed().as_secs_f64()];
    let [each, time] = shares.map(|share| share * 100.0);
    writeln!(
        out,
        "quiet for {seconds} s: {probes} probes, {alarms} false alarms ({each:.2} %), {time:.2} % of the time"
    )?;
    writeln!(out, "foreign on this machine: {} bytes", mover.governor.loads().foreign_bytes.0)?;
    let mut delays = Vec::new();
    for _ in 0..times {
        let rest = Instant::now();
        while rest.elapsed() < REST || mover.governor.pausing().is_some() {
            mover.step()?;
        }
        let _visitor = Visitor(Command::new(std::env::current_exe()?).args(["visit", other]).spawn()?);
        let begun = Instant::now();
        while begun.elapsed() < LONGEST && !mover.step()? {}
        delays.push(begun.elapsed().as_secs_f64());
    }
    delays.sort_by(f64::total_cmp);
    let noticed = delays.iter().filter(|delay| **delay < LONGEST.as_secs_f64()).count();
    let at = |share: f64| delays.get((delays.len() as f64 * share) as usize).or(delays.last()).copied().unwrap_or(0.0);
    writeln!(out, "{noticed} of {times} visits noticed, after {:.2} s (median), {:.2} s (longest)", at(0.5), at(1.0))?;
    Ok(())
}
