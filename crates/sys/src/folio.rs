//! The folios of a file in the page cache: single pages or larger folios; and pages that are kept in memory.

use crate::ByteRange;
use longrun_layout::Bytes;
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

    /// The page frames that the pages lie in; `None` for a page that is not there.
    fn frames(&self) -> Result<Vec<Option<u64>>, Errno> {
        const PRESENT: u64 = 1 << 63;
        const FRAME: u64 = (1 << 55) - 1;
        let mut entries = vec![0; self.length.div_ceil(page_size()) * ENTRY];
        let page_map = File::open("/proc/self/pagemap").map_err(errno)?;
        page_map.read_exact_at(&mut entries, (self.address / page_size() * ENTRY) as u64).map_err(errno)?;
        let entries = entries.as_chunks::<ENTRY>().0.iter().map(|entry| u64::from_ne_bytes(*entry));
        Ok(entries.map(|entry| (entry & PRESENT != 0).then_some(entry & FRAME)).collect())
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
pub struct HeldPages(Mapped);

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

/// Brings the page at `position` into memory, keeps it there, and tells in which range of the file its folio lies, by whole
/// pages. As long as it is kept the kernel makes no other folio there, if nobody drops it: a direct write does, and cutting the
/// file. Needs CAP_SYS_ADMIN.
///
/// # Errors
/// The kernel's; `ENOENT` where it does not tell about pages, `EIO` when the page cannot be had.
pub(crate) fn hold_folio(file: impl AsFd, position: Bytes) -> Result<(HeldPages, ByteRange), Errno> {
    let page = page_size() as u64;
    let range = ByteRange { start: Bytes(position.0 - position.0 % page), length: Bytes(page) };
    let held = hold_pages(file, range)?;
    let frame = held.0.frames()?.into_iter().flatten().next().ok_or(Errno::IO)?;
    let flags = PageFlags::open()?;
    let (mut first, mut last) = (frame, frame);
    // A tail belongs to the page before it.
    while flags.of(first)? & TAIL != 0 {
        first = first.checked_sub(1).ok_or(Errno::IO)?;
    }
    while flags.of(last + 1).is_ok_and(|flags| flags & TAIL != 0) {
        last += 1;
    }
    let before = Bytes((frame - first) * page);
    Ok((held, ByteRange { start: range.start.saturating_sub(before), length: Bytes((last + 1 - first) * page) }))
}

/// Whether a part of `range` (whose start is a multiple of the page size) is cached in a folio of more than one page.
/// Pages that are not cached are read. Needs CAP_SYS_ADMIN.
///
/// # Errors
/// The kernel's; `ENOENT` where it does not tell about pages.
pub fn has_large_folios(file: impl AsFd, range: ByteRange) -> Result<bool, Errno> {
    if range.length.0 == 0 {
        return Ok(false);
    }
    let flags = PageFlags::open()?;
    let mapped = Mapped::new(file, range)?;
    // What is not there is not looked at.
    let _ = mapped.populate();
    for frame in mapped.frames()?.into_iter().flatten() {
        if flags.of(frame)? & (HEAD | TAIL) != 0 {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Bytes of an entry in both of the kernel's tables of pages.
const ENTRY: usize = 8;
/// The first page of a folio of several, and the others.
const HEAD: u64 = 1 << 15;
const TAIL: u64 = 1 << 16;

/// What the kernel tells about each page frame.
struct PageFlags(File);

impl PageFlags {
    fn open() -> Result<Self, Errno> {
        File::open("/proc/kpageflags").map(Self).map_err(errno)
    }

    fn of(&self, frame: u64) -> Result<u64, Errno> {
        let mut flags = [0; ENTRY];
        self.0.read_exact_at(&mut flags, frame * ENTRY as u64).map_err(errno)?;
        Ok(u64::from_ne_bytes(flags))
    }
}

fn errno(error: std::io::Error) -> Errno {
    Errno::from_io_error(&error).unwrap_or(Errno::IO)
}
