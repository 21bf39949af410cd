//! What a pass would do: the same pass, on a simulation of the volume.

use super::pass::{Scope, run};
use super::sim::SimChunkedVolume;
use super::traits::Picture;
use crate::engine::{Expected, ExpectedMoves, PassError, Settings, Unobserved, most_improved};
use longrun_layout::{Bytes, FileIndex, VolumeLayout};
use std::collections::BTreeMap;
use std::time::Duration;

/// Carries a pass out on a simulation of `picture`. Where things come to lie is the volume's own decision: a foreseen figure
/// is near, not exact. Holds the layout several times while it works.
///
/// # Errors
/// [`PassError`] when the simulation contradicts itself, which would be a fault of it.
pub fn foresee(picture: &Picture, scope: &Scope, settings: &Settings) -> Result<Expected, PassError> {
    let mut volume = SimChunkedVolume::new(picture);
    let settings = Settings { deadline: None, patience: Duration::ZERO, ..settings.clone() };
    let (report, done) = run(&mut volume, scope, &settings, &mut Unobserved)?;
    let total = done.values().fold(ExpectedMoves::default(), |sum, kind| ExpectedMoves {
        moves: sum.moves + kind.moves,
        bytes: sum.bytes + kind.bytes,
    });
    let after = volume.layout();
    let moved = changed(&picture.layout, &after);
    Ok(Expected {
        before: report.before,
        after: report.after,
        moves: total.moves,
        bytes: total.bytes,
        by_reason: done,
        barriers: report.barriers,
        most_improved: most_improved(&picture.layout, &after, &moved),
    })
}

/// Files that lie in fewer pieces, with their size: both layouts list the same files in the same order.
fn changed(before: &VolumeLayout, after: &VolumeLayout) -> BTreeMap<FileIndex, Bytes> {
    before
        .files()
        .filter(|file| after.file(file.index).is_some_and(|then| then.fragments() < file.fragments()))
        .map(|file| (file.index, before.block_size().to_bytes(file.size())))
        .collect()
}
