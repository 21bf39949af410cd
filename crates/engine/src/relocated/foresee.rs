//! Predicts a pass by running the same pass on a simulation of the volume.

use super::pass::{Ended, run};
use super::traits::Picture;
use crate::sim::SimChunkedVolume;
use crate::{
    Expected, ExpectedMoves, NoProgress, Pacer, PassError, PlanError, Settings, Unobserved, Volume, most_improved,
};
use longrun_layout::{Blocks, Bytes, FileIndex, FileView, VolumeLayout};
use longrun_planner::{Gain, Nothing, Policy, why_nothing};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// Carries a pass out on a simulation of `picture`. Where things end up is the volume's own decision: a foreseen figure
/// is near, not exact. Holds the layout several times while it works.
///
/// # Errors
/// [`PlanError::Simulation`] when the simulation contradicts itself, which would be a fault of it.
pub fn foresee(picture: &Picture, settings: &Settings) -> Result<Expected, PlanError> {
    let (mut expected, after) = simulate(picture, settings).map_err(Box::new)?;
    let moved = changed(&picture.layout, &after);
    expected.most_improved = most_improved(&picture.layout, &after, &moved);
    drop(after);
    if expected.moves == 0 {
        expected.nothing = Some(nothing(picture, settings));
    }
    Ok(expected)
}

fn simulate(picture: &Picture, settings: &Settings) -> Result<(Expected, VolumeLayout), PassError> {
    let mut volume = SimChunkedVolume::new(picture);
    let settings = Settings { deadline: None, patience: Duration::ZERO, ..settings.clone() };
    let first = volume.scan(&NoProgress)?;
    let mut nobody = Unobserved;
    let Ended { report, done, .. } = run(&mut volume, first, Pacer::new(&settings, &mut nobody), &settings)?;
    let total = done.values().fold(ExpectedMoves::default(), |sum, kind| ExpectedMoves {
        moves: sum.moves + kind.moves,
        bytes: sum.bytes + kind.bytes,
    });
    let expected = Expected {
        before: report.before,
        after: report.after,
        moves: total.moves,
        bytes: total.bytes,
        by_reason: done,
        barriers: report.barriers,
        most_improved: Vec::new(),
        nothing: None,
    };
    Ok((expected, volume.layout()))
}

fn nothing(picture: &Picture, settings: &Settings) -> Nothing {
    let layout = &picture.layout;
    let staying: BTreeSet<FileIndex> = picture.staying.iter().map(|(file, _)| *file).collect();
    let is_meant = |file: &FileView<'_>| settings.scope.has(file);
    let gain = Gain::of_those(layout, is_meant, |file| file.is_movable() && !staying.contains(&file.index));
    let size = layout.block_size();
    let moves = |policy: Policy| {
        let budget = policy.budget.map(|blocks| size.to_bytes(blocks));
        let settings = Settings { mode: policy.mode, budget, ..settings.clone() };
        // What cannot be simulated finds nothing.
        simulate(picture, &settings).map_or(Blocks(0), |(expected, _)| size.to_blocks(expected.bytes))
    };
    why_nothing(layout, Blocks(0), settings.policy(layout, Bytes(0)), gain, moves)
}

/// Files that lie in fewer pieces, with their size: both layouts list the same files in the same order.
fn changed(before: &VolumeLayout, after: &VolumeLayout) -> BTreeMap<FileIndex, Bytes> {
    before
        .files()
        .filter(|file| after.file(file.index).is_some_and(|then| then.fragments() < file.fragments()))
        .map(|file| (file.index, before.block_size().to_bytes(file.size())))
        .collect()
}
