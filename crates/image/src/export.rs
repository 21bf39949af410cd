//! An image whose format QEMU reads for us: a raw file, shown through FUSE by a daemon of ours.
//!
//! Owns what the daemon is asked for. Never parses a format beyond its header.

use crate::daemon::{Daemon, LONGEST_START, Options, StartFailure};
use crate::format::Format;
use crate::private::PrivateDirectory;
use crate::{Access, Disk, FileDisk, ImageError};
use longrun_layout::Bytes;
use std::ffi::OsString;
use std::io;
use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// The content of an image as a disk. The daemon behind it ends when this is dropped.
pub(crate) struct Export {
    /// Closed before the daemon ends: what is dropped first stands first.
    content: FileDisk,
    _daemon: Daemon,
    /// Keeps others from the image, and the next daemon.
    image: FileDisk,
    format: Format,
    /// One request at a time: older daemons may mix up the data of a write with the request that comes next.
    turn: Mutex<()>,
}

impl Export {
    /// Shows the content of `image`, which is of this format. `absolute` is its name without links: the daemon takes a relative
    /// one for relative to its own directory, and QEMU one with a colon for that of a protocol. To write, nobody else may have it open.
    ///
    /// # Errors
    /// [`ImageError::NoDaemon`] when the program is missing, [`ImageError::InUse`] when somebody else has the image,
    /// others when the daemon cannot be started or does not accept the image.
    pub(crate) fn open(image: FileDisk, absolute: &Path, format: Format) -> Result<Self, ImageError> {
        let path = image.path().to_owned();
        let directory = |source| ImageError::Directory { path: path.clone(), source };
        let private = PrivateDirectory::new().map_err(directory)?;
        let arguments = arguments(&image, format, absolute, &private.content());
        if image.access() == Access::Write {
            image.let_qemu_in()?;
        }
        let daemon = Daemon::start(arguments, private).map_err(|failure| match failure {
            StartFailure::Io(error) if error.kind() == io::ErrorKind::NotFound => {
                ImageError::NoDaemon { path: path.clone() }
            }
            StartFailure::Io(source) => ImageError::Start { path: path.clone(), source },
            StartFailure::Slow => ImageError::Slow { path: path.clone(), seconds: LONGEST_START.as_secs() },
            StartFailure::Refused(message) if message.contains("Is another process using the image") => {
                ImageError::InUse { path: path.clone(), user: image.lock_holder() }
            }
            StartFailure::Refused(message) => ImageError::Daemon { path: path.clone(), message },
        })?;
        // The daemon opened it by its name.
        if !image.is_at(absolute) {
            return Err(ImageError::Replaced { path });
        }
        let content = FileDisk::open_unlocked(&daemon.content(), &path, image.access())?;
        content.expect_random_reads()?;
        Ok(Self { content, _daemon: daemon, image, format, turn: Mutex::new(()) })
    }

    fn turn(&self) -> MutexGuard<'_, ()> {
        self.turn.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What the daemon is to open and to show.
fn arguments(image: &FileDisk, format: Format, path: &Path, content: &Path) -> Vec<OsString> {
    let common = |options: Options| match image.access() {
        // Beside others that have it open.
        Access::Read => options.with("read-only", "on").with("force-share", "on"),
        Access::Write => options.with("discard", "unmap"),
    };
    let storage = Options::default().with("driver", if image.is_device() { "host_device" } else { "file" });
    let storage = common(storage.with("node-name", "storage").with("filename", path));
    let disk = Options::default().with("driver", format.driver()).with("node-name", "disk").with("file", "storage");
    let disk = common(disk);
    let (storage, disk, writable) = match image.access() {
        Access::Read => (storage, disk, "off"),
        // Without the locks there would be no opening it.
        Access::Write if format.frees() => (storage.with("locking", "on"), disk.with("detect-zeroes", "unmap"), "on"),
        Access::Write => (storage.with("locking", "on"), disk, "on"),
    };
    let export = Options::default().with("type", "fuse").with("id", "export").with("node-name", "disk");
    let export = export.with("mountpoint", content).with("writable", writable);
    let named = [("--blockdev", storage), ("--blockdev", disk), ("--export", export)];
    named.into_iter().flat_map(|(name, options)| [OsString::from(name), options.into()]).collect()
}

impl Disk for Export {
    fn path(&self) -> &Path {
        self.image.path()
    }

    fn length(&self) -> Bytes {
        self.content.length()
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
        if !self.format.frees() {
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
