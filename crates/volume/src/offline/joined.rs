//! The writes of a transaction in as few calls as possible: file records lie beside each other, and are changed one by one.

use super::{SECTOR, Write};
use longrun_layout::Bytes;
use std::collections::BTreeMap;

/// The most bytes that one write becomes.
const MOST: usize = 1 << 20;

/// The same writes, by phase and place, those that follow each other joined. They must be whole sectors. Of what is written twice in
/// one phase, the later stands.
pub(crate) fn joined(writes: &[Write]) -> Vec<Write> {
    let mut sectors = BTreeMap::new();
    for write in writes {
        let places = (write.at.0..).step_by(SECTOR);
        sectors.extend(places.zip(write.data.chunks(SECTOR)).map(|(at, sector)| ((write.phase, at), sector)));
    }
    let mut joined: Vec<Write> = Vec::new();
    for ((phase, at), sector) in sectors {
        match joined.last_mut() {
            Some(last) if last.phase == phase && last.at.0 + last.data.len() as u64 == at && last.data.len() < MOST => {
                last.data.extend_from_slice(sector);
            }
            _ => joined.push(Write { phase, at: Bytes(at), data: sector.to_vec() }),
        }
    }
    joined
}

#[cfg(test)]
mod tests {
    use super::super::{Phase, apply};
    use super::*;
    use longrun_image::MemoryDisk;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn joined_writes_leave_the_same_and_are_disjoint(
            writes in proptest::collection::vec((0usize..3, 0u64..40, 1usize..6, any::<u8>()), 0..30),
        ) {
            let phase = |number| [Phase::Allocate, Phase::Change, Phase::Free].into_iter().nth(number).unwrap();
            let writes: Vec<Write> = writes
                .into_iter()
                .map(|(of, at, count, byte)| Write { phase: phase(of), at: Bytes(at * 512), data: vec![byte; count * SECTOR] })
                .collect();
            let [one, other] = [(); 2].map(|()| MemoryDisk::new(vec![0; 64 * SECTOR]));
            apply(&one, &writes).unwrap();
            let joined = joined(&writes);
            apply(&other, &joined).unwrap();
            prop_assert!(one.content() == other.content());
            for pair in joined.windows(2).filter(|pair| pair[0].phase == pair[1].phase) {
                prop_assert!(pair[0].at.0 + (pair[0].data.len() as u64) < pair[1].at.0, "{:?}", pair);
            }
        }
    }
}
