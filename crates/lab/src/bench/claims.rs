//! The judgement: one line for each goal on each volume. It states whether the goal was met, and whether the result is
//! better than that of the peer.

use super::report::MIB;
use super::{AnalysisResult, Optimized, RecipeResult};
use crate::{FileSystemKind, Medium};
use anyhow::Result;
use longrun_ageing::Recipe;
use std::fmt::Write as _;

/// One line.
fn claim(text: &mut String, holds: bool, what: &str) -> Result<()> {
    writeln!(text, "- {}: {what}", if holds { "holds" } else { "**not better, or goal missed**" })?;
    Ok(())
}

/// What was aimed at on volumes of a recipe, each as the most that is allowed.
struct Goals {
    excess: u64,
    /// Free pieces, where there is a goal.
    pieces: Option<u64>,
    /// What is counted (moved or written) as a share of the used bytes.
    share: f64,
}

/// The share of the excess that an efficient pass takes away at least; most go on to 95 %.
const EFFICIENT: f64 = 0.9;

fn goals(kind: FileSystemKind, recipe: Recipe) -> Goals {
    match kind {
        FileSystemKind::Ext4 => {
            let pieces = match recipe {
                Recipe::Aged | Recipe::Media => Some(22),
                Recipe::Server | Recipe::Office | Recipe::Tight => Some(8),
                Recipe::Git | Recipe::Churn | Recipe::Crowded => None,
            };
            Goals { excess: 2, pieces, share: 0.95 }
        }
        FileSystemKind::Xfs => {
            let (excess, pieces) = match recipe {
                Recipe::Churn => (0, Some(100)),
                Recipe::Crowded => (5, None),
                Recipe::Server => (8, Some(80)),
                Recipe::Office | Recipe::Tight => (100, Some(50)),
                Recipe::Aged | Recipe::Media | Recipe::Git => (8, None),
            };
            Goals { excess, pieces, share: 1.3 }
        }
        FileSystemKind::Btrfs => Goals { excess: 500, pieces: Some(20), share: 3.0 },
    }
}

/// The lines about one volume.
pub(super) fn claims(text: &mut String, result: &RecipeResult) -> Result<()> {
    let (Some(peer), Some(full), Some(efficient)) =
        (result.peer(), result.of("longrun full"), result.of("longrun efficient"))
    else {
        return Ok(());
    };
    let volume = format!("{} {} ({})", result.kind.name(), result.recipe, result.medium.name());
    full_pass(text, &volume, result, full)?;
    for other in result.optimized.iter().filter(|other| !other.is_ours) {
        claim(
            text,
            full.after.free.pieces < other.after.free.pieces && full.after.excess <= other.after.excess,
            &format!(
                "{volume}, full against {}: excess {} against {}, free pieces {} against {}",
                other.name, full.after.excess, other.after.excess, full.after.free.pieces, other.after.free.pieces
            ),
        )?;
    }
    efficient_pass(text, &volume, result, (efficient, peer))?;
    if let Some(within) = result.optimized.iter().find(|optimized| optimized.name.contains("within")) {
        let (gone, written) = (gone(result, within), within.traffic.written);
        let holds = match result.kind {
            FileSystemKind::Ext4 => within.after.excess <= peer.after.excess && written < peer.traffic.written,
            FileSystemKind::Xfs | FileSystemKind::Btrfs => gone >= 0.9 && written * 2 <= peer.traffic.written,
        };
        let goal = match result.kind {
            FileSystemKind::Ext4 => "no more excess left for fewer bytes",
            FileSystemKind::Xfs | FileSystemKind::Btrfs => {
                "at least 90 % of the excess gone for at most half the bytes"
            }
        };
        claim(
            text,
            holds,
            &format!(
                "{volume}, {}: {goal}: excess {} ({:.1} % gone) against {}, written {:.0} MiB against {:.0} MiB",
                within.name.trim_start_matches("longrun "),
                within.after.excess,
                gone * 100.0,
                peer.after.excess,
                written as f64 / MIB,
                peer.traffic.written as f64 / MIB
            ),
        )?;
    }
    Ok(())
}

/// The lines about each volume that was measured on both media: the devices are as fast, so a full pass must be, too.
pub(super) fn media_claims(text: &mut String, results: &[RecipeResult]) -> Result<()> {
    const GOAL: f64 = 1.1;
    for rotating in results.iter().filter(|result| result.medium == Medium::Rotating) {
        let same = |other: &&RecipeResult| (other.kind, other.recipe) == (rotating.kind, rotating.recipe);
        let solid = results.iter().filter(same).find(|other| other.medium == Medium::SolidState);
        let per_byte = |result: &RecipeResult| {
            let full = result.of("longrun full")?;
            Some(full.seconds / full.bytes_moved.filter(|bytes| *bytes > 0)? as f64)
        };
        let Some((solid, rotating_time)) = solid.and_then(per_byte).zip(per_byte(rotating)) else { continue };
        let (ratio, volume) = (solid / rotating_time, format!("{} {}", rotating.kind.name(), rotating.recipe));
        let what = "full: for each byte at most 1.1 of the time where the device does not rotate as where it does";
        claim(text, ratio <= GOAL, &format!("{volume}, {what}: {ratio:.2}"))?;
    }
    Ok(())
}

/// The share of the excess that a tool has removed.
fn gone(result: &RecipeResult, by: &Optimized) -> f64 {
    1.0 - by.after.excess as f64 / result.before.excess.max(1) as f64
}

fn full_pass(text: &mut String, volume: &str, result: &RecipeResult, full: &Optimized) -> Result<()> {
    let goals = goals(result.kind, result.recipe);
    let excess = full.after.excess;
    claim(
        text,
        excess <= goals.excess,
        &format!("{volume}, full: at most {} excess fragments: {excess}", goals.excess),
    )?;
    if let Some(goal) = goals.pieces {
        let now = full.after.free.pieces;
        claim(text, now <= goal, &format!("{volume}, full: at most {goal} free pieces: {now}"))?;
    }
    if let Some(possible) = full.after.longest_possible {
        let reached = full.after.free.largest_bytes as f64 / possible.max(1) as f64;
        claim(
            text,
            reached >= 0.8,
            &format!(
                "{volume}, full: the largest free piece at least 0.8 of what the immovable leaves room for ({:.1} MiB): {reached:.2}",
                possible as f64 / MIB
            ),
        )?;
    }
    let (what, bytes) = match result.kind {
        FileSystemKind::Ext4 => ("moves", full.bytes_moved.unwrap_or_default()),
        FileSystemKind::Xfs | FileSystemKind::Btrfs => ("writes", full.traffic.written),
    };
    let share = bytes as f64 / result.used_bytes as f64;
    let goal = goals.share;
    claim(text, share <= goal, &format!("{volume}, full: {what} at most {goal} of the used bytes: {share:.2}"))?;
    if let Some((before, after)) = result.before.data.zip(full.after.data) {
        claim(
            text,
            after <= before,
            &format!(
                "{volume}, full: data takes no more space, whatever shares it: {:.1} MiB before, {:.1} MiB after",
                before as f64 / MIB,
                after as f64 / MIB
            ),
        )?;
    }
    if let Some(copy) = &result.copy {
        let speed = full.bytes_moved.unwrap_or_default() as f64 / full.seconds;
        let ratio = speed / (copy.bytes as f64 / copy.seconds);
        claim(
            text,
            ratio >= 0.6,
            &format!("{volume}, full: at least 0.6 of the speed of cp + fsync, scan and planning included: {ratio:.2}"),
        )?;
    }
    Ok(())
}

fn efficient_pass(
    text: &mut String,
    volume: &str,
    result: &RecipeResult,
    (efficient, peer): (&Optimized, &Optimized),
) -> Result<()> {
    let gone = gone(result, efficient);
    claim(
        text,
        gone >= EFFICIENT,
        &format!("{volume}, efficient: at least {:.0} % of the excess gone: {:.1} %", EFFICIENT * 100.0, gone * 100.0),
    )?;
    if result.kind == FileSystemKind::Ext4 {
        let moved = efficient.bytes_moved.unwrap_or_default() as f64 / result.used_bytes as f64;
        claim(text, moved <= 0.45, &format!("{volume}, efficient: moves at most 0.45 of the used bytes: {moved:.2}"))?;
        claim(
            text,
            efficient.after.excess <= peer.after.excess && efficient.traffic.written < peer.traffic.written,
            &format!(
                "{volume}, efficient against {}: excess {} against {}, written {:.0} MiB against {:.0} MiB",
                peer.name,
                efficient.after.excess,
                peer.after.excess,
                efficient.traffic.written as f64 / MIB,
                peer.traffic.written as f64 / MIB
            ),
        )
    } else {
        Ok(())
    }
}

/// The lines about an analysis.
pub(super) fn analysis_claims(text: &mut String, result: &AnalysisResult) -> Result<()> {
    let AnalysisResult { volume, kind, judged, analysis: a } = result;
    let volume = format!("{} {volume}", kind.name());
    if let Some(peer) = a.e4defrag_seconds {
        let times = peer / a.longrun_seconds;
        claim(
            text,
            times >= 10.0,
            &format!("{volume}: analysis at least 10 times as fast as `e4defrag -c`: {times:.1} times"),
        )?;
    }
    let times = a.walk_seconds / a.longrun_seconds;
    claim(text, times > 1.0, &format!("{volume}: analysis faster than mapping each file: {times:.1} times"))?;
    let agrees = a.claimed == (judged.excess + judged.directory_excess, Some(judged.free.pieces));
    claim(text, agrees, &format!("{volume}: our figures agree with filefrag and the file system's own tool"))
}
