//! A media library: recordings of megabytes among short-lived thumbnails and previews; 80 % full.

use super::{KIB, MIB};
use crate::AgeError;
use crate::tree::{Made, Tree, log_uniform};

const DIRECTORIES: u64 = 12;

/// Carries out the recipe.
pub(crate) fn media(tree: &mut Tree<'_>) -> Result<(), AgeError> {
    tree.add_directories(DIRECTORIES)?;
    let (mut number, mut previews) = (0, Vec::new());
    tree.phase("fill", 0.0)?;
    fill_to(tree, &mut number, &mut previews, 0.97)?;
    tree.phase("delete and record again", 0.5)?;
    tree.delete_down_to(0.75)?;
    for made in previews.drain(..) {
        tree.unlink(&made)?;
    }
    tree.sync()?;
    fill_to(tree, &mut number, &mut previews, 0.93)?;
    tree.phase("expire at random", 0.9)?;
    for made in previews.drain(..) {
        tree.unlink(&made)?;
    }
    tree.delete_down_to(0.80)
}

/// Adds recordings, each with a preview, until the volume is `fill` full.
fn fill_to(tree: &mut Tree<'_>, number: &mut u64, previews: &mut Vec<Made>, fill: f64) -> Result<(), AgeError> {
    while tree.fill()? < fill {
        let bytes = log_uniform(&mut tree.rng, 64 * KIB, 24 * MIB);
        let directory = *number % DIRECTORIES;
        if !tree.add_file(directory, bytes)? {
            break;
        }
        let bytes = log_uniform(&mut tree.rng, 8 * KIB, 128 * KIB);
        previews.extend(tree.write_file(directory, bytes)?);
        *number += 1;
    }
    tree.sync()
}
