//! A file system in a sparse file: made, mounted, copied, checked, crashed, and removed when dropped.

use crate::disk::{DiskModel, ModelledDisk};
use crate::plug::{Plug, Power};
use crate::{FileSystemKind, VolumeSpec, cleanup, tool};
use anyhow::{Context, Result, bail, ensure};
use longrun_ageing::{Recipe, Summary};
use rustix::fs::OFlags;
use rustix::io::Errno;
use std::fs::{self, File};
use std::ops::ControlFlow;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

/// How long is waited for a process that has the device open exclusively, or the file system mounted in its own name space.
const BUSY: Duration = Duration::from_secs(30);

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
    /// Below the image, where the power can be cut.
    plug: Option<Plug>,
    /// Its image is in memory.
    in_memory: bool,
    /// In place of an image of its own: a modelled disk, and which of its clients this is.
    disk: Option<(Arc<ModelledDisk>, usize)>,
}

impl LoopVolume {
    /// Makes, formats and mounts a volume.
    ///
    /// # Errors
    /// When a tool fails; needs root.
    pub fn create(spec: &VolumeSpec) -> Result<Self> {
        let volume = Self::attach(spec, Power::Stays, |image| {
            File::create_new(image)?.set_len(spec.bytes)?;
            Ok(())
        })?;
        volume.format()?;
        volume.mount()?;
        Ok(volume)
    }

    /// Makes, formats and mounts a small volume whose device accepts no discards. (To forbid them to a loop device by
    /// `discard_max_bytes` would be for ever: Linux 6.18 takes no other value afterwards.)
    ///
    /// # Errors
    /// As [`Self::create`].
    pub fn create_without_discards(spec: &VolumeSpec) -> Result<Self> {
        let volume = Self::attach(spec, Power::WithoutDiscards, |image| {
            File::create_new(image)?.set_len(spec.bytes)?;
            Ok(())
        })?;
        volume.format()?;
        volume.mount()?;
        Ok(volume)
    }

    /// Makes, formats and mounts a volume on the part of a modelled disk that belongs to `client`; the size of that
    /// counts, not the one in `spec`. Formatting takes no time there.
    ///
    /// # Errors
    /// As [`Self::create`].
    pub fn create_on(disk: &Arc<ModelledDisk>, client: usize, spec: &VolumeSpec) -> Result<Self> {
        let volume = Self::over(disk, client, spec)?;
        disk.without_model(|| volume.format())?;
        volume.mount()?;
        Ok(volume)
    }

    /// A byte-identical copy on a modelled disk of its own, mounted with its options. This volume is unmounted
    /// meanwhile, and stays so if it is a btrfs, of which two with the same identity must never be mounted beside
    /// each other.
    ///
    /// # Errors
    /// When a tool fails or the volume is busy.
    pub fn copy_to_disk(&self, model: DiskModel, seed: u64) -> Result<Self> {
        let mounted = self.is_mounted();
        if mounted {
            self.unmount()?;
        }
        let disk = ModelledDisk::start_with(model, seed, 1, |_, path| self.copy_image(path))?;
        let copy = Self::over(&Arc::new(disk), 0, &self.spec_of_copy(&self.spec.mount))?;
        copy.mount()?;
        if mounted && self.spec.kind != FileSystemKind::Btrfs {
            self.mount()?;
        }
        Ok(copy)
    }

    fn over(disk: &Arc<ModelledDisk>, client: usize, spec: &VolumeSpec) -> Result<Self> {
        let (device, directory) = (disk.device(client)?.to_owned(), cleanup::fresh_directory()?);
        let disk = Some((Arc::clone(disk), client));
        let volume = Self { directory, device, spec: spec.clone(), plug: None, in_memory: false, disk };
        fs::create_dir(volume.mount_point())?;
        Ok(volume)
    }

    /// The modelled disk that it is on.
    #[must_use]
    pub fn disk(&self) -> Option<&ModelledDisk> {
        self.disk.as_ref().map(|(disk, _)| &**disk)
    }

    fn format(&self) -> Result<()> {
        let (maker, quietly) = self.spec.kind.maker();
        let make = || {
            let arguments = quietly.map(AsRef::as_ref).into_iter().chain(self.spec.mkfs.iter().map(AsRef::as_ref));
            tool::run(maker, arguments.chain([self.device.as_os_str()]))
        };
        // mkfs.btrfs reads other devices of the machine, too, and gives up when one of them is just going.
        if make().is_err() {
            thread::sleep(Duration::from_secs(1));
            make()?;
        }
        Ok(())
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
    /// When a tool fails or the volume is busy; for a mounted btrfs, of which two with the same identity must never
    /// be mounted beside each other: unmount it first, and mount it again only when the copy is gone.
    pub fn copy(&self, mount: &str) -> Result<Self> {
        self.copy_onto(Power::Stays, mount)
    }

    /// A byte-identical copy that is mounted at the same time as this volume. `None` for a btrfs before Linux 6.7, which does not mount two
    /// with one UUID.
    ///
    /// # Errors
    /// As [`Self::copy`].
    pub fn mounted_clone(&self) -> Result<Option<Self>> {
        self.unmount()?;
        let clone = self.copy("")?;
        match self.mount() {
            Err(_) if self.spec.kind == FileSystemKind::Btrfs => {
                clone.unmount()?;
                self.mount()?;
                Ok(None)
            }
            mounted => mounted.map(|()| Some(clone)),
        }
    }

    /// As [`Self::copy`], on a device with a volatile write cache whose power can be cut ([`Self::cut_power`]).
    ///
    /// # Errors
    /// As [`Self::copy`].
    pub fn copy_behind_cache(&self, mount: &str) -> Result<Self> {
        self.copy_onto(Power::CanBeCut, mount)
    }

    fn copy_onto(&self, power: Power, mount: &str) -> Result<Self> {
        let mounted = self.is_mounted();
        if mounted {
            ensure!(self.spec.kind != FileSystemKind::Btrfs, "a btrfs volume and its copy must not both be mounted");
            self.unmount()?;
        }
        let copy = Self::attach(&self.spec_of_copy(mount), power, |image| self.copy_image(image))?;
        copy.mount()?;
        if mounted {
            self.mount()?;
        }
        Ok(copy)
    }

    /// XFS refuses to mount two volumes with the same name beside each other.
    fn spec_of_copy(&self, mount: &str) -> VolumeSpec {
        let options = match self.spec.kind {
            FileSystemKind::Xfs => {
                [mount, "nouuid"].into_iter().filter(|o| !o.is_empty()).collect::<Vec<_>>().join(",")
            }
            FileSystemKind::Ext4 | FileSystemKind::Btrfs => mount.to_owned(),
        };
        self.spec.clone().mount(&options)
    }

    fn copy_image(&self, image: &Path) -> Result<()> {
        let from = self.image();
        tool::run("cp", ["--sparse=auto", "--reflink=auto"].map(Path::new).into_iter().chain([&*from, image]))?;
        // Written back now, not while the copy is being measured.
        File::open(image)?.sync_all()?;
        Ok(())
    }

    /// What is on the device at this moment, as after a power cut, on a device of its own; mounting recovers it.
    /// Nobody may be writing meanwhile: what is in memory only is not in it, but half of a write could be.
    ///
    /// # Errors
    /// When a tool fails.
    pub fn crashed_copy(&self) -> Result<Self> {
        let options = match self.spec.kind {
            FileSystemKind::Xfs => "nouuid",
            FileSystemKind::Ext4 | FileSystemKind::Btrfs => "",
        };
        let copy = Self::attach(&self.spec.clone().mount(options), Power::Stays, |image| {
            tool::run("cp", ["--sparse=auto".as_ref(), self.image().as_path(), image])?;
            Ok(())
        })?;
        copy.mount()?;
        Ok(copy)
    }

    fn attach(spec: &VolumeSpec, power: Power, make_image: impl FnOnce(&Path) -> Result<()>) -> Result<Self> {
        ensure!(rustix::process::geteuid().is_root(), "loop volumes need root: run this with sudo");
        let directory = cleanup::fresh_directory()?;
        // From here on the value exists, so that an error takes down what is there.
        let (device, in_memory) = (PathBuf::new(), power == Power::WithoutDiscards);
        let mut volume = Self { directory, device, spec: spec.clone(), plug: None, in_memory, disk: None };
        match power {
            Power::Stays => {}
            Power::CanBeCut => volume.plug = Some(Plug::new(&volume.directory, spec.bytes)?),
            Power::WithoutDiscards => {
                let below = volume.directory.join(cleanup::BELOW);
                fs::create_dir(&below)?;
                tool::run("mount", ["-t", "ramfs", "ramfs"].iter().map(AsRef::as_ref).chain([below.as_os_str()]))?;
            }
        }
        let image = volume.image();
        make_image(&image).with_context(|| format!("cannot make the image {}", image.display()))?;
        fs::create_dir(volume.mount_point())?;
        volume.connect()?;
        Ok(volume)
    }

    /// Gives the image a loop device: with direct I/O, or where the power can be cut through the cache that is lost then.
    fn connect(&mut self) -> Result<()> {
        let direct = if self.plug.is_some() || self.in_memory { "--direct-io=off" } else { "--direct-io=on" };
        let image = self.image();
        let arguments = [direct, "--find", "--show"].map(Path::new);
        let device = tool::run("losetup", arguments.into_iter().chain([&*image]))?;
        self.device = PathBuf::from(device.trim());
        cleanup::attached(&self.directory, &self.device);
        if self.spec.kind == FileSystemKind::Btrfs {
            // The kernel remembers each device of a btrfs on several of them, by its name, when the device is long gone.
            let _ = tool::run(
                "btrfs",
                ["device", "scan", "--forget"].map(AsRef::as_ref).into_iter().chain([self.device.as_os_str()]),
            );
        }
        // Before anything is mounted: file systems look at it then. A loop device inherits what its image lies on.
        let rotational = self.attribute("queue/rotational")?;
        fs::write(&rotational, self.spec.medium.rotational())
            .with_context(|| format!("cannot write {}", rotational.display()))
    }

    /// The content of a file in /sys about its device.
    fn attribute(&self, name: &str) -> Result<PathBuf> {
        let device = self.device.file_name().context("the device has no name")?;
        Ok(Path::new("/sys/block").join(device).join(name))
    }

    /// Cuts the power of the device: what its file system has not flushed is lost, and everything fails from now on.
    ///
    /// # Errors
    /// When the volume was not made by [`Self::copy_behind_cache`].
    pub fn cut_power(&self) -> Result<()> {
        self.plug.as_ref().context("this volume has no plug")?.pull()
    }

    /// Gives the power back and mounts again: journals are replayed.
    ///
    /// # Errors
    /// When a tool fails, the mount among them.
    pub fn restore_power(&mut self) -> Result<()> {
        self.unmount()?;
        tool::run("losetup", ["--detach".as_ref(), self.device.as_os_str()])?;
        cleanup::detached(&self.directory);
        self.plug.as_ref().context("this volume has no plug")?.put_back()?;
        self.connect()?;
        self.mount()
    }

    /// Its file system.
    #[must_use]
    pub fn kind(&self) -> FileSystemKind {
        self.spec.kind
    }

    /// The image file.
    #[must_use]
    pub fn image(&self) -> PathBuf {
        let on_disk = self.disk.as_ref().and_then(|(disk, client)| disk.backing(*client).ok().map(Path::to_owned));
        let in_memory = self.in_memory.then(|| self.directory.join(cleanup::BELOW).join("image"));
        let below = on_disk.or_else(|| self.plug.as_ref().map(Plug::image)).or(in_memory);
        below.unwrap_or_else(|| self.directory.join("image"))
    }

    /// The loop device.
    #[must_use]
    pub fn device(&self) -> &Path {
        &self.device
    }

    /// Where it is mounted, or would be.
    #[must_use]
    pub fn mount_point(&self) -> PathBuf {
        self.directory.join(cleanup::MOUNT)
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

    /// Unmounts it, and waits until the file system has left the device.
    ///
    /// A process in a mount name space of its own has copies of the mounts that were there when it began: then `umount` succeeds while
    /// the file system lives on, and what a checker reads is not what it will leave.
    ///
    /// # Errors
    /// When it stays busy; says what holds it.
    pub fn unmount(&self) -> Result<()> {
        cleanup::unmount(&self.mount_point())?;
        let until = Instant::now() + BUSY;
        // The kernel refuses this while a file system has the device, wherever it is mounted.
        while let Err(error) =
            File::options().read(true).custom_flags(OFlags::EXCL.bits().cast_signed()).open(&self.device)
        {
            let busy = error.raw_os_error() == Some(Errno::BUSY.raw_os_error());
            ensure!(
                busy && Instant::now() < until,
                "{} is in use although it is unmounted: {error}",
                self.device.display()
            );
            thread::sleep(Duration::from_millis(20));
        }
        Ok(())
    }

    /// Writes back and drops what is cached of its files, while processes may have them open. Mapped pages stay. An error of writing is not
    /// reported here: those that wrote are told.
    ///
    /// # Errors
    /// When a file cannot be opened.
    pub fn drop_caches(&self) -> Result<()> {
        let _ = rustix::fs::syncfs(File::open(self.mount_point())?);
        drop_cached_files(&self.mount_point())
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
        let until = Instant::now() + BUSY;
        let output = loop {
            let output = tool::output(&mut command)?;
            // Somebody looks at the device, as whoever identifies devices does: that tells nothing of the file system.
            let busy = String::from_utf8_lossy(&output.stderr).contains("Device or resource busy");
            if !busy || Instant::now() >= until {
                break output;
            }
            thread::sleep(Duration::from_millis(100));
        };
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
        let path = self.attribute("stat")?;
        let text = fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
        let fields: Vec<u64> = text.split_whitespace().filter_map(|f| f.parse().ok()).collect();
        match fields[..] {
            [_, _, read, _, _, _, written, ..] => Ok(DeviceTraffic { read: read * SECTOR, written: written * SECTOR }),
            _ => bail!("{} has an unknown form: {text:?}", path.display()),
        }
    }
}

/// Drops what is cached of the files below a directory.
fn drop_cached_files(directory: &Path) -> Result<()> {
    for entry in fs::read_dir(directory)?.flatten() {
        let (kind, path) = (entry.file_type()?, entry.path());
        if kind.is_dir() {
            drop_cached_files(&path)?;
        } else if kind.is_file() {
            let file = rustix::fs::open(&path, OFlags::RDONLY | OFlags::NOATIME | OFlags::CLOEXEC, 0.into())
                .with_context(|| format!("cannot open {}", path.display()))?;
            longrun_sys::drop_cache(&file, longrun_sys::ByteRange::ALL)?;
        }
    }
    Ok(())
}

impl Drop for LoopVolume {
    fn drop(&mut self) {
        cleanup::take_down(&self.directory);
    }
}

/// Writes everything to disk and empties the caches of the machine, so that what follows reads from the device. For measurements and
/// campaigns, which have the machine alone: it changes what neighbours read from their devices. Tests use [`LoopVolume::drop_caches`].
///
/// # Errors
/// Needs root.
pub fn drop_caches() -> Result<()> {
    rustix::fs::sync();
    fs::write("/proc/sys/vm/drop_caches", "3").context("cannot drop the caches")
}

/// The directory that ageing made on a mounted volume.
///
/// # Errors
/// When there is none.
pub fn aged_directory(mount_point: &Path) -> Result<PathBuf> {
    fs::read_dir(mount_point)?
        .flatten()
        .map(|entry| entry.path())
        .find(|path| path.file_name().is_some_and(|n| n.to_string_lossy().starts_with("aged-")))
        .context("the volume holds no aged files")
}
