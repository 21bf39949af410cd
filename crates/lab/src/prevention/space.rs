//! Makes free space as years of use would: contiguous, half of it in pieces, or all of it.

use crate::LoopVolume;
use anyhow::{Context, Result};
use longrun_bench::Profile;
use std::fmt;
use std::fs::{self, File};
use std::io::Write;
use std::path::PathBuf;
use std::str::FromStr;

/// Sizes of the files that are made, and of which every other is deleted.
const SMALLEST: usize = 16 << 10;
const LARGEST: usize = 256 << 10;
const BLOCK: usize = 4 << 10;
const FILES_PER_DIRECTORY: u64 = 500;

/// In what state the free space is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum FreeSpaceKind {
    /// As on a new volume.
    Whole,
    /// Files of 16 to 256 KiB filled 60 % of the volume, and every other was deleted: there are pieces, and room behind.
    HalfInPieces,
    /// The same up to 97 %: hardly anything but pieces.
    InPieces,
}

impl FreeSpaceKind {
    /// All states.
    pub const ALL: [Self; 3] = [Self::Whole, Self::HalfInPieces, Self::InPieces];

    /// Whether a profile is worth its time there: where nothing should change, and where files are short, whole space is
    /// enough.
    #[must_use]
    pub fn suits(self, profile: Profile) -> bool {
        self == Self::Whole || matches!(profile, Profile::Direct | Profile::Dsync | Profile::Sparse)
    }

    /// The size of a volume in MiB: writing thousands of files takes its time, and a smaller one shows as much.
    pub(super) fn size(self, mebibytes: u64) -> u64 {
        if self == Self::Whole { mebibytes } else { mebibytes / 2 }
    }

    const fn name(self) -> &'static str {
        match self {
            Self::Whole => "whole",
            Self::HalfInPieces => "half-in-pieces",
            Self::InPieces => "in-pieces",
        }
    }
}

impl fmt::Display for FreeSpaceKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl FromStr for FreeSpaceKind {
    type Err = anyhow::Error;

    fn from_str(name: &str) -> Result<Self> {
        Self::ALL
            .into_iter()
            .find(|kind| kind.name() == name)
            .with_context(|| format!("'{name}' is not a state of the free space"))
    }
}

/// Brings the free space of a new volume into a state.
pub(super) fn prepare(volume: &LoopVolume, kind: FreeSpaceKind, seed: u64) -> Result<()> {
    match kind {
        FreeSpaceKind::Whole => touch(volume)?,
        FreeSpaceKind::HalfInPieces => fill_and_thin_out(volume, 0.60, seed)?,
        FreeSpaceKind::InPieces => fill_and_thin_out(volume, 0.97, seed)?,
    }
    volume.remount()
}

fn used(volume: &LoopVolume) -> Result<f64> {
    let known = longrun_sys::capacity(File::open(volume.mount_point())?)?;
    Ok(1.0 - known.available.0 as f64 / known.total.0 as f64)
}

/// Writes most blocks once: the image is sparse, and its first writes are slower than all later ones.
fn touch(volume: &LoopVolume) -> Result<()> {
    let path = volume.mount_point().join("touch");
    let mut file = File::create_new(&path)?;
    let chunk = vec![0x5a; 1 << 20];
    while used(volume)? < 0.6 {
        for _ in 0..32 {
            file.write_all(&chunk)?;
        }
        file.sync_data()?;
    }
    drop(file);
    fs::remove_file(&path)?;
    Ok(())
}

fn fill_and_thin_out(volume: &LoopVolume, share: f64, seed: u64) -> Result<()> {
    let mut rng = fastrand::Rng::with_seed(seed);
    let mut content = vec![0; LARGEST];
    rng.fill(&mut content);
    let mut doomed: Vec<PathBuf> = Vec::new();
    let mut directory = volume.mount_point();
    for number in 0u64.. {
        if number.is_multiple_of(FILES_PER_DIRECTORY) {
            rustix::fs::syncfs(File::open(volume.mount_point())?)?;
            directory = volume.mount_point().join(format!("pieces-{number}"));
            fs::create_dir(&directory)?;
        }
        if number.is_multiple_of(100) && used(volume)? >= share {
            break;
        }
        let path = directory.join(number.to_string());
        let length = rng.usize(SMALLEST / BLOCK..=LARGEST / BLOCK) * BLOCK;
        let written = fs::write(&path, content.get(..length).unwrap_or_default());
        if written.as_ref().is_err_and(|error| error.kind() == std::io::ErrorKind::StorageFull) {
            doomed.push(path);
            break;
        }
        written.with_context(|| format!("writing {}", path.display()))?;
        if number % 2 == 1 {
            doomed.push(path);
        }
    }
    rustix::fs::syncfs(File::open(volume.mount_point())?)?;
    doomed.iter().try_for_each(fs::remove_file)?;
    rustix::fs::syncfs(File::open(volume.mount_point())?)?;
    Ok(())
}
