//! Kills Longrun, and the programs of QEMU that it has started, at random moments of work on disk images. Afterwards the image is
//! in order for QEMU, the same command ends well and says what it found, and the file system and every file are as before.

use crate::ntfs::{Census, Fixture, Inventory, Spec};
use crate::oracle::ntfs as oracle;
use crate::{Running, longrun_binary, tool};
use anyhow::{Context, Result, ensure};
use rustix::process::{Pid, Signal, kill_process};
use serde::Serialize;
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// No run takes that long, killed or not.
const LIMIT: Duration = Duration::from_secs(300);
/// Between looking whether a process has gone.
const PAUSE: Duration = Duration::from_millis(5);
const CLUSTER: u64 = 4096;

/// What to do.
#[derive(Clone, Copy, Debug)]
pub struct KillSettings {
    /// Seed of the first run; each further run has the next one.
    pub seed: u64,
    /// How many runs.
    pub runs: u64,
    /// Size of the disks in MiB.
    pub mebibytes: u64,
}

/// What Longrun was doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Work {
    /// A full pass.
    Optimize,
    /// Giving free space back.
    Reclaim,
    /// A full pass, and then that.
    Consolidate,
    /// Giving free space back, and then writing the image anew.
    Compact,
}

impl Work {
    const ALL: [Self; 4] = [Self::Optimize, Self::Reclaim, Self::Consolidate, Self::Compact];

    const fn arguments(self) -> &'static [&'static str] {
        match self {
            Self::Optimize => &["optimize", "--mode", "full"],
            Self::Reclaim => &["reclaim"],
            Self::Consolidate => &["reclaim", "--consolidate"],
            Self::Compact => &["reclaim", "--compact"],
        }
    }
}

/// Who was killed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Victim {
    /// Longrun.
    Longrun,
    /// Every program of QEMU that it had started.
    Qemu,
    /// These, and a moment later Longrun.
    QemuThenLongrun,
}

/// One kill, survived.
#[derive(Clone, Debug, Serialize)]
pub struct Kill {
    /// Its seed.
    pub seed: u64,
    /// The format of the image.
    pub format: &'static str,
    /// What was being done.
    pub work: Work,
    /// Who was killed.
    pub victim: Victim,
    /// Seconds after the start.
    pub after_seconds: f64,
    /// Whether the victim was still there.
    pub at_work: bool,
    /// Whether the image had leaked blocks, which were given back.
    pub leaked: bool,
    /// Whether the next run had to complete what this one had begun on the volume.
    pub completed: bool,
    /// Whether the next run found a half-written image beside this one.
    pub swept: bool,
}

/// An image in one format, and how long each kind of work takes on it.
struct Base {
    image: PathBuf,
    times: BTreeMap<Work, f64>,
}

/// Kills repeatedly; `report` receives each kill that was survived.
///
/// # Errors
/// The first one that was not, with the command that replays it.
pub fn kills(settings: &KillSettings, report: &mut dyn FnMut(&Kill)) -> Result<()> {
    const FORMATS: [&str; 3] = ["qcow2", "vmdk", "vhdx"];
    let directory = tempfile::tempdir()?;
    let fixture = Fixture::make(Spec::small().bytes(settings.mebibytes << 20))?;
    let expected = Inventory::of(&fixture.image())?;
    let raw = directory.path().join("raw");
    fs::write(&raw, with_deleted_content(&fixture)?)?;
    let mut bases = BTreeMap::new();
    for format in FORMATS {
        let image = directory.path().join(format!("base.{format}"));
        convert(&raw, format, &image)?;
        bases.insert(format, Base { image, times: BTreeMap::new() });
    }
    for seed in settings.seed..settings.seed + settings.runs {
        let mut random = fastrand::Rng::with_seed(seed);
        let format = random.choice(FORMATS).unwrap_or("qcow2");
        let work = random.choice(Work::ALL).unwrap_or(Work::Optimize);
        let victims = [Victim::Longrun, Victim::Longrun, Victim::Qemu, Victim::QemuThenLongrun];
        let victim = random.choice(victims).unwrap_or(Victim::Longrun);
        let replay =
            format!("replay with: longrun-lab kills --seed {seed} --runs 1 --mebibytes {}", settings.mebibytes);
        let base = bases.get_mut(format).context("a format without an image")?;
        let time = match base.times.get(&work) {
            Some(time) => *time,
            None => {
                let (_place, image) = copy_of(base)?;
                let finished = start(&image, work)?.wait(LIMIT)?;
                ensure!(finished.status.success(), "undisturbed, {work:?} on {format} failed: {finished:?}");
                base.times.insert(work, finished.elapsed.as_secs_f64());
                finished.elapsed.as_secs_f64()
            }
        };
        let after_seconds = random.f64() * 1.05 * time;
        let flags = Kill {
            seed,
            format,
            work,
            victim,
            after_seconds,
            at_work: false,
            leaked: false,
            completed: false,
            swept: false,
        };
        let kill = one(base, flags.clone(), &expected).with_context(|| format!("{flags:?}\n{replay}"))?;
        report(&kill);
    }
    Ok(())
}

/// The bytes of a fixture. Where clusters are free they are what deleted files leave.
fn with_deleted_content(fixture: &Fixture) -> Result<Vec<u8>> {
    let mut content = fixture.read()?;
    for (first, count) in &Census::of(&fixture.image())?.free {
        let range = (first * CLUSTER) as usize..((first + count) * CLUSTER) as usize;
        content.get_mut(range).context("free space outside of the volume")?.fill(0x77);
    }
    Ok(content)
}

fn convert(from: &Path, format: &str, to: &Path) -> Result<()> {
    let arguments = ["convert".as_ref(), "-O".as_ref(), format.as_ref(), from.as_os_str(), to.as_os_str()];
    tool::run("qemu-img", arguments).map(drop)
}

/// A copy of the image in a directory of its own, which shows what is left beside it.
fn copy_of(base: &Base) -> Result<(TempDir, PathBuf)> {
    let place = tempfile::tempdir()?;
    let image = place.path().join("image");
    fs::copy(&base.image, &image)?;
    Ok((place, image))
}

fn start(image: &Path, work: Work) -> Result<Running> {
    let mut command = Command::new(longrun_binary()?);
    command.args(work.arguments()).args(["--pace", "fast", "--json"]).arg(image);
    Running::start(&mut command)
}

fn one(base: &Base, mut kill: Kill, expected: &Inventory) -> Result<Kill> {
    let (place, image) = copy_of(base)?;
    let mut running = start(&image, kill.work)?;
    std::thread::sleep(Duration::from_secs_f64(kill.after_seconds));
    let children = children_of(running.id())?;
    kill.at_work = !running.has_ended()? && (kill.victim == Victim::Longrun || !children.is_empty());
    if kill.victim != Victim::Longrun {
        // One that has ended meanwhile needs no killing.
        children.iter().for_each(|id| _ = kill_process(*id, Signal::KILL));
    }
    if kill.victim == Victim::QemuThenLongrun {
        std::thread::sleep(PAUSE);
    }
    if kill.victim != Victim::Qemu {
        running.kill()?;
    }
    let id = running.id();
    running.wait(LIMIT).context("Longrun hangs after the kill")?;
    wait_for_end(&children, id)?;

    kill.leaked = in_order(&image, kill.format)?;
    let journal = place.path().join(".image.longrun-journal").exists();
    kill.swept = place.path().join(".image.longrun-compact").exists();
    let finished = start(&image, kill.work)?.wait(LIMIT)?;
    ensure!(finished.status.success(), "the next run failed: {finished:?}");
    let told: serde_json::Value = serde_json::from_str(&finished.stdout).context("the report of the next run")?;
    let result = &told["volumes"][0]["result"];
    kill.completed = result["recovered"] == true || result["consolidation"]["recovered"] == true;
    ensure!(kill.completed == journal, "a journal was left: {journal}, and the next run says: {told:#}");
    let is_told = told["compaction"]["removed_leftovers"].is_string();
    ensure!(kill.swept == is_told, "an image was left: {}, and the next run says: {told:#}", kill.swept);

    ensure!(!in_order(&image, kill.format)?, "the next run has leaked blocks");
    let plain = tempfile::NamedTempFile::new()?;
    convert(&image, "raw", plain.path())?;
    oracle::check(plain.path())?;
    ensure!(!oracle::is_dirty(plain.path())?, "the volume is left dirty");
    let difference = expected.difference(&Inventory::of(plain.path())?);
    ensure!(difference.is_none(), "{}", difference.unwrap_or_default());
    let names: Vec<_> = fs::read_dir(place.path())?.flatten().map(|entry| entry.file_name()).collect();
    ensure!(names == ["image"], "something is left beside the image: {names:?}");
    Ok(kill)
}

/// Fails when QEMU finds anything but leaked blocks in an image; whether it had such, which are given back then.
fn in_order(image: &Path, format: &str) -> Result<bool> {
    const LEAKS: i32 = 3;
    let check = |more: &[&str]| {
        let mut command = Command::new("qemu-img");
        command.args(["check", "-f", format]).args(more).arg(image);
        let output = tool::output(&mut command)?;
        Ok::<_, anyhow::Error>((output.status.code(), tool::describe(&command, &output)))
    };
    // A VHDX has a log, which a program replays when it opens the image for writing. Nothing else is repaired.
    if format == "vhdx" {
        let (status, said) = check(&["-r", "all"])?;
        ensure!(status == Some(0), "{said}");
    }
    let (status, said) = check(&[])?;
    ensure!(matches!(status, Some(0 | LEAKS)), "{said}");
    if status == Some(LEAKS) {
        let (_, said) = check(&["-r", "leaks"])?;
        let (status, left) = check(&[])?;
        ensure!(status == Some(0), "{said}\n{left}");
    }
    Ok(status == Some(LEAKS))
}

/// The processes that `parent` has started.
fn children_of(parent: u32) -> Result<Vec<Pid>> {
    let mut found = Vec::new();
    for entry in fs::read_dir("/proc")?.flatten() {
        let Some(id) = entry.file_name().to_str().and_then(|name| name.parse().ok()).and_then(Pid::from_raw) else {
            continue;
        };
        // Behind the name, which may contain anything: the state, and the parent.
        let stat = fs::read_to_string(entry.path().join("stat")).unwrap_or_default();
        let behind = stat.rsplit_once(')').map_or("", |(_, behind)| behind);
        if behind.split_ascii_whitespace().nth(1) == Some(parent.to_string().as_str()) {
            found.push(id);
        }
    }
    Ok(found)
}

/// Children end with Longrun, however it ends.
fn wait_for_end(children: &[Pid], longrun: u32) -> Result<()> {
    let deadline = Instant::now() + LIMIT;
    let is_there =
        |id: &Pid| fs::read(format!("/proc/{}/cmdline", id.as_raw_nonzero())).is_ok_and(|line| !line.is_empty());
    while children.iter().any(is_there) || !children_of(longrun)?.is_empty() {
        ensure!(Instant::now() < deadline, "a program of QEMU did not end with Longrun");
        std::thread::sleep(PAUSE);
    }
    Ok(())
}
