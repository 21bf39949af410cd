//! Values as text for people. What hosts tell of themselves cannot drive a terminal.

pub use longrun_layout::grouped as count;
use std::fmt::Write as _;

/// The text with all characters escaped that are not plainly visible.
#[must_use]
pub fn printable(text: &str) -> String {
    text.chars().fold(String::with_capacity(text.len()), |mut shown, letter| {
        // What `Debug` escapes is invisible, or changes the direction of writing; quotes are neither.
        match letter {
            '"' | '\'' | '\\' => shown.push(letter),
            _ => _ = write!(shown, "{}", letter.escape_debug()),
        }
        shown
    })
}

/// A size: `999 B`, `4.0 KiB`, `1.2 GiB`.
#[must_use]
pub fn size(bytes: u64) -> String {
    const UNITS: [&str; 6] = ["KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
    let mut value = bytes as f64;
    let mut shown = format!("{bytes} B");
    for unit in UNITS {
        if value < 1023.5 {
            break;
        }
        value /= 1024.0;
        shown = format!("{value:.1} {unit}");
    }
    shown
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_short_and_harmless() {
        assert_eq!([size(999), size(4096), size(1_300_000_000)], ["999 B", "4.0 KiB", "1.2 GiB"]);
        assert_eq!([count(0), count(999), count(1_234_567)], ["0", "999", "1,234,567"]);
        assert_eq!(printable("a \"b\" ä\x1b[31m\u{202e}\n"), "a \"b\" ä\\u{1b}[31m\\u{202e}\\n");
    }
}
