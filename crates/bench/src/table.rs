//! Results as tables, sentences and chart data: the same for terminals, documents and web pages.
//!
//! Owns how a table is drawn, never its content.

use std::fmt::Write as _;

/// What a benchmark found, for people. For programs it is serialized.
pub trait Findings: serde::Serialize {
    /// What was done, in a few words.
    fn title(&self) -> String;

    /// What was measured.
    fn table(&self) -> Table;

    /// The results, one sentence each.
    fn sentences(&self) -> Vec<String>;

    /// What of it is to be seen in pictures.
    fn charts(&self) -> Vec<Chart>;
}

/// Values of things that have names, to be drawn beside each other.
#[derive(Clone, Debug, PartialEq)]
pub struct Chart {
    /// What they are, with the unit.
    pub title: String,
    /// What the values of each thing are, if there are several.
    pub parts: Vec<String>,
    /// The things, and their values.
    pub groups: Vec<(String, Vec<f64>)>,
}

impl Chart {
    /// One with these parts.
    #[must_use]
    pub fn new(title: &str, parts: &[&str], groups: Vec<(String, Vec<f64>)>) -> Self {
        Self { title: title.to_owned(), parts: parts.iter().map(ToString::to_string).collect(), groups }
    }
}

/// A table: the first column says what a row is about.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Table {
    /// The names of the columns.
    pub columns: Vec<String>,
    /// As many cells each as there are columns.
    pub rows: Vec<Vec<String>>,
}

impl Table {
    /// An empty one.
    #[must_use]
    pub fn with_columns(columns: &[&str]) -> Self {
        Self { columns: columns.iter().map(ToString::to_string).collect(), rows: Vec::new() }
    }

    /// For a terminal: columns as wide as what is in them.
    #[must_use]
    pub fn text(&self) -> String {
        let lines = || std::iter::once(&self.columns).chain(&self.rows);
        let wide = |column: usize| {
            lines().filter_map(|line| line.get(column)).map(|cell| cell.chars().count()).max().unwrap_or_default()
        };
        let widths: Vec<usize> = (0..self.columns.len()).map(wide).collect();
        let mut text = String::new();
        for line in lines() {
            for (column, (cell, width)) in line.iter().zip(&widths).enumerate() {
                // Writing to a string never fails.
                _ = if column == 0 { write!(text, "  {cell:<width$}") } else { write!(text, "  {cell:>width$}") };
            }
            text.truncate(text.trim_end().len());
            text.push('\n');
        }
        text
    }

    /// For a document in Markdown.
    #[must_use]
    pub fn markdown(&self) -> String {
        let line = |cells: &[String]| format!("| {} |\n", cells.join(" | "));
        let rows: String = self.rows.iter().map(|row| line(row)).collect();
        let ruler = "---:|".repeat(self.columns.len().saturating_sub(1));
        format!("{}|---|{ruler}\n{rows}", line(&self.columns))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_is_drawn_for_terminals_and_documents() {
        let mut table = Table::with_columns(&["what", "s"]);
        table.rows.push(vec!["reading µ".to_owned(), "12.5".to_owned()]);
        table.rows.push(vec!["x".to_owned(), "1".to_owned()]);
        assert_eq!(table.text(), "  what          s\n  reading µ  12.5\n  x             1\n");
        assert_eq!(table.markdown(), "| what | s |\n|---|---:|\n| reading µ | 12.5 |\n| x | 1 |\n");
    }
}
