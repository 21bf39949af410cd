//! A modelled disk: a block device whose requests take as long as a model says. Every figure that is measured on it is
//! modelled.
//!
//! Owns the process of the server, its file system, and the loop devices on it. The model is below the block layer:
//! like a disk, it sees requests after they have been merged, queued and split. The data is in sparse files, usually
//! in the page cache, so that the disk of the machine is not measured, too.

pub mod model;
mod server;
mod station;
mod statistics;
mod validate;

pub use model::DiskModel;
pub use server::serve;
pub use statistics::{Counts, Statistics};
pub use validate::{Validation, validate};

use crate::{cleanup, tool};
use anyhow::{Context, Result, ensure};
use longrun_layout::Bytes;
use model::Access;
use serde::{Deserialize, Serialize};
use std::fs::{self, File};
use std::io::{BufRead, BufReader};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

/// The command of `longrun-lab` that serves a disk.
pub const SERVE_COMMAND: &str = "serve-disk";
/// The largest request in KiB: larger ones would be cut by FUSE, unseen by the block layer's counters.
const LARGEST_KIB: &str = "1024";
/// How far the kernel reads ahead: what disks have by default. A loop device gets something else on some kernels.
pub const READ_AHEAD_KIB: u32 = 128;

/// The input of the server.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct DiskSpec {
    /// How long everything takes.
    model: DiskModel,
    /// Of whatever the model draws by lot.
    seed: u64,
    /// Where the bytes are: one file for each client, one behind the other on the device.
    backing: Vec<PathBuf>,
    /// Where its files appear.
    mount_point: PathBuf,
}

/// Where requests of one client fail.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Failing {
    client: usize,
    access: Access,
    /// Start and length in bytes, from where the client's part begins.
    ranges: Vec<(Bytes, Bytes)>,
}

/// A modelled disk, with one block device for each of its clients.
#[derive(Debug)]
pub struct ModelledDisk {
    directory: PathBuf,
    spec: DiskSpec,
    devices: Vec<PathBuf>,
    /// Ends when its standard input does, and so when we do.
    server: Option<Child>,
}

impl ModelledDisk {
    /// An empty disk with a part of each of these sizes for each client.
    ///
    /// # Errors
    /// When the server or a tool fails; needs root.
    pub fn start(model: DiskModel, seed: u64, sizes: &[Bytes]) -> Result<Self> {
        Self::start_with(model, seed, sizes.len(), |client, path| {
            let size = sizes.get(client).context("no size is known")?;
            Ok(File::create_new(path)?.set_len(size.0)?)
        })
    }

    /// A disk whose bytes `make` puts into the file that it is given for each client.
    ///
    /// # Errors
    /// As [`Self::start`], and what `make` says.
    pub fn start_with(
        model: DiskModel,
        seed: u64,
        clients: usize,
        make: impl Fn(usize, &Path) -> Result<()>,
    ) -> Result<Self> {
        ensure!(rustix::process::geteuid().is_root(), "modelled disks need root: run this with sudo");
        let directory = cleanup::fresh_directory()?;
        let backing: Vec<PathBuf> = (0..clients).map(|n| directory.join(format!("{}{n}", cleanup::BACKING))).collect();
        let mount_point = directory.join(cleanup::DISK);
        // From here on the value exists, so that an error takes down what is there.
        let spec = DiskSpec { model, seed, backing, mount_point };
        let mut disk = Self { directory, spec, devices: Vec::new(), server: None };
        for (client, path) in disk.spec.backing.iter().enumerate() {
            make(client, path).with_context(|| format!("cannot make {}", path.display()))?;
        }
        fs::create_dir(&disk.spec.mount_point)?;
        disk.serve()?;
        disk.attach()?;
        Ok(disk)
    }

    fn serve(&mut self) -> Result<()> {
        let mut command = before_others(&lab_binary()?);
        // In a group of its own: a Ctrl-C is for us, who need the disk for taking things down.
        command.arg(SERVE_COMMAND).stdin(Stdio::piped()).stdout(Stdio::piped()).current_dir("/").process_group(0);
        let mut child = command.spawn().with_context(|| format!("cannot run {command:?}"))?;
        let (input, output) = (child.stdin.as_mut(), child.stdout.take());
        let told = input.context("the server has no input").and_then(|input| {
            serde_json::to_writer(&mut *input, &self.spec)?;
            std::io::Write::write_all(input, b"\n")?;
            Ok(())
        });
        self.server = Some(child);
        told.context("the server of the disk ended")?;
        let mut line = String::new();
        BufReader::new(output.context("the server has no output")?).read_line(&mut line)?;
        ensure!(line.trim() == server::READY, "the disk cannot be served; see above");
        Ok(())
    }

    fn attach(&mut self) -> Result<()> {
        for client in 0..self.spec.backing.len() {
            let file = self.spec.mount_point.join(client.to_string());
            let arguments = ["--direct-io=on", "--find", "--show"].map(Path::new);
            let device = PathBuf::from(tool::run("losetup", arguments.into_iter().chain([&*file]))?.trim());
            cleanup::attached_to_disk(&self.directory, &device);
            self.describe_to_kernel(&device)?;
            self.devices.push(device);
        }
        Ok(())
    }

    /// Has the kernel treat it as what it models.
    fn describe_to_kernel(&self, device: &Path) -> Result<()> {
        let (rotational, scheduler) =
            if self.spec.model.is_rotational() { ("1", "mq-deadline") } else { ("0", "none") };
        let settings = [
            ("max_sectors_kb", LARGEST_KIB),
            ("rotational", rotational),
            ("scheduler", scheduler),
            ("read_ahead_kb", &READ_AHEAD_KIB.to_string()),
        ];
        settings.iter().try_for_each(|(name, value)| set_queue(device, name, value))
    }

    /// Has the kernel read ahead so far, in KiB, of files that are read in order.
    ///
    /// # Errors
    /// When the kernel does not take it.
    pub fn set_read_ahead(&self, kib: u32) -> Result<()> {
        self.devices.iter().try_for_each(|device| set_queue(device, "read_ahead_kb", &kib.to_string()))
    }

    /// Has the kernel order requests by another scheduler: none, mq-deadline, bfq.
    ///
    /// # Errors
    /// When the kernel has none of that name.
    pub fn set_scheduler(&self, name: &str) -> Result<()> {
        self.devices.iter().try_for_each(|device| set_queue(device, "scheduler", name))
    }

    /// What it models.
    #[must_use]
    pub fn model(&self) -> DiskModel {
        self.spec.model
    }

    /// The block device of a client.
    ///
    /// # Errors
    /// When there is no such client.
    pub fn device(&self, client: usize) -> Result<&Path> {
        self.devices.get(client).map(PathBuf::as_path).with_context(|| format!("the disk has no client {client}"))
    }

    /// The file that holds the bytes of a client; not slow. Only to be read, and while nothing is mounted.
    ///
    /// # Errors
    /// When there is no such client.
    pub fn backing(&self, client: usize) -> Result<&Path> {
        self.spec.backing.get(client).map(PathBuf::as_path).with_context(|| format!("the disk has no client {client}"))
    }

    /// What it has done so far.
    ///
    /// # Errors
    /// When the server does not answer.
    pub fn statistics(&self) -> Result<Statistics> {
        let path = self.spec.mount_point.join(server::STATISTICS);
        let text = fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
        serde_json::from_str(&text).with_context(|| format!("{} says {text:?}", path.display()))
    }

    /// Whether requests take what the model says (as at first), or no time: for preparing what is on it.
    ///
    /// # Errors
    /// When the server does not answer.
    pub fn set_modelled(&self, modelled: bool) -> Result<()> {
        let path = self.spec.mount_point.join(server::CONTROL);
        let word = if modelled { server::MODEL } else { server::BYPASS };
        fs::write(&path, word).with_context(|| format!("cannot write {word} to {}", path.display()))
    }

    /// From now on every write of `client` that touches one of `ranges` (start and length) fails with an I/O error
    /// and leaves what is there; reads answer what was written before. These replace the ranges of an earlier call.
    ///
    /// # Errors
    /// When the server does not answer or there is no such client.
    pub fn fail_writes(&self, client: usize, ranges: &[(Bytes, Bytes)]) -> Result<()> {
        self.fail(&Failing { client, access: Access::Write, ranges: ranges.to_vec() })
    }

    /// As [`Self::fail_writes`], for reads.
    ///
    /// # Errors
    /// When the server does not answer or there is no such client.
    pub fn fail_reads(&self, client: usize, ranges: &[(Bytes, Bytes)]) -> Result<()> {
        self.fail(&Failing { client, access: Access::Read, ranges: ranges.to_vec() })
    }

    fn fail(&self, failing: &Failing) -> Result<()> {
        let told = serde_json::to_string(failing)?;
        let path = self.spec.mount_point.join(server::CONTROL);
        fs::write(&path, format!("{}{told}", server::FAIL)).context("the disk does not take which requests fail")
    }

    /// Does something while requests take no time.
    ///
    /// # Errors
    /// What it says, or the server's.
    pub fn without_model<T>(&self, act: impl FnOnce() -> Result<T>) -> Result<T> {
        self.set_modelled(false)?;
        let done = act();
        self.set_modelled(true)?;
        done
    }
}

impl Drop for ModelledDisk {
    fn drop(&mut self) {
        cleanup::take_down(&self.directory);
        if let Some(mut server) = self.server.take() {
            // Ends by itself when it is unmounted, and at the end of its input at the latest.
            drop(server.stdin.take());
            _ = server.wait();
        }
    }
}

fn set_queue(device: &Path, name: &str, value: &str) -> Result<()> {
    let device = device.file_name().context("the device has no name")?;
    let path = Path::new("/sys/block").join(device).join("queue").join(name);
    fs::write(&path, value).with_context(|| format!("cannot write {value} to {}", path.display()))
}

/// A command that is scheduled before everything ordinary, where that is allowed: on a busy machine a disk that
/// waits for the processor is slower than it should be.
fn before_others(program: &Path) -> Command {
    const FIFO: [&str; 2] = ["--fifo", "10"];
    if tool::run("chrt", FIFO.into_iter().chain(["true"])).is_err() {
        return Command::new(program);
    }
    let mut command = Command::new("chrt");
    command.args(FIFO).arg(program);
    command
}

/// The `longrun-lab` binary, which serves disks and is the hostile user: this program, `LONGRUN_LAB_BIN`, or the one
/// built beside this program.
pub(crate) fn lab_binary() -> Result<PathBuf> {
    const NAME: &str = "longrun-lab";
    if let Some(path) = std::env::var_os("LONGRUN_LAB_BIN") {
        return Ok(path.into());
    }
    let own = std::env::current_exe().context("cannot find the path of this program")?;
    if own.file_name().is_some_and(|name| name == NAME) {
        return Ok(own);
    }
    own.ancestors()
        .skip(1)
        .take(2)
        .map(|directory| directory.join(NAME))
        .find(|path| path.is_file())
        .with_context(|| format!("no {NAME} beside {}: build it with cargo build -p {NAME}", own.display()))
}
