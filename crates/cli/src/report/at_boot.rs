//! What `optimize` tells about what is read at boot: text and JSON.

use crate::text::{counted, size};
use longrun_layout::Bytes;
use serde::Serialize;
use std::time::Duration;

/// Files that come together, as printed as JSON. Times are those of reading them ahead on a slow hard disk, by the model, in seconds.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Together {
    /// How many files.
    pub files: u64,
    /// Their size.
    pub bytes: Bytes,
    /// As they lay.
    pub before: f64,
    /// Side by side.
    pub expected: f64,
    /// What was moved.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub moved: Option<Bytes>,
    /// As they lie when that is done.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reached: Option<f64>,
}

impl Together {
    /// Nothing is moved yet.
    pub fn planned(files: u64, bytes: Bytes, before: Duration, expected: Duration) -> Self {
        let (before, expected) = (before.as_secs_f64(), expected.as_secs_f64());
        Self { files, bytes, before, expected, moved: None, reached: None }
    }

    /// The plan, for people.
    pub fn text(&self, only_planned: bool) -> String {
        let Self { files, bytes, before, expected, .. } = *self;
        let files = counted(files, "file comes", "files come");
        let only = if only_planned { "  Only planned: nothing is moved for it.\n" } else { "" };
        format!(
            "Read at boot: {files} together ({}); read ahead on a slow hard disk in {expected:.1} s instead of {before:.1} s.\n{only}",
            size(bytes)
        )
    }

    /// What came of it, for people.
    pub fn result(&self) -> String {
        let Some((moved, reached)) = self.moved.zip(self.reached) else { return String::new() };
        let before = self.before;
        format!(
            "Read at boot: {} moved, so that it lies together; read ahead in {reached:.1} s instead of {before:.1} s.\n",
            size(moved)
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_told_what_comes_together_and_what_that_gave() {
        let seconds = Duration::from_secs_f64;
        let planned = Together::planned(1480, Bytes(70 << 20), seconds(2.91), seconds(1.04));
        let done = Together { moved: Some(Bytes(69 << 20)), reached: Some(1.1), ..planned };
        insta::assert_snapshot!(planned.text(true) + &planned.result() + &done.result(), @"
        Read at boot: 1,480 files come together (70.0 MiB); read ahead on a slow hard disk in 1.0 s instead of 2.9 s.
          Only planned: nothing is moved for it.
        Read at boot: 69.0 MiB moved, so that it lies together; read ahead in 1.1 s instead of 2.9 s.
        ");
    }
}
