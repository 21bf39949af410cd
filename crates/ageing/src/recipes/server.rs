//! A volume of a server: data and logs of many sizes are created and deleted, databases grow in the holes; 60 % full.

use super::KIB;
use crate::AgeError;
use crate::tree::{Tree, log_uniform};

const DIRECTORIES: u64 = 48;
/// Files that grow by small appends at the same time: logs and databases.
const GROWING: u64 = 48;

/// Carries out the recipe.
pub(crate) fn server(tree: &mut Tree<'_>) -> Result<(), AgeError> {
    tree.add_directories(DIRECTORIES)?;
    tree.phase("fill", 0.0)?;
    let mut number = 0;
    fill_to(tree, &mut number, 0.97)?;
    tree.phase("expire at random", 0.4)?;
    tree.delete_down_to(0.40)?;

    tree.phase("grow logs and databases", 0.45)?;
    let mut growing = Vec::new();
    for stream in 0..GROWING {
        growing.push(tree.open_stream(stream % DIRECTORIES)?);
    }
    'growing: while tree.fill()? < 0.60 {
        for stream in &mut growing {
            let bytes = (8 * KIB) << tree.rng.u64(0..5);
            if !tree.append(stream, bytes)? {
                break 'growing;
            }
        }
    }
    tree.close(growing, false);

    tree.phase("files come and go", 0.7)?;
    for round in 0..2 {
        tree.delete_down_to(0.56)?;
        fill_to(tree, &mut number, if round == 0 { 0.63 } else { 0.615 })?;
    }
    tree.delete_down_to(0.60)
}

/// Adds files of server-like sizes until the volume is `fill` full.
fn fill_to(tree: &mut Tree<'_>, number: &mut u64, fill: f64) -> Result<(), AgeError> {
    while tree.fill()? < fill {
        let bytes = log_uniform(&mut tree.rng, 6 * KIB, 520 * KIB);
        if !tree.add_file(*number % DIRECTORIES, bytes)? {
            break;
        }
        *number += 1;
    }
    tree.sync()
}
