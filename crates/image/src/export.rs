//! An image whose format QEMU reads for us: a raw file, shown through FUSE by a daemon of ours.
//!
//! Owns what the daemon is asked for. Never parses a format beyond its header.

use crate::daemon::{Daemon, LONGEST_START, Options, StartFailure};
use crate::format::Format;
use crate::private::{PrivateDirectory, pass, with_names};
use crate::{Access, Disk, FileDisk, ImageError};
use longrun_layout::Bytes;
use std::ffi::OsString;
use std::fs::File;
use std::io;
use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// A file that the content of an image is read from.
pub(crate) struct Layer {
    pub(crate) file: FileDisk,
    pub(crate) format: Format,
}

/// The content of an image as a disk. The daemon behind it ends when this is dropped.
pub(crate) struct Export {
    /// Closed before the daemon ends: what is dropped first stands first.
    content: FileDisk,
    _daemon: Daemon,
    /// Keeps others from the image, and the next daemon.
    image: Layer,
    /// One request at a time: older daemons may mix up the data of a write with the request that comes next.
    turn: Mutex<()>,
}

impl Export {
    /// Shows the content of `image`. It holds what differs from the first of `below`, which holds what differs from the next. The daemon
    /// opens these files, also when their paths lead to others by then. To write, nobody else may have the image open.
    ///
    /// # Errors
    /// [`ImageError::NoDaemon`] when the program is missing, [`ImageError::InUse`] when somebody else has the image,
    /// [`ImageError::Foreign`] without root, others when the daemon cannot be started or does not accept the image.
    pub(crate) fn open(image: Layer, below: Vec<Layer>) -> Result<Self, ImageError> {
        let (path, access) = (image.file.path().to_owned(), image.file.access());
        let private = PrivateDirectory::new(&path)?;
        let (mut arguments, mut files, mut names) = (Vec::new(), Vec::new(), Vec::new());
        let mut next = None;
        // Each names the one below it, which has to be there by then.
        let layers: Vec<&Layer> = [&image].into_iter().chain(&below).collect();
        for (number, layer) in layers.into_iter().enumerate().rev() {
            let passed = pass(&layer.file)?;
            arguments.extend(nodes(layer, number, &passed.name(), next));
            names.push((passed.name(), layer.file.path().to_owned()));
            files.push(passed);
            next = Some(number);
        }
        arguments.extend(export(access, &private.mount_point()));
        if access == Access::Write {
            image.file.let_qemu_in()?;
        }
        let daemon = Daemon::start(arguments, files, private).map_err(|failure| match failure {
            StartFailure::Io(error) if error.kind() == io::ErrorKind::NotFound => {
                ImageError::NoDaemon { path: path.clone() }
            }
            StartFailure::Io(source) => ImageError::Start { path: path.clone(), source },
            StartFailure::Slow => ImageError::Slow { path: path.clone(), seconds: LONGEST_START.as_secs() },
            StartFailure::Refused(message) if message.contains("Is another process using the image") => {
                ImageError::InUse { path: path.clone(), user: image.file.lock_holder() }
            }
            StartFailure::Refused(message) => {
                ImageError::Daemon { path: path.clone(), message: with_names(message, &names) }
            }
        })?;
        let content = FileDisk::open_unlocked(daemon.content(), &path, access)?;
        content.expect_random_reads()?;
        Ok(Self { content, _daemon: daemon, image, turn: Mutex::new(()) })
    }

    fn turn(&self) -> MutexGuard<'_, ()> {
        self.turn.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What the daemon is to open as `disk` with this number: the file called `name`, above the disk numbered `next`.
fn nodes(layer: &Layer, number: usize, name: &Path, next: Option<usize>) -> Vec<OsString> {
    let common = |options: Options| match layer.file.access() {
        // Beside others that have it open.
        Access::Read => options.with("read-only", "on").with("force-share", "on"),
        Access::Write => options.with("discard", "unmap"),
    };
    let (below, this) = (format!("storage{number}"), format!("disk{number}"));
    let storage = Options::default().with("driver", if layer.file.is_device() { "host_device" } else { "file" });
    let storage = common(storage.with("node-name", &below).with("filename", name));
    let disk = Options::default().with("driver", layer.format.driver()).with("node-name", this).with("file", &below);
    let disk = common(match next {
        Some(next) => disk.with("backing", format!("disk{next}")),
        None => disk,
    });
    let (storage, disk) = match layer.file.access() {
        Access::Read => (storage, disk),
        // Without the locks there would be no opening it.
        Access::Write if layer.format.frees() => (storage.with("locking", "on"), disk.with("detect-zeroes", "unmap")),
        Access::Write => (storage.with("locking", "on"), disk),
    };
    [storage, disk].into_iter().flat_map(|options| [OsString::from("--blockdev"), options.into()]).collect()
}

/// That it is to show the first disk as the file `content`.
fn export(access: Access, content: &Path) -> [OsString; 2] {
    let export = Options::default().with("type", "fuse").with("id", "export").with("node-name", "disk0");
    let writable = if access == Access::Write { "on" } else { "off" };
    ["--export".into(), export.with("mountpoint", content).with("writable", writable).into()]
}

impl Disk for Export {
    fn path(&self) -> &Path {
        self.image.file.path()
    }

    fn length(&self) -> Bytes {
        self.content.length()
    }

    fn in_file(&self) -> Option<(&File, Bytes)> {
        Some((self.content.file(), Bytes(0)))
    }

    fn read(&self, at: Bytes, buffer: &mut [u8]) -> io::Result<()> {
        let _turn = self.turn();
        self.content.read(at, buffer)
    }

    fn write(&self, at: Bytes, data: &[u8]) -> io::Result<()> {
        let _turn = self.turn();
        self.content.write(at, data)
    }

    fn flush(&self) -> io::Result<()> {
        let _turn = self.turn();
        self.content.flush()
    }

    fn discard(&self, at: Bytes, length: Bytes) -> io::Result<()> {
        // The daemon would say that it has done so, and do nothing.
        if !self.image.format.frees() {
            return Err(io::ErrorKind::Unsupported.into());
        }
        let _turn = self.turn();
        self.content.discard(at, length)
    }

    fn zero(&self, at: Bytes, length: Bytes) -> io::Result<()> {
        let _turn = self.turn();
        self.content.zero(at, length)
    }
}

#[cfg(test)]
mod tests;
