//! What the weeks come to.

use super::{AgeingSettings, Care, PERIOD};
use crate::device::per;
use crate::{Chart, Findings, Table, Verdict};
use longrun_layout::Bytes;
use serde::Serialize;

/// So many evenings are drawn at most.
const DRAWN: usize = 8;

/// How the files and the volume are in the evening.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Evening {
    /// Files with blocks.
    pub files: u64,
    /// Their excess fragments.
    pub excess_fragments: u64,
    /// Pieces of free space of the volume, where it tells (ext4 and XFS).
    pub free_pieces: Option<u64>,
    /// What the one who looks after it has moved since the beginning: the service by its own count, what runs once a week by
    /// what the device wrote meanwhile.
    pub moved: Bytes,
    /// What the device has written since the beginning, for everybody.
    pub written: Bytes,
}

/// The same weeks with one care.
#[derive(Clone, Debug, Serialize)]
pub struct Course {
    /// Who looked after the files.
    pub care: Care,
    /// What that is called.
    pub name: String,
    /// Excess in the end against that with nobody.
    pub verdict: Option<Verdict>,
    /// Each evening, the one of the day that made the first files first.
    pub evenings: Vec<Evening>,
}

impl Course {
    fn last(&self) -> Evening {
        self.evenings.last().copied().unwrap_or_default()
    }

    fn average_excess(&self) -> f64 {
        let sum: u64 = self.evenings.iter().map(|evening| evening.excess_fragments).sum();
        per(sum as f64, self.evenings.len() as f64)
    }
}

/// All of them.
#[derive(Clone, Debug, Serialize)]
pub struct AgeingReport {
    /// How many days, after the first.
    pub days: u32,
    /// How much is in files.
    pub bytes: Bytes,
    /// How much of that is written anew each day, in per cent.
    pub daily_percent: u32,
    /// Of what happened.
    pub seed: u64,
    /// With each care.
    pub courses: Vec<Course>,
    /// Why the file system's own tool was left out, if it was.
    pub left_out: Option<String>,
}

impl AgeingReport {
    pub(super) fn of(settings: &AgeingSettings, mut courses: Vec<Course>, left_out: Option<String>) -> Self {
        let &AgeingSettings { days, bytes, daily_percent, seed, .. } = settings;
        let nobody =
            courses.iter().find(|course| course.care == Care::Nobody).map(|course| course.last().excess_fragments);
        for course in courses.iter_mut().filter(|course| course.care != Care::Nobody) {
            course.verdict = nobody.map(|nobody| match (nobody, course.last().excess_fragments) {
                (0, 0) => Verdict::NoBenefit,
                (0, _) => Verdict::Harm,
                (nobody, excess) => Verdict::of_times(excess as f64 / nobody as f64),
            });
        }
        Self { days, bytes, daily_percent, seed, courses, left_out }
    }

    fn nobody(&self) -> Option<&Course> {
        self.courses.iter().find(|course| course.care == Care::Nobody)
    }

    /// The end of each week, and the last day.
    fn told(&self) -> Vec<u32> {
        (0..=self.days).filter(|day| day.is_multiple_of(PERIOD) || *day == self.days).collect()
    }

    fn chart(&self, title: &str, of: fn(&Evening) -> f64) -> Chart {
        let days = self.days as usize;
        let drawn = days.clamp(1, DRAWN - 1);
        let names: Vec<&str> = self.courses.iter().map(|course| course.name.as_str()).collect();
        let on = |day: usize| self.courses.iter().map(|course| course.evenings.get(day).map_or(0.0, of)).collect();
        let groups = (0..=drawn).map(|step| days * step / drawn).map(|day| (format!("day {day}"), on(day))).collect();
        Chart::new(title, &names, groups)
    }
}

fn mebibytes(bytes: Bytes) -> f64 {
    bytes.0 as f64 / f64::from(1 << 20)
}

fn sentence(course: &Course, nobody: &Course) -> Option<String> {
    let (excess, without) = (course.last().excess_fragments, nobody.last().excess_fragments);
    let name = &course.name;
    let (average, average_without) = (course.average_excess(), nobody.average_excess());
    let figures = format!(
        "{excess} excess fragments in the end, with nobody {without} (on average over all evenings {average:.0} and \
         {average_without:.0}), for {:.0} MiB moved",
        mebibytes(course.last().moved)
    );
    Some(match course.verdict? {
        Verdict::Benefit => {
            let fewer = 100.0 * (1.0 - per(excess as f64, without as f64));
            format!("With {name} there are {fewer:.1} % fewer: {figures}.")
        }
        Verdict::NoBenefit => format!("No benefit of {name}: {figures}."),
        Verdict::Harm => format!("Harm: with {name} there are more: {figures}."),
    })
}

impl Findings for AgeingReport {
    fn title(&self) -> String {
        let Self { days, daily_percent, seed, .. } = self;
        let mebibytes = self.bytes.0 >> 20;
        format!("{days} days of {mebibytes} MiB in files, {daily_percent} % of it new each day (seed {seed})")
    }

    fn table(&self) -> Table {
        let mut table = Table::with_columns(&[
            "looked after by",
            "day",
            "files",
            "excess fragments",
            "free pieces",
            "moved, MiB",
            "device wrote, MiB",
        ]);
        for course in &self.courses {
            for day in self.told() {
                let Some(evening) = course.evenings.get(day as usize) else { continue };
                table.rows.push(vec![
                    course.name.clone(),
                    day.to_string(),
                    evening.files.to_string(),
                    evening.excess_fragments.to_string(),
                    evening.free_pieces.map_or_else(|| "-".to_owned(), |pieces| pieces.to_string()),
                    format!("{:.0}", mebibytes(evening.moved)),
                    format!("{:.0}", mebibytes(evening.written)),
                ]);
            }
        }
        table
    }

    fn sentences(&self) -> Vec<String> {
        let told = |nobody| self.courses.iter().filter_map(|course| sentence(course, nobody)).collect();
        let mut said: Vec<String> = self.nobody().map(told).unwrap_or_default();
        if let Some(missing) = &self.left_out {
            said.push(format!("The file system's own tool was left out: {missing}."));
        }
        if self.courses.iter().any(|course| course.care == Care::Service) {
            let why = "A day took seconds: the service waited for a second until a file was quiet, gave way to nobody, and had no \
                       daily budget.";
            said.push(why.to_owned());
        }
        said
    }

    fn charts(&self) -> Vec<Chart> {
        let mut charts = vec![self.chart("Excess fragments in the evening", |evening| evening.excess_fragments as f64)];
        if self.courses.iter().flat_map(|course| &course.evenings).all(|evening| evening.free_pieces.is_some()) {
            let pieces = |evening: &Evening| evening.free_pieces.unwrap_or_default() as f64;
            charts.push(self.chart("Pieces of free space", pieces));
        }
        charts.push(self.chart("Moved so far, MiB", |evening| mebibytes(evening.moved)));
        charts
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report(nobody: u64, service: u64) -> AgeingReport {
        let course = |care, name: &str, excess: u64| Course {
            care,
            name: name.to_owned(),
            verdict: None,
            evenings: (0..=9)
                .map(|day| Evening { excess_fragments: excess * day / 9, free_pieces: Some(day), ..Evening::default() })
                .collect(),
        };
        let courses = vec![course(Care::Nobody, "nobody", nobody), course(Care::Service, "the service", service)];
        let settings =
            AgeingSettings { program: "longrun".into(), days: 9, bytes: Bytes(64 << 20), daily_percent: 10, seed: 1 };
        AgeingReport::of(&settings, courses, Some("e4defrag is not installed".to_owned()))
    }

    #[test]
    fn what_it_comes_to_is_said_against_nobody_also_where_it_is_nothing() {
        let said = report(900, 9).sentences();
        assert!(said[0].starts_with("With the service there are 99.0 % fewer: 9 excess fragments"), "{said:?}");
        assert!(said[0].contains("with nobody 900 (on average over all evenings 4 and 450)"), "{said:?}");
        assert!(said[1].contains("e4defrag is not installed"), "{said:?}");
        assert!(report(0, 0).sentences()[0].starts_with("No benefit of the service"));
        assert!(report(900, 890).sentences()[0].starts_with("No benefit of the service"));
        assert!(report(900, 1000).sentences()[0].starts_with("Harm: "));
        assert!(report(0, 1).sentences()[0].starts_with("Harm: "));
    }

    #[test]
    fn weeks_are_told_in_rows_and_the_evenings_drawn_up_to_the_last() {
        let report = report(900, 9);
        let rows = report.table().rows;
        let days: Vec<&str> = rows.iter().map(|row| row[1].as_str()).collect();
        assert_eq!(days, ["0", "7", "9", "0", "7", "9"]);
        let chart = &report.charts()[0];
        assert_eq!((chart.groups.len(), chart.groups.last().unwrap().1.as_slice()), (DRAWN, &[900.0, 9.0][..]));
        assert_eq!(chart.parts, ["nobody", "the service"]);
    }
}
