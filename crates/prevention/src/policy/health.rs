//! The state of a volume's free space, as learned from our own runways.
//!
//! Owns the choice of the runway length: the one that was allocated in the longest pieces so far. Never asks the file
//! system; only runways that were allocated in pieces show that free space is fragmented.

use crate::Nanos;
use longrun_layout::Bytes;
use serde::{Deserialize, Serialize};

/// Runways of 1 MiB, 2 MiB, … 1 GiB.
const CLASSES: usize = 11;
const MIB: u64 = 1 << 20;
/// What was learned is halved whenever a class has seen so many grants: the last few decide.
const MEMORY: u64 = 8;
/// A bad experience is forgotten after this long, and the length tried again by one runway.
const FORGET: u64 = 60_000_000_000;
/// Each time that it is made again in a row, it is kept twice as long, up to 2^5 minutes.
const LONGEST: u32 = 5;

/// How runways of each length were allocated.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SpaceHealth {
    classes: [Class; CLASSES],
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
struct Class {
    grants: u64,
    bytes: u64,
    pieces: u64,
    /// When it was bad last, and how often in a row.
    bad_at: Nanos,
    bad: u32,
}

impl Class {
    /// The mean length of the pieces, as far as that is known and not forgotten.
    fn mean(&self, now: Nanos) -> Option<u64> {
        let kept = FORGET << self.bad.saturating_sub(1).min(LONGEST);
        let forgotten = self.bad > 0 && now.0.saturating_sub(self.bad_at.0) >= kept;
        if forgotten { None } else { self.bytes.checked_div(self.pieces) }
    }
}

impl SpaceHealth {
    /// A runway of `length` bytes was granted in `pieces`.
    pub fn learn(&mut self, length: Bytes, pieces: u32, now: Nanos) {
        let Some(at) = class_of(length) else { return };
        let Some(class) = self.classes.get_mut(at) else { return };
        if class.mean(now).is_none() {
            *class = Class { bad: class.bad, bad_at: class.bad_at, ..Class::default() };
        }
        class.grants += 1;
        class.bytes = class.bytes.saturating_add(length.0);
        class.pieces = class.pieces.saturating_add(u64::from(pieces.max(1)));
        if is_bad(length.0, pieces) {
            class.bad_at = now;
            class.bad = class.bad.saturating_add(1);
        } else {
            class.bad = 0;
        }
        if class.grants >= MEMORY {
            class.grants /= 2;
            class.bytes /= 2;
            class.pieces = (class.pieces / 2).max(1);
        }
    }

    /// Of all lengths from `least` to `wanted`, the one that comes in the longest pieces, and how long these are.
    ///
    /// What was not tried is expected to come in one piece, unless something shorter did not; but when the length wanted
    /// came in pieces, only the shortest is tried afresh. Longer runways are preferred where it makes little difference,
    /// since each costs the writer less.
    #[must_use]
    pub fn choose(&self, wanted: Bytes, least: Bytes, now: Nanos) -> (Bytes, Bytes) {
        let mut best = (wanted, self.expected_piece(wanted, now));
        let fragmented = self.is_fragmented(wanted, now);
        let mut length = wanted.0;
        while length / 2 >= least.0.max(MIB) {
            length = floor_power(length / 2).max(least.0);
            let last = length / 2 < least.0.max(MIB);
            if !last && fragmented && self.known(length, now).is_none() {
                continue;
            }
            let piece = self.expected_piece(Bytes(length), now);
            if piece.0 / 5 > best.1.0 / 4 {
                best = (Bytes(length), piece);
            }
        }
        best
    }

    /// How long the pieces of a runway of `length` are likely to be.
    #[must_use]
    pub fn expected_piece(&self, length: Bytes, now: Nanos) -> Bytes {
        let Some(own) = class_of(length) else { return length };
        let known = |class: &Class| class.mean(now);
        if let Some(mean) = self.classes.get(own).and_then(known) {
            return Bytes(mean.min(length.0));
        }
        let shorter = self.classes.iter().take(own).enumerate().rev();
        let bad =
            shorter.filter_map(|(at, class)| Some((at, known(class)?))).find(|(at, mean)| *mean < (MIB << at) / 2);
        Bytes(bad.map_or(length.0, |(_, mean)| mean.min(length.0)))
    }

    fn known(&self, length: u64, now: Nanos) -> Option<u64> {
        self.classes.get(class_of(Bytes(length))?)?.mean(now)
    }

    /// Whether the free space is in pieces, as far as runways of `length` are concerned.
    #[must_use]
    pub fn is_fragmented(&self, length: Bytes, now: Nanos) -> bool {
        self.expected_piece(length, now).0 < length.0 / 2
    }
}

/// More than one cut per 4 MiB, and for runways of less, any.
fn is_bad(length: u64, pieces: u32) -> bool {
    u64::from(pieces) > (length / (4 * MIB)).max(1)
}

fn class_of(length: Bytes) -> Option<usize> {
    let log2 = length.0.checked_div(MIB)?.checked_ilog2()?;
    Some((log2 as usize).min(CLASSES - 1))
}

fn floor_power(length: u64) -> u64 {
    length.checked_ilog2().map_or(0, |log2| 1 << log2)
}

#[cfg(test)]
mod tests {
    use super::*;

    const LEAST: Bytes = Bytes(4 * MIB);
    const FIRST: Bytes = Bytes(16 * MIB);
    const MINUTE: u64 = FORGET;

    #[test]
    fn healthy_space_gives_what_is_wanted() {
        let mut health = SpaceHealth::default();
        assert_eq!(health.choose(FIRST, LEAST, Nanos(0)), (FIRST, FIRST));
        (0..20).for_each(|at| health.learn(FIRST, 1, Nanos(at)));
        assert_eq!(health.choose(FIRST, LEAST, Nanos(20)).0, FIRST);
        assert!(!health.is_fragmented(FIRST, Nanos(20)));
    }

    #[test]
    fn a_runway_in_pieces_makes_the_next_one_short_until_that_is_forgotten() {
        let mut health = SpaceHealth::default();
        health.learn(FIRST, 10, Nanos(0));
        assert_eq!(health.choose(FIRST, LEAST, Nanos(1)).0, LEAST);
        // The longer ones are not believed to be better, and the short ones are good.
        assert!(health.is_fragmented(Bytes(64 * MIB), Nanos(1)));
        health.learn(LEAST, 1, Nanos(2));
        assert_eq!(health.choose(Bytes(128 * MIB), LEAST, Nanos(3)), (LEAST, LEAST));
        // Healed or not, it is tried again; and when it was not, it takes twice as long to the next trial.
        assert_eq!(health.choose(FIRST, LEAST, Nanos(MINUTE)).0, FIRST);
        health.learn(FIRST, 10, Nanos(MINUTE));
        assert_eq!(health.choose(FIRST, LEAST, Nanos(2 * MINUTE)).0, LEAST);
        assert_eq!(health.choose(FIRST, LEAST, Nanos(3 * MINUTE)).0, FIRST);
        health.learn(FIRST, 1, Nanos(3 * MINUTE));
        assert_eq!(health.choose(FIRST, LEAST, Nanos(3 * MINUTE + 1)).0, FIRST);
        assert!(!health.is_fragmented(FIRST, Nanos(9 * MINUTE)));
    }

    #[test]
    fn where_every_length_comes_in_the_same_pieces_the_long_ones_are_as_good() {
        let mut health = SpaceHealth::default();
        health.learn(FIRST, 160, Nanos(0));
        health.learn(LEAST, 40, Nanos(1));
        let (length, piece) = health.choose(FIRST, LEAST, Nanos(2));
        assert_eq!((length, piece.0), (FIRST, FIRST.0 / 160));
    }
}
