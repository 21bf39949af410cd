//! The speed of the analysis: `longrun analyze` as root, which reads a whole volume, compared with mapping each file
//! (as `longrun analyze` does without privilege) and, on ext4, with `e4defrag -c`. Each runs from a cold cache, in
//! turn.

use super::measure::{LIMIT, median};
use crate::{FileSystemKind, LoopVolume, Running, VolumeSpec, drop_caches, longrun_binary, tool};
use anyhow::{Context, Result, ensure};
use std::fs::{self, File};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;

/// Time and agreement of analyses; medians over the runs.
pub(super) struct Analysis {
    /// `longrun analyze`, cold, in seconds.
    pub(super) longrun_seconds: f64,
    /// The walk over all files that asks each where its extents lie (FIEMAP), cold, in seconds.
    pub(super) walk_seconds: f64,
    /// `e4defrag -c`, cold, in seconds; on ext4.
    pub(super) e4defrag_seconds: Option<f64>,
    /// The most memory of `longrun analyze`, in bytes.
    pub(super) peak_memory: u64,
    /// Excess fragments of files and directories, and free pieces, by `longrun analyze`.
    pub(super) claimed: (u64, Option<u64>),
    /// Excess fragments of files by the walk.
    pub(super) walked: u64,
    /// How `longrun analyze` went about it.
    pub(super) method: String,
}

/// Bytes of each small file: too many to lie in an inode or a tree.
const SMALL: usize = 3000;
const FILES_PER_DIRECTORY: u64 = 500;
/// One file in so many lies in two pieces, so that those whose extents must be looked up are there too.
const PIECES_EACH: u64 = 100;

/// Where small files by the hundred thousand lie, as on a mail or build server.
pub(super) fn many_files(kind: FileSystemKind, files: u64) -> Result<LoopVolume> {
    let spec = VolumeSpec::of(kind, files.div_ceil(120) + 512);
    let volume = LoopVolume::create(&match kind {
        FileSystemKind::Ext4 => spec.mkfs(&["-b", "4096", "-N", &(files + files / 100 + 1000).to_string()]),
        FileSystemKind::Xfs | FileSystemKind::Btrfs => spec,
    })?;
    let mut block = [0; SMALL];
    for first in (0..files).step_by(FILES_PER_DIRECTORY as usize) {
        let directory = volume.mount_point().join(format!("d{first}"));
        fs::create_dir(&directory)?;
        for file in first..files.min(first + FILES_PER_DIRECTORY) {
            longrun_ageing::fill_block(&mut block, 0, file, 0);
            fs::write(directory.join(file.to_string()), block)?;
        }
    }
    rustix::fs::syncfs(File::open(volume.mount_point())?)?;
    // The block behind each of these is another file's by now.
    for file in (0..files).step_by(PIECES_EACH as usize) {
        let first = file / FILES_PER_DIRECTORY * FILES_PER_DIRECTORY;
        let path = volume.mount_point().join(format!("d{first}")).join(file.to_string());
        std::io::Write::write_all(&mut File::options().append(true).open(path)?, &block)?;
    }
    volume.remount()?;
    Ok(volume)
}

/// Times the analyses.
pub(super) fn analyze(base: &LoopVolume, runs: u32) -> Result<Analysis> {
    let (mut ours, mut walks, mut peer, mut peak_memory) = (Vec::new(), Vec::new(), Vec::new(), 0);
    let (mut claimed, mut walked, mut method) = ((0, None), 0, String::new());
    let unprivileged = Unprivileged::new(base)?;
    for _ in 0..runs {
        if base.kind() == FileSystemKind::Ext4 {
            cold(base)?;
            // The programs come from another device and are in memory in practice; the volume is what is cold.
            tool::output(Command::new("e4defrag").arg("-c").arg("/dev/null"))?;
            let mut command = Command::new("e4defrag");
            command.arg("-c").arg(base.mount_point());
            peer.push(Running::start(&mut command)?.wait(LIMIT)?.elapsed.as_secs_f64());
        }

        let mut command = unprivileged.command();
        cold(base)?;
        tool::output(unprivileged.command().arg("--version"))?;
        let (seconds, _, report) = told(command.args(["analyze", "--json"]).arg(base.mount_point()))?;
        ensure!(report.get("method").is_some_and(|method| method == "walk"), "this was no walk: {report}");
        walks.push(seconds);
        walked = number(&report, "/excess_fragments")?;

        cold(base)?;
        tool::output(Command::new(longrun_binary()?).arg("--version"))?;
        let mut command = Command::new(longrun_binary()?);
        let (seconds, memory, report) = told(command.args(["analyze", "--json"]).arg(base.mount_point()))?;
        ours.push(seconds);
        peak_memory = peak_memory.max(memory);
        let directories = number(&report, "/directory_excess_fragments").unwrap_or_default();
        let pieces = report.pointer("/free_space/pieces").and_then(serde_json::Value::as_u64);
        claimed = (number(&report, "/excess_fragments")? + directories, pieces);
        method = report.get("method").and_then(|method| method.as_str()).unwrap_or("unknown").to_owned();
    }
    Ok(Analysis {
        longrun_seconds: median(ours),
        walk_seconds: median(walks),
        e4defrag_seconds: (!peer.is_empty()).then(|| median(peer)),
        peak_memory,
        claimed,
        walked,
        method,
    })
}

fn cold(base: &LoopVolume) -> Result<()> {
    base.remount()?;
    drop_caches()
}

/// Seconds, peak memory in bytes, and report of an analysis.
fn told(command: &mut Command) -> Result<(f64, u64, serde_json::Value)> {
    let finished = Running::start(command)?.wait(LIMIT)?;
    ensure!(finished.status.success(), "longrun analyze failed: {}", finished.stderr);
    Ok((finished.elapsed.as_secs_f64(), finished.peak_memory, serde_json::from_str(&finished.stdout)?))
}

fn number(report: &serde_json::Value, pointer: &str) -> Result<u64> {
    let value = report.pointer(pointer).and_then(serde_json::Value::as_u64);
    value.with_context(|| format!("no {pointer} in the report"))
}

/// `longrun` as somebody who is not root, who must be able to reach it and the volume.
struct Unprivileged {
    _directory: tempfile::TempDir,
    program: std::path::PathBuf,
}

impl Unprivileged {
    fn new(base: &LoopVolume) -> Result<Self> {
        let passable = |path: &Path| fs::set_permissions(path, fs::Permissions::from_mode(0o711));
        let directory = tempfile::tempdir()?;
        let program = directory.path().join("longrun");
        fs::copy(longrun_binary()?, &program)?;
        passable(directory.path())?;
        passable(base.mount_point().parent().context("a mount point has a parent")?)?;
        Ok(Self { _directory: directory, program })
    }

    fn command(&self) -> Command {
        let mut command = Command::new("setpriv");
        command.args(["--reuid=65534", "--regid=65534", "--clear-groups"]).arg(&self.program);
        command
    }
}
