//! Space pressure: a process that fills a volume beside prevention must get as much space as it would get without
//! prevention.
//!
//! A process whose write is refused tries again when the closed files no longer hold space. Whether the first refusal
//! comes earlier than without prevention is a race between that process and giving back, which no test can decide at
//! any load; it is reported as a separate figure.
//!
//! The same sequence runs on two fresh volumes of the same size, once with prevention and once without. All parts are
//! those of the product, including the sensor. It is only told of each file once, because file systems that keep files
//! contiguous by themselves give it few events.

use crate::{FileSystemKind, LoopVolume, Told, VolumeSpec, watched};
use anyhow::{Context, Result, ensure};
use longrun_layout::Bytes;
use longrun_prevention::policy::Settings;
use longrun_prevention::sensor::{self, Choice, Sensor, SensorError};
use longrun_prevention::{FileKey, Happening, Options, Prevention, SensorKind, Signal, Sink, Watched};
use longrun_sys::{DeviceNumber, FileHandle};
use rustix::fs::FallocateFlags;
use serde::Serialize;
use std::fs::File;
use std::io;
use std::os::unix::fs::{FileExt as _, OpenOptionsExt as _};
use std::path::Path;
use std::sync::{Arc, Barrier};
use std::time::{Duration, Instant};

const WRITERS: usize = 4;
const CHUNK: usize = 64 << 10;
/// So much each has written when the pressure begins.
const BEFORE: u64 = 24 << 20;
/// By then what was closed must have given back, however busy the machine is.
const GIVE_BACK: Duration = Duration::from_secs(60);
/// Of the floor, and of the most that an idle file keeps back: as the settings have it by default.
const SIXTEENTHS_OF_SHARE: u64 = 16;

/// What the four writers do when each has grown a file, and got runways for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Pressure {
    /// Three close; the fourth writes on until the volume is full.
    OneWrites,
    /// Three close; the fourth preallocates until the volume is full.
    OnePreallocates,
    /// All write on, each until it is refused.
    AllWrite,
    /// One process keeps its file open and does nothing; another one fills the volume.
    OneIsIdle,
}

impl Pressure {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::OneWrites, Self::OnePreallocates, Self::AllWrite, Self::OneIsIdle];
}

/// What who filled the volume got, in bytes.
#[derive(Clone, Debug, Serialize)]
pub struct PressureReport {
    /// On which file system.
    pub filesystem: &'static str,
    /// What was done.
    pub pressure: Pressure,
    /// Without prevention.
    pub alone: u64,
    /// With it.
    pub beside: u64,
    /// With it, by the first refusal.
    pub by_first_refusal: u64,
    /// Runways granted.
    pub grants: u64,
    /// What an idle file may keep from others by the policy.
    pub bound: u64,
}

impl PressureReport {
    /// What prevention has kept from who filled the volume.
    #[must_use]
    pub fn shortfall(&self) -> u64 {
        self.alone.saturating_sub(self.beside)
    }

    /// What was missing when who filled the volume was refused for the first time.
    #[must_use]
    pub fn early(&self) -> u64 {
        self.alone.saturating_sub(self.by_first_refusal)
    }
}

/// Fills a volume of `mebibytes` MiB with prevention, and another without.
///
/// # Errors
/// When a tool fails, a volume is damaged, or no runway was granted: then it would prove nothing.
pub fn pressure(kind: FileSystemKind, mebibytes: u64, pressure: Pressure) -> Result<PressureReport> {
    let (Got { all: alone, .. }, _, free) = sequence(kind, mebibytes, pressure, false)?;
    let (Got { all: beside, by_first_refusal }, grants, _) = sequence(kind, mebibytes, pressure, true)?;
    ensure!(grants > 0, "no runway was granted: it proves nothing");
    // A runway that is half used, and the next one.
    let share = Settings::default().held_share.of(Bytes(free)).0;
    let bound = share / SIXTEENTHS_OF_SHARE * 3 / 2;
    Ok(PressureReport { filesystem: kind.name(), pressure, alone, beside, by_first_refusal, grants, bound })
}

/// What who filled a volume got, in bytes.
struct Got {
    by_first_refusal: u64,
    all: u64,
}

struct Nobody;

impl Sink for Nobody {
    fn happened(&self, _: &Path, _: &Happening) {}
}

/// The sensor that is shipped, which can be told something besides.
struct Both {
    shipped: Arc<dyn Sensor>,
    told: Told,
}

impl Sensor for Both {
    fn kind(&self) -> SensorKind {
        self.shipped.kind()
    }

    fn watch(&self, volume: &Watched) -> Result<(), SensorError> {
        self.shipped.watch(volume)
    }

    fn unwatch(&self, volume: DeviceNumber) {
        self.shipped.unwatch(volume);
    }

    fn arm(&self, key: &FileKey, file: &File, half: Bytes) -> Result<(), SensorError> {
        self.shipped.arm(key, file, half)
    }

    fn disarm(&self, key: &FileKey) {
        self.shipped.disarm(key);
    }

    fn poll(&self, timeout: Duration, sink: &mut dyn FnMut(Signal)) -> Result<(), SensorError> {
        self.told.poll(Duration::ZERO, sink)?;
        self.shipped.poll(timeout.min(Duration::from_millis(20)), sink)
    }

    fn wake(&self) {
        self.shipped.wake();
    }

    fn lost(&self) -> u64 {
        self.shipped.lost()
    }
}

/// Prevention at work on a volume.
struct AtWork {
    prevention: Prevention,
    sensor: Arc<Both>,
    device: DeviceNumber,
}

impl AtWork {
    fn start(volume: &LoopVolume, state: &Path) -> Result<Self> {
        let shipped = sensor::open(Choice::default())?.sensor;
        let sensor = Arc::new(Both { shipped, told: Told::default() });
        let options = Options::new(state.to_owned());
        let prevention = Prevention::start_with(&options, Arc::clone(&sensor) as _, Arc::new(Nobody))?;
        let watched = watched(volume)?;
        prevention.watch(&watched, Settings::default())?;
        Ok(Self { prevention, sensor, device: watched.device })
    }

    fn grants(&self) -> u64 {
        self.prevention.snapshot().volumes.iter().map(|volume| volume.grants).sum()
    }

    fn runways(&self) -> u64 {
        self.prevention.snapshot().volumes.iter().map(|volume| volume.runways).sum()
    }

    /// When this returns only that file has a runway, if any, which is still open.
    fn give_back_but_one(&self) -> Result<()> {
        let limit = Instant::now() + GIVE_BACK;
        while self.runways() > 1 {
            ensure!(Instant::now() < limit, "closed files keep their runways: {:?}", self.prevention.snapshot());
            std::thread::sleep(Duration::from_millis(1));
        }
        Ok(())
    }

    /// Each of the files has a runway when this returns.
    fn give_runways(&self, files: &[File]) -> Result<()> {
        for file in files {
            let key = FileKey { volume: self.device, handle: FileHandle::of_file(file)? };
            self.sensor.told.tell_of_growth(key, file.metadata()?.len());
        }
        let limit = Instant::now() + Duration::from_secs(20);
        while self.runways() < files.len() as u64 {
            ensure!(Instant::now() < limit, "no runways: {:?}", self.prevention.snapshot());
            std::thread::sleep(Duration::from_millis(1));
        }
        Ok(())
    }
}

/// What was got, runways granted, bytes free before.
fn sequence(kind: FileSystemKind, mebibytes: u64, pressure: Pressure, prevented: bool) -> Result<(Got, u64, u64)> {
    let volume = LoopVolume::create(&VolumeSpec::of(kind, mebibytes))?;
    let capacity = longrun_sys::capacity_at(&volume.mount_point())?;
    let free = capacity.block_size.to_bytes(capacity.available).0;
    let state = tempfile::tempdir()?;
    let at_work = if prevented { Some(AtWork::start(&volume, state.path())?) } else { None };
    let got = press(&volume.mount_point(), pressure, at_work.as_ref())?;
    let grants = at_work.as_ref().map_or(0, AtWork::grants);
    drop(at_work);
    volume.check()?;
    Ok((got, grants, free))
}

fn press(directory: &Path, pressure: Pressure, at_work: Option<&AtWork>) -> Result<Got> {
    let open = |name: &str| {
        let direct = longrun_sys::OFlags::DIRECT.bits().cast_signed();
        File::options().write(true).create_new(true).custom_flags(direct).open(directory.join(name))
    };
    let mut files = (0..WRITERS).map(|writer| open(&writer.to_string())).collect::<io::Result<Vec<_>>>()?;
    together(&files, &|file| write(file, BEFORE))?;
    at_work.map_or(Ok(()), |at_work| at_work.give_runways(&files))?;
    match pressure {
        Pressure::OneWrites | Pressure::OnePreallocates => {
            files.truncate(1);
            let file = files.first().context("the first file")?;
            let fill = || if pressure == Pressure::OneWrites { write(file, u64::MAX) } else { preallocate(file) };
            fill()?;
            let by_first_refusal = file.metadata()?.len();
            if let Some(at_work) = at_work {
                at_work.give_back_but_one()?;
                fill()?;
            }
            Ok(Got { by_first_refusal, all: file.metadata()?.len() })
        }
        Pressure::AllWrite => {
            together(&files, &|file| write(file, u64::MAX))?;
            let all = files.iter().map(|file| Ok(file.metadata()?.len())).sum::<Result<u64>>()?;
            Ok(Got { by_first_refusal: all, all })
        }
        Pressure::OneIsIdle => {
            files.truncate(1);
            let filler = open("filler")?;
            write(&filler, u64::MAX)?;
            let all = filler.metadata()?.len();
            Ok(Got { by_first_refusal: all, all })
        }
    }
}

/// All at once, from the same moment on.
fn together(files: &[File], work: &(dyn Fn(&File) -> Result<()> + Sync)) -> Result<()> {
    let start = Barrier::new(files.len());
    std::thread::scope(|scope| {
        let begin = |file| {
            let start = &start;
            scope.spawn(move || {
                start.wait();
                work(file)
            })
        };
        let threads: Vec<_> = files.iter().map(begin).collect();
        threads
            .into_iter()
            .try_for_each(|thread| thread.join().map_err(|_| anyhow::anyhow!("a writer panicked")).flatten())
    })
}

/// Appends until the file is `bytes` long, or, as most programs do, gives up when it is refused for the first time.
fn write(file: &File, bytes: u64) -> Result<()> {
    let memory = vec![0x5a_u8; CHUNK + 4096];
    let start = memory.as_ptr().align_offset(4096);
    let chunk = memory.get(start..start + CHUNK).context("an aligned chunk")?;
    let mut at = file.metadata()?.len();
    while at < bytes {
        match file.write_at(chunk, at) {
            // Refused in the middle.
            Ok(written) if written < CHUNK => return Ok(()),
            Ok(written) => at += written as u64,
            Err(error) if error.kind() == io::ErrorKind::StorageFull => return Ok(()),
            Err(error) => return Err(error).context("the writer failed"),
        }
    }
    Ok(())
}

/// As [`write()`], until it is refused.
fn preallocate(file: &File) -> Result<()> {
    loop {
        match rustix::fs::fallocate(file, FallocateFlags::empty(), file.metadata()?.len(), CHUNK as u64) {
            Ok(()) => {}
            Err(rustix::io::Errno::NOSPC) => return Ok(()),
            Err(error) => return Err(error).context("the preallocation failed"),
        }
    }
}
