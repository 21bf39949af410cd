//! Weeks of use of a volume with several methods of maintenance: none, the file system's own tool once a week, the
//! service, and the service with an efficient pass once a week.
//!
//! Owns the volumes, which are byte-identical at the start, and the course of the days. [`longrun_ageing`] owns the
//! events of a day, which are the same everywhere. `longrun analyze` gives the figures at the end of each day, and
//! independent judges check those of the last day.

mod chart;
mod report;

use crate::oracle::{filefrag, free_space};
use crate::{FileSystemKind, LoopVolume, Optimizer, VolumeSpec, longrun_binary, tool};
use anyhow::{Context, Result, ensure};
use longrun_ageing::{Life, LifePlan};
use longrun_bench::ageing::{Daemon, Evening, PERIOD};
use longrun_layout::Bytes;
use serde::Serialize;
use std::fs::File;
use std::ops::ControlFlow;
use std::path::Path;
use std::process::Command;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

pub use chart::{Curve, curves};
pub use report::report as ageing_report;

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

/// A method of maintaining a volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, clap::ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub enum Maintenance {
    /// No maintenance.
    Nobody,
    /// The file system's own tool, every seventh day.
    Peer,
    /// The service, all the time.
    Longrun,
    /// The service, and `longrun optimize --mode efficient` every seventh day.
    LongrunAndPass,
}

impl Maintenance {
    /// All methods.
    pub const ALL: [Self; 4] = [Self::Nobody, Self::Peer, Self::Longrun, Self::LongrunAndPass];
}

/// The simulated use of a volume.
#[derive(Clone, Debug, Serialize)]
pub struct Course {
    /// The method.
    #[serde(rename = "care")]
    pub maintenance: Maintenance,
    /// The name of the method.
    pub name: String,
    /// The state at the end of each day, starting with the day that filled the volume.
    pub evenings: Vec<Evening>,
    /// Excess fragments at the end, by filefrag.
    pub judged_excess: u64,
    /// Pieces of free space at the end, by the file system's own tool.
    pub judged_pieces: u64,
    /// The duration of the simulation.
    pub seconds: f64,
}

/// Simulates the same days on one volume for each of these methods of maintenance.
///
/// # Errors
/// When a volume cannot be made, is not clean at the end, or did not have the same days.
pub fn ageing(
    settings: &AgeingSettings,
    methods: &[Maintenance],
    progress: &mut dyn FnMut(&str),
) -> Result<Vec<Course>> {
    let spec = VolumeSpec::of(settings.kind, settings.mebibytes).mount("noatime");
    let spec = if settings.kind == FileSystemKind::Ext4 { spec.mkfs(&["-b", "4096"]) } else { spec };
    let base = LoopVolume::create(&spec)?;
    // One after the other: two btrfs of the same identity must never be mounted beside each other.
    base.unmount()?;
    let mut courses = Vec::new();
    for &maintenance in methods {
        let course =
            live(&base, maintenance, settings, progress).with_context(|| format!("the volume of {maintenance:?}"))?;
        courses.push(course);
    }
    Ok(courses)
}

fn live(
    base: &LoopVolume,
    maintenance: Maintenance,
    settings: &AgeingSettings,
    progress: &mut dyn FnMut(&str),
) -> Result<Course> {
    let (volume, begun) = (base.copy("noatime")?, Instant::now());
    let (program, stop) = (longrun_binary()?, AtomicBool::new(false));
    let mut maintainer = Maintainer::of(maintenance, &volume, &program, &stop)?;
    let percent = |percent| Bytes((settings.mebibytes << 20) * percent / 100);
    let plan = LifePlan { live: percent(settings.full_percent), daily: percent(settings.daily_percent) };
    let mut on = |_: &longrun_ageing::Progress| ControlFlow::Continue(());
    let mut life = Life::begin(&volume.mount_point(), plan, settings.seed, &mut on)?;
    let (start, mut evenings) = (volume.traffic()?, Vec::new());
    for day in 0..=settings.days {
        life.day()?;
        maintainer.evening(&volume, day)?;
        sync(&volume)?;
        let seen = Evening {
            written: Bytes(volume.traffic()?.since(start).written),
            moved: maintainer.moved(),
            ..look(&volume.mount_point())?
        };
        let (excess_fragments, free_pieces) = (seen.excess_fragments, seen.free_pieces.unwrap_or_default());
        progress(&format!(
            "  {}: day {day} of {}: {excess_fragments} excess fragments, {free_pieces} free pieces",
            maintainer.name(),
            settings.days
        ));
        evenings.push(seen);
    }
    drop(life);
    let name = maintainer.name();
    maintainer.end()?;
    let judged_excess = filefrag(&volume.mount_point())?.excess;
    let judged_pieces = free_space(&volume)?.pieces;
    volume.check()?;
    let seconds = begun.elapsed().as_secs_f64();
    Ok(Course { maintenance, name, evenings, judged_excess, judged_pieces, seconds })
}

/// A method of maintenance at work.
struct Maintainer<'a> {
    /// What is run once a week, and what the device wrote meanwhile.
    weekly: Option<Optimizer>,
    passes: Bytes,
    /// What is there all the time, and what it has written by its own count.
    service: Option<Daemon<'a>>,
    mended: Bytes,
}

impl<'a> Maintainer<'a> {
    fn of(maintenance: Maintenance, volume: &LoopVolume, program: &'a Path, stop: &'a AtomicBool) -> Result<Self> {
        let weekly = match maintenance {
            Maintenance::Nobody | Maintenance::Longrun => None,
            Maintenance::Peer => {
                let mut peers = Optimizer::peers(volume.kind()).into_iter();
                Some(peers.next().context("this file system has no such tool")?)
            }
            Maintenance::LongrunAndPass => Some(Optimizer::longrun("efficient")?),
        };
        let service = match maintenance {
            Maintenance::Nobody | Maintenance::Peer => None,
            Maintenance::Longrun | Maintenance::LongrunAndPass => {
                Some(Daemon::start(program, &volume.mount_point(), stop)?)
            }
        };
        Ok(Self { weekly, passes: Bytes(0), service, mended: Bytes(0) })
    }

    fn name(&self) -> String {
        let weekly = self.weekly.as_ref().map(|tool| format!("{} once a week", tool.name()));
        match (&self.service, weekly) {
            (None, None) => "no maintenance".to_owned(),
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
        if let Some(service) = &mut self.service {
            self.mended = service.until_mended()?;
        }
        let Some(tool) = self.weekly.as_ref().filter(|_| day > 0 && day.is_multiple_of(PERIOD)) else { return Ok(()) };
        sync(volume)?;
        let before = volume.traffic()?;
        tool.run(&volume.mount_point(), LIMIT)?;
        sync(volume)?;
        self.passes += Bytes(volume.traffic()?.since(before).written);
        if let Some(service) = &mut self.service {
            self.mended = service.until_mended()?;
        }
        Ok(())
    }

    fn end(self) -> Result<()> {
        Ok(self.service.map_or(Ok(()), Daemon::stop)?)
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
        told.pointer(pointer)
            .and_then(serde_json::Value::as_u64)
            .with_context(|| format!("the output of analyze has no {pointer}"))
    };
    Ok(Evening {
        files: number("/files")?,
        excess_fragments: number("/excess_fragments")?,
        free_pieces: Some(number("/free_space/pieces")?),
        largest_free: Some(Bytes(number("/free_space/largest_bytes")?)),
        ..Evening::default()
    })
}
