//! What tests of images need: other programs, and their end.
#![allow(clippy::unwrap_used, reason = "helpers of tests may fail loudly")]

use longrun_image::Disk;
use longrun_layout::Bytes;
use rustix::process::Pid;
use std::ffi::OsStr;
use std::fs;
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};
use tempfile::TempDir;

pub const MIB: u64 = 1 << 20;
/// Longer than anything takes that is to come about.
pub const PATIENCE: Duration = Duration::from_secs(120);

pub fn output(program: &str, arguments: impl IntoIterator<Item = impl AsRef<OsStr>>) -> Output {
    Command::new(program).args(arguments).stdin(Stdio::null()).output().unwrap()
}

pub fn run(program: &str, arguments: impl IntoIterator<Item = impl AsRef<OsStr>>) -> String {
    let output = output(program, arguments);
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    assert!(output.status.success(), "{program}: {}{}", text(&output.stdout), text(&output.stderr));
    text(&output.stdout)
}

pub fn wait_for(what: &str, mut happened: impl FnMut() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !happened() {
        assert!(Instant::now() < deadline, "{what}: it did not happen");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Makes an image: `format` may have options behind a comma.
pub fn create(path: &Path, format: &str, mebibytes: u64) {
    let (format, options) = format.split_once(',').unwrap_or((format, ""));
    let size = format!("{mebibytes}M");
    let mut arguments: Vec<&OsStr> = ["create", "-q", "-f", format].map(OsStr::new).to_vec();
    if !options.is_empty() {
        arguments.extend(["-o", options].map(OsStr::new));
    }
    arguments.extend([path.as_os_str(), OsStr::new(&size)]);
    run("qemu-img", arguments);
}

/// What QEMU reads from an image.
pub fn content_by_qemu(path: &Path, driver: &str, scratch: &TempDir) -> Vec<u8> {
    let raw = scratch.path().join("converted");
    run(
        "qemu-img",
        ["convert", "-f", driver, "-O", "raw"].map(OsStr::new).into_iter().chain([path.as_os_str(), raw.as_os_str()]),
    );
    let content = fs::read(&raw).unwrap();
    fs::remove_file(raw).unwrap();
    content
}

pub fn content_of(disk: &dyn Disk) -> Vec<u8> {
    let mut content = vec![0; disk.length().0 as usize];
    disk.read(Bytes(0), &mut content).unwrap();
    content
}

pub fn check(path: &Path, driver: &str) {
    run("qemu-img", [OsStr::new("check"), OsStr::new("-f"), OsStr::new(driver), path.as_os_str()]);
}

/// A daemon that shows an image for us.
pub struct Daemon {
    pub id: Pid,
    /// Where it works.
    pub directory: PathBuf,
}

impl Daemon {
    /// All that show `image`.
    pub fn of(image: &Path) -> Vec<Self> {
        let wanted = fs::metadata(image).unwrap();
        let is_it = |file: fs::DirEntry| {
            let found = fs::metadata(file.path());
            found.is_ok_and(|found| (found.dev(), found.ino()) == (wanted.dev(), wanted.ino()))
        };
        let daemon = |entry: fs::DirEntry| {
            let id = entry.file_name().to_str()?.parse().ok()?;
            let name = fs::read_to_string(entry.path().join("comm")).ok()?;
            // A virtual machine has that of the system.
            let root = fs::read_link(entry.path().join("root")).ok().filter(|root| root != Path::new("/"))?;
            let shows = fs::read_dir(entry.path().join("fd")).ok()?.flatten().any(is_it);
            (name.starts_with("qemu-storage-da") && shows).then_some(())?;
            Some(Self { id: Pid::from_raw(id)?, directory: root.parent()?.to_owned() })
        };
        fs::read_dir("/proc").unwrap().flatten().filter_map(daemon).collect()
    }

    pub fn only(image: &Path) -> Self {
        let mut found = Self::of(image);
        assert_eq!(found.len(), 1);
        found.pop().unwrap()
    }

    pub fn runs(&self) -> bool {
        fs::read(format!("/proc/{}/cmdline", self.id.as_raw_nonzero())).is_ok_and(|line| !line.is_empty())
    }

    pub fn assert_nothing_is_left(&self) {
        assert!(!self.runs(), "the daemon runs on");
        assert!(!self.directory.exists(), "its directory is left");
    }
}

/// A process that ends with the test.
pub struct Guarded(pub Child);

impl Drop for Guarded {
    fn drop(&mut self) {
        _ = self.0.kill();
        _ = self.0.wait();
    }
}

/// A stand-in for a virtual machine that has an image open.
pub fn virtual_machine(image: &Path, driver: &str, writes: bool, scratch: &TempDir) -> Guarded {
    let ready = scratch.path().join("machine");
    _ = fs::remove_file(&ready);
    let socket = scratch.path().join("socket");
    _ = fs::remove_file(&socket);
    let read_only = if writes { "off" } else { "on" };
    let is_device = fs::metadata(image).unwrap().file_type().is_block_device();
    let storage = if is_device { "host_device" } else { "file" };
    let child = Command::new("qemu-storage-daemon")
        .arg("--blockdev")
        .arg(format!("driver={storage},node-name=f,read-only={read_only},filename={}", image.display()))
        .arg("--blockdev")
        .arg(format!("driver={driver},node-name=d,read-only={read_only},file=f"))
        .arg("--nbd-server")
        .arg(format!("addr.type=unix,addr.path={}", socket.display()))
        .arg("--export")
        .arg(format!("type=nbd,id=e,node-name=d,writable={}", if writes { "on" } else { "off" }))
        .arg("--pidfile")
        .arg(&ready)
        .spawn()
        .unwrap();
    let child = Guarded(child);
    wait_for("the start of a virtual machine", || ready.exists());
    child
}

pub fn scratch() -> TempDir {
    tempfile::tempdir().unwrap()
}

/// A loop device that goes with the test.
pub struct Loop(pub PathBuf);

impl Loop {
    pub fn on(file: &Path) -> Self {
        Self::with(file, &[])
    }

    pub fn with(file: &Path, options: &[&str]) -> Self {
        let arguments = ["--find", "--show"].iter().chain(options).map(OsStr::new);
        Self(run("losetup", arguments.chain([file.as_os_str()])).trim().into())
    }
}

impl Drop for Loop {
    fn drop(&mut self) {
        _ = output("losetup", [OsStr::new("--detach"), self.0.as_os_str()]);
    }
}

/// A mount that goes with the test.
pub struct Mounted(pub PathBuf);

impl Drop for Mounted {
    fn drop(&mut self) {
        let unmounted = output("umount", [&self.0]);
        if !unmounted.status.success() {
            _ = output("umount", [OsStr::new("--lazy"), self.0.as_os_str()]);
        }
    }
}
