//! Policy for administrators: in plain English, and as JSON.

use super::apply::{self, PolicyError};
use super::{Document, Rollout, Stage};
use crate::broker::Broker;
use crate::text::printable;
use longrun_config::{Problem, show_volume};
use serde::Serialize;
use std::fmt::Write as _;

/// The roll-out, and the document that is rolled out.
#[derive(Clone, Debug, Serialize)]
pub struct PolicyShown {
    /// How far it is.
    #[serde(flatten)]
    pub rollout: Rollout,
    /// The same in plain English.
    pub says: String,
    /// The document of its version.
    pub document: DocumentShown,
}

impl PolicyShown {
    /// What the broker has; none: no policy is rolled out.
    ///
    /// # Errors
    /// [`PolicyError`].
    pub async fn read(broker: &Broker) -> Result<Option<Self>, PolicyError> {
        let Some(rollout) = apply::rollout(broker).await?.0 else { return Ok(None) };
        let document = DocumentShown::read(broker, rollout.version).await?;
        Ok(Some(Self { says: rollout_text(&rollout), rollout, document }))
    }
}

/// A document.
#[derive(Clone, Debug, Serialize)]
pub struct DocumentShown {
    /// Its version.
    pub version: u64,
    /// As it was written.
    pub source: String,
    /// What it says, in plain English.
    pub says: String,
}

impl DocumentShown {
    /// The document of a version.
    ///
    /// # Errors
    /// [`PolicyError`].
    pub async fn read(broker: &Broker, version: u64) -> Result<Self, PolicyError> {
        let source = apply::source(broker, version).await?;
        let says = document_text(&Document::parse(&source).map_err(PolicyError::Wrong)?);
        Ok(Self { version, source, says })
    }
}

/// What is wrong in a line.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ProblemShown {
    /// The line, from 1.
    pub line: usize,
    /// What, and what is allowed.
    pub what: String,
}

/// What a check of a document found.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Checked {
    /// What is wrong; none: it can be rolled out.
    pub problems: Vec<ProblemShown>,
    /// What it says, in plain English, when nothing is wrong.
    pub says: Option<String>,
}

impl Checked {
    /// What parsing a document found.
    #[must_use]
    pub fn of(parsed: &Result<Document, Vec<Problem>>) -> Self {
        match parsed {
            Ok(document) => Self { problems: Vec::new(), says: Some(document_text(document)) },
            Err(problems) => {
                let shown = |problem: &Problem| ProblemShown { line: problem.line, what: problem.what.clone() };
                Self { problems: problems.iter().map(shown).collect(), says: None }
            }
        }
    }
}

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
