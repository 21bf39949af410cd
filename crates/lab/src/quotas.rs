//! Quotas: a user with a limit gets as much space beside prevention as without it, and no user exceeds a limit.
//!
//! Owns the volumes and their limits. Needs mkfs, mount, chattr and, for btrfs, its own tool. On a kernel without
//! quotas it says so; this is a failure unless the caller asked what is available.

use crate::{FileSystemKind, LoopVolume, Medium, VolumeSpec, longrun_binary, tool};
use anyhow::{Context, Result, ensure};
use longrun_bench::Service;
use longrun_layout::Bytes;
use longrun_sys::Charged;
use serde::Serialize;
use serde_json::Value;
use std::fs::{self, File};
use std::os::unix::fs::{PermissionsExt as _, chown};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// The user whose files are limited, and no other user of the machine.
const LIMITED: u32 = 54_321;
const LIMIT: Bytes = Bytes(96 << 20);
const WRITERS: usize = 4;
/// What a volume charges for its own records may differ by this much between runs.
const TOLERANCE: u64 = 512 << 10;
/// CAP_SYS_RESOURCE, in the masks of `/proc/PID/status`.
const RESOURCE: u64 = 1 << 24;

/// What was checked of one kind of quota; nothing was wrong.
#[derive(Clone, Debug, Serialize)]
pub struct QuotaReport {
    /// On which file system.
    pub filesystem: &'static str,
    /// Whose limit: user, group, project, subvolume.
    pub whose: &'static str,
    /// What the limited one could write without prevention, in bytes.
    pub alone: u64,
    /// What beside it.
    pub beside: u64,
    /// How often a file of theirs was left alone for the limit.
    pub left: u64,
}

/// Which kinds of quotas the kernel has for a file system, by trying; empty where it has none.
///
/// # Errors
/// When a volume cannot be made.
pub fn quotas_known(kind: FileSystemKind) -> Result<Vec<&'static str>> {
    match limited_volume(kind, Medium::Rotating) {
        Ok(_) if kind == FileSystemKind::Btrfs => Ok(vec!["subvolume"]),
        Ok(_) => Ok(vec!["user", "group", "project"]),
        Err(error) if kind != FileSystemKind::Btrfs && format!("{error:#}").contains("mount") => Ok(Vec::new()),
        Err(error) => Err(error),
    }
}

/// Checks every kind of quota that the kernel has on `kind`.
///
/// # Errors
/// When a limited user gets less beside prevention than alone, or more than the limit, or got a runway; when the
/// service keeps the privilege to disregard limits; when a tool fails.
pub fn quotas(kind: FileSystemKind, medium: Medium) -> Result<Vec<QuotaReport>> {
    let program = longrun_binary()?;
    quotas_known(kind)?
        .into_iter()
        .map(|whose| {
            check(kind, medium, whose, &program).with_context(|| format!("{}, limit of a {whose}", kind.name()))
        })
        .collect()
}

fn check(kind: FileSystemKind, medium: Medium, whose: &'static str, program: &Path) -> Result<QuotaReport> {
    let alone = {
        let volume = limited_volume(kind, medium)?;
        fill(&limit(&volume, whose)?)?
    };
    let volume = limited_volume(kind, medium)?;
    let directory = limit(&volume, whose)?;
    let service = Service::start(program, &volume.mount_point())?;
    ensure!(privileges(service.id())? & RESOURCE == 0, "the service has CAP_SYS_RESOURCE, and so passes every limit");
    let beside = fill(&directory)?;
    let totals = service.stop()?;
    let figures = totals.pointer("/last/volumes/0").context("the service does not report the volume")?;
    let number = |name: &str| figures.pointer(name).and_then(Value::as_u64).unwrap_or(0);
    let report = QuotaReport { filesystem: kind.name(), whose, alone, beside, left: number("/left/quota") };
    ensure!(beside + TOLERANCE >= alone, "the limited one got less beside prevention: {report:?}");
    ensure!(beside <= LIMIT.0 && alone <= LIMIT.0, "a limit was passed: {report:?}");
    ensure!(number("/grants") == 0, "a limited file got a runway: {report:?}");
    volume.check()?;
    Ok(report)
}

/// A volume on which quotas are in force.
fn limited_volume(kind: FileSystemKind, medium: Medium) -> Result<LoopVolume> {
    let spec = VolumeSpec::of(kind, 1024).on(medium);
    let spec = match kind {
        FileSystemKind::Ext4 => spec
            .mkfs(&["-O", "quota,project", "-I", "256", "-E", "quotatype=usrquota:grpquota:prjquota"])
            .mount("usrquota,grpquota,prjquota"),
        FileSystemKind::Xfs => spec.mount("uquota,gquota,pquota"),
        FileSystemKind::Btrfs => spec,
    };
    let volume = LoopVolume::create(&spec).context("mount with quotas")?;
    if kind == FileSystemKind::Btrfs {
        tool::run("btrfs", ["quota".as_ref(), "enable".as_ref(), volume.mount_point().as_os_str()])?;
    } else {
        let root = File::open(volume.mount_point())?;
        // XFS mounts without quotas, with a word in the log, where the kernel has none.
        longrun_sys::space_limits(&root, Charged::User(0))?.context("mount did not switch quotas on")?;
    }
    Ok(volume)
}

/// Sets the limit, and makes the directory in which it holds.
fn limit(volume: &LoopVolume, whose: &str) -> Result<PathBuf> {
    let directory = volume.mount_point().join("limited");
    let set =
        |whom| -> Result<()> { Ok(longrun_sys::set_space_limit(File::open(volume.mount_point())?, whom, LIMIT)?) };
    if whose == "subvolume" {
        tool::run("btrfs", ["subvolume".as_ref(), "create".as_ref(), directory.as_os_str()])?;
        let most = LIMIT.0.to_string();
        tool::run("btrfs", ["qgroup".as_ref(), "limit".as_ref(), most.as_ref(), directory.as_os_str()])?;
    } else {
        fs::create_dir(&directory)?;
    }
    match whose {
        "user" => set(Charged::User(LIMITED))?,
        "group" => set(Charged::Group(LIMITED))?,
        "project" => {
            let number = LIMITED.to_string();
            tool::run("chattr", ["-p".as_ref(), number.as_ref(), "+P".as_ref(), directory.as_os_str()])?;
            set(Charged::Project(LIMITED))?;
        }
        _ => {}
    }
    chown(&directory, Some(LIMITED), Some(LIMITED))?;
    fs::set_permissions(&directory, fs::Permissions::from_mode(0o700))?;
    fs::set_permissions(volume.mount_point(), fs::Permissions::from_mode(0o755))?;
    Ok(directory)
}

/// Several files that grow at the same time, past the cache, until each writer is refused: what they got together.
fn fill(directory: &Path) -> Result<u64> {
    let path = |writer: usize| directory.join(writer.to_string());
    let writers: Vec<_> = (0..WRITERS)
        .map(|writer| {
            // Opened here: the laboratory's directory is closed to others. Whom it is charged to is a matter of the owner.
            let file = File::create_new(path(writer))?;
            chown(path(writer), Some(LIMITED), Some(LIMITED))?;
            let mut command = Command::new("dd");
            command.args(["if=/dev/zero", "bs=64k", "oflag=direct"]).stdout(file).stderr(Stdio::null());
            command.uid(LIMITED).gid(LIMITED).spawn()
        })
        .collect::<std::io::Result<_>>()?;
    for mut writer in writers {
        ensure!(!writer.wait()?.success(), "a writer was never refused");
    }
    (0..WRITERS).map(|writer| Ok(fs::metadata(path(writer))?.len())).sum()
}

/// The capabilities that a process can use.
fn privileges(process: u32) -> Result<u64> {
    let status = fs::read_to_string(format!("/proc/{process}/status"))?;
    let line = status.lines().find_map(|line| line.strip_prefix("CapEff:")).context("/proc shows no capabilities")?;
    Ok(u64::from_str_radix(line.trim(), 16)?)
}
