//! Story: the owner of a directory exchanges an image in it while root works on that image. Between any two system calls that name the
//! image, its directory or its journal, something else is put in its place. strace stops the program there. No file that the owner may
//! not write changes, nothing hangs, and the image keeps its files.
#![allow(clippy::unwrap_used, clippy::panic, reason = "helpers of tests may fail loudly")]

#[path = "common/crowded.rs"]
mod crowded;

use crowded::{content, crowded, dump_with};
use longrun_lab::oracle::{Dump, compare};
use longrun_lab::{Finished, LoopVolume, Running, longrun_binary, tool};
use rustix::fs::{CWD, FileType, Mode};
use rustix::process::{Pid, Signal, kill_process};
use std::fs;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, lchown, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};
use tempfile::TempDir;

const OWNER: u32 = 65534;
/// Longer than any of these runs takes, and than QEMU is waited for.
const LIMIT: Duration = Duration::from_secs(120);
/// All calls with which the program names files.
const CALLS: [&str; 9] =
    ["openat", "openat2", "statx", "newfstatat", "readlink", "readlinkat", "unlinkat", "renameat2", "mkdirat"];

/// What is put in the place of the image, or of its journal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Put {
    /// A link to an image that only root may open.
    Link,
    Fifo,
    Directory,
    /// Another image of the owner's.
    Image,
    /// The image stays, and the name of the journal becomes a link to root's image.
    JournalLink,
}

const ALL: [Put; 5] = [Put::Link, Put::Fifo, Put::Directory, Put::Image, Put::JournalLink];

struct Scene {
    volume: LoopVolume,
    expected: Dump,
    format: &'static str,
    /// The image as it is at first.
    kept: Vec<u8>,
    place: TempDir,
}

impl Scene {
    fn new(format: &'static str) -> Self {
        let (volume, expected) = crowded(24, &[], 150).unwrap();
        let place = tempfile::tempdir().unwrap();
        fs::set_permissions(place.path(), fs::Permissions::from_mode(0o755)).unwrap();
        let mut this = Self { volume, expected, format, kept: Vec::new(), place };
        let raw = this.path("raw");
        fs::write(&raw, content(&this.volume)).unwrap();
        this.convert(&raw, "raw", &this.path("converted"), format);
        this.kept = fs::read(this.path("converted")).unwrap();
        this
    }

    fn path(&self, name: &str) -> PathBuf {
        self.place.path().join(name)
    }

    fn convert(&self, from: &Path, of: &str, to: &Path, format: &str) {
        let options = ["convert", "-f", of, "-O", format].map(AsRef::as_ref);
        tool::run("qemu-img", options.into_iter().chain([from.as_os_str(), to.as_os_str()])).unwrap();
    }

    /// A directory of the owner's with the image, and one of root's with another.
    fn again(&self) {
        for (directory, mode, owner) in [("theirs", 0o755, OWNER), ("private", 0o700, 0)] {
            let directory = self.path(directory);
            _ = fs::remove_dir_all(&directory);
            fs::create_dir(&directory).unwrap();
            fs::set_permissions(&directory, fs::Permissions::from_mode(mode)).unwrap();
            fs::write(directory.join("image"), &self.kept).unwrap();
            fs::set_permissions(directory.join("image"), fs::Permissions::from_mode(0o600)).unwrap();
            for file in [&directory, &directory.join("image")] {
                lchown(file, Some(owner), None).unwrap();
            }
        }
    }

    fn put(&self, what: Put) {
        let (image, root_image) = (self.path("theirs/image"), self.path("private/image"));
        let journal = self.path("theirs/.image.longrun-journal");
        let place = if what == Put::JournalLink { &journal } else { &image };
        let moved = if what == Put::JournalLink { "theirs/moved-journal" } else { "theirs/moved" };
        _ = fs::rename(place, self.path(moved));
        match what {
            Put::Link | Put::JournalLink => symlink(root_image, place).unwrap(),
            Put::Fifo => rustix::fs::mknodat(CWD, place, FileType::Fifo, Mode::RWXU, 0).unwrap(),
            Put::Directory => fs::create_dir(place).unwrap(),
            Put::Image => fs::write(place, &self.kept).unwrap(),
        }
        lchown(place, Some(OWNER), None).unwrap();
    }

    /// Nothing of root's has changed. What the owner has put away and put there has the same files, when interrupted work is completed.
    fn check(&self, about: &str) {
        let private = self.path("private/image");
        assert!(fs::read(&private).unwrap() == self.kept, "{about}: root's image was changed");
        let meta = fs::metadata(&private).unwrap();
        assert_eq!((meta.uid(), meta.mode() & 0o7777), (0, 0o600), "{about}");
        assert_eq!(
            fs::read_dir(self.path("private")).unwrap().count(),
            1,
            "{about}: something is left beside root's image"
        );
        // What was put there may have another name by now: that of the copy, when the two names are exchanged at this moment.
        for entry in fs::read_dir(self.path("theirs")).unwrap().flatten() {
            let kind = entry.file_type().unwrap();
            if kind.is_dir() {
                fs::remove_dir(entry.path()).unwrap();
            } else if !kind.is_file() {
                fs::remove_file(entry.path()).unwrap();
            }
        }
        let (image, moved) = (self.path("theirs/image"), self.path("theirs/moved"));
        if moved.exists() {
            if image.exists() {
                self.has_every_file(&image, about);
            }
            fs::rename(moved, &image).unwrap();
        }
        let completed = Command::new(longrun_binary().unwrap()).arg("optimize").arg(&image).output().unwrap();
        assert!(completed.status.success(), "{about}: {completed:?}");
        self.has_every_file(&image, about);
    }

    fn has_every_file(&self, image: &Path, about: &str) {
        let raw = self.path("check");
        self.convert(image, self.format, &raw, "raw");
        let found = dump_with(&self.volume, &fs::read(raw).unwrap()).unwrap();
        assert!(compare(&self.expected, &found).is_ok(), "{about}: files are lost or have changed");
    }

    /// Runs a command, with this thing put there after the `number`-th of these calls that name the image, its directory or its journal.
    /// `None` when there are not as many.
    fn run(&self, command: &[&str], call: &str, number: usize, what: Put) -> Option<Finished> {
        self.again();
        let (image, trace) = (self.path("theirs/image"), self.path("trace"));
        _ = fs::remove_file(&trace);
        let mut strace = Command::new("strace");
        strace.args(["-f", "-qq", "-e", "trace=%file", "-o"]).arg(&trace);
        for path in [&image, &self.path("theirs"), &self.path("theirs/.image.longrun-journal")] {
            strace.arg("-P").arg(path);
        }
        strace.args(["-e", &format!("inject={call}:signal=STOP:when={number}")]);
        let target = if command == ["images"] { self.path("theirs") } else { image };
        let mut running = Running::start(strace.arg(longrun_binary().unwrap()).args(command).arg(target)).unwrap();
        let (mut continued, until) = (0, Instant::now() + LIMIT);
        loop {
            // Asked before the trace is read, which is complete then.
            let has_ended = running.has_ended().unwrap();
            let trace = fs::read_to_string(&trace).unwrap_or_default();
            // Children of the program count for themselves: they are stopped, too.
            let stops: Vec<&str> = trace.lines().filter(|line| line.ends_with("stopped by SIGSTOP ---")).collect();
            for stop in &stops[continued..] {
                if continued == 0 {
                    self.put(what);
                }
                continued += 1;
                let stopped = stop.split_whitespace().next().and_then(|id| Pid::from_raw(id.parse().ok()?)).unwrap();
                // Each thread reports the stop. The first signal continues the whole process, which may have ended since.
                _ = kill_process(stopped, Signal::CONT);
            }
            if has_ended {
                break;
            }
            assert!(Instant::now() < until, "{command:?}, {what:?} after {call} {number}: it hangs: {trace}");
            std::thread::sleep(Duration::from_millis(2));
        }
        (continued > 0).then(|| running.wait(LIMIT).unwrap())
    }

    /// Every `step`-th of all places where something could be put, from the first on. How many were tried.
    fn every(&self, command: &[&str], step: usize) -> usize {
        let (mut place, mut tried) = (0, 0);
        for call in CALLS {
            'numbers: for number in 1.. {
                for what in ALL {
                    place += 1;
                    if place % step != 0 {
                        continue;
                    }
                    let Some(finished) = self.run(command, call, number, what) else { break 'numbers };
                    tried += 1;
                    let about = format!(
                        "{command:?}, {what:?} after {call} {number}: {:?} {}",
                        finished.status, finished.stderr
                    );
                    assert!(finished.status.code().is_some(), "{about}");
                    self.check(&about);
                }
            }
        }
        tried
    }
}

const OPTIMIZE: [&str; 5] = ["optimize", "--mode", "full", "--pace", "fast"];

#[test]
fn loop_an_image_that_is_exchanged_leads_to_no_other_file() {
    let tried = Scene::new("raw").every(&OPTIMIZE, 7);
    assert!(tried >= 5, "{tried}");
    let tried = Scene::new("qcow2").every(&["reclaim", "--compact"], 23);
    assert!(tried >= 5, "{tried}");
}

#[test]
fn campaign_an_image_that_is_exchanged_leads_to_no_other_file() {
    for format in ["raw", "qcow2"] {
        let scene = Scene::new(format);
        for command in [&["reclaim", "--compact"][..], &OPTIMIZE, &["analyze"], &["images"], &["reclaim"]] {
            let tried = scene.every(command, 1);
            eprintln!("{format} {command:?}: {tried} exchanges");
            assert!(tried >= 25, "{format} {command:?}: {tried}");
        }
    }
}
