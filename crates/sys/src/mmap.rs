//! A shared mapping of a file, read and written only by copying: for tests that write as databases do.

use rustix::io::Errno;
use rustix::mm::{MapFlags, MsyncFlags, ProtFlags, mmap, msync, munmap};
use std::os::fd::AsFd;
use std::ptr::NonNull;

/// The first bytes of a file, mapped shared and writable. No one may shorten the file while the mapping is used: touching
/// what is gone kills the process (SIGBUS).
#[derive(Debug)]
pub struct SharedMapping {
    address: NonNull<u8>,
    length: usize,
}

// SAFETY: the mapping belongs to this value alone, and its pages are reachable from every thread.
unsafe impl Send for SharedMapping {}

impl SharedMapping {
    /// Maps the first `length` bytes (more than 0) of `file`, which must be open for reading and writing.
    ///
    /// # Errors
    /// The kernel's; `EINVAL` for length 0.
    pub fn new(file: impl AsFd, length: usize) -> Result<Self, Errno> {
        let (protection, flags) = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::SHARED);
        // SAFETY: no address is asked for, so the kernel chooses one that nothing else uses.
        let address = unsafe { mmap(std::ptr::null_mut(), length, protection, flags, file, 0) }?;
        let address = NonNull::new(address.cast()).ok_or(Errno::NOMEM)?;
        Ok(Self { address, length })
    }

    /// The length in bytes.
    #[must_use]
    pub fn length(&self) -> usize {
        self.length
    }

    /// Copies `bytes` into the mapping at `offset`.
    ///
    /// # Errors
    /// `EINVAL` when they do not fit.
    pub fn write(&mut self, offset: usize, bytes: &[u8]) -> Result<(), Errno> {
        self.check(offset, bytes.len())?;
        // SAFETY: the range lies inside the mapping, which lives as long as self; no reference into it exists, so the
        // source cannot overlap it.
        unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), self.address.as_ptr().add(offset), bytes.len()) };
        Ok(())
    }

    /// Copies from the mapping at `offset` into `buffer`.
    ///
    /// # Errors
    /// `EINVAL` when it reaches beyond the mapping.
    pub fn read(&self, offset: usize, buffer: &mut [u8]) -> Result<(), Errno> {
        self.check(offset, buffer.len())?;
        // SAFETY: as in `write`.
        unsafe { std::ptr::copy_nonoverlapping(self.address.as_ptr().add(offset), buffer.as_mut_ptr(), buffer.len()) };
        Ok(())
    }

    /// Writes the changed pages to the file and waits.
    ///
    /// # Errors
    /// The kernel's.
    pub fn sync(&self) -> Result<(), Errno> {
        // SAFETY: exactly the mapping.
        unsafe { msync(self.address.as_ptr().cast(), self.length, MsyncFlags::SYNC) }
    }

    fn check(&self, offset: usize, length: usize) -> Result<(), Errno> {
        let end = offset.checked_add(length).ok_or(Errno::INVAL)?;
        if end <= self.length { Ok(()) } else { Err(Errno::INVAL) }
    }
}

impl Drop for SharedMapping {
    fn drop(&mut self) {
        // SAFETY: the mapping is ours and nothing points into it. Failing would mean that it is gone already.
        let _ = unsafe { munmap(self.address.as_ptr().cast(), self.length) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_to_the_mapping_is_in_the_file() {
        let file = tempfile::tempfile().unwrap();
        file.set_len(8192).unwrap();
        let mut mapping = SharedMapping::new(&file, 8192).unwrap();
        mapping.write(4090, b"across pages").unwrap();
        mapping.sync().unwrap();
        let mut seen = [0; 12];
        std::os::unix::fs::FileExt::read_exact_at(&file, &mut seen, 4090).unwrap();
        assert_eq!(&seen, b"across pages");
        mapping.read(4090, &mut seen).unwrap();
        assert_eq!(&seen, b"across pages");
        assert_eq!(mapping.write(8190, b"abc"), Err(Errno::INVAL));
        assert_eq!(mapping.read(usize::MAX, &mut seen), Err(Errno::INVAL));
    }
}
