//! A volume with prevention at work on it, whose sensor hears what the test tells it.

use super::volume_on;
use longrun_lab::{FileSystemKind, LoopVolume, Medium, Told};
use longrun_prevention::policy::Settings;
use longrun_prevention::{FileKey, Happening, Options, Prevention, Sink, Watched};
use longrun_sys::FileHandle;
use std::fs::File;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// Remembers what happened.
#[derive(Default)]
pub struct Notes(pub Mutex<Vec<Happening>>);

impl Sink for Notes {
    fn happened(&self, _: &Path, happening: &Happening) {
        self.0.lock().unwrap().push(happening.clone());
    }
}

/// A volume with prevention at work on it.
pub struct Case {
    pub told: Arc<Told>,
    pub notes: Arc<Notes>,
    pub prevention: Prevention,
    pub watched: Watched,
    pub state: tempfile::TempDir,
    pub volume: LoopVolume,
}

impl Case {
    pub fn new(kind: FileSystemKind) -> Self {
        Self::on(Medium::of_this_run(), kind)
    }

    /// As [`Self::new`], on a device that says this of itself.
    pub fn on(medium: Medium, kind: FileSystemKind) -> Self {
        Self::sized(medium, kind, 4096)
    }

    /// As [`Self::on`], `mebibytes` large.
    pub fn sized(medium: Medium, kind: FileSystemKind, mebibytes: u64) -> Self {
        // Sparse: what is not written costs nothing. On a smaller one the policy is more careful.
        let (volume, watched) = volume_on(medium, kind, mebibytes);
        let state = tempfile::tempdir().unwrap();
        let (told, notes, prevention) = start(state.path(), Duration::from_millis(50));
        prevention.watch(&watched, Settings::default()).unwrap();
        Self { told, notes, prevention, watched, state, volume }
    }

    /// A volume on which prevention has ended while the file "open" was open, and the state directory, whose journal has its runway.
    pub fn ended_with_open_file(kind: FileSystemKind) -> (LoopVolume, tempfile::TempDir) {
        let case = Self::new(kind);
        let (_file, _) = case.growing("open");
        case.granted();
        let Self { prevention, state, volume, .. } = case;
        let totals = prevention.stop();
        assert_eq!((totals.given_back.files, totals.given_back.left_files), (0, 1), "{kind:?}: {totals:?}");
        (volume, state)
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.volume.mount_point().join(name)
    }

    /// A file of a MiB, open, of which its growth has been told.
    pub fn growing(&self, name: &str) -> (File, FileKey) {
        let mut file = File::options().read(true).write(true).create_new(true).open(self.path(name)).unwrap();
        file.write_all(&[7; 1 << 20]).unwrap();
        file.sync_all().unwrap();
        let key = self.key(&file);
        self.told.tell_of_growth(key, 1 << 20);
        (file, key)
    }

    pub fn key(&self, file: &File) -> FileKey {
        FileKey { volume: self.watched.device, handle: FileHandle::of_file(file).unwrap() }
    }

    pub fn happens(&self, what: impl Fn(&Happening) -> bool) -> Happening {
        eventually(|| self.notes.0.lock().unwrap().iter().find(|happening| what(happening)).cloned())
    }

    pub fn granted(&self) -> Happening {
        self.happens(|happening| matches!(happening, Happening::Granted { .. }))
    }
}

pub fn start(state: &Path, debounce: Duration) -> (Arc<Told>, Arc<Notes>, Prevention) {
    let (told, notes) = (Arc::new(Told::default()), Arc::new(Notes::default()));
    let mut options = Options::new(state.to_owned());
    options.debounce = debounce;
    let prevention = Prevention::start_with(&options, Arc::clone(&told) as _, Arc::clone(&notes) as _).unwrap();
    (told, notes, prevention)
}

#[track_caller]
pub fn eventually<T>(mut look: impl FnMut() -> Option<T>) -> T {
    let limit = Instant::now() + Duration::from_secs(20);
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(Instant::now() < limit, "it does not come to be");
        std::thread::sleep(Duration::from_millis(5));
    }
}

pub fn for_all(test: impl Fn(FileSystemKind)) {
    FileSystemKind::ALL.into_iter().for_each(test);
}

impl Case {
    /// As [`Case::growing`], on a full volume.
    pub fn growing_if_possible(&self, name: &str) -> (File, FileKey) {
        let file = File::options().read(true).write(true).create_new(true).open(self.path(name)).unwrap();
        let key = self.key(&file);
        self.told.tell_of_growth(key, 4096);
        (file, key)
    }
}
