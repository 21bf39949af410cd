//! Values as text for people: sizes, counts, durations, and names without control characters.

use longrun_layout::Bytes;
pub use longrun_layout::{grouped as count, shown_duration as duration};
use std::fmt::Write as _;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::time::Duration;

/// The text with all characters escaped that could move the cursor, change colours, or hide or reorder text.
pub fn printable(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '\n' => shown.push_str("\\n"),
            '\r' => shown.push_str("\\r"),
            '\t' => shown.push_str("\\t"),
            c if c.is_control() && u32::from(c) < 0x80 => _ = write!(shown, "\\x{:02x}", u32::from(c)),
            c if c.is_control() || deceives(c) => _ = write!(shown, "\\u{{{:x}}}", u32::from(c)),
            c => shown.push(c),
        }
    }
    shown
}

/// Invisible characters, and those that change the direction of writing.
fn deceives(c: char) -> bool {
    matches!(c, '\u{ad}' | '\u{61c}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}'
        | '\u{feff}' | '\u{fff9}'..='\u{fffb}' | '\u{e0000}'..='\u{e007f}')
}

/// A path for people: escaped like [`printable`], bytes that are not UTF-8 as `\xNN`.
pub fn printable_path(path: &Path) -> String {
    let mut shown = String::new();
    for chunk in path.as_os_str().as_bytes().utf8_chunks() {
        shown.push_str(&printable(chunk.valid()));
        for byte in chunk.invalid() {
            _ = write!(shown, "\\x{byte:02x}");
        }
    }
    shown
}

/// A size in binary units with about three digits: `999 B`, `4.0 KiB`, `1.25 GiB`.
pub fn size(bytes: Bytes) -> String {
    const UNITS: [&str; 7] = ["B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
    let mut value = bytes.0 as f64;
    let mut unit = 0;
    // 1023.5 and above would be shown as 1024: that is one of the next unit.
    while value >= 1023.5 && unit + 1 < UNITS.len() {
        value /= 1024.0;
        unit += 1;
    }
    let name = UNITS.get(unit).unwrap_or(&"B");
    match unit {
        0 => format!("{value:.0} {name}"),
        _ if value < 9.995 => format!("{value:.2} {name}"),
        _ if value < 99.95 => format!("{value:.1} {name}"),
        _ => format!("{value:.0} {name}"),
    }
}

/// A count and its noun: `1 file`, `2 files`.
pub fn counted(number: u64, one: &str, many: &str) -> String {
    format!("{} {}", count(number), if number == 1 { one } else { many })
}

/// `part` of `whole` in per cent: `0 %`, `< 1 %`, `42 %`.
pub fn percent(part: u64, whole: u64) -> String {
    match (part, whole) {
        (_, 0) | (0, _) => "0 %".to_owned(),
        (part, whole) => match part as f64 / whole as f64 * 100.0 {
            share if share < 1.0 => "< 1 %".to_owned(),
            share if share > 99.0 && part < whole => "> 99 %".to_owned(),
            share => format!("{share:.0} %"),
        },
    }
}

/// Reads `4096`, `64k`, `1.5G`, `10MiB`: binary units.
pub fn parse_size(text: &str) -> Result<Bytes, String> {
    let text = text.trim();
    let digits = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    let shift = match unit.trim().to_ascii_lowercase().as_str() {
        "" | "b" => 0,
        "k" | "kb" | "kib" => 10,
        "m" | "mb" | "mib" => 20,
        "g" | "gb" | "gib" => 30,
        "t" | "tb" | "tib" => 40,
        _ => return Err(format!("'{unit}' is not a unit; use k, M, G or T (powers of 1024)")),
    };
    let scale = 1u64 << shift;
    let bytes = match number.parse::<u64>() {
        Ok(whole) => whole.checked_mul(scale),
        Err(_) => number.parse::<f64>().ok().map(|n| n * scale as f64).filter(|n| *n < 9e18).map(|n| n as u64),
    };
    bytes.filter(|b| *b > 0).map(Bytes).ok_or_else(|| format!("'{text}' is not a size; write for example 500M or 20G"))
}

/// Reads `90` (seconds), `90s`, `30m`, `2h`, `1h30m`.
pub fn parse_duration(text: &str) -> Result<Duration, String> {
    let wrong = || format!("'{text}' is not a duration; write for example 90s, 30m or 1h30m");
    let mut seconds: u64 = 0;
    let mut rest = text.trim();
    if rest.is_empty() {
        return Err(wrong());
    }
    while !rest.is_empty() {
        let digits = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
        let number: u64 = rest.get(..digits).unwrap_or_default().parse().map_err(|_| wrong())?;
        rest = rest.get(digits..).unwrap_or_default();
        let letters = rest.find(|c: char| c.is_ascii_digit()).unwrap_or(rest.len());
        let scale = match rest.get(..letters).unwrap_or_default().trim() {
            "" if seconds == 0 => 1,
            "s" | "sec" => 1,
            "m" | "min" => 60,
            "h" => 3600,
            "d" => 86400,
            _ => return Err(wrong()),
        };
        rest = rest.get(letters..).unwrap_or_default();
        seconds = number.checked_mul(scale).and_then(|n| n.checked_add(seconds)).ok_or_else(wrong)?;
    }
    if seconds == 0 { Err(wrong()) } else { Ok(Duration::from_secs(seconds)) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::ffi::OsStr;

    #[test]
    fn names_cannot_drive_the_terminal() {
        let name = OsStr::from_bytes(b"a\x1b[31mred\xff\xc2\x9b\n\xe2\x80\xaegnp.exe");
        assert_eq!(printable_path(Path::new(name)), "a\\x1b[31mred\\xff\\u{9b}\\n\\u{202e}gnp.exe");
        assert_eq!(printable_path(Path::new("Grüße/日本")), "Grüße/日本");
    }

    #[test]
    fn sizes_and_counts_read_well() {
        let shown = [0, 999, 4096, 1536, 1 << 20, (1 << 30) - 1, 1342177280, u64::MAX].map(|b| size(Bytes(b)));
        assert_eq!(
            shown,
            ["0 B", "999 B", "4.00 KiB", "1.50 KiB", "1.00 MiB", "1.00 GiB", "1.25 GiB", "16.0 EiB"].map(String::from)
        );
        assert_eq!([0, 12, 123, 1234, 1234567].map(count).join(" "), "0 12 123 1,234 1,234,567");
        assert_eq!(
            (percent(0, 5), percent(1, 1000), percent(999, 1000)),
            ("0 %".into(), "< 1 %".into(), "> 99 %".into())
        );
    }

    #[test]
    fn sizes_are_read_with_binary_units_and_nonsense_is_refused() {
        let read = |t: &str| parse_size(t).ok().map(|b| b.0);
        assert_eq!(read("4096"), Some(4096));
        assert_eq!(read("64k"), Some(65536));
        assert_eq!(read("1.5G"), Some(3 << 29));
        assert_eq!(read("10 MiB"), Some(10 << 20));
        assert_eq!(["", "k", "-1", "0", "1x", "99999999T", "1..5k", "nan", "1e3"].map(read), [None; 9]);
    }

    #[test]
    fn durations_are_read_and_shown() {
        let read = |t: &str| parse_duration(t).ok().map(|d| d.as_secs());
        assert_eq!(["90", "90s", "30m", "2h", "1h30m"].map(read), [90, 90, 1800, 7200, 5400].map(Some));
        assert_eq!(["", "m", "1x", "-3s", "0", "99999999999999999999s", "1h30"].map(read), [None; 7]);
        let shown = [50, 7200, 200_000, 7_500_000].map(|ms| duration(Duration::from_millis(ms)));
        assert_eq!(shown, ["0.05 s", "7.2 s", "3 min 20 s", "2 h 05 min"].map(String::from));
    }
}
