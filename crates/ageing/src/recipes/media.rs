//! A media library: recordings of megabytes among short-lived thumbnails and previews; 80 % full.

use super::{KIB, MIB};
use crate::AgeError;
use crate::tree::{Made, Tree, log_uniform};

const DIRECTORIES: u64 = 12;
const ROUNDS: u32 = 7;

/// Carries out the recipe.
pub(crate) fn media(tree: &mut Tree<'_>) -> Result<(), AgeError> {
    tree.add_directories(DIRECTORIES)?;
    let (mut number, mut previews) = (0, Vec::new());
    tree.phase("fill", 0.0)?;
    fill_to(tree, &mut number, &mut previews, 0.97)?;
    for round in 0..ROUNDS {
        tree.phase("delete and record again", 0.4 + 0.08 * f64::from(round))?;
        clear(tree, &mut previews)?;
        tree.delete_down_to(0.78)?;
        fill_to(tree, &mut number, &mut previews, 0.95)?;
    }
    tree.phase("expire at random", 0.95)?;
    clear(tree, &mut previews)?;
    tree.delete_down_to(0.80)
}

/// Deletes every preview.
fn clear(tree: &Tree<'_>, previews: &mut Vec<Made>) -> Result<(), AgeError> {
    previews.drain(..).try_for_each(|made| tree.unlink(&made))
}

/// Adds recordings, each with a preview, until the volume is `fill` full.
fn fill_to(tree: &mut Tree<'_>, number: &mut u64, previews: &mut Vec<Made>, fill: f64) -> Result<(), AgeError> {
    while tree.fill()? < fill {
        let bytes = log_uniform(&mut tree.rng, 64 * KIB, 17 * MIB);
        let directory = *number % DIRECTORIES;
        if !tree.add_file(directory, bytes)? {
            break;
        }
        let bytes = log_uniform(&mut tree.rng, 8 * KIB, 256 * KIB);
        previews.extend(tree.write_file(directory, bytes)?);
        *number += 1;
    }
    tree.sync()
}
