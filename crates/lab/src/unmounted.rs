//! Volumes that are not mounted, at the sizes and fill levels that are too slow for the tests: put together, judged by the tools of
//! ntfs-3g, and timed beside a plain copy.

use crate::ntfs::{AttributeName, Census, Fixture, Inventory, Recipe, Spec};
use crate::oracle::ntfs as oracle;
use crate::{Optimizer, cleanup};
use anyhow::{Context, Result, ensure};
use serde::Serialize;
use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::time::{Duration, Instant};

/// No run takes that long.
const LIMIT: Duration = Duration::from_secs(1800);
/// The most pieces of free space that a full pass leaves.
const MOST_PIECES: usize = 22;
/// What a plain copy reads and writes at a time.
const AT_ONCE: usize = 1 << 20;
/// The most that a plain copy writes.
const MOST_COPIED: u64 = 256 << 20;
/// The record of $MFT.
const MFT: u64 = 0;

/// What to do.
#[derive(Clone, Copy, Debug)]
pub struct UnmountedSettings {
    /// Which volume.
    pub spec: Spec,
    /// How often it is measured, each time on a copy of the same image.
    pub runs: usize,
    /// The mode of Longrun: full, efficient, files.
    pub mode: &'static str,
}

/// Where everything is.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Placement {
    /// Sum over all streams of (fragments − 1).
    pub excess_fragments: usize,
    /// Free ranges.
    pub free_pieces: usize,
    /// Fragments of $MFT's content.
    pub mft_fragments: usize,
    /// Free bytes directly behind $MFT: it grows there in one piece.
    pub free_behind_mft: u64,
    /// Directories in more than one fragment.
    pub fragmented_directories: usize,
    /// Ranges of the volume that hold nothing but directories.
    pub directory_areas: usize,
}

/// What came of it.
#[derive(Clone, Debug, Serialize)]
pub struct UnmountedReport {
    /// The volume.
    pub recipe: String,
    /// Its size in bytes.
    pub bytes: u64,
    /// Files and directories on it.
    pub files: usize,
    /// Used bytes.
    pub used: u64,
    /// Before.
    pub before: Placement,
    /// After.
    pub after: Placement,
    /// Bytes that were moved.
    pub moved: u64,
    /// What was skipped and why, as Longrun reports it.
    pub skipped: serde_json::Value,
    /// Seconds of each run.
    pub seconds: Vec<f64>,
    /// Seconds of a copy of as many used bytes of the image to a new file beside it, in pieces of 1 MiB, with fsync; after each run. Of
    /// more than 256 MiB it is scaled.
    pub copy_seconds: Vec<f64>,
}

impl UnmountedReport {
    /// The speed of the fastest run, in shares of the fastest copy.
    #[must_use]
    pub fn speed(&self) -> f64 {
        let least = |seconds: &[f64]| seconds.iter().copied().fold(f64::INFINITY, f64::min);
        least(&self.copy_seconds) / least(&self.seconds)
    }
}

/// Makes a volume, optimizes copies of it, and judges each.
///
/// # Errors
/// What is not as it was, or not as it should be.
pub fn unmounted(settings: &UnmountedSettings) -> Result<UnmountedReport> {
    let fixture = Fixture::make(settings.spec)?;
    fixture.promises_kept()?;
    let census = Census::of(&fixture.image())?;
    let expected = Inventory::of(&fixture.image())?;
    let before = Placement::of(&census);
    let is_full = settings.mode == "full";
    let optimizer = Optimizer::longrun(settings.mode)?;
    let spec = settings.spec;
    let free: u64 = census.free.iter().map(|(_, clusters)| clusters * census.cluster_bytes).sum();
    let mut report = UnmountedReport {
        recipe: if spec.recipe == Recipe::NearlyFull { "nearly-full" } else { "full" }.into(),
        bytes: spec.bytes,
        files: fixture.contents().files + fixture.contents().directories,
        used: spec.bytes - free,
        before,
        after: before,
        moved: 0,
        skipped: serde_json::Value::Null,
        seconds: Vec::new(),
        copy_seconds: Vec::new(),
    };
    for run in 0..settings.runs.max(1) {
        // The last run has the image itself: large ones are not stored twice for a single run.
        let copy = (run + 1 < settings.runs).then(|| fixture.copy()).transpose()?;
        let image = copy.as_ref().unwrap_or(&fixture).image();
        let finished = optimizer.run(&image, LIMIT)?;
        ensure!(finished.status.success(), "the run failed: {finished:?}");
        let said: serde_json::Value = serde_json::from_str(&finished.stdout).context("what Longrun printed")?;
        report.moved = said.get("bytes_moved").and_then(serde_json::Value::as_u64).context("bytes_moved")?;
        report.skipped = said.get("skipped").cloned().unwrap_or_default();
        report.seconds.push(said.get("seconds").and_then(serde_json::Value::as_f64).context("seconds")?);
        let census = Census::of(&image)?;
        report.copy_seconds.push(plain_copy(&image, &census, report.moved)?);
        report.after = Placement::of(&census);
        let difference = expected.difference(&Inventory::of(&image)?);
        ensure!(difference.is_none(), "not as it was: {}", difference.unwrap_or_default());
        oracle::check(&image)?;
        ensure!(!oracle::is_dirty(&image)?, "it is marked as dirty");
        let after = report.after;
        let told = report.skipped.as_array().is_some_and(|skipped| !skipped.is_empty());
        ensure!(!is_full || after.excess_fragments == 0 || told, "fragments are left without a reason: {report:?}");
        ensure!(!is_full || after.free_pieces <= MOST_PIECES, "the free space is scattered: {report:?}");
        ensure!(!is_full || after.mft_fragments == 1, "$MFT is fragmented: {report:?}");
        oracle::then_usable(&image)?;
    }
    Ok(report)
}

impl Placement {
    fn of(census: &Census) -> Self {
        let excess = census.fragments().map(|(_, _, fragments)| fragments.saturating_sub(1)).sum();
        let mft = census.records.get(&MFT).and_then(|mft| mft.attributes.get(&AttributeName::content()));
        let ends = mft.and_then(|data| data.runs.last()).and_then(|run| Some(run.lcn? + run.clusters));
        let behind = census.free.iter().find(|(first, _)| Some(*first) == ends).map_or(0, |(_, clusters)| *clusters);
        let indexes = census.records.values().filter_map(|record| record.attributes.get(&AttributeName::index()));
        let indexes: Vec<_> = indexes.filter(|index| !index.resident).collect();
        let areas: BTreeMap<u64, u64> = indexes
            .iter()
            .flat_map(|index| &index.runs)
            .filter_map(|run| run.lcn.map(|lcn| (lcn, lcn + run.clusters)))
            .collect();
        let joins = areas.values().filter(|end| areas.contains_key(end)).count();
        Self {
            excess_fragments: excess,
            free_pieces: census.free.len(),
            mft_fragments: mft.map_or(0, crate::ntfs::StoredAttribute::fragments),
            free_behind_mft: behind * census.cluster_bytes,
            fragmented_directories: indexes.iter().filter(|index| index.fragments() > 1).count(),
            directory_areas: areas.len() - joins,
        }
    }
}

/// Copies that many used bytes of the image to a new file on the same file system, and waits until they are durable. The seconds
/// that it took.
fn plain_copy(image: &Path, census: &Census, bytes: u64) -> Result<f64> {
    let directory = cleanup::fresh_directory()?;
    let most = bytes.min(MOST_COPIED);
    let copied = copy_used(image, &directory.join("copy"), census, most);
    cleanup::take_down(&directory);
    Ok(copied.context("a plain copy")? * bytes as f64 / most.max(1) as f64)
}

fn copy_used(image: &Path, to: &Path, census: &Census, bytes: u64) -> io::Result<f64> {
    let (from, to) = (File::open(image)?, File::create_new(to)?);
    let (mut at, mut written, mut buffer) = (0, 0, vec![0; AT_ONCE]);
    let begun = Instant::now();
    for (first, clusters) in census.free.iter().copied().chain([(census.clusters, 0)]) {
        while at < first * census.cluster_bytes && written < bytes {
            let size = (first * census.cluster_bytes - at).min(bytes - written).min(AT_ONCE as u64);
            let piece = buffer.get_mut(..size as usize).unwrap_or_default();
            from.read_exact_at(piece, at)?;
            to.write_all_at(piece, written)?;
            at += size;
            written += size;
        }
        at = at.max((first + clusters) * census.cluster_bytes);
    }
    to.sync_data()?;
    Ok(begun.elapsed().as_secs_f64())
}
