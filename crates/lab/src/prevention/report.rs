//! The results as a document: the measurements, and which goals were met.

use super::{FreeSpaceKind, Measured, PreventionResults, PreventionSettings};
use crate::FileSystemKind;
use crate::bench::machine;
use anyhow::{Context, Result, ensure};
use longrun_bench::Profile;
use longrun_bench::Verdict;
use longrun_bench::protocol::{Averages, Comparison};
use longrun_bench::report::number;
use std::fmt::Write;
use std::fs;
use std::path::Path;

const MIB: f64 = (1 << 20) as f64;

/// The document.
///
/// # Errors
/// Formatting's.
pub fn report(settings: &PreventionSettings, results: &PreventionResults) -> Result<String> {
    let mut text = String::new();
    let parameters = &settings.parameters;
    writeln!(text, "# Prevention\n\nWritten by `make bench-prevention`; do not edit this part.\n")?;
    writeln!(text, "- Machine: {}", machine())?;
    writeln!(
        text,
        "- Volumes: {} MiB (half of it where free space is in pieces) on a loop device with direct I/O, with the \
         defaults of mkfs. Free space `whole`: a new volume. `half-in-pieces`: filled to 60 % with files of 16–256 \
         KiB, of which every other one was deleted. `in-pieces`: the same, filled to 97 %.",
        settings.mebibytes
    )?;
    writeln!(
        text,
        "- Work: {} writers, {} MiB each, seed {}; {} iterations with the service and without it in turn ({} for \
         controls), each on the same free space and with a freshly started service. Figures are averages, times are \
         medians, and the time ratio is the median of the ratios of neighbouring iterations. `longrun bench \
         prevention DIR --profile NAME` measures the same on your disk.",
        parameters.writers,
        parameters.bytes.0 >> 20,
        parameters.seed,
        settings.iterations,
        settings.control_iterations
    )?;
    writeln!(
        text,
        "- Excess: physically contiguous ranges beyond one per file (FIEMAP), after the service has given back all \
         runways, without mending. Split writes: requests of the workload that span more than one contiguous range. \
         Split reads and MB/s: a cold re-read in order, with direct requests of 256 KiB. Processor: use by the \
         service, in per cent of one core. In the kernel: time of the service's BPF programs within the writers, in \
         per cent of one core, measured by the kernel; this measurement costs about 20 ns per run.\n"
    )?;
    growing(&mut text, &results.measured)?;
    device(&mut text, &results.measured)?;
    controls(&mut text, &results.measured)?;
    watching(&mut text, results)?;
    claims(&mut text, results)?;
    Ok(text)
}

fn of(measured: &[Measured], is_control: bool) -> impl Iterator<Item = &Measured> {
    measured.iter().filter(move |m| m.comparison.profile.is_control() == is_control)
}

fn prevented(comparison: &Comparison) -> String {
    match (comparison.verdict, comparison.prevented_percent) {
        (Verdict::Benefit, Some(percent)) => format!("{percent:.*} %", if percent > 99.0 { 2 } else { 1 }),
        (Verdict::Harm, _) => "**more than without**".to_owned(),
        _ => "no benefit".to_owned(),
    }
}

fn growing(text: &mut String, measured: &[Measured]) -> Result<()> {
    writeln!(
        text,
        "## Files that grow\n\n| volume | free space | profile | excess without | excess with | prevented | fragments per file, \
         without → with | time ratio | processor, % | memory, MiB |\n|---|---|---|---|---|---|---|---|---|---|"
    )?;
    for Measured { kind, space, comparison: c } in of(measured, false) {
        writeln!(
            text,
            "| {} | {space} | {} | {} | {} | {} | {} → {} | {:.3} | {} | {} |",
            kind.name(),
            c.profile,
            number(c.off.excess_fragments),
            number(c.on.excess_fragments),
            prevented(c),
            number(c.off.fragments_per_file),
            number(c.on.fragments_per_file),
            c.time_ratio,
            number(c.on.processor_percent),
            number(c.on.peak_memory.0 as f64 / MIB)
        )?;
    }
    writeln!(text)?;
    Ok(())
}

fn device(text: &mut String, measured: &[Measured]) -> Result<()> {
    writeln!(
        text,
        "## What the device had to do (without → with)\n\n| volume | free space | profile | split writes/s | transfers/s | \
         KB/transfer | MB/s | queue | idle, % | split reads | re-read MB/s |\n|---|---|---|---|---|---|---|---|---|---|---|"
    )?;
    for Measured { kind, space, comparison } in of(measured, false) {
        let both = |value: fn(&Averages) -> f64| {
            format!("{} → {}", number(value(&comparison.off)), number(value(&comparison.on)))
        };
        writeln!(
            text,
            "| {} | {space} | {} | {} | {} | {} | {} | {} | {} | {} | {} |",
            kind.name(),
            comparison.profile,
            both(|a| a.split_writes_per_second),
            both(|a| a.transfers_per_second),
            both(|a| a.kib_per_transfer),
            both(|a| a.mb_per_second),
            both(|a| a.queue_length),
            both(|a| a.idle_percent),
            both(|a| a.split_reads),
            both(|a| a.read_mb_per_second)
        )?;
    }
    writeln!(text)?;
    Ok(())
}

fn controls(text: &mut String, measured: &[Measured]) -> Result<()> {
    if of(measured, true).next().is_none() {
        return Ok(());
    }
    writeln!(
        text,
        "## No harm\n\nNoise: by how much two runs without the service differ, at the median of all pairs of them.\n\n\
         | volume | profile | excess without | excess with | seconds without | seconds with | time ratio | noise | processor, % | \
         in the kernel, % | failed executions | refused opens |\n|---|---|---|---|---|---|---|---|---|---|---|---|"
    )?;
    for Measured { kind, comparison: c, .. } in of(measured, true) {
        let executions: u64 = c.iterations.iter().map(|i| i.done.executions).sum();
        let opens: u64 = c.iterations.iter().map(|i| i.done.opens).sum();
        let share = |failed: u64, all: u64| if all == 0 { String::new() } else { format!("{failed} of {all}") };
        writeln!(
            text,
            "| {} | {} | {} | {} | {:.3} | {:.3} | {:.3} | {:.3} | {} | {} | {} | {} |",
            kind.name(),
            c.profile,
            number(c.off.excess_fragments),
            number(c.on.excess_fragments),
            c.off.seconds,
            c.on.seconds,
            c.time_ratio,
            c.time_noise,
            number(c.on.processor_percent),
            c.on.in_kernel_percent.map(number).unwrap_or_default(),
            share(c.on.failed_executions + c.off.failed_executions, executions),
            share(c.on.refused_opens + c.off.refused_opens, opens)
        )?;
    }
    writeln!(text)?;
    Ok(())
}

fn watching(text: &mut String, results: &PreventionResults) -> Result<()> {
    if results.watching.is_empty() {
        return Ok(());
    }
    writeln!(
        text,
        "## What watching costs\n\n4 KiB writes to 200 files at a fixed rate, buffered; the service has nothing to do.\n\n\
         | volume | writes/s | processor, % of one core | in the kernel, % | memory at most, MiB |\n|---|---|---|---|---|"
    )?;
    for w in &results.watching {
        let memory = number(w.peak_memory as f64 / MIB);
        let in_kernel = w.in_kernel_percent.map(number).unwrap_or_default();
        let (rate, processor) = (w.writes_per_second, w.processor_percent);
        writeln!(text, "| {} | {rate:.0} | {processor:.2} | {in_kernel} | {memory} |", w.kind.name())?;
    }
    writeln!(text)?;
    Ok(())
}

/// How much has to be prevented where, in per cent.
fn goal(measured: &Measured) -> Option<f64> {
    use FileSystemKind::{Btrfs, Xfs};
    use FreeSpaceKind::{HalfInPieces, Whole};
    match (measured.kind, measured.space, measured.comparison.profile) {
        (Xfs, Whole, Profile::Direct) | (Btrfs, Whole, Profile::Direct | Profile::Dsync) => Some(98.5),
        (Xfs | Btrfs, Whole, Profile::Sparse) => Some(97.0),
        (Xfs, HalfInPieces, Profile::Direct) => Some(90.0),
        (Btrfs, HalfInPieces, Profile::Direct) => Some(85.0),
        _ => None,
    }
}

fn claims(text: &mut String, results: &PreventionResults) -> Result<()> {
    writeln!(text, "## What holds, and what does not\n")?;
    let mut claim =
        |holds: bool, what: String| writeln!(text, "- {}: {what}", if holds { "holds" } else { "**goal missed**" });
    for m in &results.measured {
        let c = &m.comparison;
        let place = format!("{}, {}, {}", m.kind.name(), m.space, c.profile);
        if let Some(goal) = goal(m) {
            let prevented = c.prevented_percent.unwrap_or_default();
            claim(prevented >= goal, format!("{place}: at least {goal} % prevented: {prevented:.2} %"))?;
        }
        if !c.same_state {
            claim(false, format!("{place}: the same free space before every iteration"))?;
        }
        let (off, on) = (number(c.off.excess_fragments), number(c.on.excess_fragments));
        claim(c.verdict != Verdict::Harm, format!("{place}: never more excess than without: {on} against {off}"))?;
        if c.profile.is_control() {
            let (ratio, noise) = (c.time_ratio, c.time_noise);
            let time =
                format!("{place}: at most 1.02 of the time: {ratio:.3}; two runs without it differ by {noise:.3}");
            claim(ratio <= 1.02, time)?;
            if let Some(percent) = c.on.in_kernel_percent {
                let cost = percent + c.on.processor_percent;
                claim(cost <= 2.0, format!("{place}: at most 2 % of one core in the kernel and outside: {cost:.2} %"))?;
            }
            let refused = c.on.failed_executions + c.on.refused_opens;
            claim(refused == 0, format!("{place}: no execution or open refused: {refused}"))?;
        }
        if c.profile == Profile::Direct && m.space == FreeSpaceKind::Whole {
            let percent = c.on.processor_percent;
            claim(percent < 5.0, format!("{place}: service below 5 % of one core: {percent:.2} %"))?;
        }
        let memory = c.on.peak_memory.0 as f64 / MIB;
        if memory >= 60.0 {
            claim(false, format!("{place}: service below 60 MiB: {memory:.0}"))?;
        }
    }
    for w in &results.watching {
        let percent = w.processor_percent;
        let place = format!("{}, {:.0} writes/s", w.kind.name(), w.writes_per_second);
        claim(percent < 1.0, format!("{place}: service below 1 % of one core: {percent:.2} %"))?;
    }
    Ok(())
}

/// Puts `text` into the document at `path`, in place of what stands between the marks of `section`; at the end when
/// there are none. What else is in the document stays.
///
/// # Errors
/// When the document cannot be read or written, or its marks are not a pair.
pub fn replace_section(path: &Path, section: &str, text: &str) -> Result<()> {
    let [begin, end] = ["begin", "end"].map(|word| format!("<!-- {section}: {word} -->"));
    let old = match fs::read_to_string(path) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => String::new(),
        read => read.with_context(|| format!("reading {}", path.display()))?,
    };
    let new = match (old.split_once(&begin), old.split_once(&end)) {
        (Some((before, _)), Some((up_to_end, after))) => {
            ensure!(before.len() < up_to_end.len(), "{}: {end} is before {begin}", path.display());
            format!("{before}{begin}\n{}\n{end}{after}", text.trim_end())
        }
        (None, None) => {
            let space = if old.is_empty() || old.ends_with("\n\n") { "" } else { "\n" };
            format!("{old}{space}{begin}\n{}\n{end}\n", text.trim_end())
        }
        _ => anyhow::bail!("{}: only one of {begin} and {end} is present", path.display()),
    };
    fs::write(path, new).with_context(|| format!("writing {}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_section_takes_the_place_of_its_former_self_and_of_nothing_else() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("document.md");
        let read = || fs::read_to_string(&path).unwrap();
        replace_section(&path, "a", "one\n").unwrap();
        replace_section(&path, "b", "two").unwrap();
        let both = "<!-- a: begin -->\none\n<!-- a: end -->\n\n<!-- b: begin -->\ntwo\n<!-- b: end -->\n";
        assert_eq!(read(), both);
        replace_section(&path, "a", "three").unwrap();
        assert_eq!(read(), both.replace("one", "three"));
        fs::write(&path, "x <!-- a: end --> y <!-- a: begin -->").unwrap();
        assert!(replace_section(&path, "a", "z").is_err());
        fs::write(&path, "x <!-- a: begin --> y").unwrap();
        assert!(replace_section(&path, "a", "z").is_err());
        assert_eq!(read(), "x <!-- a: begin --> y");
    }
}
