//! Story: any local user could switch off optimizing, by a lock on the root directory of a volume or a process with the right
//! name, and lead root's optimizer to whatever a command line named, a FIFO that blocks who opens it included. Only root's
//! locks and root's processes count, and nothing that a process names is opened.
#![allow(clippy::unwrap_used, clippy::panic, reason = "helpers of tests may fail loudly")]

mod common;

use longrun_lab::{FileSystemKind, LoopVolume, Medium, VolumeSpec, tool};
use longrun_sys::{FlockOperation, LockFile};
use std::fs::{self, File};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};
use tempfile::TempDir;

const LIMIT: Duration = Duration::from_secs(120);
const NOBODY: u32 = 65534;
const ROOT: u32 = 0;

/// A process that ends with the test.
struct Process(Child);

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn spawn(command: &mut Command, user: u32) -> Process {
    Process(command.uid(user).gid(user).spawn().unwrap())
}

/// Programs with names of tools that move blocks, in a directory that everybody can enter, and a FIFO that nobody writes to.
struct Impostors(TempDir);

impl Impostors {
    fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        tool::run("chmod", ["755".as_ref(), directory.path().as_os_str()]).unwrap();
        let shell = fs::canonicalize("/bin/sh").unwrap();
        for name in ["e4defrag", "xfs_fsr", "btrfs"] {
            tool::install(&shell, &directory.path().join(name)).unwrap();
        }
        tool::run("mkfifo", [directory.path().join("fifo")]).unwrap();
        Self(directory)
    }

    fn fifo(&self) -> PathBuf {
        self.0.path().join("fifo")
    }

    /// One that waits, with a file or directory open, and with the FIFO in its command line.
    fn start(&self, name: &str, open: &Path, user: u32) -> Process {
        let mut command = Command::new(self.0.path().join(name));
        let waits = command.args(["-c", "read line", "defragment"]).arg(self.fifo());
        spawn(waits.stdin(Stdio::piped()).stderr(File::open(open).unwrap()), user)
    }
}

fn volumes() -> impl Iterator<Item = (FileSystemKind, LoopVolume)> {
    let kinds = |medium| FileSystemKind::ALL.map(|kind| (kind, VolumeSpec::of(kind, 512).on(medium)));
    Medium::ALL.into_iter().flat_map(kinds).map(|(kind, spec)| {
        let volume = LoopVolume::create(&spec).unwrap();
        fs::write(volume.mount_point().join("file"), vec![7; 1 << 20]).unwrap();
        (kind, volume)
    })
}

const fn tool_of(kind: FileSystemKind) -> &'static str {
    match kind {
        FileSystemKind::Ext4 => "e4defrag",
        FileSystemKind::Xfs => "xfs_fsr",
        FileSystemKind::Btrfs => "btrfs",
    }
}

fn optimizes(volume: &LoopVolume) {
    let ended = common::longrun("full").start(&volume.mount_point()).unwrap().wait(LIMIT).unwrap();
    assert!(ended.status.success(), "{:?}: {ended:?}", volume.kind());
}

fn is_refused(volume: &LoopVolume, because_of: &str) {
    let ended = common::longrun("full").start(&volume.mount_point()).unwrap().wait(LIMIT).unwrap();
    let told = format!("{because_of} (process ");
    let refused = ended.status.code() == Some(3) && ended.stderr.contains(&told);
    assert!(refused && ended.stderr.contains("is working on this volume"), "{:?}: {ended:?}", volume.kind());
}

/// Has `user` lock the root directory, and waits until that is so.
fn locked_by(user: u32, mount: &Path) -> Process {
    let mut command = Command::new("flock");
    let holder = spawn(command.args(["--no-fork", "--exclusive"]).arg(mount).args(["sleep", "600"]), user);
    let begun = Instant::now();
    while LockFile::new(File::open(mount).unwrap()).set(FlockOperation::NonBlockingLockShared).unwrap() {
        assert!(begun.elapsed() < LIMIT, "the lock was not taken");
        sleep(Duration::from_millis(10));
    }
    holder
}

#[test]
fn loop_a_lock_of_a_user_does_not_stop_an_optimizer_and_one_of_root_does() {
    for (_, volume) in volumes() {
        let mount = volume.mount_point();
        let user = locked_by(NOBODY, &mount);
        optimizes(&volume);
        drop(user);
        let root = locked_by(ROOT, &mount);
        is_refused(&volume, "sleep");
        drop(root);
        optimizes(&volume);
        volume.check().unwrap();
    }
}

#[test]
fn loop_a_process_of_a_user_with_the_name_of_a_tool_does_not_stop_an_optimizer_and_one_of_root_does() {
    let impostors = Impostors::new();
    for (kind, volume) in volumes() {
        let (mount, name) = (volume.mount_point(), tool_of(kind));
        let user = impostors.start(name, &mount, NOBODY);
        optimizes(&volume);
        drop(user);
        let elsewhere = impostors.start(name, impostors.0.path(), ROOT);
        optimizes(&volume);
        drop(elsewhere);
        let root = impostors.start(name, &mount, ROOT);
        is_refused(&volume, name);
        drop(root);
        optimizes(&volume);
        volume.check().unwrap();
    }
}
