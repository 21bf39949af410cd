//! The verdict on a series of samples: whether the service has grown.
//!
//! Owns which parts of the series are compared, and how much growth is allowed. Pure: no clock, no I/O.

use super::Sample;
use anyhow::{Context, Result, ensure};

/// Fewer samples than this tell nothing.
const LEAST: usize = 12;

/// A figure that must not grow.
struct Figure {
    name: &'static str,
    of: fn(&Sample) -> Option<u64>,
    /// Whether it can leak: the least of the last values, of those at rest too, stands for them, and not their median.
    leaks: bool,
    /// So much more is no growth: this part of what it was (one over it) …
    part: u64,
    /// … and this besides.
    slack: u64,
}

const FIGURES: [Figure; 6] = [
    // An allocator keeps some of what was freed.
    Figure { name: "memory (KiB)", of: |sample| Some(sample.resident_kib), leaks: false, part: 16, slack: 3072 },
    // What is leaked is there at each look, and at rest; what is at work with files comes and goes: 51 to 114 within half a minute were
    // met, and 66 to 110 while it worked without a break. Early, the least is of a moment without one of the volumes: 53 instead of 75.
    Figure { name: "open files", of: |sample| Some(sample.files), leaks: true, part: 16, slack: 3 },
    Figure { name: "threads", of: |sample| Some(sample.threads), leaks: true, part: 16, slack: 1 },
    // How much waits follows the load, which is not steady to the file.
    Figure { name: "files that wait for a worker", of: |sample| sample.queued, leaks: false, part: 4, slack: 32 },
    Figure { name: "files that wait to be mended", of: |sample| sample.to_be_mended, leaks: false, part: 4, slack: 64 },
    Figure { name: "files in the journal", of: |sample| sample.in_journal, leaks: false, part: 4, slack: 64 },
];

/// Compares the second quarter of the samples with the last: in the first, caches and pools fill. By what is typical of each, since a
/// peak is no growth. `at_rest`: looks after the load has ended.
///
/// # Errors
/// What has grown, and from what to what; or that the samples tell nothing.
pub(super) fn judge(samples: &[Sample], at_rest: &[Sample]) -> Result<()> {
    ensure!(samples.len() >= LEAST, "too few samples to judge ({}): soak for longer", samples.len());
    let quarter = samples.len() / 4;
    let early = samples.get(quarter..2 * quarter).unwrap_or_default();
    let late = samples.get(samples.len() - quarter..).unwrap_or_default();
    let late_or_at_rest = [late, at_rest].concat();
    let mut grown = Vec::new();
    for Figure { name, of, leaks, part, slack } in FIGURES {
        let value = |window: &[Sample], typical: fn(Vec<u64>) -> Option<u64>| {
            let known: Vec<u64> = window.iter().filter_map(of).collect();
            ensure!(known.len() * 2 > window.len(), "{name}: the service has not reported at most looks");
            typical(known).context("no samples")
        };
        let before = value(early, median)?;
        let after = if leaks { value(&late_or_at_rest, least)? } else { value(late, median)? };
        if after > before + before / part + slack {
            grown.push(format!("{name} grew from {before} to {after} (the second and the last quarter)"));
        }
    }
    ensure!(grown.is_empty(), "{}:\n{}", grown.join("; "), table(samples));
    Ok(())
}

/// The middle of the values; of an even number, the lower of the two.
fn median(mut values: Vec<u64>) -> Option<u64> {
    values.sort_unstable();
    values.get(values.len().checked_sub(1)? / 2).copied()
}

/// The smallest of the values.
fn least(values: Vec<u64>) -> Option<u64> {
    values.into_iter().min()
}

/// At most this many of the samples, evenly spread, for a readable message.
fn table(samples: &[Sample]) -> String {
    const LINES: usize = 40;
    let lines = samples.iter().step_by(samples.len().div_ceil(LINES).max(1)).map(|sample| format!("{sample:?}"));
    lines.collect::<Vec<_>>().join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    const STEADY: Sample = Sample {
        seconds: 0,
        resident_kib: 32_000,
        files: 65,
        threads: 19,
        queued: Some(0),
        to_be_mended: Some(3),
        in_journal: Some(12),
    };

    /// Half an hour, a look each 5 seconds, what was seen as `change` makes it of a steady service.
    fn series(change: impl Fn(u64, &mut Sample)) -> Vec<Sample> {
        let look = |number: u64| {
            let mut sample = Sample { seconds: number * 5, ..STEADY };
            change(number, &mut sample);
            sample
        };
        (0..360).map(look).collect()
    }

    fn grown(change: impl Fn(u64, &mut Sample)) -> String {
        judge(&series(change), &[]).unwrap_err().to_string()
    }

    #[test]
    fn a_steady_service_with_single_peaks_has_not_grown() {
        judge(&series(|_, _| {}), &[]).unwrap();
        // As it was met: 65 open files for half an hour, and 83 at one look; and half of the last looks meet it at work.
        judge(&series(|number, sample| sample.files += if number > 270 { number % 2 * 40 } else { 0 }), &[]).unwrap();
        judge(&series(|number, sample| sample.files += if number == 300 { 18 } else { 0 }), &[]).unwrap();
        judge(
            &series(|number, sample| {
                let noise = number * 7919 % 13;
                sample.files += noise % 3;
                sample.threads += noise % 2;
                sample.resident_kib += noise * 100;
                sample.to_be_mended = Some(noise * 4);
                sample.queued = Some(if number % 50 == 0 { 900 } else { noise });
            }),
            &[],
        )
        .unwrap();
    }

    #[test]
    fn what_is_gone_at_rest_has_not_grown_and_what_remains_has() {
        let busy = series(|number, sample| sample.files += if number > 250 { 20 + number % 30 } else { 0 });
        judge(&busy, &[STEADY]).unwrap();
        let leaked = Sample { files: 80, ..STEADY };
        assert!(judge(&busy, &[leaked]).unwrap_err().to_string().contains("open files grew from 65 to 80"));
    }

    #[test]
    fn what_fills_in_the_beginning_has_not_grown() {
        judge(&series(|number, sample| sample.resident_kib = 20_000 + number.min(80) * 150), &[]).unwrap();
    }

    #[test]
    fn slow_growth_is_found_in_each_figure() {
        // An open file each minute, a thread each three, 40 KiB each five seconds, a waiting file each five.
        assert!(grown(|number, sample| sample.files += number / 12).contains("open files grew from 76 to 87"));
        assert!(grown(|number, sample| sample.threads += number / 36).contains("threads grew"));
        assert!(grown(|number, sample| sample.resident_kib += number * 40).contains("memory (KiB) grew"));
        assert!(grown(|number, sample| sample.queued = Some(number)).contains("wait for a worker grew"));
        assert!(grown(|number, sample| sample.to_be_mended = Some(number)).contains("to be mended grew"));
        assert!(grown(|number, sample| sample.in_journal = Some(number)).contains("in the journal grew"));
        let both = grown(|number, sample| {
            sample.files += number / 12;
            sample.resident_kib += number * 50;
        });
        assert!(both.contains("memory (KiB)") && both.contains("open files"), "{both}");
    }

    #[test]
    fn growth_under_noise_and_peaks_is_found_all_the_same() {
        let found = grown(|number, sample| {
            sample.files += number / 10 + number * 31 % 5;
            sample.files += if number == 100 { 200 } else { 0 };
        });
        assert!(found.contains("open files grew"), "{found}");
    }

    #[test]
    fn too_few_samples_or_a_service_that_does_not_answer_are_no_success() {
        let samples = series(|_, _| {});
        assert!(judge(&samples[..11], &[]).unwrap_err().to_string().contains("too few"));
        assert!(grown(|_, sample| sample.queued = None).contains("has not reported"));
        judge(&series(|number, sample| sample.queued = (number % 3 != 0).then_some(1)), &[]).unwrap();
    }
}
