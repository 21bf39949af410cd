//! What rewriting a disk image gained: a part of what `reclaim --json` prints, and its text.

use crate::text::{printable_path, size};
use longrun_image::Compacted;
use longrun_layout::Bytes;
use serde::Serialize;
use std::time::Duration;

/// What rewriting an image gained.
#[derive(Clone, Debug, Serialize)]
pub struct Compaction {
    /// False when the new image was not smaller, so that the original stayed.
    replaced: bool,
    /// What the image took on its storage.
    allocated_before_bytes: u64,
    /// What it takes now.
    allocated_after_bytes: u64,
    seconds: f64,
    /// What an interrupted run had left beside the image, if something; it was removed.
    #[serde(skip_serializing_if = "Option::is_none")]
    removed_leftovers: Option<String>,
}

impl Compaction {
    /// Puts what was done into the form that is reported.
    pub fn new(done: &Compacted, time: Duration) -> Self {
        Self {
            replaced: done.is_replaced,
            allocated_before_bytes: done.before.0,
            allocated_after_bytes: done.after.0,
            seconds: (time.as_secs_f64() * 1e4).round() / 1e4,
            removed_leftovers: done.removed.as_deref().map(printable_path),
        }
    }

    /// The same for people.
    pub fn text(&self) -> String {
        let (before, after) = (size(Bytes(self.allocated_before_bytes)), size(Bytes(self.allocated_after_bytes)));
        let mut text = match &self.removed_leftovers {
            Some(left) => format!("An interrupted run had left {left}, which was removed.\n"),
            None => String::new(),
        };
        text += &if self.replaced {
            format!(
                "The image was rewritten and verified in {:.1} s: it took {before}, and takes {after} now.\n",
                self.seconds
            )
        } else {
            format!("Rewritten, the image would not be smaller. It was not replaced, and takes {before}.\n")
        };
        text
    }
}
