//! Attributes of an inode that stat does not report.

use crate::raw::{KernelRecord, update};
use rustix::fs::{AtFlags, CWD, IFlags, Mode, Statx, StatxAttributes, StatxFlags, fgetxattr, fstat, statx};
use rustix::io::Errno;
use std::os::fd::AsFd;
use std::path::Path;
use std::time::SystemTime;

/// The attribute flags of an inode, as `lsattr` shows them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InodeAttributes(u32);

impl InodeAttributes {
    const COMPRESSED: u32 = 0x4;
    const IMMUTABLE: u32 = 0x10;
    const NO_COMPRESSION: u32 = 0x400;
    const IN_PLACE: u32 = 0x80_0000;
    const APPEND_ONLY: u32 = 0x20;
    const ENCRYPTED: u32 = 0x800;
    const JOURNAL_DATA: u32 = 0x4000;
    const EXTENTS: u32 = 0x8_0000;
    const VERITY: u32 = 0x10_0000;
    const DAX: u32 = 0x200_0000;
    const INLINE: u32 = 0x1000_0000;

    /// It is written in place and without checksums, on a file system that otherwise does not (btrfs).
    #[must_use]
    pub fn is_written_in_place(self) -> bool {
        self.0 & Self::IN_PLACE != 0
    }

    /// btrfs: its data is to be stored compressed.
    #[must_use]
    pub fn is_compressed(self) -> bool {
        self.0 & Self::COMPRESSED != 0
    }

    /// btrfs: its data is never stored compressed, whatever the mount says: it was asked for, or the file is written
    /// in place.
    #[must_use]
    pub fn refuses_compression(self) -> bool {
        self.0 & (Self::NO_COMPRESSION | Self::IN_PLACE) != 0
    }

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

/// Has an empty file of ours written in place and without checksums, or not (btrfs); nor compressed, which excludes it.
///
/// # Errors
/// `EINVAL` for a file that is not empty; `ENOTTY` or `EOPNOTSUPP` where the file system has no such thing.
pub fn set_written_in_place(file: impl AsFd, in_place: bool) -> Result<(), Errno> {
    let flags: IFlags = rustix::fs::ioctl_getflags(&file)?;
    let flag = InodeAttributes::IN_PLACE;
    let others = flags.bits() & !(flag | InodeAttributes::COMPRESSED);
    let wanted = IFlags::from_bits_retain(if in_place { others | flag } else { others });
    if wanted == flags { Ok(()) } else { rustix::fs::ioctl_setflags(file, wanted) }
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
    mount_in(&statx(file, "", AtFlags::EMPTY_PATH, StatxFlags::MNT_ID)?)
}

/// As [`mount_of_file`] for a path, without opening what is there.
///
/// # Errors
/// The kernel's; `EOPNOTSUPP` before Linux 5.8.
pub fn mount_at(path: &Path) -> Result<u64, Errno> {
    mount_in(&statx(CWD, path, AtFlags::empty(), StatxFlags::MNT_ID)?)
}

/// Whether an open file or directory is the root of the mount that it was reached through.
///
/// # Errors
/// `EOPNOTSUPP` before Linux 5.8.
pub fn is_root_of_mount(file: impl AsFd) -> Result<bool, Errno> {
    let stat = statx(file, "", AtFlags::EMPTY_PATH, StatxFlags::empty())?;
    if !stat.stx_attributes_mask.contains(StatxAttributes::MOUNT_ROOT) {
        return Err(Errno::OPNOTSUPP);
    }
    Ok(stat.stx_attributes.contains(StatxAttributes::MOUNT_ROOT))
}

fn mount_in(stat: &Statx) -> Result<u64, Errno> {
    if stat.stx_mask & StatxFlags::MNT_ID.bits() == 0 {
        return Err(Errno::OPNOTSUPP);
    }
    Ok(stat.stx_mnt_id)
}

#[repr(C)]
struct Identity {
    length: u8,
    bytes: [u8; 16],
}

// SAFETY: repr(C), bytes only, 17 of them.
unsafe impl KernelRecord for Identity {}

const GET_IDENTITY: rustix::ioctl::Opcode = rustix::ioctl::opcode::read::<Identity>(0x15, 0);

/// The UUID of the volume that `file` lies on: the same after each mount.
///
/// # Errors
/// `ENOTTY` before Linux 6.9, and where the volume has none.
pub fn volume_uuid(file: impl AsFd) -> Result<[u8; 16], Errno> {
    let mut identity = Identity { length: 0, bytes: [0; 16] };
    // SAFETY: the kernel writes one record.
    unsafe { update(file, GET_IDENTITY, &mut identity) }?;
    if usize::from(identity.length) == identity.bytes.len() { Ok(identity.bytes) } else { Err(Errno::NOTTY) }
}

/// Sets the time of the last modification of `file`, and leaves that of the last access.
///
/// # Errors
/// The kernel's.
pub fn set_modified(file: impl AsFd, modified: SystemTime) -> Result<(), Errno> {
    // Times before 1970 have a negative second and a nanosecond that counts forward from it.
    let (seconds, nanoseconds) = match modified.duration_since(SystemTime::UNIX_EPOCH) {
        Ok(since) => (since.as_secs() as i64, i64::from(since.subsec_nanos())),
        Err(before) => {
            let before = before.duration();
            match before.subsec_nanos() {
                0 => (-(before.as_secs() as i64), 0),
                some => (-(before.as_secs() as i64) - 1, 1_000_000_000 - i64::from(some)),
            }
        }
    };
    let times = rustix::fs::Timestamps {
        last_access: rustix::fs::Timespec { tv_sec: 0, tv_nsec: rustix::fs::UTIME_OMIT },
        last_modification: rustix::fs::Timespec { tv_sec: seconds, tv_nsec: nanoseconds },
    };
    rustix::fs::futimens(file, &times)
}

/// Whether executing the file gives privileges: by a set-user-ID or set-group-ID bit, or by file capabilities. The kernel takes these away
/// with each change of content or space of the file (`file_remove_privs`), bits only when the caller lacks CAP_FSETID.
///
/// # Errors
/// The kernel's.
pub fn gives_privileges(file: impl AsFd) -> Result<bool, Errno> {
    let mode = fstat(&file)?.st_mode;
    if mode & (Mode::SUID | Mode::SGID).bits() != 0 {
        return Ok(true);
    }
    match fgetxattr(&file, "security.capability", &mut [0u8; 0][..]) {
        Ok(_) => Ok(true),
        Err(Errno::NODATA | Errno::OPNOTSUPP) => Ok(false),
        Err(other) => Err(other),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::File;

    #[test]
    fn the_root_of_a_mount_is_told_from_what_lies_below() {
        assert!(is_root_of_mount(File::open("/proc").unwrap()).unwrap());
        assert!(!is_root_of_mount(File::open("/proc/self").unwrap()).unwrap());
    }
}
