//! A map from ranges of block addresses to values. It stores extents, never single blocks.

use longrun_layout::Extent;
use std::collections::BTreeMap;

/// A value of a whole range. Gives the value at `by` blocks into the range.
pub trait Slide: Copy {
    /// The value `by` blocks further.
    fn slide(self, by: u64) -> Self;
}

/// Values by range. A later assignment replaces an earlier one where they overlap.
#[derive(Clone, Debug)]
pub struct RangeMap<V> {
    ranges: BTreeMap<u64, (u64, V)>,
}

impl<V> Default for RangeMap<V> {
    fn default() -> Self {
        Self { ranges: BTreeMap::new() }
    }
}

impl<V: Slide> RangeMap<V> {
    /// The values of ranges in any order; of two that overlap the later one counts. Made at once where the ranges ascend, as those of a
    /// file that was just mapped do: much faster than one after the other.
    pub fn of(ranges: Vec<(Extent, V)>) -> Self {
        if ranges.is_sorted_by(|(one, _), (next, _)| !one.is_empty() && one.end() <= next.start) {
            let entry = |(range, value): (Extent, V)| (range.start.0, (range.length.0, value));
            return Self { ranges: ranges.into_iter().filter(|(range, _)| !range.is_empty()).map(entry).collect() };
        }
        let mut map = Self::default();
        ranges.into_iter().for_each(|(range, value)| map.assign(range, value));
        map
    }

    /// Assigns `value` (as of the range's first block) to `range`.
    pub fn assign(&mut self, range: Extent, value: V) {
        self.clear(range);
        if !range.is_empty() {
            self.ranges.insert(range.start.0, (range.length.0, value));
        }
    }

    /// Forgets what is assigned to `range`.
    pub fn clear(&mut self, range: Extent) {
        let (start, end) = (range.start.0, range.end().0);
        if range.is_empty() {
            return;
        }
        if let Some((&s, &(l, value))) = self.ranges.range(..start).next_back()
            && s + l > start
        {
            self.ranges.insert(s, (start - s, value));
            if s + l > end {
                self.ranges.insert(end, (s + l - end, value.slide(end - s)));
            }
        }
        while let Some((&s, &(l, value))) = self.ranges.range(start..end).next() {
            self.ranges.remove(&s);
            if s + l > end {
                self.ranges.insert(end, (s + l - end, value.slide(end - s)));
            }
        }
    }

    /// What is assigned inside `range`, ascending: each part with the value of its first block.
    pub fn overlapping(&self, range: Extent) -> impl Iterator<Item = (Extent, V)> + '_ {
        let first = self.ranges.range(..=range.start.0).next_back().map_or(range.start.0, |(s, _)| *s);
        self.ranges.range(first..range.end().0.max(first)).filter_map(move |(s, (l, value))| {
            let part = Extent::new(*s, *l).intersection(&range)?;
            Some((part, value.slide(part.start.0 - s)))
        })
    }

    /// Cuts `range` into parts with their values; `None` where nothing is assigned.
    pub fn parts(&self, range: Extent) -> Vec<(Extent, Option<V>)> {
        let mut parts = Vec::new();
        let mut at = range.start;
        for (part, value) in self.overlapping(range) {
            if part.start > at {
                parts.push((Extent::between(at, part.start), None));
            }
            parts.push((part, Some(value)));
            at = part.end();
        }
        if at < range.end() {
            parts.push((Extent::between(at, range.end()), None));
        }
        parts
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[derive(Clone, Copy, Debug, PartialEq)]
    struct Offset(u64);
    impl Slide for Offset {
        fn slide(self, by: u64) -> Self {
            Self(self.0 + by)
        }
    }

    proptest! {
        #[test]
        fn a_map_that_is_made_at_once_is_one_made_range_by_range(ranges in prop::collection::vec((0u64..60, 0u64..12, any::<u64>()), 0..8), sorted: bool) {
            let mut ranges: Vec<(Extent, Offset)> =
                ranges.into_iter().map(|(start, length, value)| (Extent::new(start, length), Offset(value >> 1))).collect();
            if sorted {
                ranges.sort_by_key(|(range, _)| range.start);
            }
            let mut map = RangeMap::default();
            ranges.iter().for_each(|(range, value)| map.assign(*range, *value));
            prop_assert_eq!(RangeMap::of(ranges).ranges, map.ranges);
        }

        #[test]
        fn a_range_map_agrees_with_an_array(ops in prop::collection::vec((any::<bool>(), 0u64..100, 0u64..30, 0u64..1000), 0..40), probe in (0u64..100, 0u64..30)) {
            let (mut map, mut array) = (RangeMap::default(), [None; 130]);
            for (assign, start, length, value) in ops {
                let range = Extent::new(start, length);
                if assign { map.assign(range, Offset(value)) } else { map.clear(range) }
                let known: Vec<(Extent, Offset)> = map.overlapping(Extent::new(0, 200)).collect();
                prop_assert_eq!(RangeMap::of(known).ranges, map.ranges.clone());
                for i in 0..length {
                    array[(start + i) as usize] = assign.then_some(Offset(value + i));
                }
            }
            let mut at = probe.0;
            for (part, value) in map.parts(Extent::new(probe.0, probe.1)) {
                prop_assert_eq!(part.start.0, at);
                for i in 0..part.length.0 {
                    prop_assert_eq!(value.map(|v| v.slide(i)), array[(at + i) as usize]);
                }
                at += part.length.0;
            }
            prop_assert_eq!(at, probe.0 + probe.1);
        }
    }
}
