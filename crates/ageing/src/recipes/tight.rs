//! A volume that is nearly full and in use: documents are saved again, others grow side by side, and one file is written little
//! by little between all of them; 96.5 % full.

use super::churn::grow_to;
use super::{KIB, MIB};
use crate::AgeError;
use crate::tree::{Manner, Tree, log_uniform};

const DIRECTORIES: u64 = 64;
const FULL: f64 = 0.965;
/// Rounds in which a part of the documents is replaced.
const ROUNDS: u32 = 4;
/// Appends to the file that is written little by little. Each is about a fragment.
const APPENDS: u64 = 900;

/// Carries out the recipe.
pub(crate) fn tight(tree: &mut Tree<'_>) -> Result<(), AgeError> {
    tree.add_directories(DIRECTORIES)?;
    tree.phase("fill", 0.0)?;
    let mut number = 0;
    fill(tree, &mut number, FULL)?;
    for round in 0..ROUNDS {
        tree.phase("save documents again", 0.3 + 0.1 * f64::from(round))?;
        tree.delete_down_to(FULL - 0.08)?;
        fill(tree, &mut number, FULL - 0.04)?;
        grow_to(tree, FULL - 0.01)?;
    }
    tree.phase("write one file little by little", 0.8)?;
    let appends = tree.scaled(APPENDS)?;
    tree.delete_down_to(FULL - 0.015)?;
    let mut slow = tree.open_stream_in(0, Manner::Direct)?;
    let mut beside = tree.open_stream_in(1, Manner::Direct)?;
    for _ in 0..appends {
        if !tree.append(&mut slow, 8 * KIB)? || !tree.append(&mut beside, 4 * KIB)? {
            break;
        }
    }
    tree.close(vec![slow, beside], false);
    fill(tree, &mut number, FULL)
}

/// Adds documents until the volume is that full.
fn fill(tree: &mut Tree<'_>, number: &mut u64, full: f64) -> Result<(), AgeError> {
    while tree.fill()? < full {
        let bytes = log_uniform(&mut tree.rng, 4 * KIB, MIB);
        if !tree.add_file(*number % DIRECTORIES, bytes)? {
            break;
        }
        *number += 1;
    }
    tree.sync()
}
