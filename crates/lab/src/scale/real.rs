//! Real volumes with many files, on sparse images.

use crate::{FileSystemKind, LoopVolume, Optimizer, Running, VolumeSpec, drop_caches, longrun_binary};
use anyhow::{Context, Result, ensure};
use longrun_layout::Bytes;
use serde::Serialize;
use serde_json::Value;
use std::fs::{self, File};
use std::io::Write;
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

/// Longer than any run takes.
const LIMIT: Duration = Duration::from_secs(4 * 3600);

const FILES_PER_DIRECTORY: u64 = 1000;
/// One file in so many grows while its neighbours are made.
const GROWING: u64 = 20;
/// One file in so many is deleted.
const DELETED: u64 = 6;
/// The most bytes of a file when it is made.
const LARGEST: u64 = 24 << 10;

/// What analyzing and optimizing a real volume costs.
#[derive(Clone, Debug, Serialize)]
pub struct RealCost {
    /// Its file system.
    #[serde(skip)]
    pub kind: FileSystemKind,
    /// Files.
    pub files: u64,
    /// The size of the volume.
    pub bytes: Bytes,
    /// In use.
    pub used: Bytes,
    /// `longrun analyze`, cold, in seconds.
    pub analyze_seconds: f64,
    /// Its most memory, in bytes.
    pub analyze_memory: u64,
    /// A full pass at the pace fast, in seconds.
    pub pass_seconds: f64,
    /// Its most memory, in bytes.
    pub pass_memory: u64,
    /// What it moved.
    pub moved: Bytes,
    /// Excess fragments before and after.
    pub excess: [u64; 2],
    /// Free pieces before and after.
    pub pieces: [u64; 2],
    /// The fewest that are possible.
    pub floor_pieces: u64,
}

/// Makes a volume of `gibibytes` with about `files` files, a sixth of them deleted again, and measures.
///
/// # Errors
/// When a tool fails, or the volume is not clean afterwards.
pub fn real(kind: FileSystemKind, files: u64, gibibytes: u64, progress: &mut dyn FnMut(&str)) -> Result<RealCost> {
    let mut analyze = Command::new(longrun_binary()?);
    progress(&format!("{}: making {files} files", kind.name()));
    let volume = made(kind, files, gibibytes)?;
    analyze.args(["analyze", "--json"]).arg(volume.mount_point());
    volume.remount()?;
    drop_caches()?;
    progress(&format!("{}: analysis", kind.name()));
    let analyzed = Running::start(&mut analyze)?.wait(LIMIT)?;
    ensure!(analyzed.status.success(), "longrun analyze failed: {}", analyzed.stderr);
    let before: Value = serde_json::from_str(&analyzed.stdout)?;
    volume.remount()?;
    drop_caches()?;
    progress(&format!("{}: full pass", kind.name()));
    let pass = Optimizer::longrun("full")?.run(&volume.mount_point(), LIMIT)?;
    ensure!(pass.status.success(), "longrun optimize failed: {}", pass.stderr);
    let report: Value = serde_json::from_str(&pass.stdout)?;
    volume.check()?;
    let number = |value: &Value, at: &str| {
        value.pointer(at).and_then(Value::as_u64).with_context(|| format!("no {at} in the report"))
    };
    let both = |at: &str| -> Result<[u64; 2]> { Ok([number(&before, at)?, number(&report, &format!("/after{at}"))?]) };
    Ok(RealCost {
        kind,
        files: number(&before, "/files")?,
        bytes: Bytes(gibibytes << 30),
        used: Bytes(number(&before, "/used_bytes")?),
        analyze_seconds: analyzed.elapsed.as_secs_f64(),
        analyze_memory: analyzed.peak_memory,
        pass_seconds: pass.elapsed.as_secs_f64(),
        pass_memory: pass.peak_memory,
        moved: Bytes(number(&report, "/bytes_moved")?),
        excess: both("/excess_fragments")?,
        pieces: both("/free_space/pieces")?,
        floor_pieces: number(&before, "/free_space/floor_pieces")?,
    })
}

/// Files of some KiB, of which one in twenty grew while its neighbours were made.
fn made(kind: FileSystemKind, files: u64, gibibytes: u64) -> Result<LoopVolume> {
    let spec = VolumeSpec::of(kind, gibibytes << 10);
    let volume = LoopVolume::create(&match kind {
        FileSystemKind::Ext4 => spec.mkfs(&["-b", "4096", "-N", &(files + files / 50 + 1000).to_string()]),
        FileSystemKind::Xfs | FileSystemKind::Btrfs => spec,
    })?;
    let mut rng = fastrand::Rng::with_seed(1);
    let mut block = vec![0; LARGEST as usize];
    longrun_ageing::fill_block(&mut block, 0, 0, 0);
    let mut growing: Vec<PathBuf> = Vec::new();
    let mut made = 0;
    while made < files {
        let directory = volume.mount_point().join(format!("d{}", made / FILES_PER_DIRECTORY));
        fs::create_dir(&directory)?;
        let mut here = Vec::new();
        for number in made..files.min(made + FILES_PER_DIRECTORY) {
            let path = directory.join(number.to_string());
            // Most files are small: the square of an even draw.
            let draw = rng.f64();
            let length = ((draw * draw * LARGEST as f64) as usize).max(1);
            fs::write(&path, block.get(..length).unwrap_or(&block))?;
            if number % GROWING == 0 {
                growing.push(path.clone());
            }
            here.push(path);
        }
        made += here.len() as u64;
        // Allocated now; what grows from here on finds its place taken.
        rustix::fs::syncfs(File::open(volume.mount_point())?)?;
        for path in &growing {
            File::options().append(true).open(path)?.write_all(&block)?;
        }
        growing.clear();
        for path in here.iter().filter(|_| rng.u64(..DELETED) == 0) {
            fs::remove_file(path)?;
        }
    }
    rustix::fs::syncfs(File::open(volume.mount_point())?)?;
    Ok(volume)
}
