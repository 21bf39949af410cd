//! File handles: open a file of a mounted volume without a path.

use crate::TreeId;
use crate::raw::{KernelRecord, checked};
use longrun_layout::{FileId, InodeNumber};
use rustix::fs::OFlags;
use rustix::io::Errno;
use std::fmt;
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};

/// The handle type "32-bit inode number and generation".
const INODE_AND_GENERATION: i32 = 1;

/// The handle type of btrfs without the parent; the next two have it behind.
const BTRFS_WITHOUT_PARENT: i32 = 0x4d;

/// How a file system names a file for good: opaque to us, but for who made it. Survives renames and restarts; once
/// the file is gone, opening it fails.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FileHandle {
    kind: i32,
    length: u8,
    bytes: [u8; FileHandle::CAPACITY],
}

impl FileHandle {
    /// The longest handle that we keep, in bytes: btrfs' with the parent is 40.
    pub const CAPACITY: usize = 40;

    /// A handle of `kind` (the kernel's `FILEID_…`); `None` when it is too long.
    #[must_use]
    pub fn new(kind: i32, bytes: &[u8]) -> Option<Self> {
        let mut own = [0; Self::CAPACITY];
        own.get_mut(..bytes.len())?.copy_from_slice(bytes);
        Some(Self { kind, length: u8::try_from(bytes.len()).ok()?, bytes: own })
    }

    /// The handle of a file on btrfs, where each subvolume counts its inodes by itself; `None` for generation 0,
    /// which means "any" to the kernel.
    #[must_use]
    pub fn on_btrfs(subvolume: TreeId, inode: InodeNumber, generation: u32) -> Option<Self> {
        let mut bytes = [0; 20];
        bytes[..8].copy_from_slice(&inode.0.to_ne_bytes());
        bytes[8..16].copy_from_slice(&subvolume.0.to_ne_bytes());
        bytes[16..].copy_from_slice(&generation.to_ne_bytes());
        if generation == 0 { None } else { Self::new(BTRFS_WITHOUT_PARENT, &bytes) }
    }

    /// The handle of a file on XFS. Generation 0 is one like any other there.
    #[must_use]
    pub fn on_xfs(file: FileId) -> Option<Self> {
        let mut bytes = [0; 12];
        bytes[..8].copy_from_slice(&file.inode.0.to_ne_bytes());
        bytes[8..].copy_from_slice(&file.generation.to_ne_bytes());
        Self::new(crate::xfs::INODE_AND_GENERATION, &bytes)
    }

    /// The file on btrfs that it names, and its generation.
    #[must_use]
    pub fn as_btrfs(&self) -> Option<(TreeId, InodeNumber, u32)> {
        let long = |at: usize| self.bytes().get(at..)?.first_chunk().map(|bytes| u64::from_ne_bytes(*bytes));
        let generation = self.bytes().get(16..)?.first_chunk().map(|bytes| u32::from_ne_bytes(*bytes))?;
        let kinds = BTRFS_WITHOUT_PARENT..=BTRFS_WITHOUT_PARENT + 2;
        kinds.contains(&self.kind).then_some((TreeId(long(8)?), InodeNumber(long(0)?), generation))
    }

    /// Which of the files that have had the inode it names, one after the other: 0 means "any" to the kernel. `None`
    /// for handles of a kind that we do not know.
    #[must_use]
    pub fn generation(&self) -> Option<u32> {
        let at = match self.kind {
            INODE_AND_GENERATION => 4,
            crate::xfs::INODE_AND_GENERATION => 8,
            _ => return self.as_btrfs().map(|(_, _, generation)| generation),
        };
        self.bytes().get(at..)?.first_chunk().map(|bytes| u32::from_ne_bytes(*bytes))
    }

    /// The kernel's `FILEID_…`.
    #[must_use]
    pub fn kind(&self) -> i32 {
        self.kind
    }

    /// The handle itself.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        self.bytes.get(..usize::from(self.length)).unwrap_or(&self.bytes)
    }

    /// The handle of an open file.
    ///
    /// # Errors
    /// `EOPNOTSUPP` where the file system has no handles; `EOVERFLOW` when they are longer than [`Self::CAPACITY`].
    pub fn of_file(file: impl AsFd) -> Result<Self, Errno> {
        let mut record = AnyHandle { bytes: Self::CAPACITY as u32, kind: 0, handle: [0; Self::CAPACITY] };
        let mut mount_id: libc::c_int = 0;
        // SAFETY: the path is a NUL-terminated constant; the kernel writes at most `bytes` bytes of handle behind the two
        // leading fields, and one integer; all live during the call.
        let rc = unsafe {
            libc::syscall(
                libc::SYS_name_to_handle_at,
                file.as_fd().as_raw_fd(),
                c"".as_ptr(),
                std::ptr::from_mut(&mut record),
                std::ptr::from_mut(&mut mount_id),
                libc::AT_EMPTY_PATH,
            )
        };
        checked(rc)?;
        let length = usize::try_from(record.bytes).map_err(|_| Errno::OVERFLOW)?;
        let bytes = record.handle.get(..length).ok_or(Errno::OVERFLOW)?;
        Self::new(record.kind, bytes).ok_or(Errno::OVERFLOW)
    }

    /// Opens the file on the volume that `mount` (any open file or directory of it) lies on. Needs CAP_DAC_READ_SEARCH.
    ///
    /// # Errors
    /// `ESTALE` when there is no such file any more.
    pub fn open(&self, mount: impl AsFd, flags: OFlags) -> Result<OwnedFd, Errno> {
        let mut record = AnyHandle { bytes: u32::from(self.length), kind: self.kind, handle: self.bytes };
        let flags = (flags | OFlags::CLOEXEC).bits() as libc::c_int;
        // SAFETY: the handle's own length field bounds what the kernel reads, and it lives during the call.
        let fd = checked(unsafe {
            libc::syscall(
                libc::SYS_open_by_handle_at,
                mount.as_fd().as_raw_fd(),
                std::ptr::from_mut(&mut record),
                flags,
            )
        })?;
        let fd = i32::try_from(fd).map_err(|_| Errno::IO)?;
        // SAFETY: the kernel has just given us this descriptor; no other process owns it.
        Ok(unsafe { OwnedFd::from_raw_fd(fd) })
    }
}

impl fmt::Debug for FileHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:#x}:", self.kind)?;
        self.bytes().iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

#[repr(C)]
struct AnyHandle {
    bytes: u32,
    kind: i32,
    handle: [u8; FileHandle::CAPACITY],
}

// SAFETY: repr(C), integers only, 48 bytes without padding.
unsafe impl KernelRecord for AnyHandle {}

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
    let mut bytes = [0; 8];
    bytes[..4].copy_from_slice(&inode.to_ne_bytes());
    bytes[4..].copy_from_slice(&id.generation.to_ne_bytes());
    FileHandle::new(INODE_AND_GENERATION, &bytes).ok_or(Errno::STALE)?.open(mount, flags)
}

/// The identity of an open file by which [`open_by_id`] (on XFS [`crate::open_xfs_by_id`]) finds it again.
///
/// # Errors
/// `EOPNOTSUPP` where the file system has no handles, or has handles of another kind.
pub fn id_of_file(file: impl AsFd) -> Result<FileId, Errno> {
    let handle = FileHandle::of_file(file)?;
    match (handle.kind(), handle.bytes()) {
        (INODE_AND_GENERATION, &[a, b, c, d, e, f, g, h]) => Ok(FileId {
            inode: InodeNumber(u64::from(u32::from_ne_bytes([a, b, c, d]))),
            generation: u32::from_ne_bytes([e, f, g, h]),
        }),
        (crate::xfs::INODE_AND_GENERATION, &[a, b, c, d, e, f, g, h, i, j, k, l]) => Ok(FileId {
            inode: InodeNumber(u64::from_ne_bytes([a, b, c, d, e, f, g, h])),
            generation: u32::from_ne_bytes([i, j, k, l]),
        }),
        _ => Err(Errno::OPNOTSUPP),
    }
}
