//! The pool: units that wait for a place, and combinations of them that fill a hole exactly.

use crate::unit::UnitIndex;
use std::collections::{BTreeMap, BTreeSet};

/// Sizes up to this many blocks (256 MiB of 4 KiB blocks) take part in exact combinations.
const COUNTED: usize = 1 << 16;
/// Steps that one search for an exact combination may take.
const PATIENCE: u32 = 60_000;

/// Units by size; within a size by directory, so that files of one directory end up together.
#[derive(Clone, Debug)]
pub(crate) struct Pool {
    by_size: BTreeMap<u64, BTreeSet<(u32, UnitIndex)>>,
    /// How many units of each counted size.
    counts: Vec<u32>,
    blocks: u64,
}

impl Pool {
    pub(crate) fn new() -> Self {
        Self { by_size: BTreeMap::new(), counts: vec![0; COUNTED + 1], blocks: 0 }
    }

    pub(crate) fn insert(&mut self, size: u64, directory: u32, unit: UnitIndex) {
        self.by_size.entry(size).or_default().insert((directory, unit));
        self.blocks += size;
        self.count(size, 1);
    }

    /// Takes a unit of exactly `size`, of `directory` or the nearest to it.
    pub(crate) fn take(&mut self, size: u64, directory: u32) -> Option<UnitIndex> {
        let units = self.by_size.get_mut(&size)?;
        let found = units.range((directory, 0)..).next().or_else(|| units.iter().next_back()).copied()?;
        units.remove(&found);
        if units.is_empty() {
            self.by_size.remove(&size);
        }
        self.blocks -= size;
        self.count(size, -1);
        Some(found.1)
    }

    /// Takes any unit of the largest size.
    pub(crate) fn take_largest(&mut self) -> Option<(u64, UnitIndex)> {
        let size = *self.by_size.last_key_value()?.0;
        Some((size, self.take(size, 0)?))
    }

    pub(crate) fn blocks(&self) -> u64 {
        self.blocks
    }

    /// Sizes whose units together fill `length` blocks exactly, or `None` when no combination was found within the
    /// patience. Large units are taken first: the small ones are the coins that make the last holes solvable.
    pub(crate) fn exact_combination(&mut self, length: u64) -> Option<Vec<u64>> {
        if length > self.blocks {
            return None;
        }
        if self.by_size.contains_key(&length) {
            return Some(vec![length]);
        }
        let mut taken = Vec::new();
        let found = self.combine(length, &mut taken);
        // The counts were lowered while searching, so that no unit is counted twice.
        for (size, units) in &taken {
            self.count(*size, i64::from(*units));
        }
        if !found {
            return self.pair(length);
        }
        Some(taken.into_iter().flat_map(|(size, units)| std::iter::repeat_n(size, units as usize)).collect())
    }

    /// Two units, where what was tried first began with one that is in none of the combinations.
    fn pair(&self, length: u64) -> Option<Vec<u64>> {
        let count = |size: u64| self.counts.get(size as usize).copied().unwrap_or(0);
        let is_pair = |size: u64| count(length - size) > u32::from(size * 2 == length);
        let larger = self.by_size.range(length.div_ceil(2)..length).map(|(size, _)| *size);
        larger.filter(|size| count(*size) > 0).find(|size| is_pair(*size)).map(|size| vec![size, length - size])
    }

    /// Greedy from the top, then an exact search for the rest; when the rest cannot be met, one unit after the other is
    /// given back: a larger rest has more combinations. `taken`: sizes, and how many units of each. A hundred thousand small files are
    /// not taken one by one, for a hole that all of them do not fill.
    fn combine(&mut self, length: u64, taken: &mut Vec<(u64, u32)>) -> bool {
        let mut rest = length;
        let sizes: Vec<u64> = self.by_size.range(..=length.min(COUNTED as u64)).rev().map(|(s, _)| *s).collect();
        for &size in &sizes {
            let available = self.counts.get(size as usize).copied().unwrap_or(0);
            let fits = u32::try_from(rest / size).map_or(available, |fits| fits.min(available));
            if fits > 0 {
                taken.push((size, fits));
                self.count(size, -i64::from(fits));
            }
            rest -= size * u64::from(fits);
            if rest == 0 {
                return true;
            }
        }
        let mut patience = PATIENCE;
        for _ in 0..4 {
            let Some((given_back, units)) = taken.last_mut() else { return false };
            let given_back = *given_back;
            *units -= 1;
            if *units == 0 {
                taken.pop();
            }
            self.count(given_back, 1);
            rest += given_back;
            if self.search(&sizes, rest, taken, &mut patience, 3) {
                return true;
            }
            if patience == 0 {
                return false;
            }
        }
        false
    }

    /// Depth-first search for at most `depth` + 1 more sizes, descending, that sum up to `rest`.
    fn search(
        &mut self,
        sizes: &[u64],
        rest: u64,
        taken: &mut Vec<(u64, u32)>,
        patience: &mut u32,
        depth: u32,
    ) -> bool {
        let first = sizes.partition_point(|s| *s > rest);
        let sizes = sizes.get(first..).unwrap_or_default();
        for (at, &size) in sizes.iter().enumerate() {
            *patience = patience.saturating_sub(1);
            // Descending order: once the largest candidates cannot reach the rest, none can.
            if *patience == 0 || size * u64::from(depth + 1) < rest {
                return false;
            }
            if self.counts.get(size as usize).is_none_or(|c| *c == 0) {
                continue;
            }
            taken.push((size, 1));
            self.count(size, -1);
            let left = rest - size;
            if left == 0 {
                return true;
            }
            if left <= size && self.counts.get(left as usize).is_some_and(|c| *c > 0) {
                taken.push((left, 1));
                self.count(left, -1);
                return true;
            }
            if depth > 1 && self.search(sizes.get(at..).unwrap_or_default(), left, taken, patience, depth - 1) {
                return true;
            }
            taken.pop();
            self.count(size, 1);
        }
        false
    }

    fn count(&mut self, size: u64, by: i64) {
        if let Some(count) = self.counts.get_mut(size as usize) {
            *count = u32::try_from(i64::from(*count) + by).unwrap_or(0);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn a_combination_is_exact_uses_what_is_there_and_leaves_the_pool_as_it_was(
            sizes in prop::collection::vec(1u64..60, 1..40),
            length in 1u64..400,
        ) {
            let mut pool = Pool::new();
            for (unit, size) in sizes.iter().enumerate() {
                pool.insert(*size, 0, unit);
            }
            let counts = pool.counts.clone();
            if let Some(found) = pool.exact_combination(length) {
                prop_assert_eq!(found.iter().sum::<u64>(), length);
                for size in &found {
                    let wanted = found.iter().filter(|s| *s == size).count();
                    prop_assert!(wanted <= sizes.iter().filter(|s| *s == size).count());
                }
            } else {
                // Two units that make up the length are always found.
                let pair = (0..sizes.len()).any(|a| (a + 1..sizes.len()).any(|b| sizes[a] + sizes[b] == length));
                prop_assert!(!pair && !sizes.contains(&length));
            }
            prop_assert_eq!(counts, pool.counts);
        }
    }

    #[test]
    fn many_units_of_one_size_fill_a_hole_and_are_there_again_when_they_do_not() {
        let mut pool = Pool::new();
        (0..50_000).for_each(|unit| pool.insert(1, 0, unit));
        pool.insert(70_000, 0, 50_000);
        assert_eq!(pool.exact_combination(49_999), Some(vec![1; 49_999]));
        for _ in 0..20_000 {
            assert_eq!(pool.exact_combination(60_000), None);
        }
        assert_eq!(pool.exact_combination(50_000), Some(vec![1; 50_000]));
    }

    #[test]
    fn the_unit_of_the_nearest_directory_is_taken() {
        let mut pool = Pool::new();
        for (unit, directory) in [(0, 5), (1, 9), (2, 7)] {
            pool.insert(3, directory, unit);
        }
        assert_eq!(pool.take(3, 7), Some(2));
        assert_eq!(pool.take(3, 7), Some(1));
        assert_eq!(pool.take(3, 7), Some(0));
        assert_eq!(pool.take(3, 7), None);
        assert_eq!(pool.blocks(), 0);
    }
}
