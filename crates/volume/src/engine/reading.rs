//! The reading half of an exchange, in turns: a few pieces of the file at a time, in the order in which they lie on the
//! device, and before whatever follows the observer is asked again.
//!
//! Owns the order and the asking. A file in a thousand pieces would otherwise have a hundred reads wait at the device at
//! once, and whoever comes then waits for all of them.

use super::batch::Unit;
use super::moving::{Break, Chunk};
use super::observer::Turn;
use super::pass::Pass;
use longrun_layout::{Blocks, Run};

impl Pass<'_> {
    /// Reads what a chunk is made of; afterwards it may be exchanged now. Meanwhile much may have changed.
    pub(super) fn read_in_turns(&mut self, unit: &Unit, chunk: &Chunk) -> Result<(), Break> {
        let turn = self.pacer.observer.turn();
        if turn.pieces == Turn::UNLIMITED.pieces {
            return Ok(());
        }
        for pieces in turns(chunk.pieces(), turn.pieces) {
            self.volume.bring_in(unit.id, chunk.logical, chunk.length, &pieces)?;
            self.checkpoint(Blocks(0))?;
        }
        Ok(())
    }
}

/// Pieces in the order of the device, so many requests at a time: pieces that touch there are read by one.
pub(crate) fn turns(mut pieces: Vec<Run>, most: usize) -> Vec<Vec<Run>> {
    pieces.sort_unstable_by_key(|piece| piece.physical);
    let mut turns: Vec<Vec<Run>> = Vec::new();
    let mut requests = 0;
    for piece in pieces {
        let last = turns.last_mut();
        let goes_on =
            last.as_ref().and_then(|turn| turn.last()).is_some_and(|run| run.extent().end() == piece.physical);
        requests += usize::from(!goes_on);
        match last {
            Some(turn) if requests <= most.max(1) => turn.push(piece),
            _ => {
                turns.push(vec![piece]);
                requests = 1;
            }
        }
    }
    turns
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_are_read_in_the_order_of_the_device_a_few_at_a_time() {
        let pieces = vec![Run::new(0, 50, 2), Run::new(2, 10, 2), Run::new(4, 90, 2), Run::new(6, 12, 2)];
        let firsts = |most| {
            let turns = turns(pieces.clone(), most);
            turns.iter().map(|turn| turn.iter().map(|run| run.logical.0).collect()).collect::<Vec<Vec<u64>>>()
        };
        assert_eq!(firsts(1), [vec![2, 6], vec![0], vec![4]], "10 and 12 touch");
        assert_eq!(firsts(2), [vec![2, 6, 0], vec![4]]);
        assert_eq!(firsts(9), [vec![2, 6, 0, 4]]);
        assert_eq!(turns(Vec::new(), 3), Vec::<Vec<Run>>::new());
    }
}
