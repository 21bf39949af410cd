//! Kinds of files: files of the same program in the same place, which are likely to grow alike.

use crate::ProcessName;
use serde::{Deserialize, Serialize};
use std::path::Path;

/// Longer names are cut, with a number that tells them apart: memory stays bounded whatever names people choose.
const NAME_LIMIT: usize = 64;
const DIRECTORY_LIMIT: usize = 192;

/// A kind of file. An empty string means "unknown".
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FileKind {
    /// The directory it lies in.
    pub directory: String,
    /// Its extension in lower case, without what numbers files of one kind; or, when it has none, its name with digits
    /// replaced by `#`.
    pub extension: String,
    /// The program that wrote it; unknown when a kernel thread wrote for it.
    pub process: String,
}

impl FileKind {
    /// The kind of the file at `path`, written by the thread `by`.
    #[must_use]
    pub fn new(path: Option<&Path>, by: &ProcessName) -> Self {
        let bytes = |part: &std::ffi::OsStr| part.as_encoded_bytes().to_vec();
        let directory = path.and_then(Path::parent).map(|parent| bytes(parent.as_os_str())).unwrap_or_default();
        let name = path.and_then(Path::file_name).map(bytes).unwrap_or_default();
        Self { directory: bounded(&directory, DIRECTORY_LIMIT), extension: extension(&name), process: process(by) }
    }
}

/// `app.log.17` and `app.log` are logs, `core.4711` a core; the 24 hexadecimal digits of a write-ahead log are one kind.
fn extension(name: &[u8]) -> String {
    let parts: Vec<&[u8]> = name.split(|byte| *byte == b'.').filter(|part| !part.is_empty()).collect();
    let Some((stem, rest)) = parts.split_first() else { return String::new() };
    let telling = rest.iter().rev().find(|part| !is_number(part));
    match telling {
        Some(part) => bounded(&part.to_ascii_lowercase(), NAME_LIMIT),
        None if is_number(stem) => format!("#{}", stem.len().min(NAME_LIMIT)),
        None => bounded(&without_digits(stem), NAME_LIMIT),
    }
}

/// Numbers, dates, hexadecimal serial numbers and hashes: what tells files of one kind apart.
fn is_number(part: &[u8]) -> bool {
    let digits = part.iter().filter(|byte| byte.is_ascii_digit()).count();
    let hexadecimal = part.iter().all(|byte| byte.is_ascii_hexdigit() || matches!(byte, b'-' | b'_'));
    digits == part.len() || (digits > 0 && hexadecimal && part.len() >= 8)
}

fn without_digits(stem: &[u8]) -> Vec<u8> {
    let mut name: Vec<u8> =
        stem.iter().map(|b| if b.is_ascii_digit() { b'#' } else { b.to_ascii_lowercase() }).collect();
    name.dedup_by(|a, b| *a == b'#' && *b == b'#');
    name
}

/// Kernel threads write back what others wrote: their names say nothing.
fn process(by: &ProcessName) -> String {
    let name = by.0.split(|byte| *byte == 0).next().unwrap_or_default();
    let kernel: [&[u8]; 5] = [b"kworker", b"btrfs-", b"jbd2/", b"xfs", b"kswapd"];
    if kernel.iter().any(|thread| name.starts_with(thread)) {
        return String::new();
    }
    bounded(name, NAME_LIMIT)
}

/// Printable, at most `limit` bytes (and a number); what is not valid UTF-8 or would drive a terminal is escaped.
fn bounded(name: &[u8], limit: usize) -> String {
    let mut text = String::new();
    for (at, chunk) in name.utf8_chunks().enumerate() {
        for character in chunk.valid().chars() {
            if character.is_control() || is_direction(character) {
                text.extend(character.escape_unicode());
            } else {
                text.push(character);
            }
            if text.len() > limit {
                break;
            }
        }
        for byte in chunk.invalid() {
            text.push_str(&format!("\\x{byte:02x}"));
        }
        if text.len() > limit || at > limit {
            let mut end = limit.min(text.len());
            while !text.is_char_boundary(end) {
                end -= 1;
            }
            text.truncate(end);
            return format!("{text}~{:08x}", crc32c::crc32c(name));
        }
    }
    text
}

/// Characters that change the direction of text, or are invisible.
fn is_direction(character: char) -> bool {
    matches!(character, '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{feff}')
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::ffi::OsStr;
    use std::os::unix::ffi::OsStrExt as _;

    fn of(path: &str) -> String {
        FileKind::new(Some(Path::new(path)), &ProcessName::default()).extension
    }

    #[test]
    fn what_numbers_files_of_a_kind_is_no_part_of_it() {
        for (path, expected) in [
            ("/var/log/app.log", "log"),
            ("/var/log/app.LOG.17", "log"),
            ("/var/log/app.log-20260101", "log-20260101"),
            ("/var/log/app.log.2026-01-01", "log"),
            ("/var/crash/core.4711", "core"),
            ("/pg/pg_wal/000000010000000A000000FF", "#24"),
            ("/pg/base/16384/2619", "#4"),
            ("/my/ibdata1", "ibdata#"),
            ("/my/ibdata12", "ibdata#"),
            ("/db/000123.sst", "sst"),
            ("/vm/disk.qcow2", "qcow2"),
            ("/home/.hidden", "hidden"),
            ("/backup/2026.tar.gz", "gz"),
            ("/", ""),
        ] {
            assert_eq!(of(path), expected, "{path}");
        }
    }

    #[test]
    fn kernel_threads_are_nobody() {
        let by = |name: &[u8]| {
            let mut bytes = [0; 16];
            bytes[..name.len()].copy_from_slice(name);
            FileKind::new(None, &ProcessName(bytes)).process
        };
        assert_eq!(by(b"postgres"), "postgres");
        assert_eq!(by(b"kworker/u4:1"), "");
        assert_eq!(by(b"btrfs-transacti"), "");
        assert_eq!(by(b"evil\x1b[2J"), "evil\\u{1b}[2J");
    }

    #[test]
    fn names_that_differ_beyond_the_limit_stay_different() {
        let long = |last: &str| format!("/x/{}.{}{last}", "a".repeat(100), "b".repeat(200));
        assert_ne!(of(&long("q")), of(&long("r")));
        let raw = FileKind::new(Some(Path::new(OsStr::from_bytes(b"/\xff/x.\xfe"))), &ProcessName::default());
        assert_eq!((raw.directory.as_str(), raw.extension.as_str()), ("/\\xff", "\\xfe"));
    }
}
