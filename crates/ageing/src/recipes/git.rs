//! Version control: working trees that are rewritten file by file, thousands of loose objects, and occasionally a pack
//! that replaces them; 70 % full.

use super::KIB;
use crate::AgeError;
use crate::tree::{Made, Tree, log_uniform};

/// Directories of the working trees; one more each for loose objects and packs.
const DIRECTORIES: u64 = 64;
const ROUNDS: u32 = 24;
/// Rounds between two packs.
const PACK_EVERY: u32 = 6;

/// Carries out the recipe.
pub(crate) fn git(tree: &mut Tree<'_>) -> Result<(), AgeError> {
    tree.phase("check out", 0.0)?;
    tree.add_directories(DIRECTORIES)?;
    let objects = tree.add_directories(2)?;
    let mut number = 0;
    while tree.fill()? < 0.48 {
        let bytes = source_size(tree);
        if !tree.add_file(number % DIRECTORIES, bytes)? {
            break;
        }
        number += 1;
    }
    tree.sync()?;

    let per_round = tree.live.len() / 12;
    let (mut loose, mut packs) = (Vec::new(), Vec::new());
    for round in 0..ROUNDS {
        tree.phase("pull", 0.3 + 0.7 * f64::from(round) / f64::from(ROUNDS))?;
        pull(tree, objects, per_round, &mut loose)?;
        if round % PACK_EVERY == PACK_EVERY - 1 {
            pack(tree, objects + 1, &mut loose, &mut packs)?;
        }
        tree.sync()?;
    }
    while tree.fill()? < 0.70 {
        pull(tree, objects, per_round, &mut loose)?;
        tree.sync()?;
    }
    Ok(())
}

/// Sizes as in source trees: most files small, a few large.
fn source_size(tree: &mut Tree<'_>) -> u64 {
    if tree.rng.u32(..20) == 0 {
        log_uniform(&mut tree.rng, 64 * KIB, 2048 * KIB)
    } else {
        log_uniform(&mut tree.rng, 300, 64 * KIB)
    }
}

/// Replaces files by new versions of another size, and adds the objects of the commit.
fn pull(tree: &mut Tree<'_>, objects: u64, files: usize, loose: &mut Vec<Made>) -> Result<(), AgeError> {
    for _ in 0..files {
        if tree.live.is_empty() {
            return Ok(());
        }
        let position = tree.rng.usize(..tree.live.len());
        let Some(&old) = tree.live.get(position) else { return Ok(()) };
        let bytes = (old.bytes * tree.rng.u64(70..140) / 100).max(200);
        let Some(new) = tree.write_file(old.directory, bytes)? else { return Ok(()) };
        tree.unlink(&old)?;
        if let Some(slot) = tree.live.get_mut(position) {
            *slot = new;
        }
        loose.extend(tree.write_file(objects, (bytes / 3).max(100))?);
    }
    Ok(())
}

/// Writes the loose objects into one pack by growing appends and deletes them; two packs become one.
fn pack(tree: &mut Tree<'_>, directory: u64, loose: &mut Vec<Made>, packs: &mut Vec<Made>) -> Result<(), AgeError> {
    let bytes: u64 = loose.iter().chain(packs.iter()).map(|m| m.bytes).sum();
    let fresh = tree.write_file(directory, bytes)?;
    for made in loose.drain(..) {
        tree.unlink(&made)?;
    }
    if let Some(fresh) = fresh {
        for made in packs.drain(..) {
            tree.unlink(&made)?;
        }
        packs.push(fresh);
    }
    Ok(())
}
