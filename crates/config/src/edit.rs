//! Changes settings in the text of the configuration file, and nothing else in it: comments, order and form stay as they are. Pure.
//!
//! A setting that the file has as a comment, as the packaged file has all of them ("#: key = default"), is put into effect there; a setting that
//! is taken out becomes such a comment again. Each step is checked against the meaning of the text: whatever form the file has, a step either
//! changes this one value or is refused.

use super::keys::{keys, values_of};
use super::show::{list, string};
use super::{Problem, parse};
use longrun_api::config::{ConfigSection, ConfigValue};
use std::fmt;
use std::ops::Range;
use toml::de::{DeTable, DeValue};
use toml::{Spanned, Table, Value};

/// Before a setting that has no effect.
const OFF: &str = "#: ";

/// A section of the file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Section {
    /// `[service]`.
    Service,
    /// `[defaults]`.
    Defaults,
    /// The last `[[volume]]` that names its volume so.
    Volume {
        /// `mount`, `uuid`, `label` or `device`.
        by: &'static str,
        /// The name.
        name: String,
    },
}

impl Section {
    const NAMES: [&'static str; 4] = ["mount", "uuid", "label", "device"];

    /// Reads `service`, `defaults`, `mount=/srv`, `uuid=…`, `label=…`, `device=…`.
    #[must_use]
    pub fn read(text: &str) -> Option<Self> {
        match text {
            "service" => Some(Self::Service),
            "defaults" => Some(Self::Defaults),
            _ => {
                let (by, name) = text.split_once('=')?;
                let by = Self::NAMES.into_iter().find(|known| *known == by)?;
                Some(Self::Volume { by, name: name.to_owned() })
            }
        }
    }

    fn key(&self) -> &'static str {
        match self {
            Self::Service => "service",
            Self::Defaults => "defaults",
            Self::Volume { .. } => "volume",
        }
    }

    fn header(&self) -> String {
        match self {
            Self::Volume { by, name } => format!("[[volume]]\n{by} = {}\n", string(name)),
            _ => format!("[{}]\n", self.key()),
        }
    }

    /// Whether a table of `volume` is this one.
    fn names(&self, table: &Table) -> bool {
        match self {
            Self::Volume { by, name } => table.get(*by).and_then(Value::as_str) == Some(name),
            _ => false,
        }
    }
}

impl fmt::Display for Section {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Volume { by, name } => write!(f, "{by}={name}"),
            _ => f.write_str(self.key()),
        }
    }
}

/// One change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Change {
    /// Where.
    pub section: Section,
    /// Which setting.
    pub key: String,
    /// Its value; none takes it out.
    pub value: Option<ConfigValue>,
}

/// Why the text is not changed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum EditError {
    /// It is no TOML already.
    #[error("the file is not valid, and cannot be changed before it is corrected by hand: {0}")]
    Broken(Problem),
    /// The key does not exist.
    #[error("unknown key {key:?} in {section}")]
    Unknown {
        /// The key.
        key: String,
        /// The section.
        section: String,
    },
    /// The file has an uncommon form.
    #[error("{key} in {section} is written in a form that is not changed automatically; change the file by hand")]
    Form {
        /// The key.
        key: String,
        /// The section.
        section: String,
    },
    /// The result would not be valid.
    #[error("{}", .0.iter().map(Problem::to_string).collect::<Vec<_>>().join("; "))]
    Wrong(Vec<Problem>),
}

/// The text with all `changes`, which is a valid configuration.
///
/// # Errors
/// [`EditError`].
pub fn changed(text: &str, changes: &[Change]) -> Result<String, EditError> {
    let mut text = text.to_owned();
    let (service, volume) = keys(true, true);
    for change in changes {
        let known = if change.section == Section::Service { &service } else { &volume };
        let Some(key) = known.iter().find(|known| known.key == change.key) else {
            return Err(EditError::Unknown { key: change.key.clone(), section: change.section.to_string() });
        };
        let default = key.default.as_ref().filter(|_| !matches!(change.section, Section::Volume { .. }));
        text = one(&text, change, default)?;
    }
    parse(&text).map_err(EditError::Wrong)?;
    Ok(text)
}

/// What the sections of a text say; nothing where it is not valid.
#[must_use]
pub fn sections(text: &str) -> Vec<ConfigSection> {
    let root: Table = toml::from_str(text).unwrap_or_default();
    let mut sections = Vec::new();
    for name in ["service", "defaults"] {
        if let Some(table) = root.get(name).and_then(Value::as_table) {
            sections.push(ConfigSection { section: name.to_owned(), values: values_of(table) });
        }
    }
    for table in root.get("volume").and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_table) {
        let named = Section::NAMES.iter().find_map(|by| Some(format!("{by}={}", table.get(*by)?.as_str()?)));
        if let Some(section) = named {
            let values = values_of(table).into_iter().filter(|(key, _)| !Section::NAMES.contains(&key.as_str()));
            sections.push(ConfigSection { section, values: values.collect() });
        }
    }
    sections
}

/// The text with one change. Of the ways to write it, the first is taken that means exactly this change.
fn one(text: &str, change: &Change, default: Option<&ConfigValue>) -> Result<String, EditError> {
    let refused = || EditError::Form { key: change.key.clone(), section: change.section.to_string() };
    let broken = |error: toml::de::Error| {
        EditError::Broken(
            parse(text)
                .err()
                .and_then(|all| all.into_iter().next())
                .unwrap_or_else(|| Problem { line: 1, what: error.message().to_owned() }),
        )
    };
    let mut wanted: Table = toml::from_str(text).map_err(broken)?;
    let before = wanted.clone();
    apply(&mut wanted, change).ok_or_else(refused)?;
    if wanted == before {
        return Ok(text.to_owned());
    }
    let means = |text: &str| toml::from_str::<Table>(text).is_ok_and(|table| table == wanted);
    let spot = Spot::find(text, &change.section, &change.key);
    let ways = match &change.value {
        Some(value) => spot.written(text, change, &shown(value)),
        None => vec![spot.taken_out(text, change, default.map(shown))],
    };
    ways.into_iter().flatten().find(|text| means(text)).ok_or_else(refused)
}

/// The meaning of a change.
fn apply(root: &mut Table, change: &Change) -> Option<()> {
    let name = change.section.key();
    let table = match &change.section {
        Section::Volume { by, name: volume } => {
            let list = root.entry(name).or_insert_with(|| Value::Array(Vec::new())).as_array_mut()?;
            if !list.iter().filter_map(Value::as_table).any(|table| change.section.names(table)) {
                let named = [((*by).to_owned(), Value::String(volume.clone()))];
                list.push(Value::Table(named.into_iter().collect()));
            }
            list.iter_mut().rev().filter_map(Value::as_table_mut).find(|table| change.section.names(table))?
        }
        _ => root.entry(name).or_insert_with(|| Value::Table(Table::new())).as_table_mut()?,
    };
    match &change.value {
        Some(value) => {
            let value = match value.clone() {
                ConfigValue::Truth(truth) => Value::Boolean(truth),
                ConfigValue::Number(number) => Value::Integer(number),
                ConfigValue::Text(text) => Value::String(text),
                ConfigValue::Texts(texts) => Value::Array(texts.into_iter().map(Value::String).collect()),
            };
            table.insert(change.key.clone(), value);
        }
        None => {
            table.remove(&change.key);
        }
    }
    Some(())
}

fn shown(value: &ConfigValue) -> String {
    match value {
        ConfigValue::Truth(truth) => truth.to_string(),
        ConfigValue::Number(number) => number.to_string(),
        ConfigValue::Text(text) => string(text),
        ConfigValue::Texts(texts) => list(texts),
    }
}

/// Where in a text a section and one of its settings are.
#[derive(Debug, Default)]
struct Spot {
    /// Where the header of the section, or its first setting, begins.
    section: Option<usize>,
    /// The setting, from the beginning of its key to the end of its value, and the value.
    setting: Option<(Range<usize>, Range<usize>)>,
    /// The end of the last setting of the section.
    last: Option<usize>,
}

impl Spot {
    fn find(text: &str, section: &Section, key: &str) -> Self {
        let Ok(document) = DeTable::parse(text) else { return Self::default() };
        let mut spot = Self::default();
        for (name, value) in document.get_ref() {
            if name.get_ref() != section.key() {
                continue;
            }
            match value.get_ref() {
                DeValue::Table(table) => spot.note(name.span(), table, key),
                DeValue::Array(items) => {
                    let of = |item: &Spanned<DeValue<'_>>| match (item.get_ref(), section) {
                        (DeValue::Table(table), Section::Volume { by, name }) => {
                            table.get(*by).and_then(|value| value.get_ref().as_str()) == Some(name)
                        }
                        _ => false,
                    };
                    if let Some(item) = items.iter().rev().find(|item| of(item))
                        && let DeValue::Table(table) = item.get_ref()
                    {
                        spot.note(item.span(), table, key);
                    }
                }
                _ => {}
            }
        }
        spot
    }

    fn note(&mut self, place: Range<usize>, table: &DeTable<'_>, key: &str) {
        self.section = Some(place.start);
        self.last = table.iter().map(|(_, value)| value.span().end).max();
        let found = table.iter().find(|(name, _)| name.get_ref() == key);
        self.setting = found.map(|(name, value)| (name.span().start..value.span().end, value.span()));
    }

    /// Ways to write `value`, best first.
    fn written(&self, text: &str, change: &Change, value: &str) -> Vec<Option<String>> {
        if let Some((_, old)) = &self.setting {
            return vec![replaced(text, old.clone(), value)];
        }
        let line = format!("{} = {value}\n", change.key);
        let at_the_end = || {
            let gap = if text.is_empty() {
                ""
            } else if text.ends_with('\n') {
                "\n"
            } else {
                "\n\n"
            };
            Some(format!("{text}{gap}{}{line}", change.section.header()))
        };
        let Some(start) = self.section else {
            // The header may be there as a comment, and with it the setting.
            let header =
                line_that(text, 0..text.len(), |line| line == format!("{OFF}{}", change.section.header().trim_end()));
            let off = header.clone().and_then(|header| {
                let text = replaced(text, header.start..header.start + OFF.len(), "")?;
                let spot = Self { section: Some(header.start), ..Self::default() };
                spot.written(&text, change, value).into_iter().flatten().next()
            });
            return vec![off, at_the_end()];
        };
        let range = start_of_line(text, start)..end_of_section(text, start);
        let off = line_that(text, range, |line| is_off(line, &change.key));
        let in_place = off.and_then(|off| replaced(text, off, &line));
        let place = end_of_line(text, self.last.unwrap_or(start));
        let after = replaced(
            text,
            place..place,
            &if text.get(..place).is_some_and(|t| t.ends_with('\n')) { line } else { format!("\n{line}") },
        );
        vec![in_place, after]
    }

    /// The text without the setting: as a comment with its default in its place, where it has one.
    fn taken_out(&self, text: &str, change: &Change, default: Option<String>) -> Option<String> {
        let (setting, _) = self.setting.clone()?;
        let (start, end) = (start_of_line(text, setting.start), end_of_line(text, setting.end));
        let indent = text.get(start..setting.start)?;
        let rest = text.get(setting.end..end)?.trim();
        if !indent.trim().is_empty() || !(rest.is_empty() || rest.starts_with('#')) {
            return None;
        }
        let comment = if rest.is_empty() { String::new() } else { format!(" {rest}") };
        let has_default = default.is_some();
        let line = match default {
            Some(default) => format!("{OFF}{} = {default}{comment}\n", change.key),
            None if rest.is_empty() => String::new(),
            None => format!("{}\n", comment.trim_start()),
        };
        // The file may have it as a comment already.
        let section = start_of_line(text, self.section?)..end_of_section(text, self.section?);
        let known = line_that(text, section, |line| is_off(line, &change.key)).is_some();
        replaced(text, start..end, if has_default && known && rest.is_empty() { "" } else { &line })
    }
}

fn replaced(text: &str, range: Range<usize>, by: &str) -> Option<String> {
    Some([text.get(..range.start)?, by, text.get(range.end..)?].concat())
}

/// Whether a line is the setting `key` without effect.
fn is_off(line: &str, key: &str) -> bool {
    let rest = line.trim_start().strip_prefix(OFF).and_then(|rest| rest.trim_start().strip_prefix(key));
    rest.is_some_and(|rest| rest.trim_start().starts_with('='))
}

/// The first line within `range` that `wanted` accepts, with its end.
fn line_that(text: &str, range: Range<usize>, wanted: impl Fn(&str) -> bool) -> Option<Range<usize>> {
    let mut start = range.start;
    for line in text.get(range)?.split_inclusive('\n') {
        if wanted(line.trim_end()) {
            return Some(start..start + line.len());
        }
        start += line.len();
    }
    None
}

fn start_of_line(text: &str, at: usize) -> usize {
    text.get(..at).and_then(|before| before.rfind('\n')).map_or(0, |newline| newline + 1)
}

/// After the newline.
fn end_of_line(text: &str, at: usize) -> usize {
    text.get(at..).and_then(|after| after.find('\n')).map_or(text.len(), |newline| at + newline + 1)
}

/// Before the next header, in effect or not.
fn end_of_section(text: &str, start: usize) -> usize {
    let from = end_of_line(text, start);
    let header = |line: &str| line.strip_prefix(OFF).unwrap_or(line).starts_with('[');
    line_that(text, from..text.len(), header).map_or(text.len(), |line| line.start)
}

#[cfg(test)]
#[path = "edit_tests.rs"]
mod tests;
