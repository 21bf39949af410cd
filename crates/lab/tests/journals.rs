//! Story: a run on an image was interrupted. The next one finds its journal by every name of the image. A file that another
//! user may have put there is not accepted as a journal. No run begins where its journal could be lost.
#![allow(clippy::unwrap_used, clippy::panic, reason = "helpers of tests may fail loudly")]

#[path = "common/crowded.rs"]
mod crowded;

use crowded::{content, crowded, dump_with};
use longrun_engine::{Settings, Unobserved};
use longrun_image::{Access, FileDisk};
use longrun_lab::oracle::{Dump, compare};
use longrun_lab::{LoopVolume, longrun_binary, tool};
use longrun_planner::Mode;
use longrun_volume::ext4::OfflineExt4;
use std::fs;
use std::os::unix::fs::{chown, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

/// An image on which a run was interrupted between two transactions, in a separate directory.
struct Interrupted {
    volume: LoopVolume,
    expected: Dump,
    place: tempfile::TempDir,
    /// The image and its journal at that moment.
    kept: [Vec<u8>; 2],
}

impl Interrupted {
    fn new() -> Self {
        let (volume, expected) = crowded(24, &[], 150).unwrap();
        let place = tempfile::tempdir().unwrap();
        let mut this = Self { volume, expected, place, kept: Default::default() };
        fs::create_dir(this.path("machines")).unwrap();
        fs::create_dir(this.path("links")).unwrap();
        fs::write(this.image(), content(&this.volume)).unwrap();
        let disk = FileDisk::open(&this.image(), Access::Write).unwrap();
        let mut run = OfflineExt4::open(&this.image(), Arc::new(disk), &this.journal()).unwrap();
        let settings = Settings { mode: Mode::Full, ..Settings::default() };
        longrun_engine::placed::optimize(&mut run, &settings, &mut Unobserved).unwrap();
        this.kept = [this.image(), this.journal()].map(|path| fs::read(path).unwrap());
        drop(run);
        this
    }

    fn path(&self, name: &str) -> PathBuf {
        self.place.path().join(name)
    }

    fn image(&self) -> PathBuf {
        self.path("machines/image")
    }

    fn journal(&self) -> PathBuf {
        self.path("machines/.image.longrun-journal")
    }

    /// As it was at that moment, in these directories alone.
    fn again(&self) {
        for directory in ["machines", "links"] {
            fs::remove_dir_all(self.path(directory)).unwrap();
            fs::create_dir(self.path(directory)).unwrap();
        }
        let [image, journal] = &self.kept;
        fs::write(self.image(), image).unwrap();
        fs::write(self.journal(), journal).unwrap();
    }

    /// The run by this name is done, has completed the interrupted one, and every file is there.
    fn is_completed_by(&self, name: &Path) {
        let (status, said) = told(name);
        assert_eq!(status, Some(0), "{}: {said}", name.display());
        assert!(said.contains("An earlier run was interrupted"), "{}: {said}", name.display());
        let left = |place: &str| fs::read_dir(self.path(place)).unwrap().flatten().map(|entry| entry.file_name());
        let mut left = left("machines").chain(left("links"));
        assert!(left.all(|name| !name.to_string_lossy().ends_with("journal")), "{}", name.display());
        let image = fs::canonicalize(name).unwrap();
        let image = if image.starts_with("/dev/loop") { self.image() } else { image };
        tool::run("e2fsck", ["-f".as_ref(), "-n".as_ref(), image.as_os_str()]).unwrap();
        compare(&self.expected, &dump_with(&self.volume, &fs::read(image).unwrap()).unwrap()).unwrap();
    }

    /// The run by this name is refused with these words, and neither the image nor the journal at `journal` is another one.
    fn is_refused(&self, name: &Path, journal: &Path, words: &str) {
        let (status, said) = told(name);
        assert!(status == Some(3) && said.contains(words), "{}: {status:?}: {said}", name.display());
        assert_eq!([name, journal].map(|path| fs::read(path).unwrap()), self.kept, "{}", name.display());
    }
}

fn told(target: &Path) -> (Option<i32>, String) {
    let mut command = Command::new(longrun_binary().unwrap());
    let output = tool::output(command.args(["optimize", "--mode", "full", "--pace", "fast"]).arg(target)).unwrap();
    let said = [output.stdout, output.stderr].map(|bytes| String::from_utf8_lossy(&bytes).into_owned());
    (output.status.code(), said.concat())
}

fn attach(file: &Path) -> PathBuf {
    tool::run("losetup", ["--find".as_ref(), "--show".as_ref(), file.as_os_str()]).unwrap().trim().into()
}

fn detach(device: &Path) {
    tool::run("losetup", ["--detach".as_ref(), device.as_os_str()]).unwrap();
}

#[test]
fn loop_an_interrupted_run_is_found_by_every_name_of_the_image() {
    let at = Interrupted::new();
    at.again();
    symlink("../machines/image", at.path("links/image")).unwrap();
    at.is_completed_by(&at.path("links/image"));
    at.again();
    symlink("../machines", at.path("links/directory")).unwrap();
    at.is_completed_by(&at.path("links/directory/image"));
    at.again();
    let device = attach(&at.image());
    let finished = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| at.is_completed_by(&device)));
    detach(&device);
    finished.unwrap();
    // Both were renamed; then the image alone.
    at.again();
    let (renamed, journal) = (at.path("machines/other"), at.path("machines/.other.longrun-journal"));
    fs::rename(at.image(), &renamed).unwrap();
    at.is_refused(&renamed, &at.journal(), ".image.longrun-journal");
    let output = Command::new(longrun_binary().unwrap()).arg("analyze").arg(&renamed).output().unwrap();
    assert_eq!(output.status.code(), Some(3), "{output:?}");
    fs::rename(at.journal(), &journal).unwrap();
    at.is_completed_by(&renamed);
}

#[test]
fn loop_a_journal_that_others_may_have_made_is_not_believed() {
    let at = Interrupted::new();
    at.again();
    chown(at.journal(), Some(65534), None).unwrap();
    at.is_refused(&at.image(), &at.journal(), "belongs to another user (number 65534)");
    // Whoever owns the image could have written to it without any journal.
    chown(at.image(), Some(65534), None).unwrap();
    at.is_completed_by(&at.image());
    at.again();
    fs::hard_link(at.journal(), at.path("links/journal")).unwrap();
    at.is_refused(&at.image(), &at.journal(), "hard link");
    at.again();
    fs::rename(at.journal(), at.path("links/held")).unwrap();
    symlink("../links/held", at.journal()).unwrap();
    at.is_refused(&at.image(), &at.path("links/held"), "a symbolic link");
    at.again();
    fs::rename(at.journal(), at.path("links/held")).unwrap();
    tool::run("mkfifo", [at.journal()]).unwrap();
    at.is_refused(&at.image(), &at.path("links/held"), "no regular file");
}

#[test]
fn loop_no_run_begins_where_its_journal_would_be_lost() {
    let (volume, _) = crowded(24, &[], 150).unwrap();
    let place = tempfile::tempdir().unwrap();
    let path = |name: &str| place.path().join(name);
    let sound = content(&volume);
    let longrun = longrun_binary().unwrap();
    // The script runs in a separate mount namespace. Its arguments are the program, the place and the target.
    let refused = |script: &str, target: &Path, words: &str| {
        let mut command = Command::new("unshare");
        command.args(["--mount", "--propagation", "private", "sh", "-ec", script, "sh"]);
        command.args([longrun.as_os_str(), place.path().as_os_str(), target.as_os_str()]);
        let output = tool::output(&mut command).unwrap();
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.code() == Some(3) && said.contains(words), "{script}: {:?}: {said}", output.status);
    };
    let optimize = "exec \"$1\" optimize --mode full --pace fast \"$3\"";
    // A device whose image has no name any more, as a disk of the machine has none.
    fs::write(path("disk"), &sound).unwrap();
    let device = attach(&path("disk"));
    fs::remove_file(path("disk")).unwrap();
    fs::write(path("disk (deleted)"), &sound).unwrap();
    let checked = std::panic::catch_unwind(|| {
        refused(&format!("mount -t tmpfs none /var/lib; {optimize}"), &device, "tmpfs at /var/lib is in memory");
        let overlay = "mkdir \"$2/memory\"; mount -t tmpfs none \"$2/memory\"; cd \"$2/memory\"; mkdir upper work; \
                       mount -t overlay -o \"lowerdir=/var/lib,upperdir=$2/memory/upper,workdir=$2/memory/work\" none /var/lib; cd /";
        refused(&format!("{overlay}; {optimize}"), &device, "is in memory");
        assert_eq!(fs::read(&device).unwrap(), sound, "it was changed");
    });
    detach(&device);
    checked.unwrap();
    // An image under a name that is not in its directory, and one with two names.
    fs::write(path("image"), &sound).unwrap();
    let bound = "mkdir \"$2/bound\"; : >\"$2/bound/other\"; mount --bind \"$2/image\" \"$2/bound/other\"";
    refused(&format!("{bound}; {optimize}"), &path("bound/other"), "mounted over this name");
    fs::hard_link(path("image"), path("second")).unwrap();
    refused(optimize, &path("image"), "2 names (hard links)");
    assert_eq!(fs::read(path("image")).unwrap(), sound, "it was changed");
}
