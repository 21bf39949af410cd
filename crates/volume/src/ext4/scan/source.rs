//! The source of the bytes of a volume: a block device, an image file, or memory (tests).
//!
//! Read-only: never opens anything for writing.

use longrun_image::Disk;
use longrun_layout::Bytes;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::sync::Arc;

/// Random access to the bytes of a volume.
pub trait Source: Send + Sync {
    /// Fills `buffer` from `offset` bytes on.
    ///
    /// # Errors
    /// The device's error, or `UnexpectedEof` beyond its end.
    fn read_exact_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<()>;

    /// Bytes that there are.
    fn length(&self) -> u64;
}

/// An opened block device or image file.
#[derive(Debug)]
pub struct FileSource {
    file: File,
    length: u64,
}

impl FileSource {
    /// Finds out the length, which for a block device its metadata does not tell.
    ///
    /// # Errors
    /// When the file cannot be positioned: it is neither a device nor a regular file.
    pub fn new(mut file: File) -> io::Result<Self> {
        let length = io::Seek::seek(&mut file, io::SeekFrom::End(0))?;
        Ok(Self { file, length })
    }
}

impl Source for FileSource {
    fn read_exact_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<()> {
        self.file.read_exact_at(buffer, offset)
    }

    fn length(&self) -> u64 {
        self.length
    }
}

/// A volume that is not mounted, on a device or in an image.
pub(in crate::ext4) struct OnDisk(pub(in crate::ext4) Arc<dyn Disk>);

impl Source for OnDisk {
    fn read_exact_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<()> {
        self.0.read(Bytes(offset), buffer)
    }

    fn length(&self) -> u64 {
        self.0.length().0
    }
}

impl Source for Vec<u8> {
    fn read_exact_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<()> {
        let bytes = usize::try_from(offset).ok().and_then(|at| self.get(at..)).and_then(|b| b.get(..buffer.len()));
        buffer.copy_from_slice(bytes.ok_or(io::ErrorKind::UnexpectedEof)?);
        Ok(())
    }

    fn length(&self) -> u64 {
        self.len() as u64
    }
}
