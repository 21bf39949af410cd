//! A file system in a sparse file: made, mounted, copied, checked, crashed, and gone when dropped.

use crate::{cleanup, tool};
use anyhow::{Context, Result, bail, ensure};
use longrun_ageing::{Recipe, Summary};
use std::fs::{self, File};
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The file systems that the laboratory makes volumes of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum FileSystemKind {
    /// ext4.
    Ext4,
    /// XFS.
    Xfs,
    /// btrfs.
    Btrfs,
}

impl FileSystemKind {
    /// All of them, for tests that hold for each.
    pub const ALL: [Self; 3] = [Self::Ext4, Self::Xfs, Self::Btrfs];

    /// The kernel's name of the type.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Ext4 => "ext4",
            Self::Xfs => "xfs",
            Self::Btrfs => "btrfs",
        }
    }

    /// The tool that makes one, and what keeps it from asking or talking.
    fn maker(self) -> (&'static str, [&'static str; 2]) {
        match self {
            Self::Ext4 => ("mkfs.ext4", ["-q", "-F"]),
            Self::Xfs => ("mkfs.xfs", ["-q", "-f"]),
            Self::Btrfs => ("mkfs.btrfs", ["-q", "-f"]),
        }
    }

    /// The tool that checks an unmounted one without writing to it.
    fn checker(self) -> (&'static str, &'static [&'static str]) {
        match self {
            Self::Ext4 => ("e2fsck", &["-f", "-n"]),
            Self::Xfs => ("xfs_repair", &["-n"]),
            Self::Btrfs => ("btrfs", &["check", "--readonly"]),
        }
    }
}

/// What kind of volume to make.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VolumeSpec {
    /// Its file system.
    pub kind: FileSystemKind,
    /// Size of the image in bytes.
    pub bytes: u64,
    /// Arguments for mkfs, the device excepted.
    pub mkfs: Vec<String>,
    /// Mount options; empty for the defaults.
    pub mount: String,
}

impl VolumeSpec {
    /// A file system as its mkfs makes it by default, `mebibytes` MiB large.
    #[must_use]
    pub fn of(kind: FileSystemKind, mebibytes: u64) -> Self {
        Self { kind, bytes: mebibytes << 20, mkfs: Vec::new(), mount: String::new() }
    }

    /// ext4.
    #[must_use]
    pub fn ext4(mebibytes: u64) -> Self {
        Self::of(FileSystemKind::Ext4, mebibytes)
    }

    /// XFS; its mkfs wants at least 300 MiB.
    #[must_use]
    pub fn xfs(mebibytes: u64) -> Self {
        Self::of(FileSystemKind::Xfs, mebibytes)
    }

    /// btrfs; its mkfs wants at least 110 MiB.
    #[must_use]
    pub fn btrfs(mebibytes: u64) -> Self {
        Self::of(FileSystemKind::Btrfs, mebibytes)
    }

    /// With these mkfs arguments.
    #[must_use]
    pub fn mkfs(mut self, arguments: &[&str]) -> Self {
        self.mkfs = arguments.iter().map(ToString::to_string).collect();
        self
    }

    /// With these mount options.
    #[must_use]
    pub fn mount(mut self, options: &str) -> Self {
        options.clone_into(&mut self.mount);
        self
    }
}

/// Sectors that a block device has transferred since it was attached, as bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DeviceTraffic {
    /// Bytes read.
    pub read: u64,
    /// Bytes written.
    pub written: u64,
}

impl DeviceTraffic {
    /// What was transferred since `earlier`.
    #[must_use]
    pub fn since(self, earlier: Self) -> Self {
        Self { read: self.read.saturating_sub(earlier.read), written: self.written.saturating_sub(earlier.written) }
    }
}

/// A volume on a loop device with direct I/O over a sparse image.
#[derive(Debug)]
pub struct LoopVolume {
    directory: PathBuf,
    device: PathBuf,
    spec: VolumeSpec,
}

impl LoopVolume {
    /// Makes, formats and mounts a volume.
    ///
    /// # Errors
    /// When a tool fails; needs root.
    pub fn create(spec: &VolumeSpec) -> Result<Self> {
        let volume = Self::attach(spec, |image| {
            File::create_new(image)?.set_len(spec.bytes)?;
            Ok(())
        })?;
        let device = volume.device.as_os_str();
        let (maker, quietly) = spec.kind.maker();
        tool::run(
            maker,
            quietly.map(AsRef::as_ref).into_iter().chain(spec.mkfs.iter().map(AsRef::as_ref)).chain([device]),
        )?;
        volume.mount()?;
        Ok(volume)
    }

    /// Makes a volume and ages it; unmounted and mounted again, so that nothing of it is in memory.
    ///
    /// # Errors
    /// As [`Self::create`], and what ageing says.
    pub fn aged(spec: &VolumeSpec, recipe: Recipe, seed: u64) -> Result<(Self, Summary)> {
        let volume = Self::create(spec)?;
        let summary = longrun_ageing::age(&volume.mount_point(), recipe, seed, &mut |_| ControlFlow::Continue(()))?;
        volume.remount()?;
        Ok((volume, summary))
    }

    /// A byte-identical copy on a device of its own, mounted with `mount` options. This volume is unmounted meanwhile and
    /// left as it was.
    ///
    /// # Errors
    /// When a tool fails or the volume is busy.
    pub fn copy(&self, mount: &str) -> Result<Self> {
        let mounted = self.is_mounted();
        if mounted {
            self.unmount()?;
        }
        // XFS refuses to mount two volumes with the same name beside each other.
        let options = match self.spec.kind {
            FileSystemKind::Xfs => {
                [mount, "nouuid"].into_iter().filter(|o| !o.is_empty()).collect::<Vec<_>>().join(",")
            }
            FileSystemKind::Ext4 | FileSystemKind::Btrfs => mount.to_owned(),
        };
        let spec = self.spec.clone().mount(&options);
        let copy = Self::attach(&spec, |image| {
            let from = self.image();
            tool::run("cp", ["--sparse=auto", "--reflink=auto"].map(Path::new).into_iter().chain([&*from, image]))?;
            // Written back now, not while the copy is being measured.
            File::open(image)?.sync_all()?;
            Ok(())
        })?;
        copy.mount()?;
        if mounted {
            self.mount()?;
        }
        Ok(copy)
    }

    /// What is on the device at this moment, as after a power cut, on a device of its own; mounting recovers it. Nobody may
    /// be writing meanwhile: what is in memory only is not in it, but half of a write could be.
    ///
    /// # Errors
    /// When a tool fails.
    pub fn crashed_copy(&self) -> Result<Self> {
        let options = match self.spec.kind {
            FileSystemKind::Xfs => "nouuid",
            FileSystemKind::Ext4 | FileSystemKind::Btrfs => "",
        };
        let copy = Self::attach(&self.spec.clone().mount(options), |image| {
            tool::run("cp", ["--sparse=auto".as_ref(), self.image().as_path(), image])?;
            Ok(())
        })?;
        copy.mount()?;
        Ok(copy)
    }

    fn attach(spec: &VolumeSpec, make_image: impl FnOnce(&Path) -> Result<()>) -> Result<Self> {
        ensure!(rustix::process::geteuid().is_root(), "loop volumes need root: run this with sudo");
        let directory = cleanup::fresh_directory()?;
        // From here on the value exists, so that an error takes down what is there.
        let mut volume = Self { directory, device: PathBuf::new(), spec: spec.clone() };
        let image = volume.image();
        make_image(&image).with_context(|| format!("cannot make the image {}", image.display()))?;
        fs::create_dir(volume.mount_point())?;
        let arguments = ["--direct-io=on", "--find", "--show"].map(Path::new);
        let device = tool::run("losetup", arguments.into_iter().chain([&*image]))?;
        volume.device = PathBuf::from(device.trim());
        cleanup::attached(&volume.directory, &volume.device);
        Ok(volume)
    }

    /// Its file system.
    #[must_use]
    pub fn kind(&self) -> FileSystemKind {
        self.spec.kind
    }

    /// The image file.
    #[must_use]
    pub fn image(&self) -> PathBuf {
        self.directory.join("image")
    }

    /// The loop device.
    #[must_use]
    pub fn device(&self) -> &Path {
        &self.device
    }

    /// Where it is mounted, or would be.
    #[must_use]
    pub fn mount_point(&self) -> PathBuf {
        self.directory.join("mnt")
    }

    /// Whether it is mounted now.
    #[must_use]
    pub fn is_mounted(&self) -> bool {
        cleanup::is_mounted(&self.mount_point())
    }

    /// Mounts it with its options; a journal left by a crash is recovered.
    ///
    /// # Errors
    /// When mount fails.
    pub fn mount(&self) -> Result<()> {
        let options = if self.spec.mount.is_empty() { "rw" } else { &self.spec.mount };
        let mount_point = self.mount_point();
        tool::run("mount", ["-o".as_ref(), options.as_ref(), self.device.as_os_str(), mount_point.as_os_str()])?;
        Ok(())
    }

    /// Unmounts it.
    ///
    /// # Errors
    /// When it stays busy; says what holds it.
    pub fn unmount(&self) -> Result<()> {
        cleanup::unmount(&self.mount_point())
    }

    /// Unmounts and mounts again: nothing of it stays in memory.
    ///
    /// # Errors
    /// As [`Self::unmount`] and [`Self::mount`].
    pub fn remount(&self) -> Result<()> {
        self.unmount()?;
        self.mount()
    }

    /// Checks the file system with its own checker, which must not write; it is unmounted meanwhile and left as it was.
    ///
    /// # Errors
    /// With what the checker said, when it is not clean.
    pub fn check(&self) -> Result<()> {
        let mounted = self.is_mounted();
        if mounted {
            self.unmount()?;
        }
        let (checker, arguments) = self.spec.kind.checker();
        let mut command = Command::new(checker);
        command.args(arguments).arg(&self.device);
        let output = tool::output(&mut command)?;
        if !output.status.success() {
            bail!("the file system is not clean: {}", tool::describe(&command, &output));
        }
        if mounted {
            self.mount()?;
        }
        Ok(())
    }

    /// What the device has transferred so far.
    ///
    /// # Errors
    /// When /sys does not tell.
    pub fn traffic(&self) -> Result<DeviceTraffic> {
        const SECTOR: u64 = 512;
        let name = self.device.file_name().context("the device has no name")?;
        let path = Path::new("/sys/block").join(name).join("stat");
        let text = fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
        let fields: Vec<u64> = text.split_whitespace().filter_map(|f| f.parse().ok()).collect();
        match fields[..] {
            [_, _, read, _, _, _, written, ..] => Ok(DeviceTraffic { read: read * SECTOR, written: written * SECTOR }),
            _ => bail!("{} has an unknown form: {text:?}", path.display()),
        }
    }
}

impl Drop for LoopVolume {
    fn drop(&mut self) {
        cleanup::take_down(&self.directory);
    }
}

/// Writes everything to disk and empties the caches of the machine, so that what follows reads from the device.
///
/// # Errors
/// Needs root.
pub fn drop_caches() -> Result<()> {
    rustix::fs::sync();
    fs::write("/proc/sys/vm/drop_caches", "3").context("cannot drop the caches")
}
