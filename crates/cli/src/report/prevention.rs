//! The results of `bench prevention`: text, the object of `--json`, and a page with charts.

use super::findings::{charts, sentences, table};
use super::json_name;
use super::page::{escape, shell};
use crate::text::{duration, printable_path, size};
use longrun_bench::Parameters;
use longrun_bench::protocol::{Averages, Bench, Comparison};
use longrun_bench::report::{Row, rows, sentence};
use longrun_bench::{Chart, Table};
use serde::Serialize;
use std::fmt::Write as _;
use std::path::Path;
use std::time::Duration;

/// The result of all profiles.
#[derive(Debug, Serialize)]
pub struct Report {
    target: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    target_hex: Option<String>,
    #[serde(skip)]
    shown: String,
    device: String,
    filesystem: String,
    comparisons: Vec<Comparison>,
    seconds: f64,
}

impl Report {
    /// Puts the results into the form that is reported.
    pub fn new(target: &Path, bench: &Bench<'_>, comparisons: Vec<Comparison>, spent: Duration) -> Self {
        let (name, target_hex) = json_name(target);
        Self {
            target: name,
            target_hex,
            shown: printable_path(target),
            device: bench.place().device().name().to_owned(),
            filesystem: bench.place().mount().filesystem.clone(),
            comparisons,
            seconds: spent.as_secs_f64(),
        }
    }

    /// One line for each profile.
    pub fn summary(&self) -> String {
        let spent = duration(Duration::from_secs_f64(self.seconds));
        let mut text = format!("{} ({} on {}), measured in {spent}:\n", self.shown, self.filesystem, self.device);
        for comparison in &self.comparisons {
            _ = writeln!(text, "  {:<12} {}", comparison.profile.name(), sentence(comparison));
        }
        text
    }
}

/// The table of one profile.
pub fn text(comparison: &Comparison) -> String {
    let mut text = format!("{}: {}\n", comparison.profile, sentence(comparison));
    _ = writeln!(text, "  {}", work(&comparison.parameters, comparison.off.iterations));
    if !comparison.same_state {
        text +=
            "  The free space was not the same before each iteration: another process used the volume, or it ages.\n";
    }
    _ = writeln!(text, "  {:<42}{:>12}{:>12}{:>10}", "averages", "without", "with", "ratio");
    for Row { name, off, on, ratio } in rows(comparison) {
        _ = writeln!(text, "  {name:<42}{off:>12}{on:>12}{ratio:>10}");
    }
    text + "\n"
}

fn work(parameters: &Parameters, iterations: u32) -> String {
    let Parameters { writers, bytes, seed, .. } = parameters;
    format!("{iterations} iterations with and without; {writers} writers, {} each, seed {seed}", size(*bytes))
}

/// A page that needs nothing else.
pub fn page(report: &Report) -> String {
    let said: Vec<String> = report
        .comparisons
        .iter()
        .map(|comparison| format!("{}: {}", comparison.profile, sentence(comparison)))
        .collect();
    let mut body = sentences(&said) + &charts(&[excess(report), times(report)]);
    for comparison in &report.comparisons {
        let mut figures = Table::with_columns(&["averages", "without", "with", "ratio"]);
        figures.rows.extend(rows(comparison).into_iter().map(|row| vec![row.name.into(), row.off, row.on, row.ratio]));
        let (profile, work) = (comparison.profile, work(&comparison.parameters, comparison.off.iterations));
        _ = writeln!(body, "<section class=\"volume\"><h2>{profile} <small>{}</small></h2>", escape(&work));
        body = body + &table(&figures) + "</section>\n";
    }
    let subtitle = format!("{} ({} on {})", report.shown, report.filesystem, report.device);
    shell("Longrun benchmark: prevention", &subtitle, &body)
}

const SIDES: [&str; 2] = ["without", "with"];

fn excess(report: &Report) -> Chart {
    chart(report, "Excess fragments", |side| side.excess_fragments)
}

fn times(report: &Report) -> Chart {
    chart(report, "Time, s", |side| side.seconds)
}

fn chart(report: &Report, title: &str, value: fn(&Averages) -> f64) -> Chart {
    let of = |comparison: &Comparison| vec![value(&comparison.off), value(&comparison.on)];
    let groups = report.comparisons.iter().map(|comparison| (comparison.profile.to_string(), of(comparison))).collect();
    Chart::new(title, &SIDES, groups)
}

#[cfg(test)]
mod tests {
    use super::*;
    use longrun_bench::Profile;

    fn report() -> Report {
        let comparison = Comparison::of(Profile::Direct, Parameters::default(), Vec::new());
        Report {
            target: "/mnt/<x>".into(),
            target_hex: None,
            shown: "/mnt/<x>".into(),
            device: "loop0".into(),
            filesystem: "xfs".into(),
            comparisons: vec![comparison],
            seconds: 3.0,
        }
    }

    #[test]
    fn no_benefit_is_said_in_text_and_on_the_page() {
        let report = report();
        let page = page(&report);
        assert!(report.summary().contains("direct       no benefit"), "{}", report.summary());
        assert!(text(&report.comparisons[0]).contains("no benefit") && page.contains("no benefit"));
        assert!(page.contains("/mnt/&lt;x&gt;") && !page.contains("<x>"), "{page}");
    }

    #[test]
    fn the_json_has_both_sides_and_what_was_prevented() {
        let json = serde_json::to_value(report()).unwrap();
        for pointer in ["/comparisons/0/off/excess_fragments", "/comparisons/0/on/split_reads", "/filesystem"] {
            assert!(json.pointer(pointer).is_some_and(|value| !value.is_null()), "{pointer}: {json}");
        }
        assert!(json.pointer("/comparisons/0/prevented_percent").is_some_and(serde_json::Value::is_null));
    }
}
