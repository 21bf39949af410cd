//! Mounts that only this process sees, and that end with it.
//!
//! Owns the own mount namespace, and the mounting and unmounting of a block device. Never decides what is mounted, or where.

use crate::FileSystem;
use crate::raw::{BTRFS_CALLS, KernelRecord, update};
use rustix::io::Errno;
use rustix::ioctl::Opcode;
use rustix::mount::{MountFlags, MountPropagationFlags, UnmountFlags};
use rustix::thread::UnshareFlags;
use std::ffi::CString;
use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

/// Why the process has no mount namespace of its own.
#[derive(Debug, thiserror::Error)]
pub enum NamespaceError {
    /// The others would stay in the old one, and see nothing of what is mounted.
    #[error(
        "this process already has {0} threads; a mount namespace of its own is possible only before the second one"
    )]
    Threads(usize),
    /// How many threads there are is not known.
    #[error("cannot count the threads of this process in /proc/self/task: {0}; mount /proc")]
    Count(#[source] io::Error),
    /// The kernel did not make one.
    #[error("cannot make a mount namespace: {0}; run this as root, outside of containers that forbid it")]
    Make(#[source] Errno),
    /// It was made, but what is mounted in it would be seen outside.
    #[error("cannot keep mounts to this process: {0}; run this as root, outside of containers that forbid it")]
    Separate(#[source] Errno),
}

/// Gives this process a mount namespace of its own: what it mounts from now on is seen by it, by its children, and by no other
/// process, and ends with the last of them, however it ends. What others mount and unmount outside still shows inside,
/// so that no device stays busy because of us: where mounts are shared, as systemd makes them. Elsewhere all that is mounted now
/// stays in use until this process ends, even when it is unmounted outside.
///
/// To be called before anything starts a thread.
///
/// # Errors
/// [`NamespaceError`]. After [`NamespaceError::Separate`] the process is in a namespace whose mounts others may see.
pub fn own_mount_namespace() -> Result<(), NamespaceError> {
    let threads = fs::read_dir("/proc/self/task").map_err(NamespaceError::Count)?.count();
    if threads != 1 {
        return Err(NamespaceError::Threads(threads));
    }
    // SAFETY: the table of descriptors stays as it is; and there is one thread only.
    unsafe { rustix::thread::unshare_unsafe(UnshareFlags::NEWNS) }.map_err(NamespaceError::Make)?;
    let separate = MountPropagationFlags::DOWNSTREAM | MountPropagationFlags::REC;
    rustix::mount::mount_change("/", separate).map_err(NamespaceError::Separate)
}

/// Mounts a block device on a directory. Nothing on it can be executed, is a device, or gives privileges, and reading from it
/// changes no time of access. `options` are those of the file system, with commas between them.
///
/// # Errors
/// The kernel's; its log says more.
pub fn mount_device(
    device: &Path,
    point: &Path,
    filesystem: FileSystem,
    read_only: bool,
    options: &str,
) -> Result<(), Errno> {
    let options = CString::new(options).map_err(|_| Errno::INVAL)?;
    let mut flags = MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOEXEC | MountFlags::NOATIME;
    if read_only {
        flags |= MountFlags::RDONLY;
    }
    rustix::mount::mount(device, point, filesystem.name(), flags, options.as_c_str())
}

/// Unmounts what is mounted on a directory. All of it is written when this returns.
///
/// # Errors
/// The kernel's: `EBUSY` while somebody has a file of it open, `EINVAL` when nothing is mounted there.
pub fn unmount(point: &Path) -> Result<(), Errno> {
    rustix::mount::unmount(point, UnmountFlags::NOFOLLOW)
}

/// Takes what is mounted on a directory out of sight. It is unmounted when nobody has a file of it open any more.
///
/// # Errors
/// The kernel's: `EINVAL` when nothing is mounted there.
pub fn detach_mount(point: &Path) -> Result<(), Errno> {
    rustix::mount::unmount(point, UnmountFlags::NOFOLLOW | UnmountFlags::DETACH)
}

/// `struct btrfs_ioctl_vol_args`.
#[repr(C)]
struct DeviceName {
    file: i64,
    name: [u8; 4088],
}

// SAFETY: repr(C), an integer and bytes, no padding.
unsafe impl KernelRecord for DeviceName {}

const FORGET: Opcode = rustix::ioctl::opcode::write::<DeviceName>(BTRFS_CALLS, 5);

/// Makes the kernel forget that it saw a part of a btrfs on `device`, which is not mounted any more: it would take a copy of the
/// volume on another device for the same one.
///
/// # Errors
/// The kernel's: `ENOENT` when it knows nothing of it, or has no btrfs; `EBUSY` while it is mounted.
pub fn forget_btrfs_device(device: &Path) -> Result<(), Errno> {
    let mut argument = DeviceName { file: 0, name: [0; 4088] };
    let name = device.as_os_str().as_bytes();
    // One byte stays zero.
    let (_, room) = argument.name.split_last_mut().ok_or(Errno::INVAL)?;
    room.get_mut(..name.len()).ok_or(Errno::NAMETOOLONG)?.copy_from_slice(name);
    let control: File = OpenOptions::new()
        .read(true)
        .write(true)
        .open("/dev/btrfs-control")
        .map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::IO))?;
    // SAFETY: the kernel reads one record, whose size is part of the opcode; the name in it ends with a zero.
    unsafe { update(control, FORGET, &mut argument) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_with_several_threads_gets_no_namespace() {
        // The test harness has a thread for each test besides its own.
        std::thread::scope(|scope| {
            let (stop, stopped) = std::sync::mpsc::channel::<()>();
            scope.spawn(move || stopped.recv());
            assert!(matches!(own_mount_namespace(), Err(NamespaceError::Threads(2..))));
            drop(stop);
        });
    }
}
