//! The report: tables of what was measured, and for each claim whether it holds.

use super::{AnalysisResult, BenchSettings, RecipeResult};
use anyhow::Result;
use longrun_ageing::Recipe;
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;

const MIB: f64 = 1_048_576.0;

/// Writes the whole report.
pub(super) fn markdown(
    settings: &BenchSettings,
    commands: &BTreeMap<String, String>,
    results: &[RecipeResult],
    analyses: &[AnalysisResult],
) -> Result<String> {
    let mut text = String::new();
    writeln!(text, "# Benchmarks\n\nWritten by `make bench`; do not edit.\n")?;
    writeln!(text, "- Machine: {}", machine())?;
    writeln!(
        text,
        "- Volumes: ext4, 4 KiB blocks, {} MiB, on a loop device with direct I/O; aged by `longrun fragment --volume DIR \
         --recipe NAME --seed {}`.",
        settings.mebibytes, settings.seed
    )?;
    writeln!(
        text,
        "- Each tool works on a byte-identical copy of the same image, caches dropped before; median of {} runs, the tools \
         taking turns. Time is wall time until everything is on the device. Fragments are filefrag's (physically \
         contiguous runs; adjoining extent records are one), free space is e2freefrag's, traffic is the block device's. \
         After the first run of each tool every file's SHA-256, times, owner, mode, attributes and holes were compared \
         with the original, and `e2fsck -fn` was clean.",
        settings.runs
    )?;
    for (name, command) in commands {
        writeln!(text, "- {name}: `{command} MOUNT`")?;
    }
    if results.iter().any(|r| !r.optimized.is_empty()) {
        optimized(&mut text, results)?;
    }
    if !analyses.is_empty() {
        analysis(&mut text, analyses)?;
    }
    writeln!(text, "\n## What holds, and what does not\n")?;
    claims(&mut text, results)?;
    analysis_claims(&mut text, analyses)?;
    Ok(text)
}

fn optimized(text: &mut String, results: &[RecipeResult]) -> Result<()> {
    for result in results.iter().filter(|r| !r.optimized.is_empty()) {
        let before = result.before;
        writeln!(
            text,
            "\n## {}: {} files, {:.0} MiB used\n",
            result.recipe,
            before.files,
            result.used_bytes as f64 / MIB
        )?;
        writeln!(
            text,
            "| | excess fragments | free pieces | largest free, MiB | moved, MiB | moved / used | device written, MiB | \
             device read, MiB | seconds | peak memory, MiB | skipped files |\n|---|---|---|---|---|---|---|---|---|---|---|"
        )?;
        writeln!(
            text,
            "| before | {} | {} | {:.1} | | | | | | | |",
            before.excess,
            before.free.pieces,
            before.free.largest_bytes as f64 / MIB
        )?;
        for o in &result.optimized {
            let moved = o.bytes_moved.map(|b| b as f64);
            writeln!(
                text,
                "| {} | {} | {} | {:.1} | {} | {} | {:.0} | {:.0} | {:.1} | {:.0} | {} |",
                o.name,
                o.after.excess,
                o.after.free.pieces,
                o.after.free.largest_bytes as f64 / MIB,
                moved.map_or("not told".to_owned(), |b| format!("{:.0}", b / MIB)),
                moved.map_or(String::new(), |b| format!("{:.2}", b / result.used_bytes as f64)),
                o.traffic.written as f64 / MIB,
                o.traffic.read as f64 / MIB,
                o.seconds,
                o.peak_memory as f64 / MIB,
                if o.bytes_moved.is_some() { o.skipped.to_string() } else { "not told".to_owned() }
            )?;
        }
        if let Some(copy) = &result.copy {
            writeln!(
                text,
                "\nThe speed limit: `cp` + fsync of {:.0} MiB on such a device, cold, takes {:.1} s ({:.0} MiB/s).",
                copy.bytes as f64 / MIB,
                copy.seconds,
                copy.bytes as f64 / MIB / copy.seconds
            )?;
        }
    }
    Ok(())
}

fn analysis(text: &mut String, analyses: &[AnalysisResult]) -> Result<()> {
    writeln!(
        text,
        "\n## Analysis of a whole volume, cold\n\nExcess fragments are those of files; directories cannot be moved while mounted.\n"
    )?;
    writeln!(
        text,
        "| volume | files | `longrun analyze`, s | peak memory, MiB | `e4defrag -c`, s | times as fast | excess: longrun / \
         filefrag | pieces: longrun / e2freefrag |\n|---|---|---|---|---|---|---|---|"
    )?;
    for AnalysisResult { volume, judged, analysis: a } in analyses {
        writeln!(
            text,
            "| {volume} | {} | {:.3} | {:.0} | {:.3} | {:.1} | {} / {} | {} / {} |",
            judged.files,
            a.longrun_seconds,
            a.peak_memory as f64 / MIB,
            a.e4defrag_seconds,
            a.e4defrag_seconds / a.longrun_seconds,
            a.claimed.0,
            judged.excess + judged.directory_excess,
            a.claimed.1,
            judged.free.pieces
        )?;
    }
    Ok(())
}

/// One line of the judgement.
fn claim(text: &mut String, holds: bool, what: &str) -> Result<()> {
    writeln!(text, "- {}: {what}", if holds { "holds" } else { "**not better, or goal missed**" })?;
    Ok(())
}

fn analysis_claims(text: &mut String, analyses: &[AnalysisResult]) -> Result<()> {
    for AnalysisResult { volume, judged, analysis: a } in analyses {
        let times = a.e4defrag_seconds / a.longrun_seconds;
        claim(
            text,
            times >= 10.0,
            &format!("{volume}: analysis at least 10 times as fast as `e4defrag -c`: {times:.1} times"),
        )?;
        let agrees = a.claimed == (judged.excess + judged.directory_excess, judged.free.pieces);
        claim(text, agrees, &format!("{volume}: our figures agree with filefrag and e2freefrag"))?;
    }
    Ok(())
}

/// One line for each goal on each volume: met or not, better than the peer or not.
fn claims(text: &mut String, results: &[RecipeResult]) -> Result<()> {
    let mut claim = |holds: bool, what: String| claim(text, holds, &what);
    for result in results {
        let recipe = result.recipe;
        let find = |name: &str| result.optimized.iter().find(|o| o.name == name);
        if let (Some(peer), Some(full), Some(efficient)) =
            (find("e4defrag"), find("longrun full"), find("longrun efficient"))
        {
            let pieces = pieces_goal(recipe);
            claim(
                full.after.excess <= 2,
                format!("{recipe}, full: at most 2 excess fragments: {}", full.after.excess),
            )?;
            if let Some(goal) = pieces {
                let now = full.after.free.pieces;
                claim(now <= goal, format!("{recipe}, full: at most {goal} free pieces: {now}"))?;
            }
            let moved = full.bytes_moved.unwrap_or_default() as f64 / result.used_bytes as f64;
            claim(moved <= 0.95, format!("{recipe}, full: moves at most 0.95 of the used bytes: {moved:.2}"))?;
            claim(
                full.after.free.pieces < peer.after.free.pieces && full.after.excess <= peer.after.excess,
                format!(
                    "{recipe}, full against e4defrag: excess {} against {}, free pieces {} against {}",
                    full.after.excess, peer.after.excess, full.after.free.pieces, peer.after.free.pieces
                ),
            )?;
            if let Some(copy) = &result.copy {
                let speed = full.bytes_moved.unwrap_or_default() as f64 / full.seconds;
                let ratio = speed / (copy.bytes as f64 / copy.seconds);
                claim(
                    ratio >= 0.6,
                    format!(
                        "{recipe}, full: at least 0.6 of the speed of cp + fsync, scan and planning included: {ratio:.2}"
                    ),
                )?;
            }
            let gone = 1.0 - efficient.after.excess as f64 / result.before.excess.max(1) as f64;
            let moved = efficient.bytes_moved.unwrap_or_default() as f64 / result.used_bytes as f64;
            claim(
                gone >= 0.95,
                format!("{recipe}, efficient: at least 95 % of the excess gone: {:.1} %", gone * 100.0),
            )?;
            claim(moved <= 0.45, format!("{recipe}, efficient: moves at most 0.45 of the used bytes: {moved:.2}"))?;
            claim(
                efficient.after.excess <= peer.after.excess && efficient.traffic.written < peer.traffic.written,
                format!(
                    "{recipe}, efficient against e4defrag: excess {} against {}, written {:.0} MiB against {:.0} MiB",
                    efficient.after.excess,
                    peer.after.excess,
                    efficient.traffic.written as f64 / MIB,
                    peer.traffic.written as f64 / MIB
                ),
            )?;
            if let Some(within) = result.optimized.iter().find(|o| o.name.contains("within")) {
                claim(
                    within.after.excess <= peer.after.excess && within.traffic.written < peer.traffic.written,
                    format!(
                        "{recipe}, efficient with a budget below what e4defrag wrote: excess {} against {}, written {:.0} \
                         MiB against {:.0} MiB",
                        within.after.excess,
                        peer.after.excess,
                        within.traffic.written as f64 / MIB,
                        peer.traffic.written as f64 / MIB
                    ),
                )?;
            }
        }
    }
    Ok(())
}

/// The most free pieces that a full pass may leave on a 4 GiB volume of the recipe.
fn pieces_goal(recipe: Recipe) -> Option<u64> {
    match recipe {
        Recipe::Aged | Recipe::Media => Some(22),
        Recipe::Server | Recipe::Office => Some(8),
        Recipe::Git | Recipe::Churn => None,
    }
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
