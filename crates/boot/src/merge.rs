//! One more recording is merged into a list. Pure.

use crate::model::{List, Part, Seen};

/// What a recording says about the parts that it did not see.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unseen {
    /// They were not needed: nothing had been read ahead, or the kernel has reported which parts of that were used.
    Unneeded,
    /// Nothing: they were read ahead, so that nobody had to read them, needed or not.
    Unknown,
}

/// The list after one more recording. A part that no one of the last eight recordings has is forgotten.
#[must_use]
pub fn merge(list: &List, recording: &List, unseen: Unseen) -> List {
    let boots = match unseen {
        Unseen::Unneeded => list.boots.saturating_add(1),
        Unseen::Unknown => list.boots.max(1),
    };
    let mut parts: Vec<Part> = Vec::new();
    for piece in overlaid(list.parts(), recording.parts()) {
        let merged = match (piece.old, piece.new) {
            (Some(old), Some(new)) => Some((old.seen.then(true), old.first.min(new.first))),
            (Some(old), None) if unseen == Unseen::Unknown => Some((old.seen, old.first)),
            (Some(old), None) => Some((old.seen.then(false), old.first)),
            (None, Some(new)) => Some((Seen::NOW, new.first)),
            (None, None) => None,
        };
        let (Some(model), Some((seen, first))) = (piece.old.or(piece.new), merged) else { continue };
        if seen.0 == 0 {
            continue;
        }
        let part = Part { seen, first, ..model.within(piece.start, piece.end) };
        match parts.last_mut() {
            Some(last) if last.place == part.place && last.seen == seen && last.end() == piece.start => {
                last.first = last.first.min(first);
                *last = last.within(last.range.start.0, piece.end);
            }
            _ => parts.push(part),
        }
    }
    List::of_parts(list.uuid, boots, parts).unwrap_or_else(|| list.clone())
}

/// A stretch of one place that both lists have whole or not at all.
struct Piece<'a> {
    start: u64,
    end: u64,
    old: Option<&'a Part>,
    new: Option<&'a Part>,
}

/// Both lists cut at each other's bounds, in order.
fn overlaid<'a>(old: &'a [Part], new: &'a [Part]) -> Vec<Piece<'a>> {
    let (mut olds, mut news) = (old.iter().peekable(), new.iter().peekable());
    // How far the part in front has been dealt with already.
    let (mut old_from, mut new_from) = (0, 0);
    let mut pieces = Vec::new();
    loop {
        let (a, b) = (olds.peek().copied(), news.peek().copied());
        let at = |part: &Part, from: u64| (part.place, part.range.start.0.max(from));
        let piece = match (a, b) {
            (None, None) => return pieces,
            (Some(a), None) => Piece { start: at(a, old_from).1, end: a.end(), old: Some(a), new: None },
            (None, Some(b)) => Piece { start: at(b, new_from).1, end: b.end(), old: None, new: Some(b) },
            (Some(a), Some(b)) => {
                let (here, there) = (at(a, old_from), at(b, new_from));
                let until = |part: &Part, other: (_, u64)| {
                    if part.place == other.0 { part.end().min(other.1) } else { part.end() }
                };
                match here.cmp(&there) {
                    std::cmp::Ordering::Less => Piece { start: here.1, end: until(a, there), old: Some(a), new: None },
                    std::cmp::Ordering::Greater => {
                        Piece { start: there.1, end: until(b, here), old: None, new: Some(b) }
                    }
                    std::cmp::Ordering::Equal => {
                        Piece { start: here.1, end: a.end().min(b.end()), old: Some(a), new: Some(b) }
                    }
                }
            }
        };
        if let Some(a) = piece.old {
            old_from = piece.end;
            if a.end() <= piece.end {
                (_, old_from) = (olds.next(), 0);
            }
        }
        if let Some(b) = piece.new {
            new_from = piece.end;
            if b.end() <= piece.end {
                (_, new_from) = (news.next(), 0);
            }
        }
        pieces.push(piece);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{Place, Touch};
    use longrun_layout::{Bytes, FileId, InodeNumber};
    use longrun_sys::ByteRange;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    const UUID: [u8; 16] = [7; 16];

    fn touch(inode: u64, start: u64, length: u64) -> Touch {
        let place = match inode {
            0 => Place::Device,
            inode => Place::File(FileId { inode: InodeNumber(inode), generation: 1 }),
        };
        Touch { place, range: ByteRange { start: Bytes(start), length: Bytes(length) } }
    }

    /// The bits of each grain: the naive form of a list.
    fn grains(list: &List) -> BTreeMap<(Place, u64), u8> {
        let of = |part: &Part| {
            let (place, seen) = (part.place, part.seen.0);
            (part.range.start.0..part.end()).step_by(4096).map(move |at| ((place, at), seen)).collect::<Vec<_>>()
        };
        list.parts().iter().flat_map(of).collect()
    }

    fn touches() -> impl Strategy<Value = Vec<Touch>> {
        prop::collection::vec((0u64..3, 0u64..40, 1u64..9), 0..12)
            .prop_map(|all| all.into_iter().map(|(inode, at, length)| touch(inode, at << 14, length << 12)).collect())
    }

    proptest! {
        #[test]
        fn merging_shifts_the_bits_of_every_grain(recordings in prop::collection::vec((touches(), any::<bool>()), 1..12)) {
            let mut list = List::empty(UUID);
            let mut naive: BTreeMap<(Place, u64), u8> = BTreeMap::new();
            for (touches, known) in recordings {
                let recording = List::recorded(UUID, &touches);
                let new = grains(&recording);
                list = merge(&list, &recording, if known { Unseen::Unneeded } else { Unseen::Unknown });
                for (at, bits) in &mut naive {
                    if known || new.contains_key(at) {
                        *bits = *bits << 1 | u8::from(new.contains_key(at));
                    }
                }
                new.keys().for_each(|at| _ = naive.entry(*at).or_insert(1));
                naive.retain(|_, bits| *bits != 0);
                prop_assert_eq!(&grains(&list), &naive);
                prop_assert!(List::of_parts(UUID, list.boots, list.parts().to_vec()).is_some());
            }
        }
    }

    #[test]
    fn what_two_of_the_last_three_boots_read_is_wanted() {
        let always = touch(1, 0, 4096);
        let once = touch(2, 0, 4096);
        let mut list = merge(&List::empty(UUID), &List::recorded(UUID, &[always, once]), Unseen::Unneeded);
        assert_eq!(list.wanted().len(), 2, "of the first boot everything");
        for wanted in [1, 1, 1] {
            list = merge(&list, &List::recorded(UUID, &[always]), Unseen::Unneeded);
            assert_eq!(list.wanted().len(), wanted);
        }
        for _ in 0..5 {
            list = merge(&list, &List::recorded(UUID, &[always]), Unseen::Unneeded);
        }
        assert_eq!(list.parts().len(), 1, "unseen for eight boots: forgotten");
    }

    #[test]
    fn what_was_read_ahead_is_not_forgotten_because_nobody_read_it() {
        let list = merge(&List::empty(UUID), &List::recorded(UUID, &[touch(1, 0, 8192)]), Unseen::Unneeded);
        let after = merge(&list, &List::recorded(UUID, &[touch(1, 65536, 4096)]), Unseen::Unknown);
        assert_eq!(after.boots, 1);
        assert_eq!(after.parts().first(), list.parts().first());
        assert_eq!(after.parts().len(), 2);
    }

    #[test]
    fn small_gaps_are_read_with_the_rest() {
        let list = List::recorded(UUID, &[touch(1, 36864, 4096), touch(1, 0, 4096), touch(1, 1 << 20, 1)]);
        let ranges: Vec<_> = list.parts().iter().map(|part| (part.range.start.0, part.end(), part.first)).collect();
        assert_eq!(ranges, [(0, 40960, 0), (1 << 20, (1 << 20) + 4096, 2)]);
    }
}
