//! What was marked as in use on a volume and nothing had: the object in the result of an optimization, and its text.

use crate::text::{counted, size};
use longrun_engine::Leaked;
use longrun_layout::Bytes;
use serde::Serialize;
use std::fmt::Write as _;

/// What was marked as in use and nothing had.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct LeakedFigures {
    freed_bytes: Bytes,
    freed_records: u64,
    kept_bytes: Bytes,
    #[serde(skip_serializing_if = "Option::is_none")]
    kept_because: Option<&'static str>,
}

impl LeakedFigures {
    /// `None` when there was nothing.
    pub fn new(leaked: Leaked) -> Option<Self> {
        let figures = Self {
            freed_bytes: leaked.freed,
            freed_records: leaked.records,
            kept_bytes: leaked.kept,
            kept_because: leaked.why_kept,
        };
        (leaked != Leaked::default()).then_some(figures)
    }

    /// What was done with it, for people.
    pub fn text(&self) -> String {
        if let Some(why) = self.kept_because {
            let kept = size(self.kept_bytes);
            return format!("{kept} marked as in use belong to no known file. They were not freed: {why}.\n");
        }
        let mut text = format!("Freed {} that were marked as in use and belonged to no file", size(self.freed_bytes));
        if self.freed_records > 0 {
            _ = write!(text, ", and {}", counted(self.freed_records, "file record", "file records"));
        }
        text + ".\n"
    }
}
