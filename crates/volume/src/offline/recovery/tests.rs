//! The states in which a run can find a journal, as a table: what it does in each.

use super::super::journal::{Copied, Phase, Write};
use super::*;
use longrun_image::{MemoryDisk, Origin};
use std::fs::{self, File};
use std::os::unix::fs::{chown, symlink};
use std::path::PathBuf;

const SERIAL: u64 = 77;
const LENGTH: Bytes = Bytes(16 << 10);
/// Where the volumes of these tests have their mark, and what is there.
const MARK: u64 = 1024;
const CLEAN: [u8; 512] = [0; 512];
const OURS: [u8; 512] = [1; 512];
const THEIRS: [u8; 512] = [2; 512];
/// What the transaction refers to.
const COPY: u64 = 4096;

static KIND: Kind = Kind {
    name: "test",
    serial: |disk| {
        let mut serial = [0; 8];
        disk.read(Bytes(0), &mut serial).ok().map(|()| u64::from_le_bytes(serial))
    },
    mark: |disk| {
        let mut mark = vec![0; 512];
        disk.read(Bytes(MARK), &mut mark).ok().map(|()| mark)
    },
};

/// An image, and a volume in memory that stands for its content.
struct Scene {
    directory: tempfile::TempDir,
    disk: Arc<MemoryDisk>,
    place: JournalPlace,
}

impl Scene {
    fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let path = fs::canonicalize(directory.path()).unwrap().join("image");
        File::create(&path).unwrap();
        let disk = Arc::new(MemoryDisk::new(vec![0; LENGTH.0 as usize]));
        disk.write(Bytes(0), &SERIAL.to_le_bytes()).unwrap();
        disk.write(Bytes(COPY), &[7; 512]).unwrap();
        let place = JournalPlace::of_image(Origin { path, owner: 0, links: 1 }, None);
        Self { directory, disk, place }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    fn own(&self) -> PathBuf {
        self.place.path().to_owned()
    }

    fn disk(&self) -> Arc<dyn Disk> {
        Arc::clone(&self.disk) as _
    }

    fn mark(&self, record: &[u8]) {
        self.disk.write(Bytes(MARK), record).unwrap();
    }

    /// A journal of a run that was cut off before it began.
    fn begun(&self, volume: (u64, Bytes)) -> Journal {
        begin(Path::new("volume"), &self.place, volume).unwrap()
    }

    /// One of a run that was cut off between two transactions.
    fn marked(&self, volume: (u64, Bytes)) -> Journal {
        let mut journal = self.begun(volume);
        journal.set_mark(&OURS);
        journal.done().unwrap();
        journal
    }

    /// One of a run that was cut off in its first transaction, of whose writes the first `applied` are on the volume.
    fn pending(&self, applied: usize) {
        let mut journal = self.begun((SERIAL, LENGTH));
        journal.set_mark(&OURS);
        let write = |at, data: &[u8]| Write { phase: Phase::Change, at: Bytes(at), data: data.to_vec() };
        let writes = [write(MARK, &OURS), write(8192, &[5; 1024])];
        journal.put(&*self.disk, &[Copied::new(Bytes(COPY), &[7; 512])], &writes).unwrap();
        writes.iter().take(applied).for_each(|write| self.disk.write(write.at, &write.data).unwrap());
    }

    /// Gives the journal the name that another image gives it.
    fn rename(&self) {
        fs::rename(self.own(), self.path(".other.longrun-journal")).unwrap();
    }

    fn change(&self, change: impl FnOnce(&mut Vec<u8>)) {
        let mut bytes = fs::read(self.own()).unwrap();
        change(&mut bytes);
        fs::write(self.own(), bytes).unwrap();
    }

    /// What lies in the directory: names, sizes and the content of small files.
    fn inventory(&self) -> Vec<(PathBuf, u64, Vec<u8>)> {
        let entry = |entry: fs::DirEntry| {
            let meta = fs::symlink_metadata(entry.path()).unwrap();
            let is_small = meta.is_file() && meta.len() < 1 << 20;
            (entry.path(), meta.len(), if is_small { fs::read(entry.path()).unwrap() } else { Vec::new() })
        };
        let mut all: Vec<_> = fs::read_dir(self.directory.path()).unwrap().flatten().map(entry).collect();
        all.sort();
        all
    }
}

#[derive(Debug, PartialEq)]
enum Found {
    /// No journal of this volume.
    Nothing,
    /// A journal, and the volume was marked by its run (or not).
    Run { is_marked: bool },
    /// An error with these words.
    Refused(&'static str),
}
use Found::{Nothing, Refused, Run};

type State = (&'static str, fn(&Scene), Found);

const STATES: &[State] = &[
    ("no journal", |_| (), Nothing),
    ("an empty file", |s| drop(File::create(s.own()).unwrap()), Run { is_marked: false }),
    (
        "a torn header",
        |s| {
            s.marked((SERIAL, LENGTH));
            s.change(|bytes| bytes[30..].fill(0))
        },
        Run { is_marked: false },
    ),
    ("a run that had not begun", |s| drop(s.begun((SERIAL, LENGTH))), Run { is_marked: false }),
    (
        "a run that was cut off between transactions",
        |s| {
            s.marked((SERIAL, LENGTH));
            s.mark(&OURS)
        },
        Run { is_marked: true },
    ),
    (
        "a run that had closed the volume",
        |s| {
            s.marked((SERIAL, LENGTH));
            s.mark(&CLEAN)
        },
        Run { is_marked: false },
    ),
    (
        "a mark of another program",
        |s| {
            s.marked((SERIAL, LENGTH));
            s.mark(&THEIRS)
        },
        Run { is_marked: false },
    ),
    ("a transaction of which nothing is written", |s| s.pending(0), Run { is_marked: true }),
    ("a transaction that is written in part", |s| s.pending(1), Run { is_marked: true }),
    ("a transaction that is written", |s| s.pending(2), Run { is_marked: true }),
    (
        "a torn body",
        |s| {
            s.pending(0);
            s.change(|bytes| *bytes.last_mut().unwrap() ^= 1)
        },
        Run { is_marked: false },
    ),
    (
        "a body that is cut off",
        |s| {
            s.pending(0);
            s.change(|bytes| bytes.truncate(600))
        },
        Run { is_marked: false },
    ),
    (
        "a volume that was changed since",
        |s| {
            s.pending(1);
            s.disk.write(Bytes(8192), &[6; 512]).unwrap()
        },
        Refused("another program"),
    ),
    (
        "a volume that was restored",
        |s| {
            s.pending(0);
            s.disk.write(Bytes(COPY), &[0; 512]).unwrap()
        },
        Refused("restored from a backup"),
    ),
    ("another volume's run", |s| drop(s.marked((SERIAL + 1, LENGTH))), Refused("another volume")),
    ("another volume's run that had not begun", |s| drop(s.begun((SERIAL + 1, LENGTH))), Run { is_marked: false }),
    (
        "a volume that was made longer between runs",
        |s| {
            s.marked((SERIAL, Bytes(512)));
            s.mark(&OURS)
        },
        Run { is_marked: true },
    ),
    (
        "another version",
        |s| {
            s.pending(0);
            s.change(|bytes| version(bytes))
        },
        Refused("another version"),
    ),
    (
        "a sparse body of 8 TiB",
        |s| {
            s.begun((SERIAL, LENGTH));
            s.change(|bytes| huge(bytes));
            set_length(&s.own(), 8 << 40)
        },
        Refused("another volume"),
    ),
    (
        "a journal of another user",
        |s| {
            s.pending(0);
            chown(s.own(), Some(65534), None).unwrap()
        },
        Refused("another user (number 65534)"),
    ),
    (
        "a symbolic link",
        |s| {
            s.pending(0);
            s.rename();
            symlink(".other.longrun-journal", s.own()).unwrap()
        },
        Refused("a symbolic link"),
    ),
    (
        "a hard link",
        |s| {
            s.pending(0);
            fs::hard_link(s.own(), s.path("x")).unwrap()
        },
        Refused("a hard link"),
    ),
    ("a FIFO", |s| fifo(&s.own()), Refused("no regular file")),
    ("a directory", |s| fs::create_dir(s.own()).unwrap(), Refused("no regular file")),
    (
        "a renamed journal between transactions",
        |s| {
            s.marked((SERIAL, LENGTH));
            s.mark(&OURS);
            s.rename()
        },
        Refused("rename it"),
    ),
    (
        "a renamed journal with a transaction",
        |s| {
            s.pending(1);
            s.rename()
        },
        Refused("rename it"),
    ),
    (
        "a run on a volume with the same serial number",
        |s| {
            s.marked((SERIAL, LENGTH));
            s.rename()
        },
        Nothing,
    ),
    (
        "a transaction of a volume with the same serial number",
        |s| {
            s.pending(0);
            s.disk.write(Bytes(COPY), &[0; 512]).unwrap();
            s.rename()
        },
        Nothing,
    ),
    (
        "a renamed journal of another user",
        |s| {
            s.pending(0);
            s.rename();
            chown(s.path(".other.longrun-journal"), Some(65534), None).unwrap()
        },
        Nothing,
    ),
    ("a FIFO among the other journals", |s| fifo(&s.path(".other.longrun-journal")), Nothing),
];

/// Changes the version, with the checksum.
fn version(bytes: &mut [u8]) {
    bytes[7] += 1;
    sum(bytes);
}

/// Has the header tell of a body of 8 TiB.
fn huge(bytes: &mut [u8]) {
    bytes[24..32].copy_from_slice(&(8u64 << 40).to_le_bytes());
    sum(bytes);
}

fn sum(bytes: &mut [u8]) {
    let sum = crc32c::crc32c(&bytes[..44]);
    bytes[44..48].copy_from_slice(&sum.to_le_bytes());
}

fn set_length(path: &Path, length: u64) {
    File::options().write(true).open(path).unwrap().set_len(length).unwrap();
}

fn fifo(path: &Path) {
    use rustix::fs::{CWD, FileType, Mode, mknodat};
    mknodat(CWD, path, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
}

#[test]
fn each_state_of_a_journal_has_one_answer() {
    for (name, prepare, expected) in STATES {
        let scene = Scene::new();
        prepare(&scene);
        let (content, files) = (scene.disk.content(), scene.inventory());
        assert_eq!(is_interrupted(&KIND, &scene.place, &scene.disk()), *expected != Nothing, "{name}");
        assert_eq!(
            (scene.disk.content(), scene.inventory()),
            (content.clone(), files.clone()),
            "{name}: to look changes it"
        );
        let recovered = recover(&KIND, Path::new("volume"), &scene.place, &scene.disk());
        match (recovered, expected) {
            (Ok(None), Nothing) => {}
            (Ok(Some(found)), Run { is_marked }) => {
                assert_eq!(found.is_marked, *is_marked, "{name}");
                found.journal.remove().unwrap();
                assert!(!scene.own().exists(), "{name}");
                continue;
            }
            (Err(error), Refused(words)) => {
                let text = error.to_string();
                assert!(matches!(error, VolumeError::Journal { .. }) && text.contains(words), "{name}: {text}");
            }
            (other, _) => panic!("{name}: expected {expected:?}, and it is {:?}", other.map(|found| found.is_some())),
        }
        assert_eq!((scene.disk.content(), scene.inventory()), (content, files), "{name}: something was changed");
    }
}

#[test]
fn a_transaction_is_completed_whatever_part_was_written() {
    for applied in 0..=2 {
        let scene = Scene::new();
        scene.pending(applied);
        recover(&KIND, Path::new("volume"), &scene.place, &scene.disk()).unwrap().unwrap();
        let content = scene.disk.content();
        assert_eq!(
            (&content[MARK as usize..][..512], &content[8192..][..1024]),
            (&OURS[..], &[5; 1024][..]),
            "{applied}"
        );
    }
}

#[test]
fn a_journal_of_the_owner_of_the_image_is_believed() {
    let mut scene = Scene::new();
    scene.pending(0);
    chown(scene.own(), Some(65534), None).unwrap();
    let path = fs::canonicalize(scene.path("image")).unwrap();
    scene.place = JournalPlace::of_image(Origin { path, owner: 65534, links: 1 }, None);
    assert!(recover(&KIND, Path::new("volume"), &scene.place, &scene.disk()).unwrap().is_some());
}

#[test]
fn a_run_does_not_take_over_a_file_that_is_there() {
    let scene = Scene::new();
    fs::write(scene.own(), "somebody's").unwrap();
    let error = begin(Path::new("volume"), &scene.place, (SERIAL, LENGTH)).err().unwrap();
    assert!(matches!(error, VolumeError::Io { .. }), "{error}");
    assert_eq!(fs::read(scene.own()).unwrap(), b"somebody's");
}

#[test]
fn a_run_on_an_image_with_two_names_is_refused_before_it_begins() {
    let mut scene = Scene::new();
    let path = fs::canonicalize(scene.path("image")).unwrap();
    scene.place = JournalPlace::of_image(Origin { path, owner: 0, links: 2 }, None);
    let error = begin(Path::new("volume"), &scene.place, (SERIAL, LENGTH)).err().unwrap().to_string();
    assert!(error.contains("2 names (hard links)") && !scene.own().exists(), "{error}");
    // What an interrupted run has left is completed all the same.
    let own = scene.own();
    let place = std::mem::replace(&mut scene.place, (&own).into());
    scene.pending(1);
    assert!(recover(&KIND, Path::new("volume"), &place, &scene.disk()).unwrap().is_some());
}

#[test]
fn a_transaction_is_not_longer_than_what_is_read_again() {
    let scene = Scene::new();
    let journal = scene.begun((SERIAL, Bytes(512)));
    let before = fs::read(scene.own()).unwrap();
    let write = Write { phase: Phase::Change, at: Bytes(0), data: vec![1; 4096] };
    assert!(journal.put(&*scene.disk, &[], &[write]).is_err());
    assert_eq!(fs::read(scene.own()).unwrap(), before);
}
