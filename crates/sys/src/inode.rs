//! Attributes of an inode that stat does not tell.

use crate::raw::{KernelRecord, update};
use rustix::fs::{AtFlags, IFlags, StatxFlags, statx};
use rustix::io::Errno;
use std::os::fd::AsFd;

/// The attribute flags of an inode, as `lsattr` shows them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InodeAttributes(u32);

impl InodeAttributes {
    const IMMUTABLE: u32 = 0x10;
    const APPEND_ONLY: u32 = 0x20;
    const ENCRYPTED: u32 = 0x800;
    const JOURNAL_DATA: u32 = 0x4000;
    const EXTENTS: u32 = 0x8_0000;
    const VERITY: u32 = 0x10_0000;
    const DAX: u32 = 0x200_0000;
    const INLINE: u32 = 0x1000_0000;

    /// Must not change at all.
    #[must_use]
    pub fn is_immutable(self) -> bool {
        self.0 & Self::IMMUTABLE != 0
    }

    /// May only grow.
    #[must_use]
    pub fn is_append_only(self) -> bool {
        self.0 & Self::APPEND_ONLY != 0
    }

    /// Its content is encrypted.
    #[must_use]
    pub fn is_encrypted(self) -> bool {
        self.0 & Self::ENCRYPTED != 0
    }

    /// Its data goes through the journal.
    #[must_use]
    pub fn journals_data(self) -> bool {
        self.0 & Self::JOURNAL_DATA != 0
    }

    /// It is mapped by extents, not by indirect blocks.
    #[must_use]
    pub fn has_extents(self) -> bool {
        self.0 & Self::EXTENTS != 0
    }

    /// fs-verity protects its content.
    #[must_use]
    pub fn has_verity(self) -> bool {
        self.0 & Self::VERITY != 0
    }

    /// It is mapped directly from the medium.
    #[must_use]
    pub fn is_dax(self) -> bool {
        self.0 & Self::DAX != 0
    }

    /// Its content lies inside the inode.
    #[must_use]
    pub fn is_inline(self) -> bool {
        self.0 & Self::INLINE != 0
    }
}

/// The attribute flags of `file`.
///
/// # Errors
/// `ENOTTY` where the file system has none.
pub fn attributes(file: impl AsFd) -> Result<InodeAttributes, Errno> {
    let flags: IFlags = rustix::fs::ioctl_getflags(file)?;
    Ok(InodeAttributes(flags.bits()))
}

/// The opcode says `long`, the kernel writes an `int`: room for both.
#[repr(C, align(8))]
struct Version([u32; 2]);

// SAFETY: repr(C), two integers, 8 bytes without padding.
unsafe impl KernelRecord for Version {}

const OPCODE: rustix::ioctl::Opcode = rustix::ioctl::opcode::read::<Version>(b'v', 1);

/// The generation of the inode behind `file`: it changes when the inode number is used again.
///
/// # Errors
/// `ENOTTY` where the file system has none.
pub fn generation(file: impl AsFd) -> Result<u32, Errno> {
    let mut version = Version([0; 2]);
    // SAFETY: the kernel writes 4 (at most 8) bytes.
    unsafe { update(file, OPCODE, &mut version) }?;
    Ok(version.0[0])
}

/// The kernel's number of the mount that an open file or directory was reached through; /proc/self/mountinfo begins its
/// lines with it.
///
/// # Errors
/// `EOPNOTSUPP` before Linux 5.8.
pub fn mount_of_file(file: impl AsFd) -> Result<u64, Errno> {
    let stat = statx(file, "", AtFlags::EMPTY_PATH, StatxFlags::MNT_ID)?;
    if stat.stx_mask & StatxFlags::MNT_ID.bits() == 0 {
        return Err(Errno::OPNOTSUPP);
    }
    Ok(stat.stx_mnt_id)
}
