//! A disk image with a volume on its second partition, and a process that works on it.
#![allow(clippy::unwrap_used, clippy::panic, reason = "helpers of tests may fail loudly")]

use longrun_engine::{NoProgress, Settings, Unobserved, VolumeError, carry_out, plan};
use longrun_image::{Access, open_image, read_partitions};
use longrun_lab::oracle::{Dump, dump};
use longrun_lab::{FileSystemKind, LoopVolume, tool};
use longrun_layout::Bytes;
use longrun_sys::{LoopDevice, read_mounts};
use longrun_volume::Target;
use longrun_volume::inside::PrivateMount;
use std::fs::{self, File};
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};
use tempfile::TempDir;

pub type Files = Dump;

const MIB: u64 = 1 << 20;
/// Longer than anything takes that is to come about.
const PATIENCE: Duration = Duration::from_secs(300);

pub fn wait_for(what: &str, mut happened: impl FnMut() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !happened() {
        assert!(Instant::now() < deadline, "{what}: it did not happen");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// All files.
pub fn dump_of(root: &Path) -> Dump {
    dump(root).unwrap()
}

/// Whether the kernel takes a write. It lets root open what is read-only.
pub fn can_be_written(device: &Path) -> bool {
    let opened = File::options().write(true).open(device);
    opened.is_ok_and(|file| file.write_at(&[0; 512], 0).and_then(|_| file.sync_all()).is_ok())
}

pub fn devices_on(file: &Path) -> Vec<PathBuf> {
    longrun_sys::loop_devices_on(File::open(file).unwrap()).unwrap()
}

/// A disk image with a GPT.
pub struct Image {
    pub path: PathBuf,
    start: Bytes,
    length: Bytes,
    kind: FileSystemKind,
    _directory: TempDir,
}

impl Image {
    /// With what is on the device of `volume` at this moment.
    pub fn with(volume: &LoopVolume) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("disk.raw");
        let length = fs::metadata(volume.image()).unwrap().len();
        let (before, behind) = (5 * MIB, 9 * MIB);
        File::create(&path).unwrap().set_len(before + length + behind).unwrap();
        // Before anything else: sgdisk syncs all volumes of the machine, and a btrfs has no log any more.
        let arguments = [
            format!("if={}", volume.image().display()),
            format!("of={}", path.display()),
            "bs=1M".to_owned(),
            format!("seek={}", before / MIB),
            "conv=notrunc,sparse".to_owned(),
            "status=none".to_owned(),
        ];
        tool::run("dd", arguments).unwrap();
        let second = format!("2:{}:{}", before / 512, (before + length) / 512 - 1);
        tool::run(
            "sgdisk",
            ["--clear", "--new", "1:2048:4095", "--new", &second, "--new", "3:0:0"]
                .map(AsRef::as_ref)
                .into_iter()
                .chain([path.as_os_str()]),
        )
        .unwrap();
        let disk = open_image(&path, Access::Read).unwrap().disk;
        let partitions = read_partitions(&*disk).unwrap();
        let partition = partitions.iter().find(|partition| partition.number == 2).unwrap();
        assert_eq!((partition.start.0, partition.length.0), (before, length));
        let (start, length) = (partition.start, partition.length);
        let file = File::options().write(true).open(&path).unwrap();
        for (at, fill) in [(MIB, 0x11), (start.0 + length.0, 0x33)] {
            file.write_all_at(&vec![fill; MIB as usize], at).unwrap();
        }
        Self { path, start, length, kind: volume.kind(), _directory: directory }
    }

    fn probed(&self) -> &'static str {
        match self.kind {
            FileSystemKind::Ext4 => "ext4",
            FileSystemKind::Xfs => "XFS",
            FileSystemKind::Btrfs => "btrfs",
        }
    }

    pub fn mount(&self, access: Access) -> Result<PrivateMount, VolumeError> {
        let file = File::options().read(true).write(access == Access::Write).open(&self.path).unwrap();
        PrivateMount::new(&file, &self.path, self.start, self.length, self.probed(), access)
    }

    /// Whether there is something to replay, which the superblock of a btrfs says. An XFS that was not unmounted always has something.
    pub fn has_log(&self) -> bool {
        const LOG_ROOT: u64 = (64 << 10) + 0x60;
        let mut root = [0; 8];
        File::open(&self.path).unwrap().read_exact_at(&mut root, self.start.0 + LOG_ROOT).unwrap();
        self.kind != FileSystemKind::Btrfs || u64::from_le_bytes(root) != 0
    }

    pub fn hash(&self) -> String {
        tool::run("sha256sum", [&self.path]).unwrap().split(' ').next().unwrap().to_owned()
    }

    /// What is not on the partition.
    pub fn outside(&self) -> Vec<u8> {
        let file = File::open(&self.path).unwrap();
        let end = self.start.0 + self.length.0;
        let size = file.metadata().unwrap().len();
        let mut found = vec![0; (size - self.length.0) as usize];
        let (before, behind) = found.split_at_mut(self.start.0 as usize);
        file.read_exact_at(before, 0).unwrap();
        file.read_exact_at(behind, end).unwrap();
        found
    }

    /// The mounts of it that this process sees.
    pub fn mounts(&self) -> Vec<PathBuf> {
        let devices = devices_on(&self.path);
        let mounts = read_mounts().unwrap().into_iter().filter(|mount| devices.contains(&mount.source));
        mounts.map(|mount| mount.point).collect()
    }

    pub fn nothing_is_left(&self) {
        assert_eq!(devices_on(&self.path), Vec::<PathBuf>::new());
    }

    /// By the checker of the file system.
    pub fn check(&self) {
        let file = File::open(&self.path).unwrap();
        let device = LoopDevice::attach(&file, self.start, self.length, true).unwrap();
        let (program, arguments): (_, &[&str]) = match self.kind {
            FileSystemKind::Ext4 => ("e2fsck", &["-f", "-n"]),
            FileSystemKind::Xfs => ("xfs_repair", &["-n"]),
            FileSystemKind::Btrfs => ("btrfs", &["check", "--readonly"]),
        };
        let arguments = arguments.iter().map(AsRef::as_ref).chain([device.path().as_os_str()]);
        tool::run(program, arguments).unwrap();
    }
}

/// Closes it, and looks whether it is gone.
pub fn close(mount: PrivateMount) {
    let directory = mount.point().parent().unwrap().to_owned();
    assert!(directory.to_string_lossy().contains("/longrun-mount-"));
    mount.close().unwrap();
    assert!(!directory.exists());
}

/// A full pass; how many moves it made.
pub fn optimize(target: &Target) -> u64 {
    let mut volume = longrun_volume::open(target).unwrap();
    let scan = volume.scan(&NoProgress).unwrap();
    let settings = Settings::default();
    let plan = plan(scan, &settings, &NoProgress).unwrap();
    let (report, _) = carry_out(&mut volume, plan, Instant::now(), &settings, &mut Unobserved).unwrap();
    report.moves
}

/// Another process that has the image for itself, and the volume mounted to write.
pub struct Child(std::process::Child);

const VARIABLE: &str = "LONGRUN_INSIDE_CHILD";

impl Child {
    /// Returns when it has done its work, or begins with it. `alone`: in a mount namespace of its own.
    pub fn start(image: &Image, work: &str, alone: bool) -> Self {
        let own = std::env::current_exe().unwrap();
        let mut command = if alone {
            let mut command = Command::new(env!("CARGO_BIN_EXE_longrun-lab-alone"));
            command.arg(own);
            command
        } else {
            Command::new(own)
        };
        let ready = image.path.with_extension("ready");
        _ = fs::remove_file(&ready);
        let told = [
            work.to_owned(),
            image.path.display().to_string(),
            image.start.0.to_string(),
            image.length.0.to_string(),
            image.probed().to_owned(),
            ready.display().to_string(),
        ];
        command.args(["--exact", "loop_child_that_is_killed", "--nocapture"]).env(VARIABLE, told.join("\n"));
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap();
        wait_for("the work of the child", || {
            assert_eq!(child.try_wait().unwrap(), None, "it ended");
            ready.exists()
        });
        Self(child)
    }

    /// With kill -9.
    pub fn kill(mut self) {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }
}

/// What the other process does; nothing in a process that is none.
pub fn be_the_child() {
    let Ok(told) = std::env::var(VARIABLE) else { return };
    let told: Vec<&str> = told.split('\n').collect();
    let [work, path, start, length, kind, ready] = told[..] else { panic!("{told:?}") };
    let number = |text: &str| Bytes(text.parse().unwrap());
    let _image = open_image(Path::new(path), Access::Write).unwrap();
    let file = File::options().read(true).write(true).open(path).unwrap();
    let mount = PrivateMount::new(&file, Path::new(path), number(start), number(length), kind, Access::Write).unwrap();
    let target = Target::resolve(mount.point()).unwrap();
    if work == "begin" {
        fs::write(ready, "").unwrap();
    }
    if work != "hold" {
        optimize(&target);
    }
    fs::write(ready, "").unwrap();
    // Until it is killed.
    _ = std::io::read_to_string(std::io::stdin());
}
