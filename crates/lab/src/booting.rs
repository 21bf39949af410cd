//! A whole system booting in a container on modelled disks, with reading ahead and without, by turns.
//!
//! Owns the aged volume with the system on it, and the measurement. The time is that of the machine, from the start of the container until
//! systemd has reached multi-user.target; the disk's own, by the model, stands beside it.

use crate::disk::{DiskModel, Statistics};
use crate::{LoopVolume, VolumeSpec, tool};
use anyhow::{Context, Result, ensure};
use std::fmt::Write as _;
use std::fs::{self, File};
use std::io::{BufRead as _, BufReader, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// The container writes here when systemd says that it was done.
const TOOK: &str = "boot-took";
/// A boot that takes longer has failed.
const LONGEST: Duration = Duration::from_secs(180);

/// What is booted where.
#[derive(Clone, Debug)]
pub struct BootCampaign {
    /// The optimizer's program.
    pub program: PathBuf,
    /// The root directory of the system, which is copied.
    pub system: PathBuf,
    /// The disks.
    pub models: Vec<DiskModel>,
    /// The size of the volume in MiB.
    pub mebibytes: u64,
    /// Boots of each kind.
    pub iterations: u32,
    /// Of everything random.
    pub seed: u64,
}

/// One kind of boot: seconds until multi-user.target, and seconds for which the disk was busy, by the model.
#[derive(Clone, Debug, Default)]
struct Boots {
    seconds: Vec<f64>,
    busy: Vec<f64>,
}

/// Boots, and reports in Markdown.
///
/// # Errors
/// When a tool fails, or the system does not start.
pub fn boots(campaign: &BootCampaign, say: &mut dyn FnMut(&str)) -> Result<String> {
    say("making an aged volume with the system on it");
    let base = aged_system(campaign)?;
    let mut report = String::from(
        "| disk | aged | aged + preload | ratio | together + preload | ratio | disk busy | with preload | ratio | together | ratio | read ahead |\n\
         |---|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|\n",
    );
    for model in &campaign.models {
        let volume = base.copy_to_disk(*model, campaign.seed)?;
        let disk = volume.disk().context("it is on a modelled disk")?;
        disk.set_modelled(false)?;
        volume.remount()?;
        let _note = Note::of(&volume)?;
        let mut recording = Recording::start(campaign, &volume)?;
        let (seconds, _) = boot(&volume, None)?;
        say(&format!("{}: recorded a boot of {seconds:.1} s without the model", model.name()));
        let ahead = recording.end()?;
        let mut measure = |boots: &mut Boots, preload: Option<&BootCampaign>, what: &str| -> Result<()> {
            disk.set_modelled(false)?;
            volume.remount()?;
            disk.set_modelled(true)?;
            let before = disk.statistics()?;
            let (seconds, after) = boot(&volume, preload)?;
            let busy = after.since(before).busy_nanos as f64 / 1e9;
            say(&format!("{}, {what}: {seconds:.2} s, disk busy {busy:.2} s", model.name()));
            boots.seconds.push(seconds);
            boots.busy.push(busy);
            disk.set_modelled(false)
        };
        let (mut without, mut with, mut together) = (Boots::default(), Boots::default(), Boots::default());
        for _ in 0..campaign.iterations {
            measure(&mut without, None, "aged")?;
            measure(&mut with, Some(campaign), "preload")?;
        }
        // Elsewhere nothing comes together: places do not matter there.
        if model.is_rotational() {
            gather(campaign, &volume)?;
            for _ in 0..campaign.iterations {
                measure(&mut together, Some(campaign), "together, preload")?;
            }
        }
        let ([a, b, t], [c, d, u]) = (
            [&without.seconds, &with.seconds, &together.seconds].map(|all| median(all)),
            [&without.busy, &with.busy, &together.busy].map(|all| median(all)),
        );
        let pair = |value: f64, of: f64| {
            if value.is_nan() { "| |".to_owned() } else { format!("{value:.1} s | {:.2} |", value / of) }
        };
        writeln!(
            report,
            "| {} | {a:.1} s | {} {} {c:.1} s | {} {} {ahead} |",
            model.describe(),
            pair(b, a),
            pair(t, a),
            pair(d, c),
            pair(u, c)
        )?;
    }
    Ok(report)
}

/// Optimizes the volume, for which what is read at boot comes together; the place and the time of that are its own.
fn gather(campaign: &BootCampaign, volume: &LoopVolume) -> Result<()> {
    let mount = volume.mount_point();
    let state = mount.join("var/lib/longrun");
    let mut command = Command::new(&campaign.program);
    command
        .args(["optimize", "--alone", "--mode", "full", "--pace", "fast", "--json", "--state"])
        .arg(&state)
        .arg(&mount);
    let output = tool::output(&mut command)?;
    ensure!(output.status.success(), "longrun optimize failed: {}", String::from_utf8_lossy(&output.stderr));
    let told: serde_json::Value = serde_json::from_slice(&output.stdout)?;
    let moved = told.pointer("/at_boot/moved").and_then(serde_json::Value::as_u64);
    ensure!(moved > Some(0), "nothing came together: {told}");
    Ok(())
}

fn median(all: &[f64]) -> f64 {
    let mut all = all.to_vec();
    all.sort_by(f64::total_cmp);
    all.get(all.len() / 2).copied().unwrap_or(f64::NAN)
}

/// Boots once with nothing in memory; the seconds, and the disk's counters then.
fn boot(volume: &LoopVolume, preload: Option<&BootCampaign>) -> Result<(f64, Statistics)> {
    let root = volume.mount_point();
    let took = root.join(TOOK);
    _ = fs::remove_file(&took);
    let begun = longrun_sys::monotonic_nanoseconds();
    let mut ahead = preload
        .map(|campaign| {
            let mut command = Command::new(&campaign.program);
            command.args(["boot", "preload", "--root"]).arg(&root).stderr(Stdio::null());
            command.spawn().context("cannot read ahead")
        })
        .transpose()?;
    // Under `script`: with a pipe as its console, PID 1 ends silently.
    let inside = format!(
        "systemd-nspawn -D {} --register=no --keep-unit --private-network --boot --quiet --link-journal=no",
        root.display()
    );
    let mut container = Command::new("script")
        .args(["--quiet", "--flush", "--return", "--command", &inside, "/dev/null"])
        .env("SYSTEMD_NSPAWN_UNIFIED_HIERARCHY", "1")
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .context("cannot run script")?;
    let deadline = Instant::now() + LONGEST;
    let mut counters = None;
    while container.try_wait()?.is_none() {
        if counters.is_none() && took.exists() {
            counters = Some(volume.disk().context("it is on a modelled disk")?.statistics()?);
        }
        if Instant::now() > deadline {
            _ = container.kill();
            _ = container.wait();
            anyhow::bail!("the system did not start within {} s", LONGEST.as_secs());
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    if let Some(ahead) = &mut ahead {
        ahead.wait()?;
    }
    let text = fs::read_to_string(&took).context("the container ended before multi-user.target")?;
    let micros: u64 = text.trim().parse().with_context(|| format!("systemd says {text:?}"))?;
    let seconds = (micros as f64) / 1e6 - begun as f64 / 1e9;
    let counters = counters.map_or_else(|| volume.disk().context("no disk")?.statistics(), Ok)?;
    Ok((seconds, counters))
}

/// What reading ahead leaves in /run for a recorder, which does not come: removed at the end.
struct Note(PathBuf);

impl Note {
    fn of(volume: &LoopVolume) -> Result<Self> {
        let uuid = longrun_sys::superblock_of(&File::open(volume.device())?, longrun_sys::FileSystem::Ext4)?.uuid;
        let uuid = longrun_sys::format_uuid(&uuid.context("the volume has no UUID")?);
        Ok(Self(Path::new("/run/longrun-boot").join(format!("boot.{uuid}"))))
    }
}

impl Drop for Note {
    fn drop(&mut self) {
        _ = fs::remove_file(&self.0);
        // With what others have left there it stays.
        _ = self.0.parent().map(fs::remove_dir);
    }
}

/// A recording of the boot that follows.
struct Recording(Child);

impl Recording {
    fn start(campaign: &BootCampaign, volume: &LoopVolume) -> Result<Self> {
        let mut command = Command::new(&campaign.program);
        command.args(["boot", "record", "--for", "1h", "--root"]).arg(volume.mount_point());
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn()?;
        let mut line = String::new();
        BufReader::new(child.stderr.take().context("it has no standard error")?).read_line(&mut line)?;
        ensure!(line.contains("recording what is read"), "longrun boot record says {line:?}");
        Ok(Self(child))
    }

    /// How much will be read ahead, as it says.
    fn end(&mut self) -> Result<String> {
        tool::run("kill", ["-INT", &self.0.id().to_string()])?;
        let output = BufReader::new(self.0.stdout.take().context("it has no output")?);
        let lines: Vec<String> = output.lines().collect::<Result<_, _>>()?;
        ensure!(self.0.wait()?.success(), "longrun boot record failed");
        let next = lines.iter().find_map(|line| line.trim().strip_prefix("next time: "));
        Ok(next.context("nothing was recorded")?.trim_end_matches(" are read ahead").to_owned())
    }
}

/// A volume in use for long: filled and thinned, the system put between what is left, and a part of it replaced again and again.
fn aged_system(campaign: &BootCampaign) -> Result<LoopVolume> {
    let spec =
        VolumeSpec::ext4(campaign.mebibytes).mkfs(&["-b", "4096", "-E", "lazy_itable_init=0,lazy_journal_init=0"]);
    let volume = LoopVolume::create(&spec)?;
    let root = volume.mount_point();
    let mut random = fastrand::Rng::with_seed(campaign.seed);
    let mut junk = Junk { directory: root.join("srv/junk"), files: Vec::new(), next: 0 };
    let size = campaign.mebibytes << 20;
    junk.fill(&mut random, size / 100 * 80)?;
    junk.thin(&mut random, 0.6)?;
    tool::run("cp", ["-a".as_ref(), campaign.system.join(".").as_os_str(), root.as_os_str()])?;
    let mut files = Vec::new();
    collect(&root, &mut files)?;
    files.sort();
    for _ in 0..8 {
        junk.fill(&mut random, size / 20)?;
        // An upgrade: files are written anew beside the old ones, and take their names.
        for path in files.iter().filter(|_| random.u8(0..8) == 0).collect::<Vec<_>>() {
            let beside = path.with_extension("longrun-new");
            tool::run("cp", ["-a".as_ref(), path.as_os_str(), beside.as_os_str()])?;
            fs::rename(&beside, path)?;
        }
        junk.thin(&mut random, 0.15)?;
    }
    prepare(&root)?;
    rustix::fs::sync();
    Ok(volume)
}

/// Files of others.
struct Junk {
    directory: PathBuf,
    files: Vec<PathBuf>,
    next: u64,
}

impl Junk {
    /// Writes so many bytes in files of 4 KiB to 1 MiB.
    fn fill(&mut self, random: &mut fastrand::Rng, bytes: u64) -> Result<()> {
        let mut written = 0;
        while written < bytes {
            let directory = self.directory.join((self.next % 64).to_string());
            fs::create_dir_all(&directory)?;
            let path = directory.join(self.next.to_string());
            let length = 1usize << random.u32(12..21);
            File::create_new(&path)?.write_all(&vec![1; length])?;
            written += length as u64;
            self.next += 1;
            self.files.push(path);
        }
        Ok(())
    }

    /// Removes this share of them, at random.
    fn thin(&mut self, random: &mut fastrand::Rng, share: f64) -> Result<()> {
        let (gone, left): (Vec<_>, Vec<_>) = self.files.drain(..).partition(|_| random.f64() < share);
        self.files = left;
        Ok(gone.iter().try_for_each(fs::remove_file)?)
    }
}

fn collect(directory: &Path, files: &mut Vec<PathBuf>) -> Result<()> {
    for entry in fs::read_dir(directory)? {
        let entry = entry?;
        let kind = entry.file_type()?;
        if kind.is_dir() && !entry.path().ends_with("srv/junk") {
            collect(&entry.path(), files)?;
        } else if kind.is_file() {
            files.push(entry.path());
        }
    }
    Ok(())
}

/// Has it tell when it is up, and end then.
fn prepare(root: &Path) -> Result<()> {
    let unit = format!(
        "[Unit]\nAfter=multi-user.target\n[Service]\nType=oneshot\nExecStart=/bin/sh -c 'systemctl show --property=ActiveEnterTimestampMonotonic \
         --value multi-user.target >/{TOOK}.new && mv /{TOOK}.new /{TOOK}; systemctl --no-block --force poweroff'\n"
    );
    let units = root.join("etc/systemd/system");
    fs::write(units.join("boot-took.service"), unit)?;
    let wants = units.join("default.target.wants");
    fs::create_dir_all(&wants)?;
    let link = |to: &str, from: PathBuf| {
        _ = fs::remove_file(&from);
        std::os::unix::fs::symlink(to, from)
    };
    link("/etc/systemd/system/boot-took.service", wants.join("boot-took.service"))?;
    link("/lib/systemd/system/multi-user.target", units.join("default.target"))?;
    fs::create_dir_all(root.join("var/lib/longrun"))?;
    fs::write(root.join("etc/machine-id"), "0123456789abcdef0123456789abcdef\n")?;
    Ok(())
}
