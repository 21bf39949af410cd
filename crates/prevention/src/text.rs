//! The JSON form of keys and names of the model. It is readable, and reads back as the same value.
//!
//! Owns the text forms of device numbers, file handles and process names. No I/O.

use crate::ProcessName;
use longrun_sys::{DeviceNumber, FileHandle};
use serde::de::Error;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::fmt::Write as _;

/// "8:1", as the kernel writes it.
pub(crate) mod device {
    use super::{Deserialize, Deserializer, DeviceNumber, Error, Serializer};

    pub(crate) fn serialize<S: Serializer>(device: &DeviceNumber, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(device)
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<DeviceNumber, D::Error> {
        let text = String::deserialize(deserializer)?;
        super::device_number(&text).ok_or_else(|| D::Error::custom(format!("{text:?} is not a device number")))
    }
}

/// "0x81:" and the bytes as hexadecimal digits.
pub(crate) mod handle {
    use super::{Deserialize, Deserializer, Error, FileHandle, Serializer};

    pub(crate) fn serialize<S: Serializer>(handle: &FileHandle, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(&format_args!("{handle:?}"))
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<FileHandle, D::Error> {
        let text = String::deserialize(deserializer)?;
        super::file_handle(&text).ok_or_else(|| D::Error::custom(format!("{text:?} is not a file handle")))
    }
}

fn device_number(text: &str) -> Option<DeviceNumber> {
    let (major, minor) = text.split_once(':')?;
    Some(DeviceNumber { major: major.parse().ok()?, minor: minor.parse().ok()? })
}

fn file_handle(text: &str) -> Option<FileHandle> {
    let (kind, digits) = text.strip_prefix("0x")?.split_once(':')?;
    let kind = i32::from_str_radix(kind, 16).ok()?;
    if digits.len() % 2 != 0 || !digits.is_ascii() {
        return None;
    }
    let bytes: Option<Vec<u8>> =
        (0..digits.len()).step_by(2).map(|at| u8::from_str_radix(digits.get(at..at + 2)?, 16).ok()).collect();
    FileHandle::new(kind, &bytes?)
}

impl Serialize for ProcessName {
    /// What is not printable ASCII is written as "\xNN", so that any name can be read back.
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut text = String::new();
        for byte in self.0.split(|byte| *byte == 0).next().unwrap_or_default() {
            // Writing to a string cannot fail.
            let _ = match byte {
                b' '..=b'~' if *byte != b'\\' => write!(text, "{}", char::from(*byte)),
                _ => write!(text, "\\x{byte:02x}"),
            };
        }
        serializer.serialize_str(&text)
    }
}

impl<'de> Deserialize<'de> for ProcessName {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        process_name(&text).ok_or_else(|| D::Error::custom(format!("{text:?} is not a process name")))
    }
}

fn process_name(text: &str) -> Option<ProcessName> {
    let mut name = [0; 16];
    let mut places = name.iter_mut().take(15);
    let mut rest = text;
    while let Some(first) = rest.chars().next() {
        let (byte, length) = match first {
            '\\' => (u8::from_str_radix(rest.strip_prefix("\\x")?.get(..2)?, 16).ok()?, 4),
            _ => (u8::try_from(first).ok().filter(u8::is_ascii)?, 1),
        };
        *places.next()? = byte;
        rest = rest.get(length..)?;
    }
    Some(ProcessName(name))
}

#[cfg(test)]
mod tests {
    use crate::{FileKey, Nanos, ProcessName, Signal, SignalKind};
    use longrun_layout::Bytes;
    use longrun_sys::{DeviceNumber, FileHandle};
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn every_signal_is_the_same_after_writing_and_reading(
            at: u64, major in 0u32..4096, minor in 0u32..1 << 20, kind: i32, bytes in prop::collection::vec(any::<u8>(), 0..=40),
            size: u64, comm in prop::collection::vec(1u8..=255, 0..=15), which in 0..5, number: u32, offset: u64, total: u64,
        ) {
            let mut by = ProcessName::default();
            by.0[..comm.len()].copy_from_slice(&comm);
            let handle = FileHandle::new(kind & i32::MAX, &bytes).unwrap();
            let kind = match which {
                0 => SignalKind::Fragmenting { allocations: number, bytes: Bytes(total), end: Bytes(offset) },
                1 => SignalKind::Scattered { at: Bytes(offset), allocations: number, bytes: Bytes(total) },
                2 => SignalKind::HalfUsed { end: Bytes(offset) },
                3 => SignalKind::InPieces,
                _ => SignalKind::Closed,
            };
            let file = FileKey { volume: DeviceNumber { major, minor }, handle };
            let signal = Signal { at: Nanos(at), file, size: Bytes(size), by, kind };
            let text = serde_json::to_string(&signal).unwrap();
            prop_assert_eq!(serde_json::from_str::<Signal>(&text).unwrap(), signal, "{}", text);
        }
    }

    #[test]
    fn what_is_no_key_is_refused_not_guessed() {
        for text in ["", "7", "7:", "x:1", "7:4294967296"] {
            assert_eq!(super::device_number(text), None, "{text}");
        }
        for text in ["", "1:00", "0x1", "0x1:0", "0x1:zz", "0xg:00", "0x1:é", &format!("0x1:{}", "00".repeat(41))] {
            assert_eq!(super::file_handle(text), None, "{text}");
        }
        for text in ["sixteen letters.", "\\x4", "\\y41", "é"] {
            assert_eq!(super::process_name(text), None, "{text}");
        }
    }
}
