//! The storage below a block device or an image: giving ranges back to it, having it zero them, its sectors.
//!
//! Owns the calls. Never decides whether a range is free.

use crate::ByteRange;
use crate::raw::{KernelRecord, update};
use rustix::fs::FallocateFlags;
use rustix::io::Errno;
use std::os::fd::AsFd;

/// First byte and number of bytes.
#[repr(transparent)]
struct Argument([u64; 2]);

// SAFETY: two integers.
unsafe impl KernelRecord for Argument {}

/// `BLKDISCARD`.
const OPCODE: rustix::ioctl::Opcode = rustix::ioctl::opcode::none(0x12, 119);

/// Discards `range` of a block device that is open for writing: what it reads afterwards is not defined. The range must
/// begin and end with a sector.
///
/// # Errors
/// `EOPNOTSUPP` where the device cannot; `EINVAL` for parts of sectors.
pub fn discard_blocks(device: impl AsFd, range: ByteRange) -> Result<(), Errno> {
    let mut argument = Argument([range.start.0, range.length.0]);
    // SAFETY: the kernel reads two integers.
    unsafe { update(device, OPCODE, &mut argument) }
}

/// Makes `range` of a file or a block device read as zeros, without writing them where the storage can do that.
///
/// # Errors
/// `EOPNOTSUPP` where the file system or the device cannot.
pub fn zero_range(file: impl AsFd, range: ByteRange) -> Result<(), Errno> {
    let flags = FallocateFlags::KEEP_SIZE | FallocateFlags::ZERO_RANGE;
    rustix::fs::fallocate(file, flags, range.start.0, range.length.0)
}

/// The size of what a block device addresses: its logical sectors.
///
/// # Errors
/// The kernel's; `ENOTTY` for what is no block device.
pub fn sector_size(device: impl AsFd) -> Result<u32, Errno> {
    rustix::fs::ioctl_blksszget(device)
}

#[cfg(test)]
mod tests {
    use super::*;
    use longrun_layout::Bytes;
    use std::io::Write as _;

    #[test]
    fn what_is_no_block_device_is_refused_and_unchanged() {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(&[7; 4096]).unwrap();
        let range = ByteRange { start: Bytes(0), length: Bytes(4096) };
        assert_eq!(discard_blocks(&file, range), Err(Errno::NOTTY));
        assert_eq!(sector_size(&file), Err(Errno::NOTTY));
        assert_eq!(file.metadata().unwrap().len(), 4096);
    }
}
