//! Mapping pairs: how an attribute says where its clusters lie.
//!
//! Owns the code of runs on the disk, and a stream's map in memory. Pure.

use super::fault::{Read, damaged};
use longrun_layout::{Blocks, LogicalBlock, LogicalRange, PhysicalBlock, Run};

/// A range of a stream: clusters one after the other, or a hole.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Segment {
    /// First cluster in the stream (VCN).
    pub(super) vcn: u64,
    /// First cluster on the volume (LCN); `None` for a hole.
    pub(super) lcn: Option<u64>,
    /// Number of clusters.
    pub(super) length: u64,
}

impl Segment {
    pub(super) fn end(&self) -> u64 {
        self.vcn + self.length
    }

    /// As a run of the model; `None` for a hole.
    fn run(&self) -> Option<Run> {
        let physical = PhysicalBlock(self.lcn?);
        Some(Run { logical: LogicalBlock(self.vcn), physical, length: Blocks(self.length) })
    }

    /// Whether `next` goes on where this ends, on the volume too; two holes do.
    fn continues_into(&self, next: &Self) -> bool {
        self.end() == next.vcn
            && match (self.lcn, next.lcn) {
                (None, None) => true,
                (Some(lcn), Some(next)) => lcn + self.length == next,
                _ => false,
            }
    }

    /// The part of it from `vcn` up to `end`, which must lie in it.
    fn part(&self, vcn: u64, end: u64) -> Self {
        Self { vcn, lcn: self.lcn.map(|lcn| lcn + (vcn - self.vcn)), length: end - vcn }
    }
}

/// Where the clusters of a stream lie: segments one after the other, none of them empty.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Map(Vec<Segment>);

impl Map {
    /// Decodes mapping pairs that begin at `lowest`, on a volume of `clusters` clusters.
    pub(super) fn decode(mut pairs: &[u8], lowest: u64, clusters: u64) -> Read<Self> {
        let mut map = Self::default();
        let (mut vcn, mut lcn) = (lowest, 0i64);
        loop {
            let Some((header, rest)) = pairs.split_first() else { return damaged("mapping pairs have no end") };
            if *header == 0 {
                return Ok(map);
            }
            let (lengths, offsets) = (usize::from(header & 0xf), usize::from(header >> 4));
            let parts = rest
                .split_at_checked(lengths)
                .and_then(|(length, rest)| rest.split_at_checked(offsets).map(|(offset, rest)| (length, offset, rest)));
            let Some((length, offset, rest)) = parts else { return damaged("mapping pairs end too early") };
            let length = signed(length).filter(|length| *length > 0).map(i64::unsigned_abs);
            let Some(length) = length.filter(|length| vcn.checked_add(*length).is_some_and(|end| end < 1 << 47)) else {
                return damaged("mapping pairs with a length that is not valid");
            };
            let place = if offset.is_empty() {
                None
            } else {
                let next = signed(offset).and_then(|offset| lcn.checked_add(offset));
                let fits = |start: &i64| *start >= 0 && (start.unsigned_abs().saturating_add(length)) <= clusters;
                let Some(next) = next.filter(fits) else { return damaged("mapping pairs lead outside the volume") };
                lcn = next;
                Some(next.unsigned_abs())
            };
            map.push(Segment { vcn, lcn: place, length });
            vcn += length;
            pairs = rest;
        }
    }

    /// The mapping pairs of the range from `vcn` on that fit into `room` bytes with their end mark, and how many
    /// clusters they map.
    pub(super) fn encode(&self, vcn: u64, room: usize) -> (Vec<u8>, u64) {
        let (mut pairs, mut mapped) = (Vec::new(), 0);
        for (part, Pair { length, lengths, offset, offsets }) in self.pairs(vcn, u64::MAX) {
            // One byte stays for the end mark.
            if pairs.len() + 1 + lengths + offsets >= room {
                break;
            }
            pairs.push((offsets << 4 | lengths) as u8);
            pairs.extend(length.iter().take(lengths).chain(offset.iter().take(offsets)));
            mapped += part.length;
        }
        pairs.push(0);
        (pairs, mapped)
    }

    /// The bytes of all mapping pairs of the range from `vcn` up to `end`, with their end mark.
    pub(super) fn encoded_len(&self, vcn: u64, end: u64) -> usize {
        self.pairs(vcn, end).map(|(_, pair)| 1 + pair.lengths + pair.offsets).sum::<usize>() + 1
    }

    /// The segments from `vcn` up to `end`, each with its mapping pair.
    fn pairs(&self, vcn: u64, end: u64) -> impl Iterator<Item = (Segment, Pair)> {
        let mut before = 0i64;
        self.parts(vcn, end).map(move |part| {
            let (length, lengths) = coded(part.length.cast_signed());
            let (offset, offsets) = part.lcn.map_or(([0; 8], 0), |lcn| coded(lcn.cast_signed() - before));
            before = part.lcn.map_or(before, u64::cast_signed);
            (part, Pair { length, lengths, offset, offsets })
        })
    }

    /// What of each segment lies in the range from `vcn` up to `end`.
    fn parts(&self, vcn: u64, end: u64) -> impl Iterator<Item = Segment> {
        let from = self.0.partition_point(|segment| segment.end() <= vcn);
        let within = self.0.iter().skip(from).take_while(move |segment| segment.vcn < end);
        within.map(move |segment| segment.part(segment.vcn.max(vcn), segment.end().min(end)))
    }

    /// The range from `vcn` up to `end`.
    pub(super) fn part(&self, vcn: u64, end: u64) -> Self {
        Self(self.parts(vcn, end).collect())
    }

    /// Adds what follows; joins it where it goes on.
    pub(super) fn push(&mut self, segment: Segment) {
        match self.0.last_mut() {
            Some(last) if last.continues_into(&segment) => last.length += segment.length,
            _ if segment.length > 0 => self.0.push(segment),
            _ => {}
        }
    }

    /// The first cluster behind it.
    pub(super) fn end(&self) -> u64 {
        self.0.last().map_or(0, Segment::end)
    }

    pub(super) fn segments(&self) -> &[Segment] {
        &self.0
    }

    /// What has clusters, as runs of the model.
    pub(super) fn runs(&self) -> impl Iterator<Item = Run> + '_ {
        self.0.iter().filter_map(Segment::run)
    }

    /// The runs in `range`, and the nearest one on either side.
    pub(super) fn runs_around(&self, range: LogicalRange) -> Vec<Run> {
        let start = self.0.partition_point(|segment| segment.end() <= range.start.0);
        let end = self.0.partition_point(|segment| segment.vcn < range.end().0).max(start);
        let (before, rest) = self.0.split_at(start);
        let (within, behind) = rest.split_at(end - start);
        let before = before.iter().rev().find_map(Segment::run);
        let behind = behind.iter().find_map(Segment::run);
        before.into_iter().chain(within.iter().filter_map(Segment::run)).chain(behind).collect()
    }

    /// The runs of `length` clusters from `logical` on; `None` when a part of them is a hole or behind the end.
    pub(super) fn within(&self, logical: LogicalBlock, length: Blocks) -> Option<Vec<Run>> {
        let (mut at, end) = (logical.0, logical.0.checked_add(length.0)?);
        let mut runs = Vec::new();
        let from = self.0.partition_point(|segment| segment.end() <= at);
        for segment in self.0.get(from..)? {
            if at >= end {
                break;
            }
            let part = segment.part(at, segment.end().min(end));
            runs.push(Run::new(at, part.lcn?, part.length));
            at = part.end();
        }
        (at >= end).then_some(runs)
    }

    /// Says that the clusters from `logical` on lie at `target` now.
    pub(super) fn put(&mut self, logical: LogicalBlock, target: PhysicalBlock, length: Blocks) {
        let (start, end) = (logical.0, logical.0 + length.0);
        // With the neighbours, which it may join.
        let from = self.0.partition_point(|segment| segment.end() < start);
        let to = self.0.partition_point(|segment| segment.vcn <= end);
        let Some(touched) = self.0.get(from..to) else { return };
        let mut changed = Self::default();
        for segment in touched {
            if segment.vcn < start {
                changed.push(segment.part(segment.vcn, segment.end().min(start)));
            }
            if segment.vcn < end && segment.end() > start {
                let (from, to) = (segment.vcn.max(start), segment.end().min(end));
                changed.push(Segment { vcn: from, lcn: Some(target.0 + (from - start)), length: to - from });
            }
            if segment.end() > end {
                changed.push(segment.part(segment.vcn.max(end), segment.end()));
            }
        }
        self.0.splice(from..to, changed.0);
    }
}

/// A mapping pair: how long a segment is, and how far it lies from the one before, each in as many bytes as it needs.
struct Pair {
    length: [u8; 8],
    lengths: usize,
    offset: [u8; 8],
    offsets: usize,
}

/// A number of up to eight bytes with a sign.
fn signed(bytes: &[u8]) -> Option<i64> {
    let top = *bytes.last()?;
    let mut whole = if top & 0x80 == 0 { [0; 8] } else { [0xff; 8] };
    whole.get_mut(..bytes.len())?.copy_from_slice(bytes);
    Some(i64::from_le_bytes(whole))
}

/// The fewest bytes that keep the number and its sign.
fn coded(number: i64) -> ([u8; 8], usize) {
    // One bit more than the number has, for its sign.
    let bits = 65 - (number ^ (number >> 63)).leading_zeros();
    (number.to_le_bytes(), bits.div_ceil(8) as usize)
}

#[cfg(test)]
mod tests {
    use super::*;
    use longrun_engine::FileMap;
    use proptest::prelude::*;

    const CLUSTERS: u64 = 1 << 40;

    fn map() -> impl Strategy<Value = Map> {
        let segment = (1u64..1 << 20, proptest::option::weighted(0.8, 0u64..CLUSTERS - (1 << 20)));
        proptest::collection::vec(segment, 0..40).prop_map(|segments| {
            let mut map = Map::default();
            for (length, lcn) in segments {
                map.push(Segment { vcn: map.end(), lcn, length });
            }
            map
        })
    }

    proptest! {
        #[test]
        fn what_is_encoded_is_decoded_again_in_any_pieces(map in map(), room in 20usize..200) {
            let (mut at, mut again) = (0, Map::default());
            while at < map.end() {
                let (pairs, mapped) = map.encode(at, room);
                prop_assert!(pairs.len() <= room && mapped > 0);
                let part = Map::decode(&pairs, at, CLUSTERS).unwrap();
                part.segments().iter().for_each(|segment| again.push(*segment));
                at += mapped;
            }
            prop_assert_eq!(again, map);
        }

        #[test]
        fn the_runs_around_a_range_are_enough_for_moves_within_it(map in map(), start in 0u64..1 << 24, length in 1u64..1 << 22) {
            let range = LogicalRange { start: LogicalBlock(start), length: Blocks(length) };
            let around = |runs: &[Run]| FileMap::around(runs, range).runs().collect::<Vec<_>>();
            let all: Vec<Run> = map.runs().collect();
            prop_assert_eq!(around(&map.runs_around(range)), around(&all));
            prop_assert_eq!(map.runs_around(LogicalRange::ALL), all);
        }

        #[test]
        fn no_bytes_make_the_decoder_panic(pairs in proptest::collection::vec(any::<u8>(), 0..60), lowest in any::<u64>()) {
            let _ = Map::decode(&pairs, lowest, CLUSTERS);
        }

        #[test]
        fn what_is_put_lies_there_and_nothing_else_changes(map in map(), at in 0u64..1 << 24, length in 1u64..1 << 22) {
            let (logical, length) = (LogicalBlock(at), Blocks(length));
            if map.within(logical, length).is_some() {
                let mut changed = map.clone();
                changed.put(logical, PhysicalBlock(7), length);
                prop_assert_eq!(changed.within(logical, length), Some(vec![Run { logical, physical: PhysicalBlock(7), length }]));
                prop_assert_eq!(changed.end(), map.end());
                prop_assert_eq!(changed.within(LogicalBlock(0), Blocks(at)), map.within(LogicalBlock(0), Blocks(at)));
                let behind = LogicalBlock(at + length.0);
                let rest = Blocks(map.end() - behind.0);
                prop_assert_eq!(changed.within(behind, rest), map.within(behind, rest));
            }
        }
    }

    #[test]
    fn a_number_is_coded_in_as_few_bytes_as_can_be_decoded() {
        let edges = (0..63).flat_map(|bit| [(1i64 << bit) - 1, 1 << bit, (1 << bit) + 1]);
        for number in edges.flat_map(|edge| [edge, -edge]).chain([i64::MIN, i64::MAX]) {
            let (bytes, count) = coded(number);
            assert_eq!(signed(&bytes[..count]), Some(number));
            assert!(count == 1 || signed(&bytes[..count - 1]) != Some(number), "{number} in {count} bytes");
        }
    }

    #[test]
    fn the_example_of_the_literature_is_decoded() {
        let map = Map::decode(
            &[0x31, 0x38, 0x73, 0x25, 0x34, 0x32, 0x14, 0x01, 0xe5, 0x11, 0x02, 0x31, 0x42, 0xaa, 0x00, 0x03, 0],
            0,
            CLUSTERS,
        );
        let lcns: Vec<_> = map.unwrap().runs().map(|run| (run.physical.0, run.length.0)).collect();
        assert_eq!(lcns, [(0x342573, 0x38), (0x363758, 0x114), (0x393802, 0x42)]);
    }

    #[test]
    fn holes_have_no_place_and_are_no_part_of_a_range() {
        let map = Map::decode(&[0x11, 4, 9, 0x01, 12, 0], 0, CLUSTERS).unwrap();
        assert_eq!(map.end(), 16);
        assert_eq!(map.runs().collect::<Vec<_>>(), [Run::new(0, 9, 4)]);
        assert!(map.within(LogicalBlock(3), Blocks(1)).is_some());
        assert!(map.within(LogicalBlock(3), Blocks(2)).is_none());
    }
}
