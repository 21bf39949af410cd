//! What `boot` reports.

use crate::text::{count, counted, size};
use longrun_boot::{History, Learned, List, Names, Next, Plan, Recorded, Run};
use longrun_layout::Bytes;
use serde::Serialize;
use std::fmt::Write as _;

/// What a recording has led to.
#[derive(Debug, Serialize)]
pub struct Report {
    list: String,
    reads: u64,
    lost: u64,
    was_preloaded: bool,
    seconds: Option<f64>,
    state: Listed,
}

impl Report {
    /// Of one recording.
    pub fn of(names: &Names, learned: &Learned, recorded: &Recorded, lost: u64) -> Self {
        Self {
            list: names.as_str().to_owned(),
            reads: learned.reads as u64,
            lost,
            was_preloaded: recorded.outcome.is_some(),
            seconds: recorded.took.map(|took| took.as_secs_f64()),
            state: Listed::of(names, Some(&learned.list), &learned.history, learned.plan.as_ref()),
        }
    }

    /// For people.
    pub fn text(&self) -> String {
        let lost = if self.lost > 0 { format!(" ({} more were lost)", count(self.lost)) } else { String::new() };
        format!("{} recorded{lost}\n{}", counted(self.reads, "read", "reads"), self.state.text())
    }
}

/// What is known of a list.
#[derive(Debug, Serialize)]
pub struct Listed {
    list: String,
    recordings: u32,
    files: u64,
    data_bytes: Bytes,
    metadata_bytes: Bytes,
    next: &'static str,
    next_data_bytes: Bytes,
    next_metadata_bytes: Bytes,
    expected_seconds: Option<f64>,
    off: Option<String>,
    median_seconds_with: Option<f64>,
    median_seconds_without: Option<f64>,
    runs: Vec<Run>,
}

impl Listed {
    /// Of what is kept.
    pub fn of(names: &Names, list: Option<&List>, history: &History, plan: Option<&Plan>) -> Self {
        let (data_bytes, metadata_bytes) = list.map_or((Bytes(0), Bytes(0)), List::bytes);
        let (next_data_bytes, next_metadata_bytes) = plan.map_or((Bytes(0), Bytes(0)), Plan::bytes);
        let (median_seconds_with, median_seconds_without) = history.medians();
        let next = match (history.next(), plan) {
            (Next::Off, _) => "off",
            (Next::Preload, Some(_)) => "preload",
            (Next::Preload, None) => "nothing listed",
            (Next::Without, _) => "without, to compare",
        };
        Self {
            list: names.as_str().to_owned(),
            recordings: list.map_or(0, |list| list.boots),
            files: list.map_or(0, |list| list.files().len() as u64),
            data_bytes,
            metadata_bytes,
            next,
            next_data_bytes,
            next_metadata_bytes,
            expected_seconds: plan.map(|plan| plan.expected.as_secs_f64()),
            off: history.off.clone(),
            median_seconds_with,
            median_seconds_without,
            runs: history.runs.clone(),
        }
    }

    /// For people.
    pub fn text(&self) -> String {
        let mut text = format!(
            "{}: {} in {} of {}, and {} of metadata\n",
            self.list,
            size(self.data_bytes),
            counted(self.files, "file", "files"),
            counted(u64::from(self.recordings), "recording", "recordings"),
            size(self.metadata_bytes)
        );
        _ = match (&self.off, self.next) {
            (Some(reason), _) => writeln!(text, "  next time: off: {reason}"),
            (None, "preload") => writeln!(
                text,
                "  next time: {} of files and {} of metadata are read ahead",
                size(self.next_data_bytes),
                size(self.next_metadata_bytes)
            ),
            (None, next) => writeln!(text, "  next time: {next}"),
        };
        let seconds = |seconds: Option<f64>| seconds.map_or("unknown".to_owned(), |seconds| format!("{seconds:.1} s"));
        if self.median_seconds_with.is_some() || self.median_seconds_without.is_some() {
            let (with, without) = (seconds(self.median_seconds_with), seconds(self.median_seconds_without));
            _ = writeln!(text, "  took (median): with reading ahead {with}, without {without}");
        }
        if let Some((used, data)) = self.runs.iter().rev().find_map(|run| {
            let preloaded = run.preloaded?;
            Some((preloaded.used?, preloaded.data))
        }) {
            _ = writeln!(text, "  last time {:.0} % of {} were used", used * 100.0, size(data));
        }
        text
    }
}
