//! Reads one table of a TOML text. Each value is read by name; every wrong or unknown key becomes a problem with its
//! line. Pure.

use super::schedule::{self, Window};
use super::units::{self, Percent};
use longrun_layout::Bytes;
use std::collections::BTreeMap;
use std::fmt;
use std::ops::Range;
use std::time::Duration;
use toml::Spanned;
use toml::de::{DeTable, DeValue};

/// An error in the configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// The line, from 1.
    pub line: usize,
    /// What is wrong, and what is allowed.
    pub what: String,
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {}: {}", self.line, self.what)
    }
}

/// Collects problems, and converts positions in the text to lines.
pub struct Problems<'t> {
    text: &'t str,
    found: Vec<Problem>,
}

impl<'t> Problems<'t> {
    /// About `text`.
    #[must_use]
    pub const fn of(text: &'t str) -> Self {
        Self { text, found: Vec::new() }
    }

    /// At most so many are listed: a text that was made to have thousands of errors takes no longer than others.
    pub const MOST: usize = 100;

    /// Adds one at `place`.
    pub fn add(&mut self, place: &Range<usize>, what: impl Into<String>) {
        if self.found.len() >= Self::MOST {
            return;
        }
        let before = self.text.as_bytes().get(..place.start).unwrap_or(self.text.as_bytes());
        let line = 1 + before.iter().filter(|byte| **byte == b'\n').count();
        self.found.push(Problem { line, what: what.into() });
    }

    /// Whether there is none.
    #[must_use]
    pub const fn none(&self) -> bool {
        self.found.is_empty()
    }

    /// All of them, by line.
    #[must_use]
    pub fn into_found(mut self) -> Vec<Problem> {
        self.found.sort_by_key(|problem| problem.line);
        self.found
    }
}

/// The type of a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// `true` or `false`.
    Boolean,
    /// A whole number.
    Number,
    /// A size.
    Size,
    /// A duration.
    Duration,
    /// A share of a whole in per cent.
    Share,
    /// One of a few words.
    Choice,
    /// A text.
    Text,
    /// A list of texts.
    Texts,
    /// A list of windows of the week.
    Windows,
}

impl Kind {
    /// As it is written.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Boolean => "boolean",
            Self::Number => "number",
            Self::Size => "size",
            Self::Duration => "duration",
            Self::Share => "share",
            Self::Choice => "choice",
            Self::Text => "text",
            Self::Texts => "texts",
            Self::Windows => "windows",
        }
    }
}

/// A key that was read, whether or not it is in the table: what the program knows of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Asked {
    /// Its name.
    pub key: &'static str,
    /// The type of its value.
    pub kind: Kind,
    /// What is allowed, in words.
    pub allowed: String,
    /// The words, of a choice.
    pub choices: Vec<&'static str>,
}

/// A table being read.
pub struct Table<'t> {
    /// As it is written in the file, for messages: `[service]`.
    name: &'static str,
    /// Where it begins.
    pub place: Range<usize>,
    values: BTreeMap<String, (Range<usize>, Spanned<DeValue<'t>>)>,
    /// Values that were asked for, in order.
    pub asked: Vec<Asked>,
    /// Tables that were.
    tables: Vec<&'static str>,
}

impl<'t> Table<'t> {
    /// The text as a table; none, and a problem, where it is no TOML.
    pub fn of(text: &'t str, problems: &mut Problems<'_>) -> Option<Self> {
        match DeTable::parse(text) {
            Ok(document) => Some(Self::new("the top level of the file", document.span(), document.into_inner())),
            Err(error) => {
                let place = error.span().unwrap_or(0..0);
                // The parser's words may quote the file, and end up in a terminal.
                problems.add(&place, format!("not valid TOML: {}", error.message().escape_debug()));
                None
            }
        }
    }

    /// The table `table`, called `name`.
    pub fn new(name: &'static str, place: Range<usize>, table: DeTable<'t>) -> Self {
        let values = table.into_iter().map(|(key, value)| (key.get_ref().to_string(), (key.span(), value))).collect();
        Self { name, place, values, asked: Vec::new(), tables: Vec::new() }
    }

    /// The value of `key` as `read` understands it; a problem that says what is `allowed` otherwise.
    fn take<T>(
        &mut self,
        problems: &mut Problems<'_>,
        key: &'static str,
        kind: Kind,
        allowed: &str,
        read: impl FnOnce(&DeValue<'t>) -> Option<T>,
    ) -> Option<T> {
        self.asked.push(Asked { key, kind, allowed: allowed.to_owned(), choices: Vec::new() });
        let (_, value) = self.values.remove(key)?;
        let read = read(value.get_ref());
        if read.is_none() {
            problems.add(&value.span(), format!("{key} in {} must be {allowed}", self.name));
        }
        read
    }

    /// `true` or `false`.
    pub fn boolean(&mut self, problems: &mut Problems<'_>, key: &'static str) -> Option<bool> {
        self.take(problems, key, Kind::Boolean, "true or false", DeValue::as_bool)
    }

    /// A text that `read` understands.
    pub fn text<T>(
        &mut self,
        problems: &mut Problems<'_>,
        key: &'static str,
        allowed: &str,
        read: impl FnOnce(&str) -> Option<T>,
    ) -> Option<T> {
        self.take(problems, key, Kind::Text, allowed, |value| read(value.as_str()?))
    }

    /// One of the words `choices`, which `read` understands.
    pub fn choice<T>(
        &mut self,
        problems: &mut Problems<'_>,
        key: &'static str,
        allowed: &str,
        choices: &[&'static str],
        read: impl FnOnce(&str) -> Option<T>,
    ) -> Option<T> {
        let found = self.take(problems, key, Kind::Choice, allowed, |value| {
            value.as_str().filter(|word| choices.contains(word)).and_then(read)
        });
        if let Some(asked) = self.asked.last_mut() {
            asked.choices = choices.to_vec();
        }
        found
    }

    /// A share that `read` understands.
    pub fn share<T>(
        &mut self,
        problems: &mut Problems<'_>,
        key: &'static str,
        allowed: &str,
        read: impl FnOnce(&str) -> Option<T>,
    ) -> Option<T> {
        self.take(problems, key, Kind::Share, allowed, |value| read(value.as_str()?))
    }

    /// A size between `least` and `most`.
    pub fn size(&mut self, problems: &mut Problems<'_>, key: &'static str, least: Bytes, most: Bytes) -> Option<Bytes> {
        let (from, to) = (units::show_size(least), units::show_size(most));
        let allowed = format!("{}, from {from} to {to}", units::SIZE);
        let inside = |bytes: &Bytes| (least..=most).contains(bytes);
        self.take(problems, key, Kind::Size, &allowed, |value| units::parse_size(value.as_str()?).filter(inside))
    }

    /// A duration between `least` and `most`.
    pub fn duration(
        &mut self,
        problems: &mut Problems<'_>,
        key: &'static str,
        least: Duration,
        most: Duration,
    ) -> Option<Duration> {
        let (from, to) = (units::show_duration(least), units::show_duration(most));
        let allowed = format!("{}, from {from} to {to}", units::DURATION);
        let inside = |time: &Duration| (least..=most).contains(time);
        self.take(problems, key, Kind::Duration, &allowed, |value| {
            units::parse_duration(value.as_str()?).filter(inside)
        })
    }

    /// A share of at most `most` per cent.
    pub fn percent(&mut self, problems: &mut Problems<'_>, key: &'static str, most: u8) -> Option<Percent> {
        let allowed = format!("{}, from 0% to {most}%", units::PERCENT);
        let inside = |share: &Percent| share.get() <= most;
        self.take(problems, key, Kind::Share, &allowed, |value| units::parse_percent(value.as_str()?).filter(inside))
    }

    /// A whole number between `least` and `most`.
    pub fn number(&mut self, problems: &mut Problems<'_>, key: &'static str, least: u32, most: u32) -> Option<u32> {
        self.take(problems, key, Kind::Number, &format!("a whole number from {least} to {most}"), |value| {
            let number = value.as_integer()?;
            let number = u32::from_str_radix(number.as_str(), number.radix()).ok()?;
            (least..=most).contains(&number).then_some(number)
        })
    }

    /// A list of texts, each of which `read` understands.
    pub fn texts<T>(
        &mut self,
        problems: &mut Problems<'_>,
        key: &'static str,
        allowed: &str,
        read: impl Fn(&str) -> Option<T>,
    ) -> Option<Vec<T>> {
        self.list(problems, key, Kind::Texts, allowed, read)
    }

    /// A list of windows of the week.
    pub fn windows(&mut self, problems: &mut Problems<'_>, key: &'static str) -> Option<Vec<Window>> {
        self.list(problems, key, Kind::Windows, schedule::WINDOW, |text| text.parse().ok())
    }

    fn list<T>(
        &mut self,
        problems: &mut Problems<'_>,
        key: &'static str,
        kind: Kind,
        allowed: &str,
        read: impl Fn(&str) -> Option<T>,
    ) -> Option<Vec<T>> {
        let allowed = format!("a list, each {allowed}");
        self.take(problems, key, kind, &allowed, |value| {
            value.as_array()?.iter().map(|item| read(item.get_ref().as_str()?)).collect()
        })
    }

    /// A table inside this one; absent is empty.
    pub fn table(&mut self, problems: &mut Problems<'_>, key: &'static str, name: &'static str) -> Table<'t> {
        self.tables.push(key);
        let (place, table) = match self.values.remove(key) {
            Some((place, value)) => match value.into_inner() {
                DeValue::Table(table) => (place, table),
                _ => {
                    problems.add(&place, format!("{key} must be a table: write {name}"));
                    (place, DeTable::new())
                }
            },
            None => (self.place.clone(), DeTable::new()),
        };
        Table::new(name, place, table)
    }

    /// The tables of a list of tables; absent is none.
    pub fn tables(&mut self, problems: &mut Problems<'_>, key: &'static str, name: &'static str) -> Vec<Table<'t>> {
        self.tables.push(key);
        let Some((place, value)) = self.values.remove(key) else { return Vec::new() };
        let DeValue::Array(items) = value.into_inner() else {
            problems.add(&place, format!("{key} must be a list of tables: write {name}"));
            return Vec::new();
        };
        let mut tables = Vec::new();
        for item in items {
            let place = item.span();
            match item.into_inner() {
                DeValue::Table(table) => tables.push(Table::new(name, place, table)),
                _ => problems.add(&place, format!("{key} must be a list of tables: write {name}")),
            }
        }
        tables
    }

    /// Takes out `key`, whatever it holds, and says why it must not be there.
    pub fn refuse(&mut self, problems: &mut Problems<'_>, key: &str, why: &str) {
        if let Some((place, _)) = self.values.remove(key) {
            problems.add(&place, format!("{key} in {} is refused: {why}", self.name));
        }
    }

    /// Ends the reading with all that is left: keys that the program does not know, each with a text or a list of texts.
    pub fn named_texts(self, problems: &mut Problems<'_>) -> Vec<(Range<usize>, String, Vec<String>)> {
        let texts = |value: &DeValue<'t>| match value {
            DeValue::String(text) => Some(vec![text.to_string()]),
            DeValue::Array(items) => items.iter().map(|item| item.get_ref().as_str().map(str::to_owned)).collect(),
            _ => None,
        };
        let mut all = Vec::new();
        for (key, (place, value)) in self.values {
            match texts(value.get_ref()) {
                Some(values) => all.push((place, key, values)),
                None => problems.add(&place, format!("{key:?} in {} must be a text or a list of texts", self.name)),
            }
        }
        all
    }

    /// Ends the reading: what no one asked for is unknown.
    pub fn finish(self, problems: &mut Problems<'_>) {
        let known: Vec<&str> = self.asked.iter().map(|asked| asked.key).chain(self.tables.iter().copied()).collect();
        for (key, (place, _)) in self.values.iter().take(Problems::MOST) {
            let near = nearest(key, &known)
                .map_or_else(|| format!("known are {}", known.join(", ")), |near| format!("did you mean {near}?"));
            problems.add(place, format!("unknown key {key:?} in {}; {near}", self.name));
        }
    }
}

/// The known key that is spelled most like `key`, if any is near enough to have been meant.
fn nearest(key: &str, known: &[&'static str]) -> Option<&'static str> {
    let (distance, near) = known.iter().map(|known| (distance(key, known), *known)).min()?;
    (distance <= 2.max(near.len() / 3)).then_some(near)
}

/// How many letters must be put in, left out or replaced to make `b` of `a`.
fn distance(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, from) in a.chars().enumerate() {
        let mut diagonal = i;
        let mut left = i + 1;
        for (above, to) in row.iter_mut().skip(1).zip(&b) {
            let best = (diagonal + usize::from(from != *to)).min(*above + 1).min(left + 1);
            diagonal = std::mem::replace(above, best);
            left = best;
        }
        if let Some(first) = row.first_mut() {
            *first = i + 1;
        }
    }
    row.last().copied().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nearest_key_is_named_only_when_it_may_have_been_meant() {
        assert_eq!((distance("kitten", "sitting"), distance("", "abc"), distance("abc", "abc")), (3, 3, 0));
        let known = ["socket", "state_directory", "log_level"];
        assert_eq!(nearest("sokcet", &known), Some("socket"));
        assert_eq!(nearest("log-level", &known), Some("log_level"));
        assert_eq!(nearest("colour", &known), None);
        assert_eq!(nearest("x", &[]), None);
    }
}
