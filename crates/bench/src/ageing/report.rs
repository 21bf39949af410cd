//! The results of the simulated weeks.

use super::{AgeingSettings, Maintenance, told};
use crate::device::per;
use crate::{Chart, Findings, Table, Verdict};
use longrun_layout::Bytes;
use serde::Serialize;

/// The maximum number of days in a chart.
const DRAWN: usize = 8;

/// The state of the files and the volume at the end of a day.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Evening {
    /// Files with blocks.
    pub files: u64,
    /// Their excess fragments.
    pub excess_fragments: u64,
    /// Pieces of free space of the volume, where this can be read (ext4 and XFS).
    pub free_pieces: Option<u64>,
    /// The longest of them.
    pub largest_free: Option<Bytes>,
    /// Bytes moved by the maintenance since the beginning: for the service its own count, for a weekly tool
    /// what the device wrote during its runs.
    pub moved: Bytes,
    /// Everything that the device has written since the beginning.
    pub written: Bytes,
}

/// Excess fragments at the end of all these days, on average.
#[must_use]
pub fn average_excess(evenings: &[Evening]) -> f64 {
    let sum: u64 = evenings.iter().map(|evening| evening.excess_fragments).sum();
    per(sum as f64, evenings.len() as f64)
}

/// The same weeks with one method.
#[derive(Clone, Debug, Serialize)]
pub struct Course {
    /// The method.
    #[serde(rename = "care")]
    pub maintenance: Maintenance,
    /// The name of the method.
    pub name: String,
    /// Excess at the end, compared with that without maintenance.
    pub verdict: Option<Verdict>,
    /// The state at the end of each day, starting with the day that made the first files.
    pub evenings: Vec<Evening>,
}

impl Course {
    fn last(&self) -> Evening {
        self.evenings.last().copied().unwrap_or_default()
    }
}

/// All of them.
#[derive(Clone, Debug, Serialize)]
pub struct AgeingReport {
    /// How many days, after the first.
    pub days: u32,
    /// How much is in files.
    pub bytes: Bytes,
    /// How much of that is replaced each day, in per cent.
    pub daily_percent: u32,
    /// The seed of the events.
    pub seed: u64,
    /// The results of each method.
    pub courses: Vec<Course>,
    /// Why the file system's own tool was left out, if it was.
    pub left_out: Option<String>,
}

impl AgeingReport {
    pub(super) fn of(settings: &AgeingSettings, mut courses: Vec<Course>, left_out: Option<String>) -> Self {
        let &AgeingSettings { days, bytes, daily_percent, seed, .. } = settings;
        let nobody = courses
            .iter()
            .find(|course| course.maintenance == Maintenance::Nobody)
            .map(|course| course.last().excess_fragments);
        for course in courses.iter_mut().filter(|course| course.maintenance != Maintenance::Nobody) {
            course.verdict = nobody.map(|nobody| match (nobody, course.last().excess_fragments) {
                (0, 0) => Verdict::NoBenefit,
                (0, _) => Verdict::Harm,
                (nobody, excess) => Verdict::of_times(excess as f64 / nobody as f64),
            });
        }
        Self { days, bytes, daily_percent, seed, courses, left_out }
    }

    fn nobody(&self) -> Option<&Course> {
        self.courses.iter().find(|course| course.maintenance == Maintenance::Nobody)
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

fn sentence(course: &Course, nobody: &Course) -> Option<String> {
    let (excess, without) = (course.last().excess_fragments, nobody.last().excess_fragments);
    let name = &course.name;
    let (average, average_without) = (average_excess(&course.evenings), average_excess(&nobody.evenings));
    let figures = format!(
        "{excess} excess fragments at the end, {without} without maintenance (average of all evenings: {average:.0} \
         and {average_without:.0}); {:.0} MiB moved",
        course.last().moved.mebibytes()
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
        format!("{days} days with {mebibytes} MiB of files, of which {daily_percent} % are new each day (seed {seed})")
    }

    fn table(&self) -> Table {
        let mut table = Table::with_columns(&[
            "maintenance",
            "day",
            "files",
            "excess fragments",
            "free pieces",
            "moved, MiB",
            "device wrote, MiB",
        ]);
        for course in &self.courses {
            for day in told(self.days) {
                let Some(evening) = course.evenings.get(day as usize) else { continue };
                table.rows.push(vec![
                    course.name.clone(),
                    day.to_string(),
                    evening.files.to_string(),
                    evening.excess_fragments.to_string(),
                    evening.free_pieces.map_or_else(|| "-".to_owned(), |pieces| pieces.to_string()),
                    format!("{:.0}", evening.moved.mebibytes()),
                    format!("{:.0}", evening.written.mebibytes()),
                ]);
            }
        }
        table
    }

    fn sentences(&self) -> Vec<String> {
        let against = |nobody| self.courses.iter().filter_map(|course| sentence(course, nobody)).collect();
        let mut said: Vec<String> = self.nobody().map(against).unwrap_or_default();
        if let Some(missing) = &self.left_out {
            said.push(format!("The file system's own tool was left out: {missing}."));
        }
        if self.courses.iter().any(|course| course.maintenance == Maintenance::Service) {
            let why = "A day took seconds: the service waited for one second until a file was quiet, did not give way \
                 to other I/O, and had no daily budget.";
            said.push(why.to_owned());
        }
        said
    }

    fn charts(&self) -> Vec<Chart> {
        let mut charts =
            vec![self.chart("Excess fragments at the end of each day", |evening| evening.excess_fragments as f64)];
        if self.courses.iter().flat_map(|course| &course.evenings).all(|evening| evening.free_pieces.is_some()) {
            let pieces = |evening: &Evening| evening.free_pieces.unwrap_or_default() as f64;
            charts.push(self.chart("Pieces of free space", pieces));
        }
        charts.push(self.chart("Moved so far, MiB", |evening| evening.moved.mebibytes()));
        charts
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report(nobody: u64, service: u64) -> AgeingReport {
        let course = |maintenance, name: &str, excess: u64| Course {
            maintenance,
            name: name.to_owned(),
            verdict: None,
            evenings: (0..=9)
                .map(|day| Evening { excess_fragments: excess * day / 9, free_pieces: Some(day), ..Evening::default() })
                .collect(),
        };
        let courses = vec![
            course(Maintenance::Nobody, "no maintenance", nobody),
            course(Maintenance::Service, "the service", service),
        ];
        let settings =
            AgeingSettings { program: "longrun".into(), days: 9, bytes: Bytes(64 << 20), daily_percent: 10, seed: 1 };
        AgeingReport::of(&settings, courses, Some("e4defrag is not installed".to_owned()))
    }

    #[test]
    fn what_it_comes_to_is_said_against_nobody_also_where_it_is_nothing() {
        let said = report(900, 9).sentences();
        assert!(said[0].starts_with("With the service there are 99.0 % fewer: 9 excess fragments"), "{said:?}");
        assert!(said[0].contains("900 without maintenance (average of all evenings: 4 and 450)"), "{said:?}");
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
        assert_eq!(chart.parts, ["no maintenance", "the service"]);
    }
}
