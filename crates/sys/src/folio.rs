//! The folios of a file in the page cache: single pages or larger folios; and pages that are kept in memory.

use crate::ByteRange;
use rustix::io::Errno;
use rustix::mm::{Advice, MapFlags, MlockFlags, ProtFlags};
use rustix::param::page_size;
use std::fs::File;
use std::os::fd::AsFd;
use std::os::unix::fs::FileExt;

/// A read-only mapping that is never looked into: what lies there may change or vanish at any time.
#[derive(Debug)]
struct Mapped {
    address: usize,
    length: usize,
}

impl Mapped {
    fn new(file: impl AsFd, range: ByteRange) -> Result<Self, Errno> {
        let length = usize::try_from(range.length.0).map_err(|_| Errno::OVERFLOW)?;
        // Not populated by this call: where a page cannot be read the kernel (6.18) then tries for ever.
        let flags = MapFlags::SHARED;
        // SAFETY: the kernel chooses an unused range of addresses; nothing is made of the pointer but a number.
        let pointer =
            unsafe { rustix::mm::mmap(std::ptr::null_mut(), length, ProtFlags::READ, flags, file, range.start.0) }?;
        Ok(Self { address: pointer as usize, length })
    }

    /// Has the kernel bring the pages into memory and into the page table, without being touched by us. What cannot
    /// be read, and what lies behind the end of the file, is left out.
    ///
    /// # Errors
    /// `EINVAL` before Linux 5.14, which does not know this advice: nothing was brought in.
    fn populate(&self) -> Result<(), Errno> {
        if self.bring_in(0, self.length)? {
            return Ok(());
        }
        // One page was in the way of those behind it.
        (0..self.length)
            .step_by(page_size())
            .try_for_each(|at| self.bring_in(at, page_size().min(self.length - at)).map(drop))
    }

    /// Whether all of a part could be had.
    fn bring_in(&self, at: usize, length: usize) -> Result<bool, Errno> {
        // SAFETY: a part of our own mapping; the advice changes no memory.
        match unsafe { rustix::mm::madvise((self.address + at) as *mut _, length, Advice::LinuxPopulateRead) } {
            Ok(()) => Ok(true),
            Err(Errno::FAULT | Errno::HWPOISON) => Ok(false),
            Err(other) => Err(other),
        }
    }
}

impl Drop for Mapped {
    fn drop(&mut self) {
        // SAFETY: the range was mapped by `new` and nothing refers to it. Unmapping a whole mapping does not fail.
        let _ = unsafe { rustix::mm::munmap(self.address as *mut _, self.length) };
    }
}

/// The pages of a file that stay in memory as long as this lives.
#[derive(Debug)]
pub struct HeldPages(#[expect(dead_code, reason = "kept for being dropped")] Mapped);

/// Brings `range` (whose start is a multiple of the page size) into memory and keeps it there, however short that
/// runs. What cannot be read, and what lies behind the end of the file, is left out.
///
/// # Errors
/// The kernel's; `EAGAIN`, `ENOMEM` or `EPERM` when the process may not hold so much.
pub fn hold_pages(file: impl AsFd, range: ByteRange) -> Result<HeldPages, Errno> {
    let mapped = Mapped::new(file, range)?;
    // Held as they come: to lock what is not there yet would have the kernel read it, as above.
    // SAFETY: our own mapping; locking changes no memory.
    unsafe { rustix::mm::mlock_with(mapped.address as *mut _, mapped.length, MlockFlags::ONFAULT) }?;
    if mapped.populate().is_err() {
        // Without the advice (before Linux 5.14): pages that are not held could be lost, which is worse than to wait for ever.
        // SAFETY: as above.
        unsafe { rustix::mm::mlock(mapped.address as *mut _, mapped.length) }?;
    }
    Ok(HeldPages(mapped))
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
    // What is not there is not looked at.
    let _ = mapped.populate();
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
