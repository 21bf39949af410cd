//! The page cache: which parts of a file are in memory, read-ahead, write-back, dropping.

use crate::ByteRange;
use crate::raw::{checked, offset};
use rustix::fs::Advice;
use rustix::io::Errno;
use std::num::NonZeroU64;
use std::os::fd::{AsFd, AsRawFd};

/// How much of a range is in the page cache, in pages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CacheState {
    /// In memory.
    pub cached_pages: u64,
    /// In memory and changed.
    pub dirty_pages: u64,
    /// On their way to the device.
    pub writeback_pages: u64,
}

#[repr(C)]
struct CacheRange {
    start: u64,
    length: u64,
}

#[repr(C)]
#[derive(Default)]
struct CacheCounts {
    cached: u64,
    dirty: u64,
    writeback: u64,
    evicted: u64,
    recently_evicted: u64,
}

/// The number of cachestat, the same on every architecture.
const CACHESTAT: libc::c_long = 451;

/// Asks what of `range` is cached.
///
/// # Errors
/// `ENOSYS` before Linux 6.5.
pub fn cache_state(file: impl AsFd, range: ByteRange) -> Result<CacheState, Errno> {
    let mut range = CacheRange { start: range.start.0, length: range.length.0 };
    let mut counts = CacheCounts::default();
    // SAFETY: the kernel reads one range and writes one record of counts; both live during the call.
    checked(unsafe {
        libc::syscall(
            CACHESTAT,
            file.as_fd().as_raw_fd(),
            std::ptr::from_mut(&mut range),
            std::ptr::from_mut(&mut counts),
            0,
        )
    })?;
    Ok(CacheState { cached_pages: counts.cached, dirty_pages: counts.dirty, writeback_pages: counts.writeback })
}

fn advise(file: impl AsFd, range: ByteRange, advice: Advice) -> Result<(), Errno> {
    // A length of 0 means "to the end" to the kernel; here an empty range is nothing to do.
    let Some(length) = NonZeroU64::new(offset(range.length.0).unsigned_abs()) else { return Ok(()) };
    rustix::fs::fadvise(file, range.start.0, Some(length), advice)
}

/// Starts reading `range` into the cache and returns without waiting for all of it.
///
/// # Errors
/// The kernel's.
pub fn read_ahead(file: impl AsFd, range: ByteRange) -> Result<(), Errno> {
    advise(file, range, Advice::WillNeed)
}

/// Tells the kernel not to read ahead on its own through this descriptor.
///
/// # Errors
/// The kernel's.
pub fn expect_random_reads(file: impl AsFd) -> Result<(), Errno> {
    advise(file, ByteRange::ALL, Advice::Random)
}

/// Takes clean pages of `range` out of the cache.
///
/// # Errors
/// The kernel's.
pub fn drop_cache(file: impl AsFd, range: ByteRange) -> Result<(), Errno> {
    advise(file, range, Advice::DontNeed)
}

fn sync_range(file: impl AsFd, range: ByteRange, flags: libc::c_uint) -> Result<(), Errno> {
    if range.length.0 == 0 {
        return Ok(());
    }
    // SAFETY: no memory is passed.
    let rc = unsafe {
        libc::sync_file_range(
            file.as_fd().as_raw_fd(),
            offset(range.start.0),
            offset(range.length.0.min(i64::MAX.unsigned_abs() - range.start.0.min(i64::MAX.unsigned_abs()))),
            flags,
        )
    };
    checked(libc::c_long::from(rc)).map(drop)
}

/// Starts writing the dirty pages of `range` to the device. No barrier: neither metadata nor the device's cache is
/// flushed.
///
/// # Errors
/// The kernel's.
pub fn start_writeback(file: impl AsFd, range: ByteRange) -> Result<(), Errno> {
    sync_range(file, range, libc::SYNC_FILE_RANGE_WRITE)
}

/// Writes the dirty pages of `range` to the device and waits for them. No barrier, as [`start_writeback`].
///
/// # Errors
/// The kernel's, including errors of earlier write-back.
pub fn wait_writeback(file: impl AsFd, range: ByteRange) -> Result<(), Errno> {
    let flags = libc::SYNC_FILE_RANGE_WAIT_BEFORE | libc::SYNC_FILE_RANGE_WRITE | libc::SYNC_FILE_RANGE_WAIT_AFTER;
    sync_range(file, range, flags)
}
