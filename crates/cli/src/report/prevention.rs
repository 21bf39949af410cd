//! What `bench prevention` found: text, the object of `--json`, and a page with charts.

use super::json_name;
use crate::text::{duration, printable_path, size};
use longrun_bench::Parameters;
use longrun_bench::protocol::{Bench, Comparison};
use longrun_bench::report::{Row, number, rows, sentence};
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
            "  The free space was not the same before all iterations: something else used the volume, or it ages.\n";
    }
    _ = writeln!(text, "  {:<42}{:>12}{:>12}{:>10}", "averages", "without", "with", "ratio");
    for Row { name, off, on, ratio } in rows(comparison) {
        _ = writeln!(text, "  {name:<42}{off:>12}{on:>12}{ratio:>10}");
    }
    text + "\n"
}

fn work(parameters: &Parameters, iterations: u32) -> String {
    let Parameters { writers, bytes, seed, .. } = parameters;
    format!("{iterations} iterations each way; {writers} writers, {} each, seed {seed}", size(*bytes))
}

const STYLE: &str = "body{font:15px/1.5 system-ui,sans-serif;max-width:52em;margin:2em auto;padding:0 1em;color:#222}\
table{border-collapse:collapse;margin:1em 0}td,th{padding:.2em .9em;text-align:right;border-bottom:1px solid #ddd}\
td:first-child,th:first-child{text-align:left}svg{display:block}text{font:13px system-ui,sans-serif;fill:#222}\
@media(prefers-color-scheme:dark){body{background:#181a1b;color:#ddd}text{fill:#ddd}td,th{border-color:#444}}";

/// A page that needs nothing else.
pub fn page(report: &Report) -> String {
    let mut page = format!(
        "<!doctype html>\n<html lang=\"en\"><meta charset=\"utf-8\"><title>Longrun: prevention measured</title>\n\
         <style>{STYLE}</style>\n<h1>Prevention measured</h1>\n<p>{} ({} on {})</p>\n",
        escape(&report.shown),
        escape(&report.filesystem),
        escape(&report.device)
    );
    for comparison in &report.comparisons {
        _ = writeln!(page, "<h2>{}</h2>\n<p>{}</p>", comparison.profile, escape(&sentence(comparison)));
        page += &chart(comparison);
        page += "<table><tr><th>averages<th>without<th>with<th>ratio</tr>\n";
        for Row { name, off, on, ratio } in rows(comparison) {
            _ = writeln!(page, "<tr><td>{name}<td>{off}<td>{on}<td>{ratio}</tr>");
        }
        _ = writeln!(page, "</table>\n<p>{}</p>", work(&comparison.parameters, comparison.off.iterations));
    }
    page + "</html>\n"
}

/// Excess fragments, without and with, as two bars.
fn chart(comparison: &Comparison) -> String {
    const WIDTH: f64 = 480.0;
    let (off, on) = (comparison.off.excess_fragments, comparison.on.excess_fragments);
    let most = off.max(on).max(1.0);
    let mut svg = "<svg width=\"720\" height=\"64\" role=\"img\" aria-label=\"excess fragments\">".to_owned();
    for (line, (name, value, colour)) in [("without", off, "#c0504d"), ("with", on, "#3a8f5c")].into_iter().enumerate()
    {
        let (top, length) = (line * 30 + 4, value / most * WIDTH);
        _ = write!(
            svg,
            "<text x=\"0\" y=\"{}\">{name}</text><rect x=\"64\" y=\"{top}\" width=\"{length:.1}\" height=\"22\" \
             fill=\"{colour}\"/><text x=\"{:.1}\" y=\"{}\">{}</text>",
            top + 16,
            length + 72.0,
            top + 16,
            number(value)
        );
    }
    svg + "</svg>\n"
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
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
