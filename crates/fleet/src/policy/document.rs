//! A policy document: read and checked, with the line of each error, and resolved for the labels of a host. Pure.
//!
//! Owns what a document may say. The settings themselves are those of the configuration file, and are read by its code: nothing
//! here knows a key, except those that a policy must not have.

use longrun_config::{Problem, Problems, Table, VolumeChange, VolumeSettings, change, check_fit, show_volume};
use std::collections::{BTreeMap, BTreeSet};

/// The longest document, in bytes.
pub const MOST_BYTES: usize = 64 << 10;
/// The most rules.
pub const MOST_RULES: usize = 200;
/// The most labels that one rule names.
pub const MOST_LABELS: usize = 50;
/// The most values of one label, and the most patterns of one `exclude`.
pub const MOST_PATTERNS: usize = 200;
/// The longest name, label and pattern, in bytes.
const LONGEST: usize = 1024;

/// Settings that are for the file of each host.
const LOCAL: &str = "it is for the configuration file of each host";

/// A policy document.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Document {
    /// What it is called, for people.
    pub name: String,
    /// What holds for all hosts.
    pub defaults: VolumeChange,
    /// What holds for some, in the order of the document.
    pub rules: Vec<Rule>,
}

/// What holds for hosts with certain labels.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Rule {
    /// Each of these labels must have one of these values.
    pub labels: BTreeMap<String, BTreeSet<String>>,
    /// The settings.
    pub change: VolumeChange,
}

impl Rule {
    fn matches(&self, labels: &BTreeMap<String, String>) -> bool {
        self.labels.iter().all(|(label, values)| labels.get(label).is_some_and(|value| values.contains(value)))
    }
}

impl Document {
    /// The document in `text`.
    ///
    /// # Errors
    /// Everything that is wrong with it, by line; never empty.
    pub fn parse(text: &str) -> Result<Self, Vec<Problem>> {
        let mut problems = Problems::of(text);
        if text.len() > MOST_BYTES {
            problems.add(
                &(MOST_BYTES..MOST_BYTES),
                "the document is longer than 64 KiB; leave out what is after this line",
            );
            return Err(problems.into_found());
        }
        let Some(mut root) = Table::of(text, &mut problems) else { return Err(problems.into_found()) };
        for section in ["service", "volume"] {
            root.refuse(&mut problems, section, LOCAL);
        }
        let short = |text: &str| (text.len() <= LONGEST).then(|| text.to_owned());
        let name = root.text(&mut problems, "name", "a text of at most 1024 bytes", short).unwrap_or_default();
        let defaults = root.table(&mut problems, "defaults", "[defaults]");
        let defaults = settings(defaults, &VolumeChange::default(), &mut problems);
        let tables = root.tables(&mut problems, "rule", "[[rule]]");
        root.finish(&mut problems);
        if let Some(one_too_many) = tables.get(MOST_RULES) {
            problems.add(&one_too_many.place.clone(), format!("there are more than {MOST_RULES} rules"));
            return Err(problems.into_found());
        }
        let rules = tables.into_iter().map(|table| rule(table, &defaults, &mut problems)).collect();
        if problems.none() { Ok(Self { name, defaults, rules }) } else { Err(problems.into_found()) }
    }

    /// What holds for a host with these labels: each rule that matches over those before it. `exclude` adds up, so that no rule
    /// can take back what another one excludes.
    #[must_use]
    pub fn resolve(&self, labels: &BTreeMap<String, String>) -> VolumeChange {
        let matching = self.rules.iter().filter(|rule| rule.matches(labels));
        matching.fold(self.defaults.clone(), |before, rule| over(&rule.change, before))
    }

    /// The same as the section `[defaults]` of a configuration file.
    ///
    /// # Errors
    /// The rules that match contradict each other.
    pub fn settings_for(&self, labels: &BTreeMap<String, String>) -> Result<String, Vec<Problem>> {
        let change = self.resolve(labels);
        let mut problems = Problems::of("");
        check_fit(&change.applied_to(VolumeSettings::default()), &(0..0), &mut problems);
        if problems.none() { Ok(format!("[defaults]\n{}", show_volume(&change))) } else { Err(problems.into_found()) }
    }
}

fn rule(mut table: Table<'_>, defaults: &VolumeChange, problems: &mut Problems<'_>) -> Rule {
    let place = table.place.clone();
    let labels = table.table(problems, "where", "where = { … }");
    let wanted = labels.place.clone();
    let settings_of = table.table(problems, "settings", "settings = { … }");
    table.finish(problems);
    let mut rule = Rule { labels: BTreeMap::new(), change: settings(settings_of, defaults, problems) };
    let named = labels.named_texts(problems);
    if named.is_empty() {
        problems.add(&place, "each [[rule]] must say for which labels it is, as in where = { role = \"database\" }; what is for all hosts is in [defaults]");
    }
    if named.len() > MOST_LABELS {
        problems.add(&wanted, format!("there are more than {MOST_LABELS} labels in a rule"));
        return rule;
    }
    for (place, label, values) in named {
        let short = |text: &String| !text.is_empty() && text.len() <= LONGEST && !text.chars().any(char::is_control);
        if values.is_empty() || values.len() > MOST_PATTERNS || !values.iter().chain([&label]).all(short) {
            problems
                .add(&place, format!("a label must have 1 to {MOST_PATTERNS} values, each a text of 1 to 1024 bytes"));
        }
        rule.labels.insert(label, values.into_iter().collect());
    }
    rule
}

/// Settings as in `[defaults]`, which must fit to `base`.
fn settings(mut table: Table<'_>, base: &VolumeChange, problems: &mut Problems<'_>) -> VolumeChange {
    let place = table.place.clone();
    table.refuse(problems, "storage_group", LOCAL);
    let change = change(&mut table, problems);
    table.finish(problems);
    let patterns = change.exclude.as_deref().unwrap_or_default();
    let bounded = |pattern: &String| {
        pattern.len() <= LONGEST
            && !pattern.chars().any(char::is_control)
            && pattern.split('/').all(|part| part != "..")
    };
    if patterns.len() > MOST_PATTERNS || !patterns.iter().all(bounded) {
        let allowed =
            "exclude must have at most 200 patterns, each of at most 1024 bytes, without \"..\" and control characters";
        problems.add(&place, allowed);
    }
    check_fit(&over(&change, base.clone()).applied_to(VolumeSettings::default()), &place, problems);
    change
}

fn over(change: &VolumeChange, base: VolumeChange) -> VolumeChange {
    let mut patterns = base.exclude.clone().unwrap_or_default();
    for pattern in change.exclude.iter().flatten() {
        if !patterns.contains(pattern) {
            patterns.push(pattern.clone());
        }
    }
    let exclude = (base.exclude.is_some() || change.exclude.is_some()).then_some(patterns);
    VolumeChange { exclude, ..change.clone().over(base) }
}

#[cfg(test)]
mod tests;
