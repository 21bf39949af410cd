//! The measurements. Each runs on a fresh copy with a cold cache, and the tools take turns, so that a drift of the
//! machine affects all equally.

use super::{Judged, judge};
use crate::oracle::{Dump, dump};
use crate::{DeviceTraffic, LoopVolume, Optimizer, VolumeSpec, drop_caches, tool};
use anyhow::{Context, Result};
use std::fs::File;
use std::io::Write;
use std::time::{Duration, Instant};

/// Longer than any run takes.
pub(super) const LIMIT: Duration = Duration::from_secs(3600);

/// What a tool made of a volume; medians over the runs.
pub(super) struct Optimized {
    /// The tool.
    pub(super) name: String,
    /// Wall time in seconds, final sync included.
    pub(super) seconds: f64,
    /// What judges say afterwards (the last run's).
    pub(super) after: Judged,
    /// Bytes that the tool says it moved.
    pub(super) bytes_moved: Option<u64>,
    /// System calls for each MiB moved that it took to get hold of free space, by our own report.
    pub(super) capture_calls: Option<f64>,
    /// Bytes that the device transferred.
    pub(super) traffic: DeviceTraffic,
    /// The most memory that the tool's process had, in bytes.
    pub(super) peak_memory: u64,
    /// Files that it skipped, by its own report.
    pub(super) skipped: u64,
    /// Whether it is ours.
    pub(super) is_ours: bool,
    /// The first thing that a peer changed and should not have.
    pub(super) changed: Option<String>,
    /// How a peer ended that failed, and its last words.
    pub(super) failed: Option<String>,
}

/// A speed, by medians.
pub(super) struct Speed {
    /// Bytes copied.
    pub(super) bytes: u64,
    /// In this time, in seconds.
    pub(super) seconds: f64,
}

/// The middle of the values; of an even number, the lower of the two.
pub(super) fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len().saturating_sub(1) / 2).copied().unwrap_or_default()
}

/// Runs every tool on copies of `base`.
pub(super) fn optimize(
    base: &LoopVolume,
    tools: &[Optimizer],
    runs: u32,
    progress: &mut dyn FnMut(&str),
) -> Result<Vec<Optimized>> {
    let before = dump(&base.mount_point())?;
    // Of a btrfs only one of the copies and the original may be mounted.
    base.unmount()?;
    let mut all: Vec<Vec<Optimized>> = tools.iter().map(|_| Vec::new()).collect();
    for run in 0..runs {
        for (optimizer, results) in tools.iter().zip(&mut all) {
            progress(&format!("{} ({} of {runs})", optimizer.name(), run + 1));
            // Once is enough to know that nothing is changed: the crash and torture tests are there for more.
            results.push(
                optimize_once(base, optimizer, (run == 0).then_some(&before))
                    .with_context(|| optimizer.name().to_owned())?,
            );
        }
    }
    base.mount()?;
    let merged = all.into_iter().filter_map(|mut results| {
        let changed = results.iter_mut().find_map(|result| result.changed.take());
        let seconds = median(results.iter().map(|r| r.seconds).collect());
        let written = median(results.iter().map(|r| r.traffic.written as f64).collect()) as u64;
        let read = median(results.iter().map(|r| r.traffic.read as f64).collect()) as u64;
        let last = results.pop()?;
        Some(Optimized { seconds, traffic: DeviceTraffic { read, written }, changed, ..last })
    });
    Ok(merged.collect())
}

fn optimize_once(base: &LoopVolume, optimizer: &Optimizer, verify: Option<&Dump>) -> Result<Optimized> {
    let volume = base.copy("")?;
    drop_caches()?;
    let (traffic, start) = (volume.traffic()?, Instant::now());
    let finished = optimizer.run(&volume.mount_point(), LIMIT)?;
    rustix::fs::syncfs(File::open(volume.mount_point())?)?;
    let seconds = start.elapsed().as_secs_f64();
    let traffic = volume.traffic()?.since(traffic);
    let mut changed = None;
    if let Some(before) = verify {
        match optimizer.compare(before, &dump(&volume.mount_point())?) {
            // That a peer changes something is worth telling; that we do is the end of the benchmark.
            Err(differences) if !optimizer.is_ours() => {
                changed = differences.to_string().lines().nth(1).map(str::to_owned);
            }
            other => other?,
        }
        volume.check()?;
    }
    let report: Option<serde_json::Value> =
        optimizer.is_ours().then(|| serde_json::from_str(&finished.stdout)).transpose()?;
    let number = |value: &serde_json::Value, key: &str| value.get(key).and_then(serde_json::Value::as_u64);
    let skipped = report.as_ref().and_then(|r| r.get("skipped")?.as_array().cloned()).unwrap_or_default();
    Ok(Optimized {
        name: optimizer.name().to_owned(),
        seconds,
        after: judge(&volume)?,
        bytes_moved: report.as_ref().and_then(|r| number(r, "bytes_moved")),
        capture_calls: report.as_ref().and_then(|r| r.get("capture_calls_per_mib")?.as_f64()),
        traffic,
        peak_memory: finished.peak_memory,
        skipped: skipped.iter().filter_map(|s| number(s, "files")).sum(),
        is_ours: optimizer.is_ours(),
        changed,
        failed: (!finished.status.success()).then(|| {
            let said = [&finished.stderr, &finished.stdout].into_iter().find_map(|text| text.trim().lines().last());
            format!("{}: {}", finished.status, said.unwrap_or_default().trim())
        }),
    })
}

/// Copies a file of `bytes` on one device, cold, with cp and fsync: what moving as many bytes can at best take.
pub(super) fn copy_speed(bytes: u64, runs: u32) -> Result<Speed> {
    let volume = LoopVolume::create(&VolumeSpec::ext4(((bytes * 9 / 4) >> 20) + 512).mkfs(&["-b", "4096"]))?;
    let (from, to) = (volume.mount_point().join("from"), volume.mount_point().join("to"));
    let mut file = File::create_new(&from)?;
    let mut chunk = vec![0; 1 << 20];
    for number in 0..bytes >> 20 {
        longrun_ageing::fill_block(&mut chunk, 0, 0, number);
        file.write_all(&chunk)?;
    }
    file.sync_all()?;
    let mut seconds = Vec::new();
    for _ in 0..runs {
        drop_caches()?;
        let start = Instant::now();
        tool::run("cp", ["--reflink=never".as_ref(), from.as_path(), to.as_path()])?;
        File::open(&to)?.sync_all()?;
        seconds.push(start.elapsed().as_secs_f64());
        std::fs::remove_file(&to)?;
        rustix::fs::syncfs(&file)?;
    }
    Ok(Speed { bytes: (bytes >> 20) << 20, seconds: median(seconds) })
}

#[cfg(test)]
mod tests {
    use super::median;

    #[test]
    fn the_median_is_the_middle_value() {
        assert_eq!(median(vec![3.0, 1.0, 2.0]), 2.0);
        assert_eq!(median(vec![4.0, 1.0, 2.0, 3.0]), 2.0);
        assert_eq!(median(Vec::new()), 0.0);
    }
}
