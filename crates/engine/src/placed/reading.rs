//! Reads the data of an exchange in turns: a few pieces of the file at a time, in the order of their blocks on the
//! device. The observer is asked between turns.
//!
//! Owns the order and the questions. Without turns, a file in a thousand pieces would have a hundred reads queued at
//! the device, and other I/O would wait for all of them. If several pieces may be under way, half of them are requested
//! while the other half is read, so that an otherwise idle device is not idle between turns.

use super::batch_plan::Unit;
use super::moving::{Break, Chunk};
use super::pass::Pass;
use crate::turns::{Act, in_turns};
use crate::{Part, Turn};
use longrun_layout::Blocks;

impl Pass<'_> {
    /// Reads what a chunk is made of, where it is to be read in turns; whether it was. Afterwards the first exchange may be made.
    /// Meanwhile much may have changed.
    pub(super) fn read_in_turns(&mut self, unit: &Unit, chunk: &Chunk) -> Result<bool, Break> {
        let turn = self.pacer.observer.turn();
        if turn.pieces == Turn::UNLIMITED.pieces {
            return Ok(false);
        }
        let part = Part { file: unit.id, logical: chunk.logical, length: chunk.length };
        for act in in_turns(chunk.pieces(), turn.pieces) {
            match act {
                Act::Ask(pieces) => self.volume.bring_in(part, &pieces)?,
                Act::Await(pieces) => {
                    self.volume.await_pieces(part, &pieces)?;
                    self.checkpoint(Blocks(0))?;
                }
            }
        }
        Ok(true)
    }
}
