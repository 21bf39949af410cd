//! Blocks as they shall be, beside what they are: what a transaction has to write.
//!
//! Never writes anything itself.

use crate::ext4::scan::Source;
use crate::ext4::scan::fault::Read;
use crate::offline::{Phase, SECTOR, Write};
use longrun_layout::Bytes;
use std::collections::BTreeMap;

/// Blocks by their number, each as it is and as it shall be.
pub(super) struct Patches {
    block_bytes: usize,
    blocks: BTreeMap<u64, (Vec<u8>, Vec<u8>)>,
}

impl Patches {
    pub(super) fn new(block_bytes: usize) -> Self {
        Self { block_bytes, blocks: BTreeMap::new() }
    }

    /// A block to be changed.
    pub(super) fn block(&mut self, source: &dyn Source, number: u64) -> Read<&mut Vec<u8>> {
        use std::collections::btree_map::Entry;
        let slot = match self.blocks.entry(number) {
            Entry::Occupied(slot) => slot.into_mut(),
            Entry::Vacant(slot) => {
                let mut old = vec![0; self.block_bytes];
                source.read_exact_at(&mut old, number * self.block_bytes as u64)?;
                let new = old.clone();
                slot.insert((old, new))
            }
        };
        Ok(&mut slot.1)
    }

    /// The same patches, with what they make of the blocks as what is there: for a second step.
    pub(super) fn applied(&self) -> Self {
        let blocks = self.blocks.iter().map(|(number, (_, new))| (*number, (new.clone(), new.clone()))).collect();
        Self { block_bytes: self.block_bytes, blocks }
    }

    /// Writes of the sectors that differ.
    pub(super) fn writes(&self, phase: Phase, writes: &mut Vec<Write>) {
        for (number, (old, new)) in &self.blocks {
            let start = number * self.block_bytes as u64;
            let sectors = old.chunks(SECTOR).zip(new.chunks(SECTOR)).zip((start..).step_by(SECTOR));
            for ((_, new), at) in sectors.filter(|((old, new), _)| old != new) {
                match writes.last_mut() {
                    Some(last) if last.phase == phase && last.at.0 + last.data.len() as u64 == at => {
                        last.data.extend_from_slice(new);
                    }
                    _ => writes.push(Write { phase, at: Bytes(at), data: new.to_vec() }),
                }
            }
        }
    }
}
