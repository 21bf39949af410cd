//! The files of maps: one for each volume, replaced by its next scan, and at most one more that shows it before its last pass.

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
/// The same of the map from before the last pass that moved something.
const BEFORE: &str = "before";
/// The same while a pass is under way, of which it is not known yet whether it moves something.
const UNDER_WAY: &str = "pending";

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

    fn path(&self, id: &str, ending: &str) -> PathBuf {
        self.0.join(format!("{id}.{ending}"))
    }

    /// The map of a volume, if there is one of it.
    ///
    /// # Errors
    /// [`AtlasError`].
    pub fn open(&self, wanted: &Wanted) -> Result<Option<Atlas<File>>, AtlasError> {
        self.open_as(wanted, ENDING)
    }

    /// The map from before the last pass of a volume, if there is one.
    ///
    /// # Errors
    /// [`AtlasError`].
    pub fn open_before(&self, wanted: &Wanted) -> Result<Option<Atlas<File>>, AtlasError> {
        self.open_as(wanted, BEFORE)
    }

    /// A pass begins: the map is kept until it has ended. Returns the number of its scan. A second name costs nothing: maps are never
    /// changed, only replaced.
    pub fn pass_begins(&self, wanted: &Wanted) -> Option<u64> {
        let under_way = self.path(&wanted.id, UNDER_WAY);
        // What a pass left that the service did not see the end of.
        _ = fs::remove_file(&under_way);
        let number = self.open(wanted).ok()??.summary().number;
        let linked = fs::hard_link(self.path(&wanted.id, ENDING), &under_way);
        linked.inspect_err(|error| tracing::warn!("{}: keeping the map failed: {error}", under_way.display())).ok()?;
        Some(number)
    }

    /// A pass of the volume `id` has ended: if it moved something, the map from before it takes the place of that of an earlier pass.
    pub fn pass_ended(&self, id: &str, moved: bool) {
        let (under_way, before) = (self.path(id, UNDER_WAY), self.path(id, BEFORE));
        let kept = if moved { fs::rename(&under_way, &before) } else { fs::remove_file(&under_way) };
        match kept {
            // There was no map, so that there is none of before this pass; that of an earlier one would be misleading.
            Err(error) if error.kind() == io::ErrorKind::NotFound && moved => _ = fs::remove_file(&before),
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                tracing::warn!("{}: keeping the map failed: {error}", under_way.display());
            }
            _ => {}
        }
    }

    fn open_as(&self, wanted: &Wanted, ending: &str) -> Result<Option<Atlas<File>>, AtlasError> {
        let file = match File::open(self.path(&wanted.id, ending)) {
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
        longrun_atlas::write(&self.path(&wanted.id, ENDING), subject)
    }

    /// Removes the maps of volumes that the service does not look after: of `known` ones at once, of others when they are old.
    pub fn tidy(&self, looked_after: &BTreeSet<String>, known: &BTreeSet<String>) {
        for entry in fs::read_dir(&self.0).into_iter().flatten().flatten() {
            let path = entry.path();
            let id = path.file_stem().and_then(|name| name.to_str()).unwrap_or_default();
            let is_map =
                path.extension().is_some_and(|ending| [ENDING, BEFORE, UNDER_WAY].iter().any(|known| ending == *known));
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
    use longrun_layout::{BlockSize, Blocks, LayoutBuilder};

    #[test]
    fn maps_of_volumes_that_are_not_looked_after_are_removed_and_those_of_absent_ones_when_they_are_old() {
        let state = tempfile::tempdir().unwrap();
        let maps = Maps::of(state.path());
        fs::create_dir(&maps.0).unwrap();
        for id in ["kept", "disabled", "absent", "ancient"] {
            fs::write(maps.path(id, ENDING), id).unwrap();
            fs::write(maps.path(id, BEFORE), id).unwrap();
        }
        let long_ago = SystemTime::now() - KEPT - Duration::from_secs(60);
        for id in ["ancient", "kept"] {
            for ending in [ENDING, BEFORE] {
                let file = File::options().write(true).open(maps.path(id, ending)).unwrap();
                file.set_modified(long_ago).unwrap();
            }
        }
        let set = |ids: &[&str]| ids.iter().map(|id| (*id).to_owned()).collect();
        maps.tidy(&set(&["kept"]), &set(&["kept", "disabled"]));
        let left: BTreeSet<String> =
            fs::read_dir(&maps.0).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        assert_eq!(left, set(&["kept.map", "kept.before", "absent.map", "absent.before"]));
        maps.open(&Wanted { id: "kept".to_owned(), uuid: None }).map(drop).unwrap_err();
        assert!(maps.open(&Wanted { id: "none".to_owned(), uuid: None }).unwrap().is_none());
    }

    #[test]
    fn the_map_from_before_the_last_pass_that_moved_something_is_kept() {
        let state = tempfile::tempdir().unwrap();
        let maps = Maps::of(state.path());
        fs::create_dir(&maps.0).unwrap();
        let wanted = Wanted { id: "a".to_owned(), uuid: None };
        let scan = |number| {
            let layout = LayoutBuilder::new(BlockSize::new(4096).unwrap(), Blocks(100)).build().unwrap();
            let areas = Box::new(std::iter::empty());
            let subject = Subject { layout: &layout, areas, uuid: [0; 16], number, at: 0 };
            longrun_atlas::write(&maps.path("a", ENDING), subject).unwrap();
        };
        let kept = || maps.open_before(&wanted).unwrap().map(|atlas| atlas.summary().number);
        // Without a map there is none to keep.
        assert_eq!(maps.pass_begins(&wanted), None);
        maps.pass_ended("a", true);
        assert_eq!(kept(), None);
        scan(1);
        assert_eq!(maps.pass_begins(&wanted), Some(1));
        // A scan in a pause of the pass.
        scan(2);
        assert_eq!(kept(), None, "it has not ended");
        maps.pass_ended("a", true);
        assert_eq!(kept(), Some(1));
        // One that moved nothing, and one whose end was not seen.
        maps.pass_begins(&wanted);
        maps.pass_ended("a", false);
        assert_eq!(kept(), Some(1));
        maps.pass_begins(&wanted);
        scan(3);
        assert_eq!(maps.pass_begins(&wanted), Some(3));
        maps.pass_ended("a", true);
        assert_eq!(kept(), Some(3));
        assert_eq!(fs::read_dir(&maps.0).unwrap().count(), 2, "one more than the map, whatever happened");
    }
}
