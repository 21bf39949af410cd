//! Prevention on the running kernel: files that grow beside each other get runways, and are contiguous from then on.
//!
//! The writer takes turns and waits for the service, so the result does not depend on the speed of either.

use crate::oracle::{bytes_beyond_end, excess_of};
use crate::service::{Kernel, Service};
use crate::{FileSystemKind, LoopVolume, Medium, VolumeSpec, drop_caches};
use anyhow::{Context, Result, ensure};
use longrun_sys::AlignedBuffer;
use rustix::fs::OFlags;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

/// Runways are granted from about a gibibyte on; the image is sparse.
const MEBIBYTES: u64 = 2048;
const FILES: usize = 4;
/// One write of a file; the next is another file's.
const WRITE: usize = 16 << 10;
/// Writes of each file until it must have a runway, at most: 8 MiB.
const MOST_UNTIL_RUNWAY: u64 = 512;
/// Writes of each file behind that: less than the shortest runway, 4 MiB.
const WITHIN_RUNWAY: u64 = 128;
/// How often the service is asked, in writes of each file.
const EACH: u64 = 16;
/// The service needs milliseconds; a guest on a busy machine needs longer.
const PATIENCE: Duration = Duration::from_secs(120);

/// Lets files grow without the service and with it.
pub(super) fn prevented(kind: FileSystemKind, medium: Medium, kernel: Kernel) -> Result<String> {
    let volume = LoopVolume::create(&VolumeSpec::of(kind, MEBIBYTES).on(medium))?;
    let alone = {
        let mut files = Growing::create(&volume, "alone")?;
        files.grow(MOST_UNTIL_RUNWAY)?;
        files.excess()?
    };
    let state = tempfile::tempdir()?;
    let mut service = Service::start_with(kernel, "", state.path(), std::slice::from_ref(&volume))?;
    let beside =
        beside(&volume, &mut service, kernel).with_context(|| format!("the service says:\n{}", service.log()))?;
    service.stop()?;
    drop_caches()?;
    for path in &beside.paths {
        let left = bytes_beyond_end(path)?;
        ensure!(left == 0, "{}: {left} bytes behind the end are not given back", path.display());
    }
    beside.verify()?;
    volume.check()?;
    // ext4 places files that grow side by side well enough by itself: there a runway may never be called for.
    ensure!(
        beside.runways || kind == FileSystemKind::Ext4,
        "no runways, although there are {alone} excess fragments without them"
    );
    let how = if beside.runways { "" } else { " (no runway was called for)" };
    Ok(format!(
        "{}: {alone} excess fragments without the service; with it {} until there were runways, {} after that{how}; \
         0 bytes wrong, nothing left behind, checker clean",
        beside.sensor, beside.before, beside.after
    ))
}

/// What was seen beside the service.
struct Seen {
    sensor: String,
    runways: bool,
    before: u64,
    after: u64,
    paths: Vec<PathBuf>,
    writes: u64,
}

fn beside(volume: &LoopVolume, service: &mut Service, kernel: Kernel) -> Result<Seen> {
    let mut files = Growing::create(volume, "beside")?;
    let sensor = service.ask(PATIENCE, "a sensor", |told| told.pointer("/sensor/kind")?.as_str().map(str::to_owned))?;
    let expected = if kernel == Kernel::WithoutBtf { "fanotify" } else { "bpf" };
    ensure!(sensor == expected, "the sensor is {sensor}, must be {expected}");
    let mount = volume.mount_point();
    let ours = |told: &serde_json::Value| volume_at(told, &mount)?.get("prevention")?.as_bool()?.then_some(());
    service.ask(PATIENCE, "a volume that is watched", ours)?;
    let mut runways = 0;
    while runways < FILES as u64 && files.writes < MOST_UNTIL_RUNWAY {
        files.grow(EACH)?;
        // Signals cross a queue: the service is given a moment to answer each burst.
        thread::sleep(Duration::from_millis(50));
        let granted = |told: &serde_json::Value| volume_at(told, &mount)?.pointer("/prevented/runways")?.as_u64();
        runways = service.ask(PATIENCE, "how many runways there are", granted)?;
    }
    let (before, runways) = (files.excess()?, runways == FILES as u64);
    files.grow(WITHIN_RUNWAY)?;
    let after = files.excess()?.saturating_sub(before);
    // The write that meets the runway begins a piece; its own end may be one more.
    let most = 2 * FILES as u64;
    ensure!(!runways || after <= most, "{after} excess fragments more although every file had a runway");
    let Growing { paths, writes, files, .. } = files;
    drop(files);
    let settled = |told: &serde_json::Value| {
        (volume_at(told, &mount)?.pointer("/prevented/runways")?.as_u64()? == 0).then_some(())
    };
    service.ask(PATIENCE, "everything given back", settled)?;
    Ok(Seen { sensor, runways, before, after, paths, writes })
}

/// What the service reports about the volume that is mounted there. It also reports other volumes of the machine.
fn volume_at<'told>(told: &'told serde_json::Value, mount: &Path) -> Option<&'told serde_json::Value> {
    let is_it = |volume: &&serde_json::Value| volume.get("mount").and_then(|at| at.as_str()) == mount.to_str();
    told.get("volumes")?.as_array()?.iter().find(is_it)
}

impl Seen {
    fn verify(&self) -> Result<()> {
        for (number, path) in self.paths.iter().enumerate() {
            let content = std::fs::read(path)?;
            ensure!(content.len() as u64 == self.writes * WRITE as u64, "{} has a wrong length", path.display());
            let wrong = (0..).zip(content.chunks(WRITE)).find(|(write, chunk)| {
                let expected = pattern(number, *write);
                chunk.iter().any(|byte| *byte != expected)
            });
            ensure!(wrong.is_none(), "{}: write {:?} is wrong", path.display(), wrong.map(|(write, _)| write));
        }
        Ok(())
    }
}

/// Files that take turns in growing.
struct Growing {
    paths: Vec<PathBuf>,
    files: Vec<File>,
    writes: u64,
    buffer: AlignedBuffer,
}

impl Growing {
    fn create(volume: &LoopVolume, name: &str) -> Result<Self> {
        let paths: Vec<_> = (0..FILES).map(|number| volume.mount_point().join(format!("{name}-{number}"))).collect();
        let open = |path: &PathBuf| -> Result<File> {
            let flags = OFlags::CREATE | OFlags::EXCL | OFlags::WRONLY | OFlags::DIRECT | OFlags::CLOEXEC;
            Ok(rustix::fs::open(path, flags, 0o600.into())?.into())
        };
        let files = paths.iter().map(open).collect::<Result<_>>()?;
        Ok(Self { paths, files, writes: 0, buffer: AlignedBuffer::new(WRITE) })
    }

    fn grow(&mut self, writes: u64) -> Result<()> {
        for write in self.writes..self.writes + writes {
            for (number, file) in self.files.iter().enumerate() {
                let bytes = self.buffer.prefix(WRITE);
                bytes.fill(pattern(number, write));
                file.write_all_at(bytes, write * WRITE as u64)?;
            }
        }
        self.writes += writes;
        Ok(())
    }

    fn excess(&self) -> Result<u64> {
        self.paths.iter().map(|path| excess_of(path)).sum()
    }
}

/// What a write fills itself with.
fn pattern(number: usize, write: u64) -> u8 {
    (write.wrapping_mul(31).wrapping_add(number as u64 * 97) % 251) as u8
}
