//! Directories rewritten in fewer blocks: the object in the results of `analyze` and `optimize`, and its text.

use crate::text::{counted, size};
use longrun_engine::CompactedDirectories;
use longrun_layout::Bytes;
use serde::Serialize;
use std::fmt::Write as _;

/// What was done, or would be done.
#[derive(Clone, Debug, Serialize)]
pub struct DirectoriesFigures {
    directories: u64,
    freed_bytes: Bytes,
    left: Vec<LeftFigures>,
}

#[derive(Clone, Copy, Debug, Serialize)]
struct LeftFigures {
    reason: &'static str,
    directories: u64,
    #[serde(skip)]
    phrase: &'static str,
}

impl DirectoriesFigures {
    /// `None` when there was nothing to do.
    pub fn new(done: &CompactedDirectories) -> Option<Self> {
        let left = done.left.iter();
        let left: Vec<LeftFigures> = left
            .map(|(why, directories)| LeftFigures {
                reason: why.word(),
                directories: *directories,
                phrase: why.phrase(),
            })
            .collect();
        let is_any = done.directories > 0 || !left.is_empty();
        is_any.then_some(Self { directories: done.directories, freed_bytes: done.freed, left })
    }

    /// What a run would do, for people.
    pub fn foreseen(&self) -> String {
        let count = counted(self.directories, "directory takes", "directories take");
        self.text(&format!("{count} {} more than needed; optimize compacts them.", size(self.freed_bytes)))
    }

    /// What was done, for people.
    pub fn done(&self) -> String {
        let count = counted(self.directories, "directory", "directories");
        self.text(&format!("Compacted {count}, which freed {}.", size(self.freed_bytes)))
    }

    fn text(&self, first: &str) -> String {
        let mut text = if self.directories > 0 { format!("{first}\n") } else { String::new() };
        if !self.left.is_empty() {
            text.push_str("Not compacted:\n");
        }
        for left in &self.left {
            _ = writeln!(text, "  {:>14} {}", counted(left.directories, "directory", "directories"), left.phrase);
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use longrun_engine::WhyLeft;

    #[test]
    fn what_was_done_is_told_with_what_was_left() {
        let mut done = CompactedDirectories::default();
        assert!(DirectoriesFigures::new(&done).is_none());
        done.add(Bytes(8192));
        done.leave(WhyLeft::Casefold);
        done.leave(WhyLeft::Casefold);
        let figures = DirectoriesFigures::new(&done).unwrap();
        let text = figures.done();
        assert!(text.starts_with("Compacted 1 directory, which freed 8.00 KiB.\nNot compacted:\n"), "{text}");
        assert!(text.contains("2 directories whose names are found without regard to case"), "{text}");
        assert!(
            figures.foreseen().starts_with("1 directory takes 8.00 KiB more than needed"),
            "{}",
            figures.foreseen()
        );
        let json = serde_json::to_value(&figures).unwrap();
        assert_eq!(json["left"][0], serde_json::json!({"reason": "casefold", "directories": 2}));
    }
}
