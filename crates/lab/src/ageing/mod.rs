//! Weeks of a volume's life, looked after in several ways: not at all, by the file system's own tool once a week, by the
//! service, which prevents and mends, and by the service with an efficient pass once a week.
//!
//! Owns the volumes, which begin byte-identical, and how the days go. What happens on a day is `longrun-ageing`'s and the
//! same everywhere; each evening is told by `longrun analyze`, the last one by judges that we did not write, too.

mod chart;
mod report;

use crate::oracle::{filefrag, free_space};
use crate::service::Service;
use crate::{FileSystemKind, LoopVolume, Optimizer, VolumeSpec, longrun_binary, tool};
use anyhow::{Context, Result, ensure};
use longrun_ageing::{Life, LifePlan};
use longrun_layout::Bytes;
use serde::Serialize;
use std::fs::File;
use std::ops::ControlFlow;
use std::path::Path;
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

pub use chart::{Curve, curves};
pub use report::report as ageing_report;

/// Days between two runs of the file system's own tool.
pub const PERIOD: u32 = 7;
/// Longer than an evening's mending takes.
const MENDING: Duration = Duration::from_secs(300);
/// For so long nothing may be left to do: a file has to be quiet for a second before it is mended.
const QUIET: Duration = Duration::from_millis(2500);
/// What is still to be mended then, could not be, three times.
const AGAIN: Duration = Duration::from_secs(15);
/// Longer than any tool takes.
const LIMIT: Duration = Duration::from_secs(3600);

/// How to measure.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct AgeingSettings {
    /// On which file system.
    #[serde(skip)]
    pub kind: FileSystemKind,
    /// Size of each volume in MiB.
    pub mebibytes: u64,
    /// How many days, after the one that fills it.
    pub days: u32,
    /// How full it is kept, in per cent of its size.
    pub full_percent: u64,
    /// How much is written on a day, in per cent of its size.
    pub daily_percent: u64,
    /// Of what happens.
    pub seed: u64,
}

/// Who looks after a volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Care {
    /// Nobody.
    Nobody,
    /// The file system's own tool, every seventh evening.
    Peer,
    /// The service, all the time.
    Longrun,
    /// The service, and `longrun optimize --mode efficient` every seventh evening.
    LongrunAndPass,
}

impl Care {
    /// Everybody.
    pub const ALL: [Self; 4] = [Self::Nobody, Self::Peer, Self::Longrun, Self::LongrunAndPass];
}

/// How a volume is in the evening.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Evening {
    /// Regular files.
    pub files: u64,
    /// Their excess fragments.
    pub excess_fragments: u64,
    /// Pieces of free space.
    pub free_pieces: u64,
    /// The longest of them.
    pub largest_free: Bytes,
    /// What the device has written since the beginning, for everybody.
    pub written: Bytes,
    /// What the one who looks after it has moved since the beginning: the service by its own count, what runs once a week by
    /// what the device wrote meanwhile.
    pub moved: Bytes,
}

/// The life of a volume.
#[derive(Clone, Debug, Serialize)]
pub struct Course {
    /// Who looked after it.
    pub care: Care,
    /// What that is called.
    pub name: String,
    /// Each evening, the one of the day that filled it first.
    pub evenings: Vec<Evening>,
    /// Excess fragments in the end by filefrag.
    pub judged_excess: u64,
    /// Pieces of free space in the end by the file system's own tool.
    pub judged_pieces: u64,
    /// How long all of it took.
    pub seconds: f64,
}

/// Lives through the same days on volumes that are looked after in each way.
///
/// # Errors
/// When a volume cannot be made, does not end clean, or did not live through the same days.
pub fn ageing(settings: &AgeingSettings, progress: &mut dyn FnMut(&str)) -> Result<Vec<Course>> {
    let spec = VolumeSpec::of(settings.kind, settings.mebibytes).mount("noatime");
    let spec = if settings.kind == FileSystemKind::Ext4 { spec.mkfs(&["-b", "4096"]) } else { spec };
    let base = LoopVolume::create(&spec)?;
    // One after the other: two btrfs of the same identity must never be mounted beside each other.
    base.unmount()?;
    let mut courses = Vec::new();
    for care in Care::ALL {
        let course = live(&base, care, settings, progress).with_context(|| format!("the volume of {care:?}"))?;
        courses.push(course);
    }
    Ok(courses)
}

fn live(base: &LoopVolume, care: Care, settings: &AgeingSettings, progress: &mut dyn FnMut(&str)) -> Result<Course> {
    let (volume, begun) = (base.copy("noatime")?, Instant::now());
    let mut carer = Carer::of(care, &volume)?;
    let percent = |percent| Bytes((settings.mebibytes << 20) * percent / 100);
    let plan = LifePlan { live: percent(settings.full_percent), daily: percent(settings.daily_percent) };
    let mut on = |_: &longrun_ageing::Progress| ControlFlow::Continue(());
    let mut life = Life::begin(&volume.mount_point(), plan, settings.seed, &mut on)?;
    let (start, mut evenings) = (volume.traffic()?, Vec::new());
    for day in 0..=settings.days {
        life.day()?;
        carer.evening(&volume, day)?;
        sync(&volume)?;
        let seen = Evening {
            written: Bytes(volume.traffic()?.since(start).written),
            moved: carer.moved(),
            ..look(&volume.mount_point())?
        };
        let Evening { excess_fragments, free_pieces, .. } = seen;
        progress(&format!(
            "  {}: day {day} of {}: {excess_fragments} excess fragments, {free_pieces} free pieces",
            carer.name(),
            settings.days
        ));
        evenings.push(seen);
    }
    drop(life);
    let name = carer.name();
    carer.end()?;
    let judged_excess = filefrag(&volume.mount_point())?.excess;
    let judged_pieces = free_space(&volume)?.pieces;
    volume.check()?;
    let seconds = begun.elapsed().as_secs_f64();
    Ok(Course { care, name, evenings, judged_excess, judged_pieces, seconds })
}

/// Whoever looks after a volume, at work.
struct Carer {
    /// What is run once a week, and what the device wrote meanwhile.
    weekly: Option<Optimizer>,
    passes: Bytes,
    /// What is there all the time, and what it has written by its own count.
    service: Option<(Service, tempfile::TempDir)>,
    mended: Bytes,
}

impl Carer {
    fn of(care: Care, volume: &LoopVolume) -> Result<Self> {
        let weekly = match care {
            Care::Nobody | Care::Longrun => None,
            Care::Peer => {
                let mut peers = Optimizer::peers(volume.kind()).into_iter();
                Some(peers.next().context("this file system has no such tool")?)
            }
            Care::LongrunAndPass => Some(Optimizer::longrun("efficient")?),
        };
        let service = match care {
            Care::Nobody | Care::Peer => None,
            Care::Longrun | Care::LongrunAndPass => {
                let directory = tempfile::tempdir()?;
                Some((Service::start(directory.path(), std::slice::from_ref(volume))?, directory))
            }
        };
        Ok(Self { weekly, passes: Bytes(0), service, mended: Bytes(0) })
    }

    fn name(&self) -> String {
        let weekly = self.weekly.as_ref().map(|tool| format!("{} once a week", tool.name()));
        match (&self.service, weekly) {
            (None, None) => "nobody".to_owned(),
            (None, Some(weekly)) => weekly,
            (Some(_), None) => "service".to_owned(),
            (Some(_), Some(weekly)) => format!("service, {weekly}"),
        }
    }

    fn moved(&self) -> Bytes {
        self.passes + self.mended
    }

    /// Does what is to be done after a day.
    fn evening(&mut self, volume: &LoopVolume, day: u32) -> Result<()> {
        if let Some((service, _)) = &self.service {
            self.mended = until_mended(service)?;
        }
        let Some(tool) = self.weekly.as_ref().filter(|_| day > 0 && day.is_multiple_of(PERIOD)) else { return Ok(()) };
        sync(volume)?;
        let before = volume.traffic()?;
        tool.run(&volume.mount_point(), LIMIT)?;
        sync(volume)?;
        self.passes += Bytes(volume.traffic()?.since(before).written);
        if let Some((service, _)) = &self.service {
            self.mended = until_mended(service)?;
        }
        Ok(())
    }

    fn end(self) -> Result<()> {
        self.service.map_or(Ok(()), |(service, _)| service.stop())
    }
}

/// Waits until nothing is left to be mended, and nothing to be given back; how much mending has written until then. Files that
/// could not be mended are tried again, less and less often: they are not waited for.
fn until_mended(service: &Service) -> Result<Bytes> {
    let deadline = Instant::now() + MENDING;
    let mut rest = (None, Instant::now());
    loop {
        let status = service.status()?.unwrap_or_default();
        // Of all other volumes of the machine it only knows that they are disabled.
        let volumes: Vec<_> =
            status["volumes"].as_array().into_iter().flatten().filter(|v| v["enabled"] == true).collect();
        let sum = |pointer: &str| -> Option<u64> { volumes.iter().map(|v| v.pointer(pointer)?.as_u64()).sum() };
        let waiting = [status["queue"].as_u64(), sum("/prevented/runways"), sum("/prevented/to_look_at")];
        let idle = waiting == [Some(0); 3] && status["mending"]["at_work"] == false && volumes.len() == 1;
        let queued = status["mending"]["queued"].as_u64();
        let moved = sum("/mended/moved_bytes");
        let state = idle.then_some((queued, moved));
        if state != rest.0 {
            rest = (state, Instant::now());
        }
        let enough = if queued == Some(0) { QUIET } else { AGAIN };
        if state.is_some() && rest.1.elapsed() >= enough {
            return moved.map(Bytes).context("the service does not tell what it moved");
        }
        ensure!(
            Instant::now() < deadline,
            "the service does not come to rest; files that wait for a worker, with runways, to be looked at, to be mended: \
             {waiting:?}, {queued:?}"
        );
        thread::sleep(Duration::from_millis(100));
    }
}

fn sync(volume: &LoopVolume) -> Result<()> {
    Ok(longrun_sys::sync_volume(File::open(volume.mount_point())?)?)
}

/// How a volume is, by `longrun analyze`, in which nothing is measured that others did not check elsewhere.
fn look(mount_point: &Path) -> Result<Evening> {
    let mut command = Command::new(longrun_binary()?);
    command.args(["analyze", "--json"]).arg(mount_point);
    let output = tool::output(&mut command)?;
    ensure!(output.status.success(), "{}", tool::describe(&command, &output));
    let told: serde_json::Value = serde_json::from_slice(&output.stdout)?;
    let number = |pointer: &str| {
        told.pointer(pointer).and_then(serde_json::Value::as_u64).with_context(|| format!("analyze tells no {pointer}"))
    };
    Ok(Evening {
        files: number("/files")?,
        excess_fragments: number("/excess_fragments")?,
        free_pieces: number("/free_space/pieces")?,
        largest_free: Bytes(number("/free_space/largest_bytes")?),
        ..Evening::default()
    })
}
