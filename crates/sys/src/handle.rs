//! File handles: opening a file of a mounted ext4 volume by inode number and generation, without a path.

use crate::raw::{KernelRecord, checked, last_errno};
use longrun_layout::{FileId, InodeNumber};
use rustix::fs::OFlags;
use rustix::io::Errno;
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};

/// The handle type "32-bit inode number and generation".
const INODE_AND_GENERATION: i32 = 1;

#[repr(C)]
struct Handle {
    bytes: u32,
    kind: i32,
    inode: u32,
    generation: u32,
}

// SAFETY: repr(C), integers only, 16 bytes without padding.
unsafe impl KernelRecord for Handle {}

/// Opens the file `id` of the volume that `mount` (any open file or directory of it) lies on. Needs CAP_DAC_READ_SEARCH.
///
/// # Errors
/// `ESTALE` when there is no such file any more, and for generation 0 without asking the kernel: to it, generation 0
/// means "any", so the file opened could be another one.
pub fn open_by_id(mount: impl AsFd, id: FileId, flags: OFlags) -> Result<OwnedFd, Errno> {
    let Ok(inode) = u32::try_from(id.inode.0) else { return Err(Errno::STALE) };
    if id.generation == 0 {
        return Err(Errno::STALE);
    }
    let mut handle = Handle { bytes: 8, kind: INODE_AND_GENERATION, inode, generation: id.generation };
    let flags = (flags | OFlags::CLOEXEC).bits() as libc::c_int;
    // SAFETY: the handle's own length field bounds what the kernel reads, and it lives during the call.
    let fd = checked(unsafe {
        libc::syscall(libc::SYS_open_by_handle_at, mount.as_fd().as_raw_fd(), std::ptr::from_mut(&mut handle), flags)
    })?;
    let fd = i32::try_from(fd).map_err(|_| Errno::IO)?;
    // SAFETY: the kernel has just given us this descriptor; nobody else owns it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// The identity of an open file by which [`open_by_id`] finds it again.
///
/// # Errors
/// `EOPNOTSUPP` where the file system has no handles, or has handles of another kind.
pub fn id_of_file(file: impl AsFd) -> Result<FileId, Errno> {
    let mut handle = Handle { bytes: 8, kind: 0, inode: 0, generation: 0 };
    let mut mount_id: libc::c_int = 0;
    // SAFETY: the path is a NUL-terminated constant; the kernel writes at most `bytes` = 8 bytes of handle behind the
    // two leading fields, and one integer; all live during the call.
    let rc = unsafe {
        libc::syscall(
            libc::SYS_name_to_handle_at,
            file.as_fd().as_raw_fd(),
            c"".as_ptr(),
            std::ptr::from_mut(&mut handle),
            std::ptr::from_mut(&mut mount_id),
            libc::AT_EMPTY_PATH,
        )
    };
    if rc < 0 {
        return Err(last_errno());
    }
    if handle.bytes != 8 || handle.kind != INODE_AND_GENERATION {
        return Err(Errno::OPNOTSUPP);
    }
    Ok(FileId { inode: InodeNumber(u64::from(handle.inode)), generation: handle.generation })
}
