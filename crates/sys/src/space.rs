//! The space of a volume: temporary files, allocating and giving back ranges, syncing, locks.

use crate::ByteRange;
use crate::raw::{last_errno, offset};
use longrun_layout::{BlockSize, Blocks, Bytes};
use rustix::fs::{FallocateFlags, Mode, OFlags};
use rustix::io::Errno;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;

/// How full a volume is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Capacity {
    /// The unit of the other figures.
    pub block_size: BlockSize,
    /// All blocks that can hold data.
    pub total: Blocks,
    /// Not used.
    pub free: Blocks,
    /// Not used, and open to unprivileged processes.
    pub available: Blocks,
}

/// How full the volume of `file` is.
///
/// # Errors
/// The kernel's.
pub fn capacity(file: impl AsFd) -> Result<Capacity, Errno> {
    rustix::fs::fstatfs(file).and_then(|stat| capacity_of(&stat))
}

fn capacity_of(stat: &rustix::fs::StatFs) -> Result<Capacity, Errno> {
    let block_size = u32::try_from(stat.f_bsize).ok().and_then(BlockSize::new).ok_or(Errno::INVAL)?;
    Ok(Capacity {
        block_size,
        total: Blocks(stat.f_blocks),
        free: Blocks(stat.f_bfree),
        available: Blocks(stat.f_bavail),
    })
}

/// How full the volume below `path` is. Unlike [`capacity`] it holds nothing open.
///
/// # Errors
/// The kernel's.
pub fn capacity_at(path: &Path) -> Result<Capacity, Errno> {
    rustix::fs::statfs(path).and_then(|stat| capacity_of(&stat))
}

/// How many more files the volume of `file` has inodes for; 0 where the file system does not count them.
///
/// # Errors
/// The kernel's.
pub fn free_inodes(file: impl AsFd) -> Result<u64, Errno> {
    rustix::fs::fstatfs(file).map(|stat| stat.f_ffree)
}

/// A file without a name in the volume of `directory`, open for reading and writing; it vanishes with its last
/// descriptor, and at journal recovery.
///
/// # Errors
/// `EOPNOTSUPP` where the file system has none; `ENOSPC` when there is no inode left.
pub fn temporary_file(directory: impl AsFd) -> Result<OwnedFd, Errno> {
    let flags = OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC | OFlags::LARGEFILE;
    rustix::fs::openat(directory, ".", flags, Mode::RUSR | Mode::WUSR)
}

/// Gives an open file without a name (see [`temporary_file`]) the name `name` in `directory`.
///
/// # Errors
/// The kernel's.
pub fn give_name(file: impl AsFd, directory: impl AsFd, name: &std::path::Path) -> Result<(), Errno> {
    rustix::fs::linkat(file, "", directory, name, rustix::fs::AtFlags::EMPTY_PATH)
}

/// Opens `directory` again. Unlike a duplicate of its descriptor, the answer is told of write errors on the volume by
/// itself, even if they were reported elsewhere before.
///
/// # Errors
/// The kernel's.
pub fn reopen_directory(directory: impl AsFd) -> Result<OwnedFd, Errno> {
    rustix::fs::openat(directory, ".", OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())
}

/// Allocates blocks for `range` without writing them, and without changing the file's length.
///
/// # Errors
/// `ENOSPC` when not all could be had; what was allocated before that stays.
pub fn allocate(file: impl AsFd, range: ByteRange) -> Result<(), Errno> {
    rustix::fs::fallocate(file, FallocateFlags::KEEP_SIZE, range.start.0, range.length.0)
}

/// Gives the blocks of `range` back. The file must be ours, or exclusively leased. ext4 silently keeps what lies
/// behind the file's length; XFS and btrfs give it back, too.
///
/// # Errors
/// The kernel's.
pub fn punch(file: impl AsFd, range: ByteRange) -> Result<(), Errno> {
    let flags = FallocateFlags::KEEP_SIZE | FallocateFlags::PUNCH_HOLE;
    rustix::fs::fallocate(file, flags, range.start.0, range.length.0)
}

/// Sets the length of a file of ours.
///
/// # Errors
/// `EFBIG` beyond what the file system can map.
pub fn set_length(file: impl AsFd, length: Bytes) -> Result<(), Errno> {
    rustix::fs::ftruncate(file, length.0)
}

/// Sets the length of the file at `path` without opening it: for tests that change files as others do.
///
/// # Errors
/// The kernel's; `EINVAL` for a path that holds a NUL byte.
pub fn set_length_at(path: &Path, length: Bytes) -> Result<(), Errno> {
    let path = std::ffi::CString::new(path.as_os_str().as_encoded_bytes()).map_err(|_| Errno::INVAL)?;
    // SAFETY: the path is terminated by NUL and lives during the call.
    if unsafe { libc::truncate(path.as_ptr(), offset(length.0)) } < 0 { Err(last_errno()) } else { Ok(()) }
}

/// Whether nothing can be written to the volume of `file`: it was mounted so, or an error has made it so.
///
/// # Errors
/// The kernel's.
pub fn is_read_only(file: impl AsFd) -> Result<bool, Errno> {
    rustix::fs::fstatvfs(file).map(|stat| stat.f_flag.contains(rustix::fs::StatVfsMountFlags::RDONLY))
}

/// Makes everything done so far on the volume of `file` durable: data, metadata, one journal commit. Does nothing, and
/// succeeds, where nothing can be written: see [`is_read_only`].
///
/// # Errors
/// The kernel's, including write errors since the descriptor was opened.
pub fn sync_volume(file: impl AsFd) -> Result<(), Errno> {
    rustix::fs::syncfs(file)
}

/// Makes a file durable.
///
/// # Errors
/// The kernel's.
pub fn sync_file(file: impl AsFd) -> Result<(), Errno> {
    rustix::fs::fsync(file)
}

/// Makes the data of a file durable, and what is needed to find it.
///
/// # Errors
/// The kernel's.
pub fn sync_file_data(file: impl AsFd) -> Result<(), Errno> {
    rustix::fs::fdatasync(file)
}
