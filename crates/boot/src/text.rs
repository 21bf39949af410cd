//! Lists and plans as text. What is not exactly as written here is damaged, and then nothing of it is used. Pure.
//!
//! The first line names kind, version, volume, a number (of recordings, or of milliseconds that are expected) and the CRC-32C of everything
//! else; then comes a line for each part: `M offset length seen` for metadata, `D inode generation offset length first seen` for files.

use crate::model::{GRAIN, LARGEST_OFFSET, List, Part, Place, Seen, range};
use crate::plan::Plan;
use longrun_layout::{FileId, InodeNumber};
use longrun_sys::format_uuid;
use std::fmt::Write as _;
use std::time::Duration;

/// Larger files are no lists, in bytes.
pub const LARGEST: u64 = 8 << 20;
/// More parts no list has.
const MOST_PARTS: usize = 100_000;
const LIST: &str = "longrun-boot-list";
const PLAN: &str = "longrun-boot-plan";
const VERSION: u32 = 1;

/// Why a text is no list or plan.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Damage {
    /// The first line.
    #[error("line 1: not of the form \"{kind} {VERSION} uuid=… …\"")]
    Header {
        /// What was expected.
        kind: &'static str,
    },
    /// The checksum.
    #[error("the checksum is {found:08x}, but {written:08x} is written")]
    Checksum {
        /// Of the text.
        found: u32,
        /// In its first line.
        written: u32,
    },
    /// A line.
    #[error("line {line}: not a part of a file or of metadata")]
    Line {
        /// Counted from 1.
        line: usize,
    },
    /// The order of the lines.
    #[error("parts overlap or are not in order")]
    Order,
    /// The length.
    #[error("more than {MOST_PARTS} parts")]
    TooLong,
}

impl List {
    /// As text.
    #[must_use]
    pub fn to_text(&self) -> String {
        text(LIST, &self.uuid, "boots", u64::from(self.boots), self.parts())
    }

    /// From text.
    ///
    /// # Errors
    /// [`Damage`].
    pub fn parse(text: &str) -> Result<Self, Damage> {
        let (uuid, boots, parts) = parse(LIST, "boots", text)?;
        let boots = u32::try_from(boots).map_err(|_| Damage::Header { kind: LIST })?;
        Self::of_parts(uuid, boots, parts).ok_or(Damage::Order)
    }
}

impl Plan {
    /// As text.
    #[must_use]
    pub fn to_text(&self) -> String {
        let expected = u64::try_from(self.expected.as_millis()).unwrap_or(u64::MAX);
        text(PLAN, &self.uuid, "expected", expected, &self.parts)
    }

    /// From text.
    ///
    /// # Errors
    /// [`Damage`].
    pub fn parse(text: &str) -> Result<Self, Damage> {
        let (uuid, expected, parts) = parse(PLAN, "expected", text)?;
        Ok(Self { uuid, expected: Duration::from_millis(expected), parts })
    }
}

fn text(kind: &str, uuid: &[u8; 16], name: &str, number: u64, parts: &[Part]) -> String {
    let mut body = format!("uuid={} {name}={number}\n", format_uuid(uuid));
    for part in parts {
        let (start, length, seen) = (part.range.start, part.range.length, part.seen.0);
        _ = match part.place {
            Place::Device => writeln!(body, "M {start} {length} {seen}"),
            Place::File(FileId { inode, generation }) => {
                writeln!(body, "D {inode} {generation} {start} {length} {} {seen}", part.first)
            }
        };
    }
    format!("{kind} {VERSION} checksum={:08x} {body}", crc32c::crc32c(body.as_bytes()))
}

fn parse(kind: &'static str, name: &str, text: &str) -> Result<([u8; 16], u64, Vec<Part>), Damage> {
    let wrong = Damage::Header { kind };
    let rest = text.strip_prefix(&format!("{kind} {VERSION} checksum=")).ok_or(wrong.clone())?;
    let (written, body) = rest.split_once(' ').ok_or(wrong.clone())?;
    let written =
        Some(written).filter(|digits| digits.len() == 8).and_then(|digits| u32::from_str_radix(digits, 16).ok());
    let written = written.ok_or(wrong.clone())?;
    let found = crc32c::crc32c(body.as_bytes());
    if found != written {
        return Err(Damage::Checksum { found, written });
    }
    let (head, lines) = body.split_once('\n').ok_or(wrong.clone())?;
    let (uuid, count) = head.strip_prefix("uuid=").and_then(|head| head.split_once(' ')).ok_or(wrong.clone())?;
    let uuid = parse_uuid(uuid).ok_or(wrong.clone())?;
    let count = count.strip_prefix(name).and_then(|count| number(count.strip_prefix('=')?)).ok_or(wrong)?;
    let mut parts = Vec::new();
    for (nth, line) in lines.lines().enumerate() {
        if nth == MOST_PARTS {
            return Err(Damage::TooLong);
        }
        parts.push(part(line).ok_or(Damage::Line { line: nth + 2 })?);
    }
    Ok((uuid, count, parts))
}

fn part(line: &str) -> Option<Part> {
    let fields: Vec<&str> = line.split(' ').collect();
    let (place, start, length, first, seen) = match fields.as_slice() {
        ["M", start, length, seen] => (Place::Device, start, length, 0, seen),
        ["D", inode, generation, start, length, first, seen] => {
            let file = FileId { inode: InodeNumber(number(inode)?), generation: narrow(number(generation)?)? };
            (Place::File(file), start, length, narrow(number(first)?)?, seen)
        }
        _ => return None,
    };
    let (start, length) = (number(start)?, number(length)?);
    let end = start.checked_add(length).filter(|end| *end <= LARGEST_OFFSET)?;
    let whole = length > 0 && start % GRAIN == 0 && length % GRAIN == 0;
    let seen = u8::try_from(number(seen)?).ok()?;
    whole.then(|| Part { place, range: range(start, end), first, seen: Seen(seen) })
}

/// Digits only: no sign, no space, no leading zero.
fn number(text: &str) -> Option<u64> {
    let plain = text.bytes().all(|byte| byte.is_ascii_digit()) && (text == "0" || !text.starts_with('0'));
    if plain { text.parse().ok() } else { None }
}

fn narrow(number: u64) -> Option<u32> {
    u32::try_from(number).ok()
}

/// Reads a UUID as [`format_uuid`] writes it.
#[must_use]
pub fn parse_uuid(text: &str) -> Option<[u8; 16]> {
    let digits: String = text.chars().filter(|c| *c != '-').collect();
    if digits.len() != 32 || !digits.is_ascii() {
        return None;
    }
    let mut uuid = [0; 16];
    for (nth, byte) in uuid.iter_mut().enumerate() {
        *byte = u8::from_str_radix(digits.get(nth * 2..nth * 2 + 2)?, 16).ok()?;
    }
    (format_uuid(&uuid) == text).then_some(uuid)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::Touch;
    use longrun_layout::Bytes;
    use longrun_sys::ByteRange;
    use proptest::prelude::*;

    fn sample(seed: &[(u8, u16, u8)]) -> List {
        let touches: Vec<Touch> = seed
            .iter()
            .map(|(inode, at, length)| Touch {
                place: match inode % 5 {
                    0 => Place::Device,
                    inode => Place::File(FileId { inode: InodeNumber(u64::from(inode)), generation: u32::MAX }),
                },
                range: ByteRange { start: Bytes(u64::from(*at) << 17), length: Bytes(u64::from(*length)) },
            })
            .collect();
        List::recorded([0xab; 16], &touches)
    }

    proptest! {
        #[test]
        fn lists_are_read_as_they_were_written(seed in prop::collection::vec(any::<(u8, u16, u8)>(), 0..40)) {
            let list = sample(&seed);
            prop_assert_eq!(List::parse(&list.to_text()).unwrap(), list.clone());
            let plan = Plan { uuid: list.uuid, expected: Duration::from_millis(1234), parts: list.parts().to_vec() };
            prop_assert_eq!(Plan::parse(&plan.to_text()).unwrap(), plan);
        }

        #[test]
        fn one_changed_byte_is_noticed(seed in prop::collection::vec(any::<(u8, u16, u8)>(), 1..20), at: prop::sample::Index, to in 0u8..128) {
            let text = sample(&seed).to_text();
            let mut bytes = text.clone().into_bytes();
            let at = at.index(bytes.len());
            prop_assume!(bytes[at] != to);
            // In the checksum a letter may change its case, and nothing else.
            prop_assume!(!bytes[at].eq_ignore_ascii_case(&to));
            bytes[at] = to;
            prop_assert!(List::parse(std::str::from_utf8(&bytes).unwrap()).is_err());
        }

        #[test]
        fn whatever_is_read_never_panics_and_what_is_accepted_is_in_order(text in "(?s).{0,200}", lines in "([MD]( [0-9]{1,22}){2,7}\n){0,6}") {
            _ = List::parse(&text);
            _ = Plan::parse(&text);
            let body = format!("uuid={} boots=3\n{lines}", format_uuid(&[1; 16]));
            let text = format!("{LIST} {VERSION} checksum={:08x} {body}", crc32c::crc32c(body.as_bytes()));
            if let Ok(list) = List::parse(&text) {
                prop_assert_eq!(list.to_text(), text);
            }
        }
    }

    #[test]
    fn a_list_cut_short_is_damaged() {
        let text = sample(&[(0, 1, 9), (1, 2, 200), (2, 7, 3)]).to_text();
        for end in 0..text.len() {
            assert!(List::parse(&text[..end]).is_err(), "{end} of {}", text.len());
        }
        assert!(Plan::parse(&text).is_err(), "a list is no plan");
    }

    #[test]
    fn sizes_and_numbers_that_no_volume_has_are_refused() {
        for line in [
            "M 0 0 1",
            "M 1 4096 1",
            "M 0 4096",
            "M 0 4096 256",
            "M -4096 4096 1",
            "M 0 4096 1 ",
            "M  0 4096 1",
            "D 1 1 0 4096 0",
            "D 1 4294967296 0 4096 0 1",
            "D 1 1 18446744073709547520 8192 0 1",
            "D 1 1 0 1152921504606851072 0 1",
            "X 0 4096 1",
            "M 00 4096 1",
        ] {
            assert_eq!(part(line), None, "{line}");
        }
        assert!(part("D 18446744073709551615 1 0 4096 4294967295 255").is_some());
    }
}
