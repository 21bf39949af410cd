//! How a file lies in the page cache: in single pages, or in larger folios.

use crate::ByteRange;
use rustix::io::Errno;
use rustix::mm::{MapFlags, ProtFlags};
use rustix::param::page_size;
use std::fs::File;
use std::os::fd::AsFd;
use std::os::unix::fs::FileExt;

/// A read-only mapping that is never looked into: what lies there may change or vanish at any time.
struct Mapped {
    address: usize,
    length: usize,
}

impl Mapped {
    fn new(file: impl AsFd, range: ByteRange) -> Result<Self, Errno> {
        let length = usize::try_from(range.length.0).map_err(|_| Errno::OVERFLOW)?;
        // Populated by the kernel: pages that are cached get into the page table without being touched by us.
        let flags = MapFlags::SHARED | MapFlags::POPULATE;
        // SAFETY: the kernel chooses an unused range of addresses; nothing is made of the pointer but a number.
        let pointer =
            unsafe { rustix::mm::mmap(std::ptr::null_mut(), length, ProtFlags::READ, flags, file, range.start.0) }?;
        Ok(Self { address: pointer as usize, length })
    }
}

impl Drop for Mapped {
    fn drop(&mut self) {
        // SAFETY: the range was mapped by `new` and nothing refers to it. Unmapping a whole mapping does not fail.
        let _ = unsafe { rustix::mm::munmap(self.address as *mut _, self.length) };
    }
}

/// Whether a part of `range` (whose start is a multiple of the page size) is cached in a folio of more than one page.
/// Pages that are not cached are read. Needs CAP_SYS_ADMIN.
///
/// # Errors
/// The kernel's; `ENOENT` where it does not tell about pages.
pub fn has_large_folios(file: impl AsFd, range: ByteRange) -> Result<bool, Errno> {
    const ENTRY: usize = 8;
    const PRESENT: u64 = 1 << 63;
    const FRAME: u64 = (1 << 55) - 1;
    /// The head or the tail of a compound page.
    const COMPOUND: u64 = 1 << 15 | 1 << 16;
    let errno = |error: std::io::Error| Errno::from_io_error(&error).unwrap_or(Errno::IO);
    if range.length.0 == 0 {
        return Ok(false);
    }
    let page_map = File::open("/proc/self/pagemap").map_err(errno)?;
    let page_flags = File::open("/proc/kpageflags").map_err(errno)?;
    let mapped = Mapped::new(file, range)?;
    let pages = mapped.length.div_ceil(page_size());
    let mut entries = vec![0; pages * ENTRY];
    page_map.read_exact_at(&mut entries, (mapped.address / page_size() * ENTRY) as u64).map_err(errno)?;
    for entry in entries.as_chunks::<ENTRY>().0 {
        let entry = u64::from_ne_bytes(*entry);
        if entry & PRESENT == 0 {
            continue;
        }
        let mut flags = [0; ENTRY];
        page_flags.read_exact_at(&mut flags, (entry & FRAME) * ENTRY as u64).map_err(errno)?;
        if u64::from_ne_bytes(flags) & COMPOUND != 0 {
            return Ok(true);
        }
    }
    Ok(false)
}
