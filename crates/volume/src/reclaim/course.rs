//! The way through the address space of a volume: slice by slice, each byte once, beginning where the last run was stopped.
//!
//! Pure. Never decides how long a slice is to be.

use longrun_layout::Bytes;
use longrun_sys::ByteRange;
use std::collections::VecDeque;

/// What one call is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Slice {
    /// The range of the call.
    pub range: ByteRange,
    /// How much of the course it is.
    pub length: Bytes,
}

/// Where slices may be cut: at an origin, and at multiples of a unit from there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cuts {
    /// The first one.
    pub origin: Bytes,
    /// How far they lie apart.
    pub unit: Bytes,
}

impl Cuts {
    /// At multiples of `unit`.
    #[must_use]
    pub const fn each(unit: Bytes) -> Self {
        Self { origin: Bytes(0), unit }
    }

    /// The last one that is not behind `at`.
    fn before(&self, at: u64) -> u64 {
        let unit = self.unit.0.max(1);
        self.origin.0 + at.saturating_sub(self.origin.0) / unit * unit
    }

    /// The first one behind `at`.
    fn behind(&self, at: u64) -> u64 {
        self.before(at).saturating_add(self.unit.0.max(1))
    }
}

/// The areas of a volume that are left to do.
#[derive(Clone, Debug)]
pub struct Course {
    first: Option<Slice>,
    left: VecDeque<Part>,
    cuts: Cuts,
    total: Bytes,
    done: Bytes,
}

/// A part of an area, never empty.
#[derive(Clone, Copy, Debug)]
struct Part {
    start: u64,
    end: u64,
    /// Nothing lies behind it. What the volume has grown by meanwhile belongs to it.
    is_last: bool,
}

impl Course {
    /// Over all `areas`, which ascend and do not overlap. No slice goes from one into the next. It begins at the last possible cut
    /// that is not behind `from`, and ends there.
    #[must_use]
    pub fn new(areas: &[ByteRange], cuts: Cuts, from: Bytes) -> Self {
        let last = areas.last().map(end);
        let (mut left, mut before) = (VecDeque::new(), Vec::new());
        for area in areas {
            let (start, end) = (area.start.0, end(area));
            let cut = if from.0 >= end { end } else { cuts.before(from.0).max(start) };
            let part = |start, to| Part { start, end: to, is_last: Some(to) == last };
            before.extend((start < cut).then(|| part(start, cut)));
            left.extend((cut < end).then(|| part(cut, end)));
        }
        left.extend(before);
        let total = Bytes(left.iter().map(|part| part.end - part.start).sum());
        Self { first: None, left, cuts, total, done: Bytes(0) }
    }

    /// The same with this slice before all others, whatever is in it.
    #[must_use]
    pub fn beginning_with(self, first: Option<Slice>) -> Self {
        let length = first.map_or(Bytes(0), |slice| slice.length);
        Self { first, total: self.total + length, ..self }
    }

    /// The next slice: not longer than `length`, but at least up to the next cut.
    #[must_use]
    pub fn next(&self, length: Bytes) -> Option<Slice> {
        if self.first.is_some() {
            return self.first;
        }
        let part = self.left.front()?;
        let whole = part.end - part.start;
        let end = self.cuts.before(part.start.saturating_add(length.0));
        let end = if end > part.start { end } else { self.cuts.behind(part.start) };
        let length = end.min(part.end) - part.start;
        let asked = if part.is_last && length == whole { u64::MAX } else { length };
        let range = ByteRange { start: Bytes(part.start), length: Bytes(asked) };
        Some(Slice { range, length: Bytes(length) })
    }

    /// Notes that the slice of [`Self::next`] is done.
    pub fn pass(&mut self, slice: Slice) {
        self.done += slice.length;
        if self.first.take().is_some() {
            return;
        }
        if let Some(part) = self.left.front_mut() {
            part.start += slice.length.0;
            if part.start >= part.end {
                self.left.pop_front();
            }
        }
    }

    /// Where the next slice begins; `None` when all is done.
    #[must_use]
    pub fn position(&self) -> Option<Bytes> {
        self.left.front().map(|part| Bytes(part.start))
    }

    /// Whether the next slice is the one before all others, whose length says nothing about its time.
    #[must_use]
    pub fn is_at_first(&self) -> bool {
        self.first.is_some()
    }

    /// How much is done.
    #[must_use]
    pub fn done(&self) -> Bytes {
        self.done
    }

    /// How much there is in all.
    #[must_use]
    pub fn total(&self) -> Bytes {
        self.total
    }
}

fn end(area: &ByteRange) -> u64 {
    area.start.0.saturating_add(area.length.0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn range(start: u64, length: u64) -> ByteRange {
        ByteRange { start: Bytes(start), length: Bytes(length) }
    }

    fn cuts(origin: u64, unit: u64) -> Cuts {
        Cuts { origin: Bytes(origin), unit: Bytes(unit) }
    }

    /// All slices, each about `length` long; the open end of the last one is closed again.
    fn slices(mut course: Course, length: u64) -> Vec<ByteRange> {
        let mut found = Vec::new();
        while let Some(slice) = course.next(Bytes(length)) {
            course.pass(slice);
            found.push(ByteRange { length: slice.length, ..slice.range });
        }
        assert_eq!((course.done(), course.position()), (course.total(), None));
        found
    }

    #[test]
    fn it_goes_round_from_where_it_begins() {
        let areas = [range(10, 25), range(100, 20)];
        let of = |from, length| slices(Course::new(&areas, cuts(10, 10), Bytes(from)), length);
        assert_eq!(of(0, 20), [range(10, 20), range(30, 5), range(100, 20)]);
        assert_eq!(of(29, 10), [range(20, 10), range(30, 5), range(100, 10), range(110, 10), range(10, 10)]);
        assert_eq!(of(50, 100), [range(100, 20), range(10, 25)], "from a gap");
        assert_eq!(of(9999, 100), [range(10, 25), range(100, 20)], "from behind the end");
    }

    #[test]
    fn the_end_of_the_last_area_is_open_because_a_volume_can_grow() {
        let mut course = Course::new(&[range(0, 25)], cuts(0, 10), Bytes(20));
        let last = course.next(Bytes(10)).unwrap();
        assert_eq!((last.range, last.length), (range(20, u64::MAX), Bytes(5)));
        course.pass(last);
        assert_eq!(course.next(Bytes(10)).unwrap().range, range(0, 10));
        assert_eq!(course.position(), Some(Bytes(0)));
    }

    #[test]
    fn a_first_slice_comes_before_all_others_and_counts() {
        let first = Slice { range: range(1 << 60, 1), length: Bytes(7) };
        let mut course = Course::new(&[range(0, 25)], cuts(0, 10), Bytes(0)).beginning_with(Some(first));
        assert_eq!((course.next(Bytes(10)), course.total(), course.is_at_first()), (Some(first), Bytes(32), true));
        course.pass(first);
        assert_eq!((course.done(), course.position(), course.is_at_first()), (Bytes(7), Some(Bytes(0)), false));
    }

    #[test]
    fn areas_that_must_not_be_cut_come_one_by_one_and_whole() {
        let areas = [range(10, 25), range(35, 20), range(100, 5)];
        let of = |from, length| slices(Course::new(&areas, cuts(0, u64::MAX), Bytes(from)), length);
        assert_eq!(of(0, 1000), areas);
        assert_eq!(of(54, 1), [areas[1], areas[2], areas[0]]);
    }

    proptest! {
        #[test]
        fn each_byte_is_in_exactly_one_slice(
            gaps in prop::collection::vec((0u64..50, 1u64..300), 0..6),
            unit in 1u64..60,
            origin in 0u64..60,
            from in 0u64..2000,
            length in 0u64..200,
        ) {
            let mut at = origin;
            let areas: Vec<ByteRange> = gaps.iter().map(|(gap, length)| {
                let start = at + gap;
                at = start + length;
                range(start, *length)
            }).collect();
            let found = slices(Course::new(&areas, cuts(origin, unit), Bytes(from)), length);
            let mut times = vec![0; 2300];
            for slice in &found {
                let (start, end) = (slice.start.0 as usize, (slice.start.0 + slice.length.0) as usize);
                times[start..end].iter_mut().for_each(|times| *times += 1);
            }
            for (byte, times) in times.into_iter().enumerate() {
                let expected = areas.iter().any(|area| (area.start.0..end(area)).contains(&(byte as u64)));
                prop_assert_eq!(times, u64::from(expected), "byte {}", byte);
            }
            for slice in found {
                let is_start = areas.iter().any(|area| area.start == slice.start);
                prop_assert!(is_start || (slice.start.0 - origin) % unit == 0, "cut where it must not be: {:?}", slice);
            }
        }
    }
}
