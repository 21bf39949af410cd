//! Rewriting a disk image whose free space was given back, so that it becomes smaller in any format.
//!
//! Owns the progress that is shown, and what errors mean to the shell. The image is `longrun_image`'s.

use crate::args::reclaim::ReclaimArgs;
use crate::exit::{Failure, Status};
use crate::progress::{Unit, Watch};
use crate::report::compaction::Compaction;
use crate::report::print;
use longrun_engine::Progress as _;
use longrun_image::{CompactError, Step, check_compactable, compact};
use std::path::Path;
use std::time::Instant;

/// Refuses what could not be compacted, before anything is changed.
pub fn check(args: &ReclaimArgs, image: &Path) -> Result<(), Failure> {
    if args.compact { check_compactable(image).map_err(failure) } else { Ok(()) }
}

/// Compacts the image, if that is asked for. Prints text, but no JSON.
pub fn run(args: &ReclaimArgs, image: &Path, watch: &Watch) -> Result<Option<Compaction>, Failure> {
    const PARTS: f64 = 1000.0;
    if !args.compact || args.dry_run {
        return Ok(None);
    }
    let begun = Instant::now();
    let mut shown = None;
    let done = compact(image, args.rate, &mut |step, share| {
        if shown != Some(step) {
            shown = Some(step);
            let name = match step {
                Step::Rewrite => "rewriting the image",
                Step::Compare => "comparing the new image with the original",
            };
            watch.phase(name, Unit::Steps);
        }
        watch.at((share * PARTS) as u64, PARTS as u64);
        !longrun_engine::Progress::cancelled(watch)
    });
    watch.finish();
    let told = Compaction::new(&done.map_err(failure)?, begun.elapsed());
    if !args.json {
        print(&told.text())?;
    }
    Ok(Some(told))
}

fn failure(error: CompactError) -> Failure {
    let status = match error {
        CompactError::Image(_) | CompactError::Unsupported { .. } | CompactError::NoRoom { .. } => Status::Refused,
        CompactError::Program { .. } | CompactError::Differs { .. } | CompactError::Io { .. } => Status::Failed,
        CompactError::Stopped { .. } => Status::Interrupted,
    };
    Failure::new(status, error.to_string())
}
