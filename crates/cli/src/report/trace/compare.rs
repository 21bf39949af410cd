//! Two recordings side by side, as text.

use super::{rows, show};
use crate::text::{count, percent, printable};
use longrun_iotrace::{Change, Comparison, Recording};
use std::fmt::Write as _;

/// The change in per cent; empty if the figure was 0 before.
pub fn change(change: &Change) -> String {
    change.change_percent.map_or_else(String::new, |percent| format!("{percent:+.1} %"))
}

/// Everything.
pub fn comparison_text(before: &Recording, after: &Recording, comparison: &Comparison) -> String {
    let name = |recording: &Recording| {
        format!("{}, {} UTC", printable(&recording.target), recording.started.strftime("%Y-%m-%d %H:%M"))
    };
    let mut text = format!("before  {}\nafter   {}\n\n", name(before), name(after));
    _ = writeln!(text, "{:<32}{:>14}{:>14}{:>12}", "", "before", "after", "change");
    for figure in &comparison.figures {
        let (one, other) = (show(figure.before, figure.unit), show(figure.after, figure.unit));
        let line = format!("{:<32}{one:>14}{other:>14}{:>12}", figure.label, change(figure));
        _ = writeln!(text, "{}", line.trim_end());
    }
    for pair in &comparison.histograms {
        let rows = rows(&pair.before, &pair.after);
        if rows.is_empty() {
            continue;
        }
        _ = writeln!(text, "\n{:<24}{:>10}{:>8}{:>12}{:>8}{:>12}", pair.label, "before", "", "after", "", "change");
        let (all_before, all_after) = (pair.before.total(), pair.after.total());
        for (name, before, after) in rows {
            let change = match before {
                0 => String::new(),
                _ => format!("{:+.1} %", (after as f64 - before as f64) * 100.0 / before as f64),
            };
            let line = format!(
                "{name:>22}  {:>10}{:>8}{:>12}{:>8}{change:>12}",
                count(before),
                percent(before, all_before),
                count(after),
                percent(after, all_after)
            );
            _ = writeln!(text, "{}", line.trim_end());
        }
    }
    text
}
