//! Histograms with fixed buckets. Pure.
//!
//! Owns the bounds of the buckets. For sizes, seeks and queue depths they are those of vscsiStats, so that recordings can
//! be compared with its tables. Those of time are finer.

use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::ops::{Add, Sub};

/// The quantity that a histogram counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Scale {
    /// Lengths of requests, in bytes.
    Bytes,
    /// Times, in microseconds: four buckets to each doubling.
    Microseconds,
    /// Distances from the end of one request to the start of the next, in sectors of 512 bytes; 0 follows directly.
    Sectors,
    /// Requests in flight, including the one just issued.
    Requests,
}

const BYTES: [i64; 17] = [
    512, 1024, 2048, 4095, 4096, 8191, 8192, 16383, 16384, 32768, 49152, 65535, 65536, 81920, 131_072, 262_144, 524_288,
];
const SECTORS: [i64; 17] =
    [-500_000, -50_000, -5000, -500, -64, -16, -6, -2, 0, 2, 6, 16, 64, 500, 5000, 50_000, 500_000];
const REQUESTS: [i64; 12] = [1, 2, 4, 6, 8, 12, 16, 20, 24, 28, 32, 64];
/// The number of bounds of time. The last one is about a minute.
const TIMES: usize = 99;

impl Scale {
    /// How many buckets there are.
    #[must_use]
    pub const fn buckets(self) -> usize {
        match self {
            Self::Bytes => BYTES.len() + 1,
            Self::Microseconds => TIMES + 1,
            Self::Sectors => SECTORS.len() + 1,
            Self::Requests => REQUESTS.len() + 1,
        }
    }

    /// The largest value of a bucket; `None` for the last, which has no end.
    #[must_use]
    pub fn upto(self, bucket: usize) -> Option<i64> {
        match self {
            Self::Bytes => BYTES.get(bucket).copied(),
            Self::Sectors => SECTORS.get(bucket).copied(),
            Self::Requests => REQUESTS.get(bucket).copied(),
            Self::Microseconds if bucket >= TIMES => None,
            Self::Microseconds if bucket < 4 => i64::try_from(bucket).ok(),
            Self::Microseconds => {
                let (doubling, quarter) = (bucket / 4 - 1, bucket as i64 % 4);
                Some(((quarter + 5) << doubling) - 1)
            }
        }
    }

    /// The bucket that a value belongs to.
    #[must_use]
    pub fn bucket_of(self, value: i64) -> usize {
        (0..self.buckets()).find(|bucket| self.upto(*bucket).is_none_or(|upto| value <= upto)).unwrap_or(0)
    }
}

/// How often each value occurred.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Histogram {
    scale: Scale,
    counts: Vec<u64>,
}

impl Histogram {
    /// An empty histogram.
    #[must_use]
    pub fn new(scale: Scale) -> Self {
        Self { scale, counts: vec![0; scale.buckets()] }
    }

    /// From the counts of all buckets in their order. Missing counts are 0.
    #[must_use]
    pub fn from_counts(scale: Scale, counts: impl IntoIterator<Item = u64>) -> Self {
        let mut histogram = Self::new(scale);
        histogram.counts.iter_mut().zip(counts).for_each(|(place, count)| *place = count);
        histogram
    }

    /// Counts a value.
    pub fn count(&mut self, value: i64) {
        if let Some(count) = self.counts.get_mut(self.scale.bucket_of(value)) {
            *count += 1;
        }
    }

    /// What is counted.
    #[must_use]
    pub fn scale(&self) -> Scale {
        self.scale
    }

    /// The buckets: the largest value of each, and its count.
    pub fn buckets(&self) -> impl Iterator<Item = (Option<i64>, u64)> {
        self.counts.iter().enumerate().map(|(bucket, count)| (self.scale.upto(bucket), *count))
    }

    /// The buckets as they are shown: those of time are merged into one for each doubling.
    #[must_use]
    pub fn shown(&self) -> Vec<(Option<i64>, u64)> {
        let each = if self.scale == Scale::Microseconds { 4 } else { 1 };
        let all: Vec<_> = self.buckets().collect();
        all.chunks(each).filter_map(|few| Some((few.last()?.0, few.iter().map(|(_, count)| count).sum()))).collect()
    }

    /// The number of values.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.counts.iter().sum()
    }

    /// The smallest bound that `share` (0 to 1) of the values do not exceed; `None` if there are no values, or if it is
    /// beyond the last bound.
    #[must_use]
    pub fn quantile(&self, share: f64) -> Option<i64> {
        let wanted = (self.total() as f64 * share).ceil().max(1.0);
        let mut seen = 0;
        self.buckets().find_map(|(upto, count)| {
            seen += count;
            (count > 0 && seen as f64 >= wanted).then_some(upto)
        })?
    }
}

impl Add for &Histogram {
    type Output = Histogram;

    /// The sum of both. If the scales differ, the result is the first.
    fn add(self, other: Self) -> Histogram {
        self.with(other, u64::saturating_add)
    }
}

impl Sub for &Histogram {
    type Output = Histogram;

    /// The difference since `other`, which is an earlier state of the same histogram.
    fn sub(self, other: Self) -> Histogram {
        self.with(other, u64::saturating_sub)
    }
}

impl Histogram {
    fn with(&self, other: &Self, act: fn(u64, u64) -> u64) -> Self {
        if self.scale != other.scale {
            return self.clone();
        }
        let counts = self.counts.iter().zip(&other.counts).map(|(a, b)| act(*a, *b)).collect();
        Self { scale: self.scale, counts }
    }
}

/// The form in JSON: only buckets in which there is something.
#[derive(Serialize, Deserialize)]
struct Stored {
    unit: Scale,
    buckets: Vec<StoredBucket>,
}

#[derive(Serialize, Deserialize)]
struct StoredBucket {
    upto: Option<i64>,
    count: u64,
}

impl Serialize for Histogram {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let filled = self.buckets().filter(|(_, count)| *count > 0);
        let buckets = filled.map(|(upto, count)| StoredBucket { upto, count }).collect();
        Stored { unit: self.scale, buckets }.serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for Histogram {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let stored = Stored::deserialize(deserializer)?;
        let mut histogram = Self::new(stored.unit);
        for StoredBucket { upto, count } in stored.buckets {
            let bucket = (0..stored.unit.buckets()).find(|bucket| stored.unit.upto(*bucket) == upto);
            let unknown = || {
                let bound = upto.map_or_else(|| "without an end".to_owned(), |upto| format!("up to {upto}"));
                D::Error::custom(format!("a histogram of this unit has no bucket {bound}"))
            };
            let place = bucket.and_then(|bucket| histogram.counts.get_mut(bucket)).ok_or_else(unknown)?;
            *place = place.checked_add(count).ok_or_else(|| D::Error::custom("a count exceeds 64 bits"))?;
        }
        Ok(histogram)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const SCALES: [Scale; 4] = [Scale::Bytes, Scale::Microseconds, Scale::Sectors, Scale::Requests];

    #[test]
    fn bounds_rise_and_belong_to_their_buckets() {
        for scale in SCALES {
            let bounds: Vec<i64> = (0..scale.buckets()).map_while(|bucket| scale.upto(bucket)).collect();
            assert!(bounds.is_sorted_by(|a, b| a < b), "{scale:?}: {bounds:?}");
            assert_eq!(bounds.len() + 1, scale.buckets(), "{scale:?}");
            for (bucket, bound) in bounds.iter().enumerate() {
                assert_eq!((scale.bucket_of(*bound), scale.bucket_of(bound + 1)), (bucket, bucket + 1), "{scale:?}");
            }
        }
        assert_eq!(Scale::Microseconds.upto(98), Some((1 << 26) - (1 << 23) - 1));
    }

    #[test]
    fn quantiles_are_bounds_that_so_many_do_not_exceed() {
        let mut histogram = Histogram::new(Scale::Bytes);
        assert_eq!(histogram.quantile(0.5), None);
        [512, 4096, 4096, 1 << 30].into_iter().for_each(|bytes| histogram.count(bytes));
        assert_eq!([0.0, 0.25, 0.5, 0.75].map(|share| histogram.quantile(share)), [512, 512, 4096, 4096].map(Some));
        assert_eq!(histogram.quantile(1.0), None, "beyond the last bound");
    }

    #[test]
    fn a_foreign_bucket_is_refused_and_not_put_somewhere() {
        for wrong in [
            r#"{"unit":"bytes","buckets":[{"upto":1000,"count":1}]}"#,
            r#"{"unit":"requests","buckets":[{"upto":1,"count":18446744073709551615},{"upto":1,"count":1}]}"#,
            r#"{"unit":"miles","buckets":[]}"#,
            r#"{"unit":"bytes","buckets":[{"upto":512,"count":-1}]}"#,
        ] {
            assert!(serde_json::from_str::<Histogram>(wrong).is_err(), "{wrong}");
        }
    }

    fn values() -> impl Strategy<Value = (Scale, Vec<i64>)> {
        let value = prop_oneof![-600_000i64..600_000, 0i64..2000, any::<i64>()];
        (0usize..4).prop_flat_map(move |scale| {
            let value = value.clone().prop_map(move |value| if scale == 2 { value } else { value.saturating_abs() });
            prop::collection::vec(value, 0..60).prop_map(move |values| (SCALES[scale], values))
        })
    }

    fn histogram(scale: Scale, values: &[i64]) -> Histogram {
        let mut histogram = Histogram::new(scale);
        values.iter().for_each(|value| histogram.count(*value));
        histogram
    }

    proptest! {
        #[test]
        fn every_value_is_counted_once_and_added_up_is_counted_together((scale, values) in values(), cut in 0usize..60) {
            let whole = histogram(scale, &values);
            let (first, rest) = values.split_at(cut.min(values.len()));
            let (first, rest) = (histogram(scale, first), histogram(scale, rest));
            prop_assert_eq!(whole.total(), values.len() as u64);
            prop_assert_eq!(&(&first + &rest), &whole);
            prop_assert_eq!(&(&whole - &first), &rest);
            let shown: u64 = whole.shown().iter().map(|(_, count)| count).sum();
            prop_assert_eq!(shown, whole.total());
        }

        #[test]
        fn json_gives_back_what_was_put_in((scale, values) in values()) {
            let whole = histogram(scale, &values);
            let json = serde_json::to_string(&whole).unwrap();
            prop_assert_eq!(serde_json::from_str::<Histogram>(&json).unwrap(), whole);
        }

        #[test]
        fn no_more_than_the_share_lies_beyond_a_quantile((scale, values) in values(), share in 0.01f64..1.0) {
            let whole = histogram(scale, &values);
            if let Some(bound) = whole.quantile(share) {
                let within = values.iter().filter(|value| **value <= bound).count();
                prop_assert!(within as f64 >= values.len() as f64 * share - 1e-9);
            }
        }
    }
}
