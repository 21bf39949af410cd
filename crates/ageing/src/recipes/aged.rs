//! Mixed files beside growing logs: fill the volume, delete some files, refill the holes, grow logs between them,
//! delete some files again.

use super::{KIB, MIB};
use crate::AgeError;
use crate::tree::{Tree, log_uniform};

const DIRECTORIES: u64 = 40;
const LOGS: u64 = 24;
/// Appends at most, on the reference volume.
const APPENDS: u64 = 7200;
/// Files between two syncs while refilling.
const SYNC_EVERY: u64 = 200;

/// Carries out the recipe.
pub(crate) fn aged(tree: &mut Tree<'_>) -> Result<(), AgeError> {
    tree.phase("fill", 0.0)?;
    tree.add_directories(DIRECTORIES)?;
    let mut number = 0;
    while tree.fill()? < 0.95 {
        let bytes = log_uniform(&mut tree.rng, 4 * KIB, 8 * MIB);
        if !tree.add_file(number % DIRECTORIES, bytes)? {
            break;
        }
        number += 1;
    }
    tree.sync()?;

    tree.phase("delete every other file", 0.5)?;
    let all = std::mem::take(&mut tree.live);
    for (position, made) in all.into_iter().enumerate() {
        if position % 2 == 0 {
            tree.live.push(made);
        } else {
            tree.unlink(&made)?;
        }
    }
    tree.sync()?;

    tree.phase("refill the holes", 0.55)?;
    let mut refilled = 0;
    while tree.fill()? < 0.90 {
        let most = if refilled % 8 == 0 { (16 * KIB, 64 * MIB) } else { (4 * KIB, MIB) };
        let bytes = log_uniform(&mut tree.rng, most.0, most.1);
        if !tree.add_file(number % DIRECTORIES, bytes)? {
            break;
        }
        number += 1;
        refilled += 1;
        if refilled % SYNC_EVERY == 0 {
            tree.sync()?;
        }
    }
    tree.sync()?;

    tree.phase("grow the logs", 0.85)?;
    let mut logs = Vec::new();
    for log in 0..LOGS {
        logs.push(tree.open_stream(log % DIRECTORIES)?);
    }
    'growing: for turn in 0..tree.scaled(APPENDS)? {
        let bytes = (4 * KIB) << tree.rng.u64(0..5);
        let Some(log) = logs.get_mut((turn % LOGS) as usize) else { break };
        if tree.fill()? >= 0.955 || !tree.append(log, bytes)? {
            break 'growing;
        }
    }
    tree.close(logs, false);

    tree.phase("delete at random", 0.95)?;
    tree.delete_down_to(0.85)
}
