//! The ids of mounted volumes, as users and the API have them: the UUID, and for a second volume with that UUID a number behind it.
//!
//! Owns the record `volumes.json` in the state directory: which devices have, or had, volumes with the same UUID. A volume keeps its id
//! over restarts, and never has that of a volume that is mounted.

use longrun_sys::replace_file;
use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

const NAME: &str = "volumes.json";
/// A larger record is not read: it has some 100 bytes for each volume.
const LARGEST: u64 = 1 << 20;

/// By UUID the devices of the volumes that have it, the first of which has the UUID as its id.
type Devices = BTreeMap<String, Vec<String>>;

/// The ids of the volumes of one state directory.
#[derive(Debug)]
pub struct Names {
    path: PathBuf,
    devices: Mutex<Devices>,
}

impl Names {
    /// Those in the state directory `state`. A record that cannot be read is none.
    #[must_use]
    pub fn within(state: &Path) -> Self {
        let path = state.join(NAME);
        let small = fs::metadata(&path).is_ok_and(|meta| meta.is_file() && meta.len() <= LARGEST);
        let read = small.then(|| serde_json::from_slice(&fs::read(&path).ok()?).ok()).flatten();
        Self { path, devices: Mutex::new(read.unwrap_or_default()) }
    }

    /// The id of the volume on `device`; nothing when several volumes have this UUID and this one is not known.
    #[must_use]
    pub fn find(&self, uuid: &str, device: &str) -> Option<String> {
        let devices = self.devices.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(known) = devices.get(uuid) else { return Some(uuid.to_owned()) };
        known.iter().position(|known| known == device).map(|at| id(uuid, at))
    }

    /// The id of the volume on `device`, which is mounted. `others` are the devices of the other volumes that are mounted now.
    ///
    /// A volume that is not known gets the id of one that is not mounted: most likely the volume was moved to another device.
    ///
    /// # Errors
    /// The id, and why it could not be recorded: after a restart it may have another volume.
    pub fn name(&self, uuid: &str, device: &str, others: &[String]) -> Result<String, (String, io::Error)> {
        let mut devices = self.devices.lock().unwrap_or_else(PoisonError::into_inner);
        let known = devices.entry(uuid.to_owned()).or_default();
        let free = |known: &String| !others.contains(known);
        let at = known.iter().position(|known| known == device).or_else(|| known.iter().position(free));
        let at = at.unwrap_or(known.len());
        let changed = match known.get_mut(at) {
            Some(known) => std::mem::replace(known, device.to_owned()) != device,
            None => {
                known.push(device.to_owned());
                true
            }
        };
        let id = id(uuid, at);
        // Of a UUID that one volume has there is nothing to record.
        if changed && known.len() > 1 {
            save(&self.path, &devices).map_err(|error| (id.clone(), error))?;
        }
        Ok(id)
    }
}

fn id(uuid: &str, at: usize) -> String {
    if at == 0 { uuid.to_owned() } else { format!("{uuid}-{}", at + 1) }
}

fn save(path: &Path, devices: &Devices) -> io::Result<()> {
    let several: BTreeMap<&String, &Vec<String>> = devices.iter().filter(|(_, devices)| devices.len() > 1).collect();
    let mut text = serde_json::to_vec_pretty(&several)?;
    text.push(b'\n');
    replace_file(path, &text)
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests may fail loudly")]
mod tests {
    use super::*;

    fn name(names: &Names, device: &str, others: &[&str]) -> String {
        names.name("u", device, &others.iter().map(|&other| other.to_owned()).collect::<Vec<_>>()).unwrap()
    }

    #[test]
    fn a_clone_gets_a_number_and_keeps_it() {
        let state = tempfile::tempdir().unwrap();
        let names = Names::within(state.path());
        assert_eq!(name(&names, "origin", &[]), "u");
        assert!(!state.path().join(NAME).exists(), "one volume has this UUID");
        assert_eq!(name(&names, "clone", &["origin", "root"]), "u-2");
        assert_eq!(name(&names, "third", &["clone", "origin"]), "u-3");
        // Whichever is mounted first after a restart, and whether the others are mounted at all.
        for order in [["clone", "origin"], ["origin", "clone"]] {
            let names = Names::within(state.path());
            for device in order {
                let id = if device == "origin" { "u" } else { "u-2" };
                assert_eq!(name(&names, device, &["root"]), id);
                assert_eq!(name(&names, device, &["origin", "clone"]), id);
                assert_eq!(names.find("u", device), Some(id.to_owned()));
            }
        }
        assert_eq!(Names::within(state.path()).find("u", "unknown"), None);
        assert_eq!(Names::within(state.path()).find("v", "unknown"), Some("v".to_owned()));
    }

    #[test]
    fn a_volume_that_moved_to_another_device_keeps_its_id() {
        let state = tempfile::tempdir().unwrap();
        let names = Names::within(state.path());
        assert_eq!(name(&names, "old", &[]), "u");
        assert_eq!(name(&names, "new", &["root"]), "u");
        // A snapshot of each night has the id of the last one.
        assert_eq!(name(&names, "monday", &["new"]), "u-2");
        assert_eq!(name(&names, "tuesday", &["new"]), "u-2");
        assert_eq!(names.devices.lock().unwrap().get("u").unwrap().len(), 2);
    }

    #[test]
    fn a_record_that_cannot_be_used_costs_the_numbers_only() {
        let state = tempfile::tempdir().unwrap();
        let path = state.path().join(NAME);
        for content in [b"{\"u\": 1".to_vec(), b"[]".to_vec(), b"{\"u\":[]}".to_vec(), vec![b' '; 2 << 20]] {
            fs::write(&path, content).unwrap();
            assert_eq!(name(&Names::within(state.path()), "a", &[]), "u");
        }
        let nowhere = Names::within(&state.path().join("nowhere"));
        assert_eq!(name(&nowhere, "a", &[]), "u");
        let (id, _) = nowhere.name("u", "b", &["a".to_owned()]).unwrap_err();
        assert_eq!(id, "u-2", "an id all the same");
    }
}
