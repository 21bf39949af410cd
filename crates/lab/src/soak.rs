//! Soaking: the service under mixed load for long, with volumes mounted and unmounted, must not grow.
//!
//! Owns the load, the samples of /proc, and the verdict. The load is what prevention answers to: direct writers that
//! grow files beside each other, scattered writes, short files, deletions.

use crate::{LoopVolume, VolumeSpec, longrun_binary};
use anyhow::{Context, Result, bail, ensure};
use serde::Serialize;
use std::fs::{self, File};
use std::os::unix::fs::{FileExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

const O_DIRECT: i32 = 0o40000;

/// How to soak.
#[derive(Clone, Copy, Debug)]
pub struct SoakSettings {
    /// For how long.
    pub time: Duration,
    /// How often /proc is looked at.
    pub sample: Duration,
}

/// What the service used at some time.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub struct Sample {
    /// Seconds since the beginning.
    pub seconds: u64,
    /// Memory.
    pub resident_kib: u64,
    /// Open files.
    pub files: u64,
    /// Threads.
    pub threads: u64,
}

/// What came of it.
#[derive(Clone, Debug, Serialize)]
pub struct SoakReport {
    /// Files that were grown.
    pub grown_files: u64,
    /// Times that a volume was unmounted and mounted again.
    pub remounts: u64,
    /// All samples.
    pub samples: Vec<Sample>,
}

/// Soaks, and judges. Every volume is checked at the end.
///
/// # Errors
/// When the service ends, does not end well, or has grown.
pub fn soak(settings: SoakSettings) -> Result<SoakReport> {
    let specs = [VolumeSpec::xfs(640), VolumeSpec::btrfs(640), VolumeSpec::ext4(512).mkfs(&["-b", "4096"])];
    let volumes = specs.iter().map(LoopVolume::create).collect::<Result<Vec<_>>>()?;
    let directory = tempfile::tempdir()?;
    let mut service = Service::start(directory.path(), &volumes)?;
    let stop = AtomicBool::new(false);
    let begun = Instant::now();
    let mut samples = Vec::new();
    let (grown_files, remounts) = thread::scope(|scope| -> Result<(u64, u64)> {
        let stop = &stop;
        let loads: Vec<_> = volumes.iter().map(|volume| scope.spawn(move || load(volume, stop))).collect();
        let watched = (|| {
            while begun.elapsed() < settings.time {
                thread::sleep(settings.sample);
                samples.push(service.sample(begun)?);
            }
            Ok(())
        })();
        stop.store(true, Ordering::SeqCst);
        let mut sums = (0, 0);
        for load in loads {
            let (files, remounts) = load.join().map_err(|_| anyhow::anyhow!("a load panicked"))??;
            sums = (sums.0 + files, sums.1 + remounts);
        }
        watched.map(|()| sums)
    })?;
    service.stop()?;
    for volume in &volumes {
        volume.check()?;
    }
    judge(&samples)?;
    Ok(SoakReport { grown_files, remounts, samples })
}

/// After a first third, in which caches and pools fill, nothing may grow any more.
fn judge(samples: &[Sample]) -> Result<()> {
    ensure!(samples.len() >= 6, "too few samples to judge: soak for longer");
    let (early, late) = samples.split_at(samples.len() * 2 / 3);
    let early = early.split_at(early.len() / 2).1;
    let most = |samples: &[Sample], of: fn(&Sample) -> u64| samples.iter().map(of).max().unwrap_or(0);
    type Figure = (&'static str, fn(&Sample) -> u64, u64);
    let figures: [Figure; 3] = [
        // An allocator keeps some of what was freed: an eighth and 4 MiB more are no leak.
        ("memory (KiB)", |sample| sample.resident_kib, most(early, |sample| sample.resident_kib) / 8 + 4096),
        ("open files", |sample| sample.files, 8),
        ("threads", |sample| sample.threads, 2),
    ];
    for (name, of, slack) in figures {
        let (before, after) = (most(early, of), most(late, of));
        ensure!(after <= before + slack, "{name} grew from {before} to {after}: {samples:?}");
    }
    Ok(())
}

/// Works on one volume until it is told to stop; files grown, and remounts.
fn load(volume: &LoopVolume, stop: &AtomicBool) -> Result<(u64, u64)> {
    let (mut files, mut remounts) = (0, 0);
    let mut round = 0u64;
    while !stop.load(Ordering::SeqCst) {
        round += 1;
        let base = volume.mount_point().join(format!("round-{}", round % 4));
        _ = fs::remove_dir_all(&base);
        fs::create_dir_all(&base)?;
        files += grow(&base, 4, 48)?;
        scatter(&base.join("sparse"))?;
        (0..50).try_for_each(|number| fs::write(base.join(format!("short-{number}")), vec![1; 20_000]))?;
        if round.is_multiple_of(5) {
            volume.remount()?;
            remounts += 1;
        }
        thread::sleep(Duration::from_millis(100));
    }
    Ok((files, remounts))
}

/// `count` files that grow beside each other by direct writes of 64 KiB.
fn grow(base: &Path, count: u64, writes: u64) -> Result<u64> {
    let mut space = vec![7u8; 65536 + 4096];
    let shift = space.as_ptr().align_offset(4096);
    let block = space.get_mut(shift..shift + 65536).context("no aligned block")?;
    let open = |number| {
        let path: PathBuf = base.join(format!("grown-{number}"));
        File::options().create(true).truncate(true).write(true).custom_flags(O_DIRECT).open(path)
    };
    let files = (0..count).map(open).collect::<std::io::Result<Vec<_>>>()?;
    for write in 0..writes {
        files.iter().try_for_each(|file| file.write_all_at(block, write * 65536))?;
    }
    Ok(count)
}

fn scatter(path: &Path) -> Result<()> {
    let file = File::create(path)?;
    file.set_len(16 << 20)?;
    for write in 0..64u64 {
        file.write_all_at(&[9; 16384], (write * 37 % 256) * 65536)?;
        if write % 8 == 0 {
            file.sync_data()?;
        }
    }
    Ok(())
}

/// A service of ours; killed when dropped.
struct Service {
    child: Child,
}

impl Service {
    fn start(directory: &Path, volumes: &[LoopVolume]) -> Result<Self> {
        let rules: String = volumes
            .iter()
            .map(|volume| {
                format!("[[volume]]\nmount = {:?}\nenabled = true\nmending_quiet = \"1s\"\n", volume.mount_point())
            })
            .collect();
        let config = directory.join("longrun.toml");
        fs::write(&config, format!("[defaults]\nenabled = false\n{rules}"))?;
        let mut command = Command::new(longrun_binary()?);
        command.arg("daemon").arg("--config").arg(config).arg("--socket").arg(directory.join("socket"));
        command.arg("--state-directory").arg(directory.join("state")).stdin(Stdio::null());
        command.stderr(File::create(directory.join("log"))?);
        // A laboratory that is killed leaves no service behind.
        longrun_sys::end_with_us(&mut command);
        let mut service = Self { child: command.spawn()? };
        let until = Instant::now() + Duration::from_secs(60);
        while !directory.join("socket").exists() {
            service.alive()?;
            ensure!(Instant::now() < until, "the service does not begin to listen");
            thread::sleep(Duration::from_millis(20));
        }
        Ok(service)
    }

    fn alive(&mut self) -> Result<()> {
        if let Some(status) = self.child.try_wait()? {
            bail!("the service ended: {status}");
        }
        Ok(())
    }

    fn sample(&mut self, begun: Instant) -> Result<Sample> {
        self.alive()?;
        let base = PathBuf::from(format!("/proc/{}", self.child.id()));
        let status = fs::read_to_string(base.join("status"))?;
        let field = |name: &str| {
            let line = status.lines().find_map(|line| line.strip_prefix(name)).unwrap_or_default();
            line.split_whitespace().next().and_then(|digits| digits.parse().ok()).unwrap_or(0)
        };
        Ok(Sample {
            seconds: begun.elapsed().as_secs(),
            resident_kib: field("VmRSS:"),
            files: fs::read_dir(base.join("fd"))?.count() as u64,
            threads: field("Threads:"),
        })
    }

    fn stop(mut self) -> Result<()> {
        let id = rustix::process::Pid::from_child(&self.child);
        rustix::process::kill_process(id, rustix::process::Signal::TERM)?;
        let status = self.child.wait()?;
        ensure!(status.success(), "the service ended with {status}");
        Ok(())
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        _ = self.child.kill();
        _ = self.child.wait();
    }
}
