//! The reports of the commands, as text, JSON and HTML.

pub mod analysis;
pub mod at_boot;
pub mod boot;
pub mod came;
pub mod compaction;
pub mod directories;
pub mod findings;
pub mod heat;
pub mod history;
pub mod leaked;
pub mod nothing;
pub mod optimization;
pub mod page;
pub mod pauses;
pub mod placing;
pub mod prevention;
pub mod profile;
pub mod reasons;
pub mod reclaim;
pub mod rounds;
pub mod trace;
pub mod verdict;

use crate::exit::Failure;
use serde::Serialize;
use std::io::{self, Write};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// Prints text or JSON to standard output. A reader that has gone away (`| head`) is not an error.
pub fn print(text: &str) -> Result<(), Failure> {
    let mut output = io::stdout().lock();
    match output.write_all(text.as_bytes()).and_then(|()| output.flush()) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => Err(Failure::output(error)),
        _ => Ok(()),
    }
}

/// Prints one JSON object.
pub fn print_json(report: &impl Serialize) -> Result<(), Failure> {
    let text = serde_json::to_string_pretty(report).map_err(|e| Failure::output(e.into()))?;
    print(&(text + "\n"))
}

/// A name for JSON: as text, and as hexadecimal digits of its bytes if it is not valid UTF-8.
pub fn json_name(path: &Path) -> (String, Option<String>) {
    match path.to_str() {
        Some(name) => (name.to_owned(), None),
        None => {
            let hex = path.as_os_str().as_bytes().iter().map(|b| format!("{b:02x}")).collect();
            (path.to_string_lossy().into_owned(), Some(hex))
        }
    }
}
