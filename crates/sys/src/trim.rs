//! FITRIM, and what a block device says about discards.
//!
//! Owns the kernel's record of the call, and the reading of the device's limits in sysfs. Never chooses a range.

use crate::raw::{KernelRecord, update};
use crate::{ByteRange, DeviceNumber};
use longrun_layout::Bytes;
use rustix::io::Errno;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::{fs, io};

/// `struct fstrim_range`.
#[repr(C)]
struct Range {
    start: u64,
    length: u64,
    least: u64,
}

// SAFETY: repr(C), integers only, 24 bytes without padding.
unsafe impl KernelRecord for Range {}

const FITRIM: rustix::ioctl::Opcode = rustix::ioctl::opcode::read_write::<Range>(b'X', 121);

/// Discards the free space in `range` of the volume that `file` lies on: free pieces of at least `least` bytes, and of no less
/// than the device can discard. What `range` means is the file system's own affair. The answer is how much it says was
/// discarded. Needs CAP_SYS_ADMIN.
///
/// # Errors
/// `EOPNOTSUPP` where the device or the file system has no discards; `EINVAL` for a range beyond the volume, and for a `least`
/// that no piece can have; `EROFS` where the journal was not replayed.
pub fn trim(file: impl AsFd, range: ByteRange, least: Bytes) -> Result<Bytes, Errno> {
    let mut argument = Range { start: range.start.0, length: range.length.0, least: least.0 };
    // SAFETY: the kernel reads and writes one record, whose size is part of the opcode.
    unsafe { update(file, FITRIM, &mut argument) }?;
    Ok(Bytes(argument.length))
}

/// What a block device accepts as a discard.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Discards {
    /// The least that it gives back: smaller parts stay allocated.
    pub granularity: Bytes,
    /// How far the start of the device lies behind the start of such a block.
    pub alignment: Bytes,
    /// The most in one request; 0 where it accepts none.
    pub most: Bytes,
}

/// What the device with this number accepts as a discard; of a partition, what its disk does.
///
/// # Errors
/// When sysfs does not have it.
pub fn discards_of(device: DeviceNumber) -> io::Result<Discards> {
    let directory = directory_of(device);
    let queue = if directory.join("partition").exists() { directory.join("../queue") } else { directory.join("queue") };
    Ok(Discards {
        granularity: number_in(&queue.join("discard_granularity"))?,
        alignment: number_in(&directory.join("discard_alignment")).unwrap_or_default(),
        most: number_in(&queue.join("discard_max_bytes"))?,
    })
}

/// The size of a block device.
///
/// # Errors
/// When sysfs does not have it.
pub fn size_of_device(device: DeviceNumber) -> io::Result<Bytes> {
    /// The kernel counts in sectors of this size, whatever the device has.
    const SECTOR: u64 = 512;
    number_in(&directory_of(device).join("size")).map(|sectors| Bytes(sectors.0.saturating_mul(SECTOR)))
}

/// Whether a loop device shows all of its file, from the first byte to the last.
///
/// # Errors
/// When it is no loop device.
pub fn shows_whole_file(device: DeviceNumber) -> io::Result<bool> {
    let directory = directory_of(device).join("loop");
    let zero = |name| number_in(&directory.join(name)).map(|number| number.0 == 0);
    Ok(zero("offset")? && zero("sizelimit")?)
}

fn directory_of(device: DeviceNumber) -> PathBuf {
    Path::new("/sys/dev/block").join(device.to_string())
}

fn number_in(path: &Path) -> io::Result<Bytes> {
    let text = fs::read_to_string(path)?;
    text.trim().parse().map(Bytes).map_err(|_| io::ErrorKind::InvalidData.into())
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests may fail loudly")]
mod tests {
    use super::*;

    #[test]
    fn what_cannot_be_trimmed_is_refused_by_the_kernel() {
        let pipe = std::fs::File::open("/proc/self/status").unwrap();
        assert!(trim(&pipe, ByteRange::ALL, Bytes(0)).is_err());
        let nothing = DeviceNumber { major: 0, minor: 0 };
        assert!(
            discards_of(nothing).is_err() && size_of_device(nothing).is_err() && shows_whole_file(nothing).is_err()
        );
    }
}
