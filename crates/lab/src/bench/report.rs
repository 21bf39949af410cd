//! The report: tables of the measurements.

use super::claims::{analysis_claims, claims, media_claims};
use super::{AnalysisResult, BenchSettings, Judged, Optimized, RecipeResult};
use anyhow::Result;
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;

pub(super) const MIB: f64 = 1_048_576.0;

/// Writes the whole report.
pub(super) fn markdown(
    settings: &BenchSettings,
    commands: &BTreeMap<String, String>,
    results: &[RecipeResult],
    analyses: &[AnalysisResult],
) -> Result<String> {
    let mut text = String::new();
    let kinds: Vec<_> = settings.kinds.iter().map(|kind| kind.name()).collect();
    writeln!(text, "# Benchmarks: {}\n\nWritten by `make bench`; do not edit.\n", kinds.join(", "))?;
    writeln!(text, "- Machine: {}", machine())?;
    writeln!(text, "- Processes that wanted to run: {}", load())?;
    writeln!(
        text,
        "- Volumes: {} MiB, on a loop device with direct I/O that reports the medium in each heading (rotating or \
         solid-state; both are equally fast), with the defaults of mkfs (but ext4 with 4 KiB blocks, XFS with a \
         reverse map); aged by `longrun fragment --volume DIR --recipe NAME --seed {}`{}.",
        settings.mebibytes,
        settings.seed,
        match settings.snapshots {
            0 => String::new(),
            count => format!(", btrfs with {count} snapshots and changes after each"),
        }
    )?;
    writeln!(
        text,
        "- Each tool works on a byte-identical copy of the same image with a cold cache; median of {} runs, the \
         tools taking turns. Time is wall time until all data is on the device. Traffic is that of the block \
         device, so it includes the writes of the file system itself. Fragments are counted by filefrag (physically \
         contiguous runs; adjoining extent records are one; of btrfs snapshots only the live tree). Free space is \
         reported by e2freefrag and xfs_spaceman, and on btrfs by a dump of the extent tree (the gaps in block \
         groups for data). After the first run of each tool every file's SHA-256, times, owner, mode, attributes \
         and holes were compared with the original, and `e2fsck -fn`, `xfs_repair -n` or `btrfs check` was clean.",
        settings.runs
    )?;
    for (name, command) in commands {
        writeln!(text, "- {name}: `{command} MOUNT`")?;
    }
    for result in results.iter().filter(|result| !result.optimized.is_empty()) {
        optimized(&mut text, result)?;
    }
    if !analyses.is_empty() {
        writeln!(text, "\n## Analysis of a whole volume, cold\n")?;
        analysis(&mut text, analyses)?;
    }
    writeln!(text, "\n## What holds, and what does not\n")?;
    results.iter().try_for_each(|result| claims(&mut text, result))?;
    media_claims(&mut text, results)?;
    analyses.iter().try_for_each(|result| analysis_claims(&mut text, result))?;
    Ok(text)
}

/// Writes the report of the analysis of many files.
pub(super) fn scan(analyses: &[AnalysisResult], runs: u32) -> Result<String> {
    let mut text = String::from("# Analysis of many files, cold\n\nWritten by `make bench-scan`; do not edit.\n\n");
    writeln!(text, "- Machine: {}", machine())?;
    writeln!(text, "- Processes that wanted to run: {}", load())?;
    writeln!(
        text,
        "- Medians of {runs} runs, the methods taking turns, with a cold cache; one file in 100 was extended \
         later.\n"
    )?;
    analysis(&mut text, analyses)?;
    writeln!(text)?;
    analyses.iter().try_for_each(|result| analysis_claims(&mut text, result))?;
    Ok(text)
}

fn optimized(text: &mut String, result: &RecipeResult) -> Result<()> {
    let before = result.before;
    writeln!(
        text,
        "\n## {}, {}, {} device: {} files, {:.0} MiB used\n",
        result.kind.name(),
        result.recipe,
        result.medium.name(),
        before.files,
        result.used_bytes as f64 / MIB
    )?;
    writeln!(
        text,
        "| | excess fragments | free pieces | largest free, MiB | moved, MiB | moved / used | device written, MiB | \
         written / used | device read, MiB | seconds | peak memory, MiB | skipped files |\n\
         |---|---|---|---|---|---|---|---|---|---|---|---|"
    )?;
    writeln!(
        text,
        "| before | {} | {} | {:.1} | | | | | | | | |",
        before.excess,
        before.free.pieces,
        before.free.largest_bytes as f64 / MIB
    )?;
    for o in &result.optimized {
        let moved = o.bytes_moved.map(|b| b as f64);
        writeln!(
            text,
            "| {} | {} | {} | {:.1} | {} | {} | {:.0} | {:.2} | {:.0} | {:.1} | {:.0} | {} |",
            o.name,
            o.after.excess,
            o.after.free.pieces,
            o.after.free.largest_bytes as f64 / MIB,
            moved.map_or("not reported".to_owned(), |b| format!("{:.0}", b / MIB)),
            moved.map_or(String::new(), |b| format!("{:.2}", b / result.used_bytes as f64)),
            o.traffic.written as f64 / MIB,
            o.traffic.written as f64 / result.used_bytes as f64,
            o.traffic.read as f64 / MIB,
            o.seconds,
            o.peak_memory as f64 / MIB,
            if o.bytes_moved.is_some() { o.skipped.to_string() } else { "not reported".to_owned() }
        )?;
    }
    beside(text, result)?;
    if let Some(copy) = &result.copy {
        writeln!(
            text,
            "\nThe speed limit: `cp` + fsync of {:.0} MiB on such a device, cold, takes {:.1} s ({:.0} MiB/s).",
            copy.bytes as f64 / MIB,
            copy.seconds,
            copy.bytes as f64 / MIB / copy.seconds
        )?;
    }
    Ok(())
}

/// What a file system has besides: bounds, space outside of block groups, and what a peer changed.
fn beside(text: &mut String, result: &RecipeResult) -> Result<()> {
    if let Some(possible) = result.before.longest_possible {
        writeln!(
            text,
            "\nThe immovable areas (headers, trees, inodes, the log), at their places before the pass, allow a free \
             piece of at most {:.1} MiB.",
            possible as f64 / MIB
        )?;
    }
    let of_ours = |o: &Optimized| Some(format!("{} {:.1}", o.name, o.capture_calls.filter(|calls| *calls > 0.0)?));
    let captured: Vec<_> = result.optimized.iter().filter_map(of_ours).collect();
    if !captured.is_empty() {
        writeln!(text, "\nSystem calls to capture free space, per MiB moved: {}.", captured.join("; "))?;
    }
    let told = |judged: &Judged| {
        let (data, unallocated) = (judged.data?, judged.unallocated?);
        Some(format!("{:.1} and {:.1} MiB", data as f64 / MIB, unallocated as f64 / MIB))
    };
    if let Some(before) = told(&result.before) {
        let after = result.optimized.iter().filter_map(|o| Some(format!("{} {}", o.name, told(&o.after)?)));
        writeln!(
            text,
            "\nIn data extents (shared extents counted once), and outside of block groups: before {before}; {}.",
            after.collect::<Vec<_>>().join("; ")
        )?;
    }
    for (name, failed) in result.optimized.iter().filter_map(|o| Some((&o.name, o.failed.as_ref()?))) {
        writeln!(text, "\n{name} ended with {failed}.")?;
    }
    for (name, changed) in result.optimized.iter().filter_map(|o| Some((&o.name, o.changed.as_ref()?))) {
        writeln!(text, "\n{name} changed files; the first of them: `{changed}`.")?;
    }
    Ok(())
}

fn analysis(text: &mut String, analyses: &[AnalysisResult]) -> Result<()> {
    writeln!(
        text,
        "Excess fragments are those of files, and of directories where they are visible; directories cannot be \
         moved while mounted. \"Mapping each file\" is `longrun analyze` as an unprivileged user: a walk, with \
         FIEMAP for each file.\n"
    )?;
    writeln!(
        text,
        "| volume | files | `longrun analyze`, s | method | peak memory, MiB | mapping each file, s | times as fast \
         | `e4defrag -c`, s | times as fast | excess: longrun / walk / filefrag | pieces: longrun / judge \
         |\n|---|---|---|---|---|---|---|---|---|---|---|"
    )?;
    for AnalysisResult { volume, kind, judged, analysis: a } in analyses {
        writeln!(
            text,
            "| {} {volume} | {} | {:.3} | {} | {:.0} | {:.3} | {:.1} | {} | {} | {} / {} / {} | {} / {} |",
            kind.name(),
            judged.files,
            a.longrun_seconds,
            a.method,
            a.peak_memory as f64 / MIB,
            a.walk_seconds,
            a.walk_seconds / a.longrun_seconds,
            a.e4defrag_seconds.map_or(String::new(), |seconds| format!("{seconds:.3}")),
            a.e4defrag_seconds.map_or(String::new(), |seconds| format!("{:.1}", seconds / a.longrun_seconds)),
            a.claimed.0,
            a.walked,
            judged.excess + judged.directory_excess,
            a.claimed.1.map_or("unknown".to_owned(), |pieces| pieces.to_string()),
            judged.free.pieces
        )?;
    }
    Ok(())
}

/// How busy the machine was: what else runs takes time from both sides of a comparison, but not always alike.
pub(crate) fn load() -> String {
    let text = fs::read_to_string("/proc/loadavg").unwrap_or_default();
    let last = text.split_whitespace().nth(2).unwrap_or("unknown");
    format!("{last} on average in the last 15 minutes (the measurements themselves are about 1)")
}

/// Processor, memory, kernel.
pub(crate) fn machine() -> String {
    let field = |path: &str, key: &str| {
        let text = fs::read_to_string(path).unwrap_or_default();
        text.lines()
            .find_map(|l| l.strip_prefix(key)?.split_once(':').map(|(_, v)| v.trim().to_owned()))
            .unwrap_or_default()
    };
    let cores = std::thread::available_parallelism().map_or(0, usize::from);
    let memory = field("/proc/meminfo", "MemTotal").trim_end_matches(" kB").parse::<f64>().unwrap_or_default() / MIB;
    let kernel = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    format!("{}, {cores} cores, {memory:.0} GiB memory, Linux {}", field("/proc/cpuinfo", "model name"), kernel.trim())
}
