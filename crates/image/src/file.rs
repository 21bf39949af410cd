//! A regular file or a block device as a disk.
//!
//! Owns its opening, and that nobody else uses what we write to. Never knows what is on it.

use crate::disk::{within, write_zeros};
use crate::users::{self, Identity, QEMU_LOCKS};
use crate::{Disk, ImageError};
use longrun_layout::Bytes;
use longrun_sys::{ByteRange, Errno, FlockOperation, LockFile, OFlags};
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::{FileExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Many programs have an image or a device for a moment only, to look what it is: udev, losetup, qemu-img; and a child
/// of ours that is being started has what we had. Only who has it longer than this uses it.
const TRIES: u32 = 6;
const PAUSE: Duration = Duration::from_millis(200);

/// When so much has been written, the kernel begins to bring it to the disk: a flush that finds all of it in memory waits for as long as
/// the copying took, and copying goes on meanwhile.
const UNDER_WAY: u64 = 8 << 20;

/// What an image is opened for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// Beside all others, a virtual machine that runs from it included.
    Read,
    /// Alone.
    Write,
}

/// What the kernel knows of the file of an open image, or of a device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Origin {
    /// Its name without links.
    pub path: PathBuf,
    /// The user ID of its owner.
    pub owner: u32,
    /// How many names (hard links) it has.
    pub links: u64,
}

/// An image file or a block device. One that is open for writing is ours alone, until this is dropped.
///
/// Who ignores all locks, and opens it after us, is not kept away.
#[derive(Debug)]
pub struct FileDisk {
    file: LockFile,
    path: PathBuf,
    identity: Identity,
    length: Bytes,
    sector_size: Bytes,
    access: Access,
    /// Bytes that were written and of which the kernel was not told.
    waiting: AtomicU64,
}

impl FileDisk {
    /// Opens a regular file or a block device.
    ///
    /// To write, it must be unused: not mounted, no device made of it, no loop device on it, no byte of it locked, and
    /// open for writing in no other process. Until it is closed, a program that looks for these finds it in use.
    ///
    /// # Errors
    /// [`ImageError::InUse`] when somebody uses it; others when it cannot be opened or examined.
    pub fn open(path: &Path, access: Access) -> Result<Self, ImageError> {
        Self::open_as(path, path, access)
    }

    /// The same. `name` is what errors call it.
    pub(crate) fn open_as(path: &Path, name: &Path, access: Access) -> Result<Self, ImageError> {
        if access == Access::Read {
            return Self::open_unlocked(path, name, access);
        }
        let open = || {
            let disk = Self::open_unlocked(path, name, access)?;
            disk.claim()?;
            Ok(disk)
        };
        for _ in 1..TRIES {
            match open() {
                Err(ImageError::InUse { .. }) => std::thread::sleep(PAUSE),
                result => return result,
            }
        }
        open()
    }

    /// Opens it without any lock. `name` is what errors call it.
    pub(crate) fn open_unlocked(path: &Path, name: &Path, access: Access) -> Result<Self, ImageError> {
        let examine = |source| ImageError::Examine { path: name.to_owned(), source };
        let strange = || ImageError::NotADisk { path: name.to_owned() };
        // A lease of somebody else is not waited for. A device for writing nobody else may have alone; of a file the kernel ignores that.
        let alone = if access == Access::Write { OFlags::EXCL } else { OFlags::empty() };
        let flags =
            i32::try_from((OFlags::NONBLOCK | alone).bits()).map_err(|error| examine(io::Error::other(error)))?;
        let mut options = File::options();
        options.read(true).write(access == Access::Write).custom_flags(flags);
        let opened = longrun_sys::open_file_or_block_device(path, &options);
        let file = opened.map_err(|source| match source.kind() {
            io::ErrorKind::InvalidInput => strange(),
            io::ErrorKind::NotFound => examine(source),
            io::ErrorKind::ResourceBusy => ImageError::InUse { path: name.to_owned(), user: use_of(path) },
            _ => ImageError::Open { path: name.to_owned(), source },
        })?;
        let meta = file.metadata().map_err(examine)?;
        let identity = Identity::of(&meta).ok_or_else(strange)?;
        let (length, sector_size) = if identity.is_device() {
            // The length of a device is where its end is.
            let end = io::Seek::seek(&mut &file, io::SeekFrom::End(0)).map_err(examine)?;
            let sector = longrun_sys::sector_size(&file).map_err(|errno| examine(errno.into()))?;
            (Bytes(end), Bytes(u64::from(sector)))
        } else {
            (Bytes(meta.len()), Bytes(512))
        };
        let (file, path) = (LockFile::new(file), name.to_owned());
        Ok(Self { file, path, identity, length, sector_size, access, waiting: AtomicU64::new(0) })
    }

    /// Takes all locks, and refuses when somebody else uses it.
    fn claim(&self) -> Result<(), ImageError> {
        let lock = |source| ImageError::Lock { path: self.path.clone(), source };
        let in_use = |user| ImageError::InUse { path: self.path.clone(), user };
        let errno = |errno: Errno| lock(errno.into());
        // Of a device, udev has such a lock while it looks at it. It was opened so that the kernel keeps others away.
        let is_device = self.identity.is_device();
        if !is_device && !self.file.set(FlockOperation::NonBlockingLockExclusive).map_err(errno)? {
            return Err(in_use(self.lock_holder()));
        }
        // All bytes: QEMU locks few, other programs others.
        if !longrun_sys::lock_bytes(self.file.file(), ByteRange::ALL).map_err(errno)? {
            return Err(in_use(self.lock_holder()));
        }
        // Only now: who looks for locks is kept away from here on.
        users::user_of(self.file.file(), self.identity, Access::Write)
            .map_err(lock)?
            .map_or(Ok(()), |user| Err(in_use(user)))
    }

    /// Gives up the locks of QEMU, so that a QEMU of ours can take them. Other Longruns, and for a device the kernel,
    /// keep all others away.
    pub(crate) fn let_qemu_in(&self) -> Result<(), ImageError> {
        for range in QEMU_LOCKS {
            longrun_sys::unlock_bytes(self.file.file(), range)
                .map_err(|errno| ImageError::Lock { path: self.path.clone(), source: errno.into() })?;
        }
        Ok(())
    }

    /// Who may write to it at the moment: a virtual machine, a mount, another program. What is read meanwhile may be
    /// old and new at the same time.
    ///
    /// Without root, the programs of others that take no lock are not seen.
    #[must_use]
    pub fn in_use(&self) -> Option<String> {
        let file = self.file.file();
        let user = users::user_of(file, self.identity, self.access).and_then(|user| match user {
            Some(user) => Ok(Some(user)),
            None => users::writer_with_lock(file, self.identity),
        });
        user.unwrap_or_else(|error| Some(format!("whether somebody uses it is not known: {error}")))
    }

    /// Who holds a lock on it, for errors.
    pub(crate) fn lock_holder(&self) -> String {
        users::lock_holder(self.identity)
    }

    /// Has the kernel read no more than what is asked for.
    pub(crate) fn expect_random_reads(&self) -> Result<(), ImageError> {
        longrun_sys::expect_random_reads(self.file.file())
            .map_err(|errno| ImageError::Examine { path: self.path.clone(), source: errno.into() })
    }

    /// The file that is open, under the name that the kernel has for it, not the one that it was opened by.
    ///
    /// # Errors
    /// [`ImageError::Examine`], and [`ImageError::Replaced`] when it no longer has that name.
    pub fn origin(&self) -> Result<Origin, ImageError> {
        let examine = |source| ImageError::Examine { path: self.path.clone(), source };
        let meta = self.file().metadata().map_err(examine)?;
        let path = fs::read_link(longrun_sys::descriptor_path(self.file())).map_err(examine)?;
        if !fs::metadata(&path).is_ok_and(|meta| Identity::of(&meta) == Some(self.identity)) {
            return Err(ImageError::Replaced { path: self.path.clone() });
        }
        Ok(Origin { path, owner: meta.uid(), links: meta.nlink() })
    }

    pub(crate) fn file(&self) -> &File {
        self.file.file()
    }

    pub(crate) fn is_device(&self) -> bool {
        self.identity.is_device()
    }

    pub(crate) fn access(&self) -> Access {
        self.access
    }

    /// The whole sectors in a range.
    fn whole_sectors(&self, at: Bytes, length: Bytes) -> ByteRange {
        let size = self.sector_size.0.max(1);
        let start = at.0.next_multiple_of(size);
        let end = (at.0 + length.0) / size * size;
        ByteRange { start: Bytes(start), length: Bytes(end.saturating_sub(start)) }
    }
}

/// What keeps us from a device that the kernel calls busy.
fn use_of(path: &Path) -> String {
    let known = match fs::metadata(path).ok().and_then(|meta| Identity::of(&meta)) {
        Some(Identity::Device(number)) => users::use_of_device(number).ok().flatten(),
        _ => None,
    };
    known.unwrap_or_else(|| "it is mounted, a device is made of it, or another program has it alone".into())
}

impl Drop for FileDisk {
    fn drop(&mut self) {
        if self.access == Access::Write {
            // A child that is being started still has the descriptor, and would keep the locks. If this fails, they end
            // with it.
            _ = longrun_sys::unlock_bytes(self.file.file(), ByteRange::ALL);
        }
    }
}

/// What cannot be done here has one kind of error, whatever the kernel calls it.
fn unsupported(errno: Errno) -> io::Error {
    match errno {
        Errno::OPNOTSUPP | Errno::NOSYS => io::ErrorKind::Unsupported.into(),
        other => other.into(),
    }
}

impl Disk for FileDisk {
    fn path(&self) -> &Path {
        &self.path
    }

    fn length(&self) -> Bytes {
        self.length
    }

    fn sector_size(&self) -> Bytes {
        self.sector_size
    }

    fn in_file(&self) -> Option<(&File, Bytes)> {
        Some((self.file.file(), Bytes(0)))
    }

    fn read(&self, at: Bytes, buffer: &mut [u8]) -> io::Result<()> {
        within(at, buffer.len() as u64, self.length)?;
        self.file.file().read_exact_at(buffer, at.0)
    }

    fn write(&self, at: Bytes, data: &[u8]) -> io::Result<()> {
        within(at, data.len() as u64, self.length)?;
        self.file.file().write_all_at(data, at.0)?;
        if self.waiting.fetch_add(data.len() as u64, Ordering::Relaxed) + data.len() as u64 >= UNDER_WAY {
            self.waiting.store(0, Ordering::Relaxed);
            // An error is told by the flush.
            _ = longrun_sys::start_writeback(self.file.file(), ByteRange::ALL);
        }
        Ok(())
    }

    fn flush(&self) -> io::Result<()> {
        let file = self.file.file();
        if self.is_device() { file.sync_all() } else { file.sync_data() }
    }

    fn discard(&self, at: Bytes, length: Bytes) -> io::Result<()> {
        within(at, length.0, self.length)?;
        let range = if self.is_device() { self.whole_sectors(at, length) } else { ByteRange { start: at, length } };
        if range.length == Bytes(0) {
            return Ok(());
        }
        let file = self.file.file();
        if self.is_device() { longrun_sys::discard_blocks(file, range) } else { longrun_sys::punch(file, range) }
            .map_err(unsupported)
    }

    fn zero(&self, at: Bytes, length: Bytes) -> io::Result<()> {
        within(at, length.0, self.length)?;
        if length == Bytes(0) {
            return Ok(());
        }
        match longrun_sys::zero_range(self.file.file(), ByteRange { start: at, length }) {
            // A device does not take parts of sectors.
            Err(Errno::OPNOTSUPP | Errno::NOSYS | Errno::INVAL) => write_zeros(self, at, length),
            result => Ok(result?),
        }
    }
}

#[cfg(test)]
mod tests;
