//! The records of the journal, as lines of text: a checksum, then JSON. Pure.

use longrun_layout::Bytes;
use longrun_sys::{ByteRange, FileHandle};
use longrun_volume::Identity;
use serde::{Deserialize, Serialize};
use std::fmt::Write as _;
use std::sync::Arc;

/// A volume. A clone has the UUID of its origin, and lies on another device.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct VolumeId {
    pub(crate) uuid: [u8; 16],
    /// See [`longrun_volume::Identity`].
    pub(crate) device: Arc<str>,
}

impl From<Identity> for VolumeId {
    fn from(identity: Identity) -> Self {
        // A volume may have no UUID.
        Self { uuid: identity.superblock.uuid.unwrap_or_default(), device: identity.device.into() }
    }
}

/// What has to be given back of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum GiveBack {
    /// What lies behind its end, up to there: farther none of our runways has reached.
    End(Bytes),
    /// What is allocated and unwritten there.
    Window(ByteRange),
}

impl GiveBack {
    /// Whatever lies behind the end, however far.
    pub(crate) const ALL: Self = Self::End(Bytes(u64::MAX));

    /// Adds it to what is to be given back of a file; whether that was not known.
    pub(crate) fn add_to(self, list: &mut Vec<Self>) -> bool {
        if let Self::End(reach) = self
            && let Some(known) = list.iter_mut().find_map(|known| match known {
                Self::End(known) => Some(known),
                Self::Window(_) => None,
            })
        {
            let farther = reach > *known;
            *known = reach.max(*known);
            return farther;
        }
        let new = !list.contains(&self);
        if new {
            list.push(self);
        }
        new
    }

    /// How far runways have reached behind the end of a file; nothing where it had none.
    pub(crate) fn reach(list: &[Self]) -> Option<Bytes> {
        list.iter().find_map(|known| match known {
            Self::End(reach) => Some(*reach),
            Self::Window(_) => None,
        })
    }
}

/// One record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Record {
    /// This is about to be granted.
    Remember(VolumeId, FileHandle, GiveBack),
    /// The file has nothing to give back.
    Forget(VolumeId, FileHandle),
}

/// What could be read of a journal.
pub(crate) struct Readable {
    /// In their order.
    pub(crate) records: Vec<Record>,
    /// Lines that could not; a torn last one is none of them.
    pub(crate) damaged: u64,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Line {
    volume: String,
    device: String,
    file: String,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    window: Option<(u64, u64)>,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    reach: Option<u64>,
    #[serde(skip_serializing_if = "std::ops::Not::not", default)]
    done: bool,
}

/// The line of a record, with its line feed.
pub(crate) fn line(record: &Record) -> String {
    let (volume, file, window, reach, done) = match record {
        Record::Remember(volume, file, GiveBack::End(reach)) => (volume, file, None, Some(reach.0), false),
        Record::Remember(volume, file, GiveBack::Window(range)) => {
            (volume, file, Some((range.start.0, range.length.0)), None, false)
        }
        Record::Forget(volume, file) => (volume, file, None, None, true),
    };
    let file = format!("{:x}:{}", file.kind(), hex(file.bytes()));
    let line = Line { volume: hex(&volume.uuid), device: volume.device.to_string(), file, window, reach, done };
    // Strings, numbers and a truth value cannot fail to be JSON.
    let json = serde_json::to_string(&line).unwrap_or_default();
    format!("{:08x} {json}\n", crc32c::crc32c(json.as_bytes()))
}

/// All records that are whole.
pub(crate) fn read(content: &[u8]) -> Readable {
    let mut readable = Readable { records: Vec::new(), damaged: 0 };
    let whole = content.iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1);
    for line in content.get(..whole).unwrap_or_default().split(|byte| *byte == b'\n') {
        match parse(line) {
            Some(record) => readable.records.push(record),
            None if line.is_empty() => {}
            None => readable.damaged += 1,
        }
    }
    readable
}

fn parse(line: &[u8]) -> Option<Record> {
    let (sum, json) = line.split_at_checked(9)?;
    let sum = std::str::from_utf8(sum).ok()?.strip_suffix(' ')?;
    if u32::from_str_radix(sum, 16).ok()? != crc32c::crc32c(json) {
        return None;
    }
    let line: Line = serde_json::from_slice(json).ok()?;
    let volume = VolumeId { uuid: unhex(&line.volume)?.try_into().ok()?, device: line.device.into() };
    let (kind, bytes) = line.file.split_once(':')?;
    let file = FileHandle::new(i32::from_str_radix(kind, 16).ok()?, &unhex(bytes)?)?;
    Some(match (line.done, line.window) {
        (true, _) => Record::Forget(volume, file),
        (false, None) => {
            let reach = line.reach.map_or(GiveBack::ALL, |reach| GiveBack::End(Bytes(reach)));
            Record::Remember(volume, file, reach)
        }
        (false, Some((start, length))) => {
            start.checked_add(length)?;
            Record::Remember(volume, file, GiveBack::Window(ByteRange { start: Bytes(start), length: Bytes(length) }))
        }
    })
}

fn hex(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len() * 2);
    for byte in bytes {
        _ = write!(text, "{byte:02x}");
    }
    text
}

fn unhex(text: &str) -> Option<Vec<u8>> {
    if !text.len().is_multiple_of(2) || !text.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        return None;
    }
    (0..text.len()).step_by(2).map(|at| u8::from_str_radix(text.get(at..at + 2)?, 16).ok()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn some_record() -> impl Strategy<Value = Record> {
        let handle = (any::<i32>().prop_map(|k| k & 0xff), proptest::collection::vec(any::<u8>(), 1..=40));
        let handle = handle.prop_map(|(kind, bytes)| FileHandle::new(kind, &bytes).unwrap());
        let window = (0u64..1 << 62, 0u64..1 << 62)
            .prop_map(|(start, length)| ByteRange { start: Bytes(start), length: Bytes(length) });
        let volume = (any::<[u8; 16]>(), "[a-z0-9.-]{0,20}");
        let volume = volume.prop_map(|(uuid, device)| VolumeId { uuid, device: device.into() });
        (volume, handle, prop_oneof![Just(0), Just(1), Just(2)], window).prop_map(|(volume, file, which, window)| {
            match which {
                0 => Record::Remember(volume, file, GiveBack::End(window.start)),
                1 => Record::Remember(volume, file, GiveBack::Window(window)),
                _ => Record::Forget(volume, file),
            }
        })
    }

    proptest! {
        #[test]
        fn what_was_written_is_read_whatever_follows_it_torn(records in proptest::collection::vec(some_record(), 0..20), cut in 0usize..200) {
            let text: String = records.iter().map(line).collect();
            let read_all = read(text.as_bytes());
            prop_assert_eq!(&read_all.records, &records);
            prop_assert_eq!(read_all.damaged, 0);
            let torn = &text.as_bytes()[..text.len().saturating_sub(cut)];
            let read_torn = read(torn);
            prop_assert_eq!(read_torn.damaged, 0);
            prop_assert_eq!(&read_torn.records[..], &records[..read_torn.records.len()]);
        }

        #[test]
        fn a_damaged_line_costs_that_line_alone(records in proptest::collection::vec(some_record(), 1..20), which in any::<prop::sample::Index>(), at in any::<prop::sample::Index>()) {
            let lines: Vec<String> = records.iter().map(line).collect();
            let which = which.index(lines.len());
            let mut damaged = lines[which].clone().into_bytes();
            let at = at.index(damaged.len() - 1);
            damaged[at] = if damaged[at] == b'#' { b'!' } else { b'#' };
            let content: Vec<u8> = lines.iter().enumerate().flat_map(|(n, l)| if n == which { damaged.clone() } else { l.clone().into_bytes() }).collect();
            let read = read(&content);
            prop_assert_eq!(read.damaged, 1);
            prop_assert_eq!(read.records.len(), records.len() - 1);
        }

        #[test]
        fn garbage_is_never_a_record(content in proptest::collection::vec(any::<u8>(), 0..500)) {
            prop_assert!(read(&content).records.is_empty());
        }
    }
}
