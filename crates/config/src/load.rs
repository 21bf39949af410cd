//! Reads the configuration file.

use super::{Config, Problem, parse};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// Larger than any sensible configuration.
pub const LARGEST: u64 = 1 << 20;

/// Why the configuration cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// The file cannot be read.
    #[error("{path}: reading the configuration failed: {source}; check the path and its permissions")]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// The kernel's answer.
        source: io::Error,
    },
    /// The file is no configuration.
    #[error("{path}: {}", listed(problems))]
    Wrong {
        /// The file.
        path: PathBuf,
        /// What is wrong, by line.
        problems: Vec<Problem>,
    },
}

fn listed(problems: &[Problem]) -> String {
    let all: Vec<String> = problems.iter().map(Problem::to_string).collect();
    all.join("; ")
}

/// The configuration in the file `path`; the defaults when there is none at `path` and that was not asked for by name.
///
/// # Errors
/// [`ConfigError`] with every line that is wrong.
pub fn load(path: Option<&Path>) -> Result<Config, ConfigError> {
    let named = path.unwrap_or(Path::new(super::DEFAULT_PATH));
    parse(&read(path)?).map_err(|problems| ConfigError::Wrong { path: named.to_owned(), problems })
}

/// The text of the file `path`; none when there is none at `path` and that was not asked for by name.
///
/// # Errors
/// [`ConfigError::Unreadable`].
pub fn read(path: Option<&Path>) -> Result<String, ConfigError> {
    let named = path.unwrap_or(Path::new(super::DEFAULT_PATH));
    let unreadable = |source| ConfigError::Unreadable { path: named.to_owned(), source };
    let size = match fs::metadata(named) {
        Err(error) if error.kind() == io::ErrorKind::NotFound && path.is_none() => return Ok(String::new()),
        other => other.map_err(unreadable)?.len(),
    };
    if size > LARGEST {
        return Err(unreadable(io::Error::other("it is larger than 1 MiB")));
    }
    fs::read_to_string(named).map_err(unreadable)
}
