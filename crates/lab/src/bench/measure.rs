//! The measurements: each on a fresh copy, cold, alternating between the tools, so that drift of the machine meets all.

use super::{Judged, judge};
use crate::oracle::{Dump, dump};
use crate::{DeviceTraffic, LoopVolume, Optimizer, Running, VolumeSpec, drop_caches, longrun_binary, tool};
use anyhow::{Context, Result, ensure};
use std::fs::File;
use std::io::Write;
use std::process::Command;
use std::time::{Duration, Instant};

/// Longer than any run takes.
const LIMIT: Duration = Duration::from_secs(3600);

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
    /// Bytes that the device transferred.
    pub(super) traffic: DeviceTraffic,
    /// The most memory that the tool's process had, in bytes.
    pub(super) peak_memory: u64,
    /// Files that it skipped, by its own report.
    pub(super) skipped: u64,
}

/// A speed, by medians.
pub(super) struct Speed {
    /// Bytes copied.
    pub(super) bytes: u64,
    /// In this time, in seconds.
    pub(super) seconds: f64,
}

/// Time and agreement of analyses; medians over the runs.
pub(super) struct Analysis {
    /// `longrun analyze`, cold, in seconds.
    pub(super) longrun_seconds: f64,
    /// `e4defrag -c`, cold, in seconds.
    pub(super) e4defrag_seconds: f64,
    /// The most memory of `longrun analyze`, in bytes.
    pub(super) peak_memory: u64,
    /// Excess fragments of files and directories, and free pieces, by `longrun analyze`.
    pub(super) claimed: (u64, u64),
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
    let merged = all.into_iter().filter_map(|mut results| {
        let seconds = median(results.iter().map(|r| r.seconds).collect());
        let written = median(results.iter().map(|r| r.traffic.written as f64).collect()) as u64;
        let read = median(results.iter().map(|r| r.traffic.read as f64).collect()) as u64;
        let last = results.pop()?;
        Some(Optimized { seconds, traffic: DeviceTraffic { read, written }, ..last })
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
    if let Some(before) = verify {
        optimizer.compare(before, &dump(&volume.mount_point())?)?;
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
        traffic,
        peak_memory: finished.peak_memory,
        skipped: skipped.iter().filter_map(|s| number(s, "files")).sum(),
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

/// Where small files by the hundred thousand lie, as on a mail or build server.
pub(super) fn many_files(files: u64) -> Result<LoopVolume> {
    const FILES_PER_DIRECTORY: u64 = 500;
    let spec = VolumeSpec::ext4(files.div_ceil(150) + 256);
    let volume = LoopVolume::create(&spec.mkfs(&["-b", "4096", "-N", &(files + files / 100 + 1000).to_string()]))?;
    let mut block = [0; 2048];
    for first in (0..files).step_by(FILES_PER_DIRECTORY as usize) {
        let directory = volume.mount_point().join(format!("d{first}"));
        std::fs::create_dir(&directory)?;
        for file in first..files.min(first + FILES_PER_DIRECTORY) {
            longrun_ageing::fill_block(&mut block, 0, file, 0);
            std::fs::write(directory.join(file.to_string()), block)?;
        }
    }
    volume.remount()?;
    Ok(volume)
}

/// Times both analyses, cold, alternating.
pub(super) fn analyze(base: &LoopVolume, runs: u32) -> Result<Analysis> {
    let (mut ours, mut peer, mut peak_memory, mut claimed) = (Vec::new(), Vec::new(), 0, (0, 0));
    for _ in 0..runs {
        base.remount()?;
        drop_caches()?;
        // The programs come from another device and are in memory in practice; the volume is what is cold.
        tool::output(Command::new("e4defrag").arg("-c").arg("/dev/null"))?;
        let mut command = Command::new("e4defrag");
        command.arg("-c").arg(base.mount_point());
        peer.push(Running::start(&mut command)?.wait(LIMIT)?.elapsed.as_secs_f64());

        base.remount()?;
        drop_caches()?;
        tool::output(Command::new(longrun_binary()?).arg("--version"))?;
        let mut command = Command::new(longrun_binary()?);
        command.args(["analyze", "--json"]).arg(base.mount_point());
        let finished = Running::start(&mut command)?.wait(LIMIT)?;
        ensure!(finished.status.success(), "longrun analyze failed: {}", finished.stderr);
        ours.push(finished.elapsed.as_secs_f64());
        peak_memory = peak_memory.max(finished.peak_memory);
        let report: serde_json::Value = serde_json::from_str(&finished.stdout)?;
        let number = |pointer: &str| report.pointer(pointer).and_then(serde_json::Value::as_u64);
        claimed = (
            number("/excess_fragments").context("no excess_fragments in the report")?
                + number("/directory_excess_fragments").context("no directory_excess_fragments in the report")?,
            number("/free_space/pieces").context("no free_space.pieces in the report")?,
        );
    }
    Ok(Analysis { longrun_seconds: median(ours), e4defrag_seconds: median(peer), peak_memory, claimed })
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
