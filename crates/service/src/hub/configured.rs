//! The configuration file and what holds, in the terms of the API.
//!
//! Owns that changes of the file come one after the other, and that a change is answered when it holds.

use super::{Hub, Request};
use crate::config::{self, Change, StoreError, Stored};
use crate::threads::lock;
use longrun_api::config::{ConfigFile, ConfigVolume};
use std::path::{Path, PathBuf};
use std::sync::mpsc;
use std::time::Duration;

/// The longest time that a change waits to be in effect: a volume that does not respond may delay it.
const PATIENCE: Duration = Duration::from_secs(10);

/// Why the configuration file was not changed.
#[derive(Debug, thiserror::Error)]
pub enum ChangeError {
    /// The changes cannot be made.
    #[error(transparent)]
    Edit(#[from] config::EditError),
    /// The file cannot be read or written.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The sender knows an earlier state of it.
    #[error("{path} has been changed since it was read", path = path.display())]
    Stale {
        /// The file.
        path: PathBuf,
    },
}

impl Hub {
    pub(super) fn config_file(&self) -> PathBuf {
        self.config_path.clone().unwrap_or_else(|| PathBuf::from(config::DEFAULT_PATH))
    }

    /// The configuration file and what holds, as an operator, or root, may change it; and the name of this state of the file.
    ///
    /// # Errors
    /// [`StoreError`].
    pub fn configured(&self, may_change: bool, by_root: bool) -> Result<(ConfigFile, String), StoreError> {
        let path = self.config_file();
        let stored = Stored::read(&path)?;
        let tag = stored.tag();
        Ok((self.described(&path, stored, may_change, by_root), tag))
    }

    fn described(&self, path: &Path, stored: Stored, may_change: bool, by_root: bool) -> ConfigFile {
        let exists = stored.text.is_some();
        let text = stored.text.unwrap_or_default();
        let (service_keys, volume_keys) = config::keys(may_change, by_root);
        let volumes = lock(&self.volumes);
        let of = |entry: &super::Entry| ConfigVolume {
            id: entry.id.clone(),
            mount: entry.found.watched.point.to_string_lossy().into_owned(),
            settings: config::values_of_volume(&entry.settings),
        };
        let mut volumes: Vec<ConfigVolume> = volumes.values().map(of).collect();
        volumes.sort_by(|a, b| a.mount.cmp(&b.mount));
        ConfigFile {
            path: path.to_string_lossy().into_owned(),
            exists,
            trouble: lock(&self.config_trouble).clone(),
            applied: true,
            service_keys,
            volume_keys,
            sections: config::sections(&text),
            service: config::values_of_service(&self.config()),
            volumes,
            text,
        }
    }

    /// Makes `changes` in the file, if it is still in the state `tag`, and puts them into effect. Waits for disks and volumes.
    ///
    /// # Errors
    /// [`ChangeError`]; nothing is changed then.
    pub fn change_config(
        &self,
        changes: &[Change],
        tag: &str,
        by_root: bool,
    ) -> Result<(ConfigFile, String), ChangeError> {
        let _one = lock(&self.changing);
        let path = self.config_file();
        let stored = Stored::read(&path)?;
        if stored.tag() != tag {
            return Err(ChangeError::Stale { path });
        }
        let before = stored.text.as_deref().unwrap_or_default();
        let text = config::changed(before, changes)?;
        let mut applied = true;
        let mut now = stored.clone();
        if text != before {
            now = stored.replace(&path, &text)?;
            for change in changes {
                tracing::info!("{}: an operator changed {} in {}", path.display(), change.key, change.section);
            }
            let (done, waiting) = mpsc::sync_channel(1);
            self.request(Request::Reload(Some(done)));
            applied = waiting.recv_timeout(PATIENCE).is_ok();
        }
        let tag = now.tag();
        Ok((ConfigFile { applied, ..self.described(&path, now, true, by_root) }, tag))
    }
}
