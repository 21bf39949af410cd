//! Policy in plain English.

use super::{Document, Rollout, Stage};
use crate::text::printable;
use longrun_config::show_volume;
use std::fmt::Write as _;

/// What a document says.
#[must_use]
pub fn document_text(document: &Document) -> String {
    let name = if document.name.is_empty() { "a policy without a name" } else { &document.name };
    let mut text = format!("{}\nAll hosts:\n", printable(name));
    let settings = |text: &mut String, settings: String| {
        if settings.is_empty() {
            text.push_str("  nothing\n");
        }
        for line in settings.lines() {
            _ = writeln!(text, "  {line}");
        }
    };
    settings(&mut text, show_volume(&document.defaults));
    for rule in &document.rules {
        let labels = rule.labels.iter().map(|(label, values)| {
            let values: Vec<&str> = values.iter().map(String::as_str).collect();
            format!("{label} is {}", values.join(" or "))
        });
        _ = writeln!(text, "Hosts where {}:", printable(&labels.collect::<Vec<_>>().join(" and ")));
        settings(&mut text, show_volume(&rule.change));
    }
    text
}

/// How far a roll-out is.
#[must_use]
pub fn rollout_text(rollout: &Rollout) -> String {
    let previous = rollout.previous.map_or_else(|| "none".to_owned(), |previous| format!("version {previous}"));
    let version = rollout.version;
    match rollout.stage {
        Stage::All => format!("Policy version {version} is for all hosts (before: {previous}).\n"),
        Stage::Canary => {
            let named: Vec<&str> = rollout.canaries.iter().map(crate::names::Name::as_str).collect();
            let named = if named.is_empty() { String::new() } else { format!(" and {}", named.join(", ")) };
            format!(
                "Policy version {version} is tried by {} % of the hosts{named}; all others: {previous}.\n",
                rollout.share
            )
        }
        Stage::Stopped => {
            let reason = rollout.reason.as_deref().map_or_else(String::new, |why| format!(": {}", printable(why)));
            format!("Policy version {version} was taken back{reason}. All hosts: {previous}.\n")
        }
    }
}
