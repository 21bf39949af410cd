//! The files of maps: one for each volume, replaced by its next scan.

use jiff::Timestamp;
use longrun_atlas::{Atlas, AtlasError, Subject};
use longrun_volume::survey::Survey;
use std::collections::BTreeSet;
use std::fs::{self, DirBuilder, File};
use std::io;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

/// A map of a volume that is not there is kept for so long: the volume may only be unmounted.
const KEPT: Duration = Duration::from_secs(30 * 24 * 3600);
/// What follows the id of the volume in the name of its map.
const ENDING: &str = "map";

/// Which volume a map is of.
#[derive(Clone, Debug)]
pub struct Wanted {
    /// The id of the volume in the API. It names the file, so that it must be one of the service's own making.
    pub id: String,
    /// Its UUID, if it has one.
    pub uuid: Option<[u8; 16]>,
}

/// The maps of a state directory.
#[derive(Clone, Debug)]
pub struct Maps(PathBuf);

impl Maps {
    /// Those below the state directory `state`.
    #[must_use]
    pub fn of(state: &Path) -> Self {
        Self(state.join("maps"))
    }

    fn path(&self, id: &str) -> PathBuf {
        self.0.join(format!("{id}.{ENDING}"))
    }

    /// The map of a volume, if there is one of it.
    ///
    /// # Errors
    /// [`AtlasError`].
    pub fn open(&self, wanted: &Wanted) -> Result<Option<Atlas<File>>, AtlasError> {
        let file = match File::open(self.path(&wanted.id)) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(source) => return Err(AtlasError::Io { act: "opening the map", source }),
        };
        let atlas = Atlas::open(file)?;
        Ok(Some(atlas).filter(|atlas| atlas.summary().uuid == wanted.uuid.unwrap_or_default()))
    }

    /// Writes the map of a volume as `survey` found it; returns its size in bytes.
    ///
    /// # Errors
    /// [`AtlasError`]; the earlier map stays then.
    pub fn write(&self, wanted: &Wanted, survey: &dyn Survey) -> Result<u64, AtlasError> {
        let made = DirBuilder::new().recursive(true).mode(0o700).create(&self.0);
        made.map_err(|source| AtlasError::Io { act: "making the directory of maps", source })?;
        let now = Timestamp::now();
        // What cannot be read is replaced: a number that repeats an earlier one would be worse only for who still has that map.
        let before = self.open(wanted).ok().flatten().map_or(0, |atlas| atlas.summary().number);
        let number = u64::try_from(now.as_millisecond()).unwrap_or(0).max(before + 1);
        let uuid = wanted.uuid.unwrap_or_default();
        let subject = Subject { layout: survey.layout(), areas: survey.areas(), uuid, number, at: now.as_second() };
        longrun_atlas::write(&self.path(&wanted.id), subject)
    }

    /// Removes the maps of volumes that the service does not look after: of `known` ones at once, of others when they are old.
    pub fn tidy(&self, looked_after: &BTreeSet<String>, known: &BTreeSet<String>) {
        for entry in fs::read_dir(&self.0).into_iter().flatten().flatten() {
            let path = entry.path();
            let id = path.file_stem().and_then(|name| name.to_str()).unwrap_or_default();
            let is_map = path.extension().is_some_and(|ending| ending == ENDING);
            let is_old = || {
                let changed = entry.metadata().and_then(|meta| meta.modified());
                changed.is_ok_and(|at| SystemTime::now().duration_since(at).is_ok_and(|age| age > KEPT))
            };
            // What an interrupted scan left is the next one's to remove.
            let is_kept = if is_map { !known.contains(id) && !is_old() } else { !is_old() };
            if is_kept || looked_after.contains(id) {
                continue;
            }
            if let Err(error) = fs::remove_file(&path) {
                tracing::warn!("{}: removing an old map failed: {error}", path.display());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn maps_of_volumes_that_are_not_looked_after_are_removed_and_those_of_absent_ones_when_they_are_old() {
        let state = tempfile::tempdir().unwrap();
        let maps = Maps::of(state.path());
        fs::create_dir(&maps.0).unwrap();
        for id in ["kept", "disabled", "absent", "ancient"] {
            fs::write(maps.path(id), id).unwrap();
        }
        let long_ago = SystemTime::now() - KEPT - Duration::from_secs(60);
        for id in ["ancient", "kept"] {
            File::options().write(true).open(maps.path(id)).unwrap().set_modified(long_ago).unwrap();
        }
        let set = |ids: &[&str]| ids.iter().map(|id| (*id).to_owned()).collect();
        maps.tidy(&set(&["kept"]), &set(&["kept", "disabled"]));
        let left: BTreeSet<String> =
            fs::read_dir(&maps.0).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        assert_eq!(left, set(&["kept.map", "absent.map"]));
        maps.open(&Wanted { id: "kept".to_owned(), uuid: None }).map(drop).unwrap_err();
        assert!(maps.open(&Wanted { id: "none".to_owned(), uuid: None }).unwrap().is_none());
    }
}
