//! Files that grow side by side, written directly, synchronously, or with occasional syncs, while older ones are
//! deleted. The result depends on how the file system prevents fragmentation. Made for XFS, whose allocator keeps
//! files contiguous that are written at once.

use super::{KIB, MIB};
use crate::AgeError;
use crate::tree::{Manner, Tree, log_uniform};

const DIRECTORIES: u64 = 32;
/// Files that grow at the same time.
const GROWING: usize = 8;

/// Carries out the recipe, on a volume that is to be `full` (0 to 1).
pub(crate) fn churn(tree: &mut Tree<'_>, full: f64) -> Result<(), AgeError> {
    tree.add_directories(DIRECTORIES)?;
    tree.phase("fill", 0.0)?;
    grow_to(tree, full)?;
    for (round, done, part) in [(0, 0.4, 2), (1, 0.6, 3), (2, 0.8, 3)] {
        tree.phase(["delete a half, refill", "delete a third, refill", "delete a third, refill"][round], done)?;
        let mut position = 0;
        while position < tree.live.len() {
            if tree.rng.u64(..part) == 0 {
                tree.delete(position)?;
            } else {
                position += 1;
            }
        }
        tree.sync()?;
        grow_to(tree, full)?;
    }
    Ok(())
}

/// Lets files grow until the volume is `fill` full.
pub(super) fn grow_to(tree: &mut Tree<'_>, fill: f64) -> Result<(), AgeError> {
    let mut growing = Vec::new();
    let mut number = 0;
    'growing: while tree.fill()? < fill {
        while growing.len() < GROWING {
            let manner = [Manner::Direct, Manner::Synchronous, Manner::Buffered][tree.rng.usize(..3)];
            let size = log_uniform(&mut tree.rng, 4 * KIB, 4 * MIB);
            growing.push((tree.open_stream_in(number % DIRECTORIES, manner)?, size));
            number += 1;
        }
        let turn = tree.rng.usize(..GROWING);
        let bytes = (4 * KIB) << tree.rng.u64(..5);
        let Some((stream, size)) = growing.get_mut(turn) else { break };
        if !tree.append(stream, bytes)? {
            break 'growing;
        }
        if stream.bytes() >= *size {
            let (stream, _) = growing.swap_remove(turn);
            tree.close(vec![stream], true);
        }
    }
    tree.close(growing.into_iter().map(|(stream, _)| stream).collect(), true);
    tree.sync()
}
