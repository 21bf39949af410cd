//! XFS: opens a file without changing its times, and reads the state of its preallocation.

use crate::FileHandle;
use crate::raw::{KernelRecord, last_errno, update};
use longrun_layout::{Bytes, FileId};
use rustix::fs::OFlags;
use rustix::io::{Errno, FdFlags};
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};

/// `FILEID_INO64_GEN`: what the kernel calls the handle of a file on XFS.
pub(crate) const INODE_AND_GENERATION: i32 = 0x81;

/// `struct xfs_fsop_handlereq`.
#[repr(C)]
struct Request {
    fd: u32,
    pad: u32,
    path: *const libc::c_void,
    open_flags: u32,
    pad2: u32,
    input: *const libc::c_void,
    input_length: u32,
    pad3: u32,
    output: *mut libc::c_void,
    output_length: *mut u32,
}

/// `struct xfs_handle`: the file system, and the file on it.
#[repr(C)]
#[derive(Clone, Copy, Default)]
struct Handle {
    filesystem: [u8; 8],
    length: u16,
    pad: u16,
    generation: u32,
    inode: u64,
}

const TO_HANDLE: rustix::ioctl::Opcode = rustix::ioctl::opcode::read_write::<Request>(b'X', 106);
const OPEN: rustix::ioctl::Opcode = rustix::ioctl::opcode::read_write::<Request>(b'X', 107);

impl Request {
    fn new() -> Self {
        Self {
            fd: 0,
            pad: 0,
            path: std::ptr::null(),
            open_flags: 0,
            pad2: 0,
            input: std::ptr::null(),
            input_length: 0,
            pad3: 0,
            output: std::ptr::null_mut(),
            output_length: std::ptr::null_mut(),
        }
    }
}

/// Opens a file of the XFS volume that `mount` (any open file or directory of it) lies on, so that nothing done
/// through the descriptor changes its times. Needs CAP_SYS_ADMIN.
///
/// # Errors
/// `ESTALE` (or `ENOENT`) when there is no such file any more; `EINVAL` for handles of other file systems.
pub fn open_without_times(mount: impl AsFd, file: &FileHandle, flags: OFlags) -> Result<OwnedFd, Errno> {
    let mount = mount.as_fd();
    let (INODE_AND_GENERATION, &[a, b, c, d, e, f, g, h, i, j, k, l]) = (file.kind(), file.bytes()) else {
        return Err(Errno::INVAL);
    };
    let mut handle = Handle::default();
    let mut length = size_of::<Handle>() as u32;
    let mut request = Request::new();
    request.fd = u32::try_from(mount.as_raw_fd()).map_err(|_| Errno::BADF)?;
    request.output = std::ptr::from_mut(&mut handle).cast();
    request.output_length = &raw mut length;
    // SAFETY: the kernel writes one handle and its length to addresses that live during the call.
    if unsafe { libc::ioctl(mount.as_raw_fd(), TO_HANDLE as libc::c_ulong as _, &raw mut request) } < 0 {
        return Err(last_errno());
    }
    handle.inode = u64::from_ne_bytes([a, b, c, d, e, f, g, h]);
    handle.generation = u32::from_ne_bytes([i, j, k, l]);
    let mut request = Request::new();
    request.open_flags = (flags | OFlags::LARGEFILE).bits();
    request.input = std::ptr::from_ref(&handle).cast();
    request.input_length = size_of::<Handle>() as u32;
    // SAFETY: the kernel reads one handle, whose length is given, during the call.
    let fd = unsafe { libc::ioctl(mount.as_raw_fd(), OPEN as libc::c_ulong as _, &raw mut request) };
    if fd < 0 {
        return Err(last_errno());
    }
    // SAFETY: the kernel has just given us this descriptor; no other process owns it.
    let file = unsafe { OwnedFd::from_raw_fd(fd) };
    rustix::io::fcntl_setfd(&file, FdFlags::CLOEXEC)?;
    Ok(file)
}

/// Opens the file `id` of the XFS volume that `mount` (any open file or directory of it) lies on. Needs
/// CAP_DAC_READ_SEARCH.
///
/// # Errors
/// `ESTALE` when there is no such file any more. Generation 0 is one like any other here.
pub fn open_xfs_by_id(mount: impl AsFd, id: FileId, flags: OFlags) -> Result<OwnedFd, Errno> {
    FileHandle::on_xfs(id).ok_or(Errno::STALE)?.open(mount, flags)
}

/// `struct fsxattr`.
#[repr(C)]
#[derive(Clone, Copy, Default)]
struct ExtendedRecord {
    flags: u32,
    extent_size: u32,
    extents: u32,
    project: u32,
    copy_extent_size: u32,
    pad: [u8; 8],
}

// SAFETY: repr(C), integers only, 28 bytes without padding.
unsafe impl KernelRecord for ExtendedRecord {}

const GET_EXTENDED: rustix::ioctl::Opcode = rustix::ioctl::opcode::read::<ExtendedRecord>(b'X', 31);
const SET_EXTENDED: rustix::ioctl::Opcode = rustix::ioctl::opcode::write::<ExtendedRecord>(b'X', 32);
const EXTENT_SIZE_INHERIT: u32 = 0x1000;

/// What `xfs_io -c stat` shows of a file; other file systems tell a part of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ExtendedAttributes {
    flags: u32,
    /// How many extents it has; 0 where the file system does not tell.
    pub extents: u32,
    /// The extent-size hint in bytes.
    pub extent_size: u32,
    /// The project that its space is charged to.
    pub project: u32,
}

impl ExtendedAttributes {
    const PREALLOCATED: u32 = 0x2;
    const EXTENT_SIZE: u32 = 0x800;

    /// Space was preallocated by a call, sometime: the file system keeps what lies behind its end.
    #[must_use]
    pub fn is_preallocated(self) -> bool {
        self.flags & Self::PREALLOCATED != 0
    }

    /// It has an extent-size hint.
    #[must_use]
    pub fn has_size_hint(self) -> bool {
        self.flags & Self::EXTENT_SIZE != 0 && self.extent_size != 0
    }
}

/// What the file system says about `file` beyond its attribute flags.
///
/// # Errors
/// `ENOTTY` where the file system has nothing of the kind.
pub fn extended_attributes(file: impl AsFd) -> Result<ExtendedAttributes, Errno> {
    let mut record = ExtendedRecord::default();
    // SAFETY: the kernel writes one record.
    unsafe { update(file, GET_EXTENDED, &mut record) }?;
    Ok(ExtendedAttributes {
        flags: record.flags,
        extents: record.extents,
        extent_size: record.extent_size,
        project: record.project,
    })
}

/// The extent-size hint that new files in `directory` inherit, if there is one.
///
/// # Errors
/// `ENOTTY` where the file system has nothing of the kind.
pub fn inherited_size_hint(directory: impl AsFd) -> Result<Option<Bytes>, Errno> {
    let mut record = ExtendedRecord::default();
    // SAFETY: the kernel writes one record.
    unsafe { update(directory, GET_EXTENDED, &mut record) }?;
    let hint = record.flags & EXTENT_SIZE_INHERIT != 0 && record.extent_size != 0;
    Ok(hint.then_some(Bytes(u64::from(record.extent_size))))
}

/// Has new files in `directory` inherit this extent-size hint, or none; files that are there keep theirs. All else
/// that the record holds is written back as it was read.
///
/// # Errors
/// `EINVAL` when the hint is no multiple of the block size, or too large.
pub fn set_inherited_size_hint(directory: impl AsFd, hint: Option<Bytes>) -> Result<(), Errno> {
    let directory = directory.as_fd();
    let mut record = ExtendedRecord::default();
    // SAFETY: the kernel writes one record.
    unsafe { update(directory, GET_EXTENDED, &mut record) }?;
    record.extent_size = u32::try_from(hint.map_or(0, |hint| hint.0)).map_err(|_| Errno::INVAL)?;
    record.flags =
        if hint.is_some() { record.flags | EXTENT_SIZE_INHERIT } else { record.flags & !EXTENT_SIZE_INHERIT };
    // SAFETY: the kernel reads one record.
    unsafe { update(directory, SET_EXTENDED, &mut record) }
}
