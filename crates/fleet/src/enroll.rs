//! `init`, `enroll` and `revoke`: the files of an administrator, and the bundle of a host.
//!
//! Owns these files. Keys are made here and go nowhere else: the broker knows public keys only. It reads its accounts anew when
//! it is told to.

use crate::accounts::{Accounts, Enrolled, NotAccounts};
use crate::names::Name;
use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File, OpenOptions, Permissions};
use std::io::{self, Write as _};
use std::os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

/// The accounts, beside the administrator's configuration.
pub const ACCOUNTS: &str = "accounts.conf";
/// The configuration, of an administrator and of a host.
const CONFIG: &str = "fleet.toml";
/// The seed of the key.
const SEED: &str = "fleet.nk";
/// The certificate authority.
const AUTHORITY: &str = "fleet-ca.pem";
/// Where the files of a host lie on it.
const ON_HOST: &str = "/etc/longrun";

/// Why nothing was enrolled.
#[derive(Debug, thiserror::Error)]
pub enum EnrollError {
    /// A file cannot be read or written.
    #[error("{path}: {source}", path = path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// The kernel's answer.
        source: io::Error,
    },
    /// The file of accounts is wrong.
    #[error("{path}: {source}", path = path.display())]
    Accounts {
        /// The file.
        path: PathBuf,
        /// Where and why.
        source: NotAccounts,
    },
    /// A key cannot be made.
    #[error("a key cannot be made: {0}")]
    Key(String),
    /// The host has a key already.
    #[error("{0} is enrolled already; --renew gives it a new key and these groups, and its old key ends")]
    Already(Name),
    /// The host is unknown.
    #[error("{0} is not enrolled; `longrun fleet hosts` lists those that are")]
    Unknown(Name),
}

/// An administrator's directory.
#[derive(Clone, Debug)]
pub struct Office {
    directory: PathBuf,
}

impl Office {
    /// The directory in which the administrator's configuration `config` lies.
    #[must_use]
    pub fn of(config: &Path) -> Self {
        Self { directory: config.parent().unwrap_or(Path::new(".")).to_owned() }
    }

    /// Makes the directory with a key, a configuration and the accounts, where they are missing; the configuration.
    ///
    /// # Errors
    /// [`EnrollError`].
    pub fn open(directory: &Path, server: &str, authority: Option<&Path>) -> Result<PathBuf, EnrollError> {
        let office = Self { directory: directory.to_owned() };
        fs::create_dir_all(directory).map_err(|source| failed(directory, source))?;
        let config = directory.join(CONFIG);
        let seed = directory.join(SEED);
        if config.exists() {
            return Ok(config);
        }
        let mut accounts = office.read_or_new()?;
        let (key, secret) = new_key()?;
        accounts.administrators.push(key);
        write(&seed, &secret, 0o600)?;
        office.write(&accounts)?;
        let authority = match authority {
            None => None,
            Some(given) => Some(copy_authority(given, directory)?),
        };
        let seed = seed.display().to_string();
        let text = config_text(server, authority.as_deref(), &seed, "administrator", &BTreeMap::new());
        write(&config, &text, 0o644)?;
        Ok(config)
    }

    /// The accounts.
    ///
    /// # Errors
    /// [`EnrollError`].
    pub fn accounts(&self) -> Result<Accounts, EnrollError> {
        let path = self.directory.join(ACCOUNTS);
        let text = fs::read_to_string(&path).map_err(|source| failed(&path, source))?;
        Accounts::parse(&text).map_err(|source| EnrollError::Accounts { path, source })
    }

    fn read_or_new(&self) -> Result<Accounts, EnrollError> {
        match self.accounts() {
            Err(EnrollError::File { source, .. }) if source.kind() == io::ErrorKind::NotFound => {
                Ok(Accounts::default())
            }
            other => other,
        }
    }

    fn write(&self, accounts: &Accounts) -> Result<(), EnrollError> {
        write(&self.directory.join(ACCOUNTS), &accounts.to_text(), 0o644)
    }

    /// Makes a key for a host and adds it to the accounts; the directory with the files that go to /etc/longrun of the host.
    ///
    /// # Errors
    /// [`EnrollError`].
    pub fn enroll(&self, host: &NewHost<'_>) -> Result<PathBuf, EnrollError> {
        let mut accounts = self.accounts()?;
        if accounts.host(host.name).is_some() && !host.renew {
            return Err(EnrollError::Already(host.name.clone()));
        }
        let (key, secret) = new_key()?;
        let bundle = self.directory.join("hosts").join(host.name.as_str());
        fs::create_dir_all(&bundle).map_err(|source| failed(&bundle, source))?;
        fs::set_permissions(&bundle, Permissions::from_mode(0o700)).map_err(|source| failed(&bundle, source))?;
        write(&bundle.join(SEED), &secret, 0o600)?;
        if let Some(given) = host.authority {
            copy_authority(given, &bundle)?;
        }
        let authority = host.authority.map(|_| format!("{ON_HOST}/{AUTHORITY}"));
        let seed = format!("{ON_HOST}/{SEED}");
        let text = config_text(host.server, authority.as_deref(), &seed, host.name.as_str(), host.labels);
        write(&bundle.join(CONFIG), &text, 0o644)?;
        accounts.enroll(Enrolled { host: host.name.clone(), key, groups: host.groups.clone() });
        self.write(&accounts)?;
        Ok(bundle)
    }

    /// Takes a host off the accounts, and removes its bundle.
    ///
    /// # Errors
    /// [`EnrollError`].
    pub fn revoke(&self, host: &Name) -> Result<(), EnrollError> {
        let mut accounts = self.accounts()?;
        if !accounts.revoke(host) {
            return Err(EnrollError::Unknown(host.clone()));
        }
        self.write(&accounts)?;
        let bundle = self.directory.join("hosts").join(host.as_str());
        match fs::remove_dir_all(&bundle) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(failed(&bundle, error)),
            _ => Ok(()),
        }
    }
}

/// A host that is to be enrolled.
#[derive(Clone, Copy, Debug)]
pub struct NewHost<'a> {
    /// Its name.
    pub name: &'a Name,
    /// Its storage groups.
    pub groups: &'a BTreeSet<Name>,
    /// Its labels.
    pub labels: &'a BTreeMap<String, String>,
    /// The broker.
    pub server: &'a str,
    /// The authority of the broker's certificate.
    pub authority: Option<&'a Path>,
    /// Whether it may have been enrolled before.
    pub renew: bool,
}

/// The public key and the seed.
fn new_key() -> Result<(String, String), EnrollError> {
    let pair = nkeys::KeyPair::new_user();
    let seed = pair.seed().map_err(|error| EnrollError::Key(error.to_string()))?;
    Ok((pair.public_key(), seed + "\n"))
}

fn config_text(
    server: &str,
    authority: Option<&str>,
    seed: &str,
    host: &str,
    labels: &BTreeMap<String, String>,
) -> String {
    let mut table = toml::Table::new();
    table.insert("server".to_owned(), server.into());
    if let Some(authority) = authority {
        table.insert("ca".to_owned(), authority.into());
    }
    table.insert("seed".to_owned(), seed.into());
    table.insert("host".to_owned(), host.into());
    if !labels.is_empty() {
        let labels: toml::Table = labels.iter().map(|(label, value)| (label.clone(), value.as_str().into())).collect();
        table.insert("labels".to_owned(), labels.into());
    }
    table.to_string()
}

fn copy_authority(from: &Path, directory: &Path) -> Result<String, EnrollError> {
    let to = directory.join(AUTHORITY);
    let text = fs::read_to_string(from).map_err(|source| failed(from, source))?;
    if from != to {
        write(&to, &text, 0o644)?;
    }
    Ok(to.display().to_string())
}

/// Replaces a file as a whole; it never has more rights than `mode`.
fn write(path: &Path, text: &str, mode: u32) -> Result<(), EnrollError> {
    let new = path.with_extension("new");
    let written = (|| {
        _ = fs::remove_file(&new);
        let mut file: File = OpenOptions::new().write(true).create_new(true).mode(mode).open(&new)?;
        file.set_permissions(Permissions::from_mode(mode))?;
        file.write_all(text.as_bytes())?;
        file.sync_all()?;
        fs::rename(&new, path)
    })();
    written.map_err(|source| failed(path, source))
}

fn failed(path: &Path, source: io::Error) -> EnrollError {
    EnrollError::File { path: path.to_owned(), source }
}
