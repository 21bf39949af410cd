//! /etc/longrun/fleet.toml: how this host is called in the fleet, and how it reaches the broker.
//!
//! Owns the form of the file and its defaults.

use crate::names::Name;
use serde::Deserialize;
use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};

/// Where it lies.
pub const DEFAULT_PATH: &str = "/etc/longrun/fleet.toml";
/// What this machine is called where the file does not say.
const HOST_NAME: &str = "/proc/sys/kernel/hostname";

/// The configuration of a host, or of an administrator.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HostConfig {
    /// The broker: `tls://NAME:4222`; several of a cluster, separated by commas.
    pub server: String,
    /// The certificates of the authority that the broker's certificate is from. Default: those of the system.
    #[serde(default)]
    pub ca: Option<PathBuf>,
    /// The file with the seed of this host's nkey.
    #[serde(default)]
    pub seed: Option<PathBuf>,
    /// What this host is called. Default: its host name, with `_` for what cannot be part of a name.
    #[serde(default = "own_name")]
    pub host: Name,
    /// Labels, by which the rules of a policy choose hosts.
    #[serde(default)]
    pub labels: BTreeMap<String, String>,
    /// The socket of the service.
    #[serde(default = "default_socket")]
    pub socket: PathBuf,
}

/// Why there is no configuration.
#[derive(Debug, thiserror::Error)]
pub enum HostConfigError {
    /// It cannot be read.
    #[error("{path} cannot be read: {source}; run `longrun fleet enroll` for this host, or write it", path = path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// It is wrong.
    #[error("{path} is wrong: {detail}", path = path.display())]
    Wrong {
        /// The file.
        path: PathBuf,
        /// What, and in which line.
        detail: String,
    },
}

impl HostConfig {
    /// Reads `path`.
    ///
    /// # Errors
    /// [`HostConfigError`].
    pub fn read(path: &Path) -> Result<Self, HostConfigError> {
        let text =
            std::fs::read_to_string(path).map_err(|source| HostConfigError::Read { path: path.to_owned(), source })?;
        Self::parse(&text).map_err(|detail| HostConfigError::Wrong { path: path.to_owned(), detail })
    }

    /// Takes a text in the form of the file.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn parse(text: &str) -> Result<Self, String> {
        toml::from_str(text).map_err(|error| error.to_string())
    }

    /// The addresses of the brokers.
    pub fn servers(&self) -> impl Iterator<Item = &str> {
        self.server.split(',').map(str::trim).filter(|server| !server.is_empty())
    }

    /// The prefix of the subjects on which this host gets answers.
    #[must_use]
    pub fn inbox_prefix(&self) -> String {
        format!("_INBOX_{}", self.host)
    }
}

fn default_socket() -> PathBuf {
    longrun_api::DEFAULT_SOCKET.into()
}

fn own_name() -> Name {
    let name = std::fs::read_to_string(HOST_NAME).unwrap_or_default();
    Name::adapted(name.trim())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_short_file_is_enough_and_an_unknown_key_is_named() {
        let config = HostConfig::parse("server = 'tls://a:4222, tls://b:4222'\nhost = 'db-1'").unwrap();
        assert_eq!(config.servers().collect::<Vec<_>>(), ["tls://a:4222", "tls://b:4222"]);
        assert_eq!(config.inbox_prefix(), "_INBOX_db-1");
        assert_eq!(config.socket, Path::new("/run/longrun/longrun.sock"));
        assert!(HostConfig::parse("server = 'x'").is_ok_and(|config| !config.host.as_str().is_empty()));
        let error = HostConfig::parse("server = 'x'\nsede = '/etc/seed'").unwrap_err();
        assert!(error.contains("sede") && error.contains("line 2"), "{error}");
        assert!(HostConfig::parse("server = 'x'\nhost = 'a.b'").is_err());
    }
}
