//! The trait of everything that holds a volume, and a part of one.

use longrun_layout::Bytes;
use std::fs::File;
use std::io;
use std::path::Path;
use std::sync::Arc;

/// A device, an image, or a part of one: bytes at offsets. What was written is durable only after [`Disk::flush`].
///
/// All methods take `&self`: the kernel orders what one process reads and writes at different offsets.
pub trait Disk: Send + Sync {
    /// What errors call it.
    fn path(&self) -> &Path;

    /// Its size.
    fn length(&self) -> Bytes;

    /// What partition tables count in, and what it writes as one at least.
    fn sector_size(&self) -> Bytes {
        Bytes(512)
    }

    /// The open file or device that has the content as it is, and where it begins there. For programs that take no bytes but a file: what
    /// they read is what was written, but they must not be asked while something is written.
    fn in_file(&self) -> Option<(&File, Bytes)> {
        None
    }

    /// Fills `buffer` from offset `at`.
    ///
    /// # Errors
    /// The device's; `UnexpectedEof` when the range does not lie on the disk.
    fn read(&self, at: Bytes, buffer: &mut [u8]) -> io::Result<()>;

    /// Writes `data` to offset `at`. A crash before the next flush may leave any subset of its sectors written.
    ///
    /// # Errors
    /// The device's; `UnexpectedEof` when the range does not lie on the disk: nothing is written then.
    fn write(&self, at: Bytes, data: &[u8]) -> io::Result<()>;

    /// Returns when everything that was written before is durable.
    ///
    /// # Errors
    /// The device's. What was written since the last flush may then be lost.
    fn flush(&self) -> io::Result<()>;

    /// Gives the space of a range back to the storage below. Its content is not defined afterwards.
    ///
    /// # Errors
    /// The device's; `Unsupported` where the storage keeps what it has.
    fn discard(&self, at: Bytes, length: Bytes) -> io::Result<()>;

    /// Makes a range read as zeros. Where the storage can do that without writing them, it may keep the space.
    ///
    /// # Errors
    /// As [`Disk::write`], but a part may be zeroed before an error.
    fn zero(&self, at: Bytes, length: Bytes) -> io::Result<()> {
        write_zeros(self, at, length)
    }
}

/// Writes zeros, for storage that cannot make them otherwise.
pub(crate) fn write_zeros(disk: &(impl Disk + ?Sized), at: Bytes, length: Bytes) -> io::Result<()> {
    static ZEROS: [u8; 1 << 16] = [0; 1 << 16];
    within(at, length.0, disk.length())?;
    let mut written = 0;
    while written < length.0 {
        let piece = usize::try_from(length.0 - written).unwrap_or(usize::MAX).min(ZEROS.len());
        disk.write(at + Bytes(written), ZEROS.get(..piece).unwrap_or(&ZEROS))?;
        written += piece as u64;
    }
    Ok(())
}

/// Whether `length` bytes at `at` lie on a disk of `size`.
pub(crate) fn within(at: Bytes, length: u64, size: Bytes) -> io::Result<()> {
    match at.0.checked_add(length) {
        Some(end) if end <= size.0 => Ok(()),
        _ => Err(io::ErrorKind::UnexpectedEof.into()),
    }
}

/// A range of a disk as a disk of its own: a partition.
pub struct Part {
    whole: Arc<dyn Disk>,
    start: Bytes,
    length: Bytes,
}

impl Part {
    /// The `length` bytes of `whole` from `start` on; `None` when they do not lie on it.
    #[must_use]
    pub fn new(whole: Arc<dyn Disk>, start: Bytes, length: Bytes) -> Option<Self> {
        within(start, length.0, whole.length()).ok()?;
        Some(Self { whole, start, length })
    }

    fn place(&self, at: Bytes, length: u64) -> io::Result<Bytes> {
        within(at, length, self.length).map(|()| self.start + at)
    }
}

impl Disk for Part {
    fn path(&self) -> &Path {
        self.whole.path()
    }

    fn length(&self) -> Bytes {
        self.length
    }

    fn sector_size(&self) -> Bytes {
        self.whole.sector_size()
    }

    fn in_file(&self) -> Option<(&File, Bytes)> {
        self.whole.in_file().map(|(file, start)| (file, start + self.start))
    }

    fn read(&self, at: Bytes, buffer: &mut [u8]) -> io::Result<()> {
        self.whole.read(self.place(at, buffer.len() as u64)?, buffer)
    }

    fn write(&self, at: Bytes, data: &[u8]) -> io::Result<()> {
        self.whole.write(self.place(at, data.len() as u64)?, data)
    }

    fn flush(&self) -> io::Result<()> {
        self.whole.flush()
    }

    fn discard(&self, at: Bytes, length: Bytes) -> io::Result<()> {
        self.whole.discard(self.place(at, length.0)?, length)
    }

    fn zero(&self, at: Bytes, length: Bytes) -> io::Result<()> {
        self.whole.zero(self.place(at, length.0)?, length)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::MemoryDisk;

    #[test]
    fn a_part_reaches_nothing_outside_itself() {
        let whole = Arc::new(MemoryDisk::new(vec![7; 4096]));
        let part = Part::new(whole.clone(), Bytes(1024), Bytes(512)).unwrap();
        part.write(Bytes(0), &[1; 512]).unwrap();
        assert!(part.write(Bytes(1), &[1; 512]).is_err());
        assert!(part.read(Bytes(512), &mut [0]).is_err());
        assert!(part.discard(Bytes(u64::MAX), Bytes(2)).is_err());
        assert!(part.zero(Bytes(256), Bytes(257)).is_err());
        let mut all = vec![0; 4096];
        whole.read(Bytes(0), &mut all).unwrap();
        assert!(all[..1024].iter().chain(&all[1536..]).all(|byte| *byte == 7));
        part.zero(Bytes(8), Bytes(504)).unwrap();
        part.read(Bytes(0), &mut all[..512]).unwrap();
        assert_eq!((all[7], all[8], all[511]), (1, 0, 0));
        assert!(Part::new(whole, Bytes(4000), Bytes(97)).is_none());
    }
}
