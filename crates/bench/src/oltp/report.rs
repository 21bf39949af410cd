//! The results of fio.

use super::fio::{DEPTH, Rates};
use super::{ARRANGEMENTS, OltpProfile};
use crate::device::per;
use crate::layouts::{Arrangement, LayoutSettings};
use crate::report::number;
use crate::{Chart, Findings, Table, Verdict, median};
use longrun_layout::Bytes;
use serde::Serialize;
use std::time::Duration;

/// One profile: medians of all its runs.
#[derive(Clone, Debug, Serialize)]
pub struct Line {
    /// Which.
    pub profile: OltpProfile,
    /// On the fragmented file.
    pub before: Rates,
    /// On the optimized one.
    pub after: Rates,
    /// By how many per cent more requests a second were served after.
    pub gain_percent: f64,
    /// What that means.
    pub verdict: Verdict,
    /// Requests a second of each run before, and of each after.
    pub runs: [Vec<f64>; 2],
}

impl Line {
    fn of(profile: OltpProfile, before: &[Rates], after: &[Rates]) -> Self {
        let middle = |runs: &[Rates]| {
            let of = |value: fn(&Rates) -> f64| median(runs.iter().map(value).collect());
            Rates {
                requests_per_second: of(|rates| rates.requests_per_second),
                mb_per_second: of(|rates| rates.mb_per_second),
                milliseconds: of(|rates| rates.milliseconds),
            }
        };
        // So many requests took so long: the same share of noise as with times.
        let times = [before, after].map(|runs| runs.iter().map(|rates| per(1.0, rates.requests_per_second)).collect());
        let [before_times, after_times]: [Vec<f64>; 2] = times;
        let (_, verdict) = Verdict::of_runs(&before_times, &after_times);
        let runs = [before, after].map(|runs| runs.iter().map(|rates| rates.requests_per_second).collect());
        let (before, after) = (middle(before), middle(after));
        let gain_percent = 100.0 * (per(after.requests_per_second, before.requests_per_second) - 1.0);
        Self { profile, before, after, gain_percent, verdict, runs }
    }
}

/// All profiles.
#[derive(Clone, Debug, Serialize)]
pub struct OltpReport {
    /// How large the file is.
    pub bytes: Bytes,
    /// For how long each run was.
    pub seconds: f64,
    /// How many there were of each.
    pub iterations: u32,
    /// Each profile.
    pub lines: Vec<Line>,
    /// Those that would have changed where the file lies.
    pub left_out: Vec<OltpProfile>,
    /// Of each layout, the fragments before all runs and after them.
    pub fragments: Vec<(Arrangement, u64, u64)>,
}

impl OltpReport {
    /// Of what each layout gave, in the order of the layouts.
    pub(super) fn of(
        time: Duration,
        settings: &LayoutSettings,
        profiles: &[OltpProfile],
        rates: &[Vec<(OltpProfile, Rates)>],
    ) -> Self {
        let of = |index: usize, wanted: OltpProfile| -> Vec<Rates> {
            let runs = rates.get(index).into_iter().flatten();
            runs.filter(|(profile, _)| *profile == wanted).map(|(_, rates)| *rates).collect()
        };
        Self {
            bytes: settings.bytes,
            seconds: time.as_secs_f64(),
            iterations: settings.iterations,
            lines: profiles.iter().map(|profile| Line::of(*profile, &of(0, *profile), &of(1, *profile))).collect(),
            left_out: Vec::new(),
            fragments: Vec::new(),
        }
    }

    fn gains(&self, sql: bool) -> Vec<f64> {
        self.lines.iter().filter(|line| line.profile.is_sql() == sql).map(|line| line.gain_percent).collect()
    }
}

impl Findings for OltpReport {
    fn title(&self) -> String {
        let (mebibytes, seconds) = (self.bytes.0 >> 20, number(self.seconds));
        format!(
            "fio with O_DIRECT on a file of {mebibytes} MiB, queue depth {DEPTH}, {seconds} s each, {} times",
            self.iterations
        )
    }

    fn table(&self) -> Table {
        let mut table = Table::with_columns(&[
            "requests",
            "fragmented, IOPS",
            "MB/s",
            "ms",
            "optimized, IOPS",
            "MB/s",
            "ms",
            "IOPS",
        ]);
        for line in &self.lines {
            let rates =
                |rates: &Rates| [rates.requests_per_second, rates.mb_per_second, rates.milliseconds].map(number);
            let verdict = match line.verdict {
                Verdict::Benefit => format!("{:+.0} %", line.gain_percent),
                Verdict::NoBenefit => format!("no benefit ({:+.1} %)", line.gain_percent),
                Verdict::Harm => format!("harm: {:+.0} %", line.gain_percent),
            };
            let cells = rates(&line.before).into_iter().chain(rates(&line.after)).chain([verdict]);
            table.rows.push(std::iter::once(line.profile.to_string()).chain(cells).collect());
        }
        table
    }

    fn sentences(&self) -> Vec<String> {
        let mut said = Vec::new();
        for (name, gains) in [("The mixed profile", self.gains(false)), ("The database's profiles", self.gains(true))] {
            let least = gains.iter().copied().min_by(f64::total_cmp);
            let most = gains.iter().copied().max_by(f64::total_cmp);
            said.extend(least.zip(most).map(|(least, most)| match gains.len() {
                1 => format!("{name}: {least:+.0} % requests per second after optimizing."),
                _ => format!("{name}: between {least:+.0} and {most:+.0} % requests per second after optimizing."),
            }));
        }
        let useless = self.lines.iter().filter(|line| line.verdict == Verdict::NoBenefit).count();
        if useless > 0 && useless == self.lines.len() {
            said.push("No benefit.".to_owned());
        }
        let kept = |arrangement: &Arrangement, before: u64, now: u64| match ARRANGEMENTS.contains(arrangement)
            && before != now
        {
            true => Some(format!(
                "Writing changed the layout of the file ({arrangement}): {before} fragments before, {now} after."
            )),
            false => None,
        };
        said.extend(self.fragments.iter().filter_map(|(arrangement, before, now)| kept(arrangement, *before, *now)));
        if !self.left_out.is_empty() {
            said.push(format!(
                "{} profiles that write were left out, because this file system allocates new blocks for every write.",
                self.left_out.len()
            ));
        }
        said
    }

    fn charts(&self) -> Vec<Chart> {
        let of = |value: fn(&Rates) -> f64| {
            let both = |line: &Line| vec![value(&line.before), value(&line.after)];
            self.lines.iter().map(|line| (line.profile.to_string(), both(line))).collect()
        };
        let parts = ["fragmented", "optimized"];
        vec![
            Chart::new("Requests per second", &parts, of(|rates| rates.requests_per_second)),
            Chart::new("Time of a request, ms", &parts, of(|rates| rates.milliseconds)),
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::PathBuf;

    fn report(gain: f64) -> OltpReport {
        let rates = |requests_per_second| Rates { requests_per_second, ..Rates::default() };
        let profiles = OltpProfile::ALL;
        let of = |requests: f64| profiles.iter().map(|profile| (*profile, rates(requests))).collect();
        let settings =
            LayoutSettings { program: PathBuf::new(), files: 1, bytes: Bytes(1 << 20), iterations: 1, seed: 1 };
        OltpReport::of(Duration::from_secs(3), &settings, &profiles, &[of(100.0), of(100.0 * gain)])
    }

    #[test]
    fn more_requests_a_second_are_a_benefit_and_as_many_are_none() {
        let table = report(4.0).table();
        assert_eq!(table.rows.len(), 13);
        assert!(table.rows.iter().all(|row| row.len() == table.columns.len()));
        assert_eq!(table.rows[0].last().unwrap(), "+300 %");
        assert!(report(4.0).sentences()[1].contains("between +300 and +300 %"));
        assert_eq!(report(1.01).table().rows[0].last().unwrap(), "no benefit (+1.0 %)");
        assert!(report(1.01).sentences().contains(&"No benefit.".to_owned()));
        assert_eq!(report(0.5).table().rows[0].last().unwrap(), "harm: -50 %");
    }

    #[test]
    fn runs_that_overlap_show_nothing() {
        let rates = |all: [f64; 3]| all.map(|requests_per_second| Rates { requests_per_second, ..Rates::default() });
        let line = |before, after| Line::of(OltpProfile::FileServer, &rates(before), &rates(after)).verdict;
        assert_eq!(line([90.0, 100.0, 110.0], [120.0, 130.0, 140.0]), Verdict::Benefit);
        assert_eq!(line([90.0, 100.0, 125.0], [120.0, 130.0, 140.0]), Verdict::NoBenefit);
    }

    #[test]
    fn a_file_that_writing_moved_is_told() {
        let mut report = report(2.0);
        report.fragments = vec![(ARRANGEMENTS[0], 8192, 8192), (ARRANGEMENTS[1], 1, 40)];
        let said = report.sentences();
        assert!(said.last().unwrap().contains("1 fragments before, 40 after"), "{said:?}");
        assert_eq!(said.len(), 3);
    }
}
