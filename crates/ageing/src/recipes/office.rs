//! A volume of an office: tens of thousands of documents, saved repeatedly with little free space; 96.5 % full.

use super::KIB;
use crate::AgeError;
use crate::tree::{Tree, log_uniform};

const DIRECTORIES: u64 = 120;
const FULL: f64 = 0.965;
/// Rounds in which a part of the documents is replaced.
const ROUNDS: u32 = 8;

/// Carries out the recipe.
pub(crate) fn office(tree: &mut Tree<'_>) -> Result<(), AgeError> {
    tree.add_directories(DIRECTORIES)?;
    tree.phase("fill", 0.0)?;
    let mut number = 0;
    fill(tree, &mut number)?;
    for round in 0..ROUNDS {
        tree.phase("save documents again", 0.4 + 0.07 * f64::from(round))?;
        tree.delete_down_to(FULL - 0.08)?;
        fill(tree, &mut number)?;
    }
    Ok(())
}

/// Adds documents until the volume is full.
fn fill(tree: &mut Tree<'_>, number: &mut u64) -> Result<(), AgeError> {
    while tree.fill()? < FULL {
        let bytes = log_uniform(&mut tree.rng, 4 * KIB, 800 * KIB);
        if !tree.add_file(*number % DIRECTORIES, bytes)? {
            break;
        }
        *number += 1;
    }
    tree.sync()
}
