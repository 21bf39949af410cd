//! Reads sizes, durations and shares as people write them, and writes them so that they can be read again.

use longrun_layout::Bytes;
use std::time::Duration;

/// What a size looks like, for messages.
pub const SIZE: &str = "a size such as \"16MiB\", \"2G\" or \"0\"";
/// What a duration looks like, for messages.
pub const DURATION: &str = "a duration such as \"500ms\", \"5s\", \"30min\", \"6h\" or \"1d\"";
/// What a share looks like, for messages.
pub const PERCENT: &str = "a share such as \"5%\"";

/// A share of a whole in per cent: 0 to 100.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Percent(u8);

impl Percent {
    /// `None` above 100.
    #[must_use]
    pub const fn new(percent: u8) -> Option<Self> {
        if percent <= 100 { Some(Self(percent)) } else { None }
    }

    /// The share nearest to `percent`.
    #[must_use]
    pub const fn of(percent: u8) -> Self {
        Self(if percent < 100 { percent } else { 100 })
    }

    /// The number before the sign.
    #[must_use]
    pub const fn get(self) -> u8 {
        self.0
    }
}

/// Units of sizes, largest first: powers of 1024, whatever the spelling.
const SIZES: [(&[&str], u32); 5] = [
    (&["tib", "tb", "t"], 40),
    (&["gib", "gb", "g"], 30),
    (&["mib", "mb", "m"], 20),
    (&["kib", "kb", "k"], 10),
    (&["b", ""], 0),
];

/// Units of durations in milliseconds, largest first; the first spelling is the one shown.
const DURATIONS: [(&[&str], u64); 5] = [
    (&["d", "day", "days"], 86_400_000),
    (&["h"], 3_600_000),
    (&["min", "m"], 60_000),
    (&["s", "sec"], 1000),
    (&["ms"], 1),
];

/// Number and unit of a text like `16 MiB`.
fn split(text: &str) -> Option<(u64, String)> {
    let text = text.trim();
    let digits = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (number, unit) = text.split_at_checked(digits)?;
    Some((number.parse().ok()?, unit.trim().to_ascii_lowercase()))
}

/// Reads `0`, `4096`, `64k`, `16MiB`.
#[must_use]
pub fn parse_size(text: &str) -> Option<Bytes> {
    let (number, unit) = split(text)?;
    let (_, shift) = SIZES.iter().find(|(names, _)| names.contains(&unit.as_str()))?;
    number.checked_mul(1 << shift).filter(|bytes| i64::try_from(*bytes).is_ok()).map(Bytes)
}

/// The size in the largest unit that keeps it exact.
#[must_use]
pub fn show_size(bytes: Bytes) -> String {
    const SHOWN: [(&str, u32); 4] = [("TiB", 40), ("GiB", 30), ("MiB", 20), ("KiB", 10)];
    let whole = SHOWN.iter().find(|(_, shift)| bytes.0 > 0 && bytes.0.trailing_zeros() >= *shift);
    whole.map_or_else(|| bytes.0.to_string(), |(name, shift)| format!("{}{name}", bytes.0 >> shift))
}

/// Reads `500ms`, `5s`, `30min`, `6h`, `1d`.
#[must_use]
pub fn parse_duration(text: &str) -> Option<Duration> {
    let (number, unit) = split(text)?;
    let (_, scale) = DURATIONS.iter().find(|(names, _)| names.contains(&unit.as_str()))?;
    number.checked_mul(*scale).filter(|ms| *ms <= 366 * 86_400_000).map(Duration::from_millis)
}

/// The duration in the largest unit that keeps it exact.
#[must_use]
pub fn show_duration(time: Duration) -> String {
    let ms = u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
    let whole = DURATIONS.iter().find(|(_, scale)| ms > 0 && ms.is_multiple_of(*scale));
    whole.map_or_else(|| "0s".to_owned(), |(names, scale)| format!("{}{}", ms / scale, names.first().unwrap_or(&"")))
}

/// Reads `5%`.
#[must_use]
pub fn parse_percent(text: &str) -> Option<Percent> {
    Percent::new(text.trim().strip_suffix('%')?.trim_end().parse().ok()?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn sizes_durations_and_shares_are_read_with_their_units_and_nonsense_is_refused() {
        assert_eq!(
            ["0", "4096", "64k", "16 MiB", "2G"].map(|t| parse_size(t).map(|b| b.0)),
            [0, 4096, 65536, 16 << 20, 2 << 30].map(Some)
        );
        assert_eq!(["", "k", "-1", "1x", "99999999T", "1.5G"].map(parse_size), [None; 6]);
        let ms = |t: &str| parse_duration(t).map(|d| d.as_millis());
        assert_eq!(
            ["0s", "500ms", "5s", "2min", "1h", "1d"].map(ms),
            [0, 500, 5000, 120_000, 3_600_000, 86_400_000].map(Some)
        );
        assert_eq!(["5", "s", "-1s", "1y", "99999d"].map(ms), [None; 5]);
        assert_eq!(
            ["5%", "100 %", "101%", "5", "%"].map(|t| parse_percent(t).map(Percent::get)),
            [Some(5), Some(100), None, None, None]
        );
    }

    proptest! {
        #[test]
        fn what_is_shown_can_be_read_again(bytes in 0..i64::MAX as u64, shift in 0..44u32, ms in 0..31_622_400_000u64) {
            let bytes = Bytes(bytes >> shift << shift);
            prop_assert_eq!(parse_size(&show_size(bytes)), Some(bytes));
            let time = Duration::from_millis(ms);
            prop_assert_eq!(parse_duration(&show_duration(time)), Some(time));
        }
    }
}
