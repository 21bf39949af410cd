//! Combines many iterations into two columns and their ratio.
//!
//! Owns the averaging and the judgement of the result. Never rounds in favour of either side.

use super::{Iteration, Side};
use crate::Verdict;
use crate::device::per;
use crate::workload::{Parameters, Profile};
use longrun_layout::Bytes;
use serde::Serialize;

/// The averages of one side; times are medians.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Averages {
    /// Iterations.
    pub iterations: u32,
    /// How long the work took (median).
    pub seconds: f64,
    /// Files with blocks.
    pub files: f64,
    /// Excess fragments.
    pub excess_fragments: f64,
    /// Fragments of each file.
    pub fragments_per_file: f64,
    /// Extent records of each file.
    pub extents_per_file: f64,
    /// Bytes behind the ends of the files.
    pub bytes_behind_end: f64,
    /// Requests of the work whose blocks are in more than one place.
    pub split_writes: f64,
    /// The same for each second of the work.
    pub split_writes_per_second: f64,
    /// Transfers of the device each second.
    pub transfers_per_second: f64,
    /// KiB of each.
    pub kib_per_transfer: f64,
    /// MB each second that the device transferred.
    pub mb_per_second: f64,
    /// Transfers under way at a time.
    pub queue_length: f64,
    /// Per cent of the time in which the device did nothing.
    pub idle_percent: f64,
    /// Requests of the cold reader whose blocks are in more than one place.
    pub split_reads: f64,
    /// The same for each second of reading.
    pub split_reads_per_second: f64,
    /// Transfers of the device beyond the requests of the cold reader.
    pub more_read_transfers: f64,
    /// KiB of each transfer when read.
    pub read_kib_per_transfer: f64,
    /// MB each second when read.
    pub read_mb_per_second: f64,
    /// Processor time of the service, in per cent of one core.
    pub processor_percent: f64,
    /// The time that the kernel spent on watching, in per cent of one core; `None` if it was not measured.
    pub in_kernel_percent: Option<f64>,
    /// The most memory of the service in any iteration.
    pub peak_memory: Bytes,
    /// Programs that could not be executed, in all iterations.
    pub failed_executions: u64,
    /// Opens that were refused, in all iterations.
    pub refused_opens: u64,
}

/// The result for one profile.
#[derive(Clone, Debug, Serialize)]
pub struct Comparison {
    /// Which.
    pub profile: Profile,
    /// How much work.
    pub parameters: Parameters,
    /// Without the service.
    pub off: Averages,
    /// With it.
    pub on: Averages,
    /// The prevented part of the excess, in per cent; `None` if there was nothing to prevent.
    pub prevented_percent: Option<f64>,
    /// How much longer the work took with the service: the median of the ratios of neighbouring iterations.
    pub time_ratio: f64,
    /// By how much two runs without it differ, usually: the median of the ratios of all pairs of them, the longer by the
    /// shorter. What is less is noise.
    pub time_noise: f64,
    /// The verdict.
    pub verdict: Verdict,
    /// Whether all iterations began with the same free space.
    pub same_state: bool,
    /// All that was measured.
    pub iterations: Vec<Iteration>,
}

impl Comparison {
    /// Averages what was measured.
    #[must_use]
    pub fn of(profile: Profile, parameters: Parameters, iterations: Vec<Iteration>) -> Self {
        let side = |side| averages(iterations.iter().filter(|iteration| iteration.side == side));
        let (off, on) = (side(Side::Off), side(Side::On));
        let ratios = iterations.chunks(2).filter_map(|pair| {
            let seconds = |side| pair.iter().find(|iteration| iteration.side == side).map(|i| i.seconds);
            Some(per(seconds(Side::On)?, seconds(Side::Off)?))
        });
        let prevented =
            (off.excess_fragments > 0.0).then(|| 100.0 * (1.0 - per(on.excess_fragments, off.excess_fragments)));
        Self {
            profile,
            parameters,
            prevented_percent: prevented,
            time_ratio: median(ratios.collect()),
            time_noise: noise(&iterations),
            verdict: judge(&iterations, &off, &on),
            same_state: iterations.iter().all(|iteration| iteration.same_state),
            off,
            on,
            iterations,
        }
    }
}

fn noise(iterations: &[Iteration]) -> f64 {
    let times: Vec<f64> = iterations.iter().filter(|i| i.side == Side::Off).map(|i| i.seconds).collect();
    let pairs = times.iter().enumerate().flat_map(|(at, a)| times.iter().skip(at + 1).map(move |b| (a, b)));
    median(pairs.map(|(a, b)| per(a.max(*b), a.min(*b))).collect())
}

/// A difference of less than one fragment in a hundred files, of less than a twentieth, or smaller than that between two
/// runs of the same side, is none.
fn judge(iterations: &[Iteration], off: &Averages, on: &Averages) -> Verdict {
    let difference = off.excess_fragments - on.excess_fragments;
    let most = off.excess_fragments.max(on.excess_fragments);
    let range = |side| {
        let excess = iterations.iter().filter(|i| i.side == side).map(|i| i.layout.excess_fragments);
        (excess.clone().min(), excess.max())
    };
    let ((off_least, off_most), (on_least, on_most)) = (range(Side::Off), range(Side::On));
    let overlap = on_least <= off_most && off_least <= on_most;
    let matters = difference.abs() >= (off.files.max(on.files) / 100.0).max(most / 20.0).max(1.0) && !overlap;
    match (matters, difference > 0.0) {
        (false, _) => Verdict::NoBenefit,
        (true, true) => Verdict::Benefit,
        (true, false) => Verdict::Harm,
    }
}

fn averages<'a>(iterations: impl Iterator<Item = &'a Iteration>) -> Averages {
    let all: Vec<&Iteration> = iterations.collect();
    let mean = |value: &dyn Fn(&Iteration) -> f64| per(all.iter().map(|i| value(i)).sum(), all.len() as f64);
    let read = |value: &dyn Fn(&crate::Reread) -> f64| mean(&|i| i.reread.as_ref().map_or(0.0, value));
    Averages {
        iterations: u32::try_from(all.len()).unwrap_or(u32::MAX),
        seconds: median(all.iter().map(|i| i.seconds).collect()),
        files: mean(&|i| i.layout.files as f64),
        excess_fragments: mean(&|i| i.layout.excess_fragments as f64),
        fragments_per_file: mean(&|i| per(i.layout.fragments as f64, i.layout.files as f64)),
        extents_per_file: mean(&|i| per(i.layout.extents as f64, i.layout.files as f64)),
        bytes_behind_end: mean(&|i| i.layout.bytes_behind_end.0 as f64),
        split_writes: mean(&|i| i.splits.split as f64),
        split_writes_per_second: mean(&|i| per(i.splits.split as f64, i.seconds)),
        transfers_per_second: mean(&|i| i.device.transfers_per_second()),
        kib_per_transfer: mean(&|i| i.device.kib_per_transfer()),
        mb_per_second: mean(&|i| i.device.mb_per_second()),
        queue_length: mean(&|i| i.device.queue_length()),
        idle_percent: mean(&|i| i.device.idle_percent()),
        split_reads: read(&|r| r.split as f64),
        split_reads_per_second: read(&|r| per(r.split as f64, r.seconds)),
        more_read_transfers: read(&|r| r.more_transfers as f64),
        read_kib_per_transfer: read(&|r| r.device.kib_per_transfer()),
        read_mb_per_second: read(&|r| r.device.mb_per_second()),
        processor_percent: mean(&|i| i.service.as_ref().map_or(0.0, |s| s.processor_percent)),
        in_kernel_percent: {
            let each: Vec<f64> = all.iter().filter_map(|i| i.service.as_ref()?.in_kernel_percent).collect();
            (!each.is_empty()).then(|| per(each.iter().sum(), each.len() as f64))
        },
        peak_memory: all.iter().filter_map(|i| Some(i.service.as_ref()?.peak_memory)).max().unwrap_or_default(),
        failed_executions: all.iter().map(|i| i.done.failed_executions).sum(),
        refused_opens: all.iter().map(|i| i.done.refused_opens).sum(),
    }
}

/// The middle value, or the mean of the two in the middle; 0 of none.
#[must_use]
pub fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    let at = |index: usize| values.get(index).copied();
    match (at(values.len().saturating_sub(1) / 2), at(values.len() / 2)) {
        (Some(low), Some(high)) => (low + high) / 2.0,
        _ => 0.0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Done, Layout};

    fn iteration(side: Side, seconds: f64, excess: u64) -> Iteration {
        Iteration {
            side,
            seconds,
            done: Done::default(),
            layout: Layout { files: 8, fragments: excess + 8, excess_fragments: excess, ..Layout::default() },
            splits: crate::Splits::default(),
            device: crate::device::Activity::default(),
            reread: None,
            service: None,
            space: crate::SpaceState::default(),
            same_state: true,
        }
    }

    fn compare(pairs: &[(f64, u64, f64, u64)]) -> Comparison {
        let both = |&(on, on_excess, off, off_excess): &(f64, u64, f64, u64)| {
            [iteration(Side::On, on, on_excess), iteration(Side::Off, off, off_excess)]
        };
        Comparison::of(Profile::Direct, Parameters::default(), pairs.iter().flat_map(both).collect())
    }

    #[test]
    fn what_was_prevented_is_told_in_per_cent_of_what_there_would_have_been() {
        let result = compare(&[(1.0, 50, 2.0, 1000), (3.0, 30, 2.0, 1000), (1.1, 10, 1.0, 1000)]);
        assert_eq!((result.off.excess_fragments, result.on.excess_fragments), (1000.0, 30.0));
        assert!((result.prevented_percent.unwrap() - 97.0).abs() < 1e-9);
        assert!((result.time_ratio - 1.1).abs() < 1e-9, "the median of 0.5, 1.5 and 1.1: {}", result.time_ratio);
        assert!((result.time_noise - 2.0).abs() < 1e-9, "2 and 2 are alike, 2 and 1 are not: {}", result.time_noise);
        assert_eq!(result.verdict, Verdict::Benefit);
    }

    #[test]
    fn where_there_is_no_benefit_none_is_told() {
        assert_eq!(compare(&[(1.0, 0, 1.0, 0)]).verdict, Verdict::NoBenefit);
        assert_eq!(compare(&[(1.0, 0, 1.0, 0)]).prevented_percent, None);
        assert_eq!(compare(&[(1.0, 990, 1.0, 1000)]).verdict, Verdict::NoBenefit);
        assert_eq!(compare(&[(1.0, 100, 1.0, 3)]).verdict, Verdict::Harm);
        let noise = compare(&[(1.0, 100, 1.0, 150), (1.0, 120, 1.0, 90)]);
        assert_eq!(noise.verdict, Verdict::NoBenefit, "two runs without it differ by more");
    }
}
