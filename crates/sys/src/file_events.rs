//! Events of files by file handles (fanotify). No descriptor is opened for us, and no process waits.

use crate::FileHandle;
use crate::raw::{checked, last_errno};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::{Errno, read};
use std::ffi::CString;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::time::Duration;

/// The number by which fanotify names a file system: one for each subvolume on btrfs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FileSystemId([i32; 2]);

/// The number by which events about `file` will name its file system.
///
/// # Errors
/// The kernel's.
pub fn file_system_id(file: impl AsFd) -> Result<FileSystemId, Errno> {
    const { assert!(size_of::<libc::fsid_t>() == size_of::<[i32; 2]>()) };
    let mut stat = MaybeUninit::<libc::statfs>::zeroed();
    // SAFETY: the kernel writes one record of this type, which lives during the call.
    checked(libc::c_long::from(unsafe { libc::fstatfs(file.as_fd().as_raw_fd(), stat.as_mut_ptr()) }))?;
    // SAFETY: plain integers, all of them initialised; the number is two integers whose names are hidden.
    Ok(FileSystemId(unsafe { (&raw const (*stat.as_ptr()).f_fsid).cast::<[i32; 2]>().read_unaligned() }))
}

/// The events to receive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Interest {
    /// A descriptor that could write is closed.
    Closes,
    /// That, and every change of content. Costs each writer a microsecond or two for each write.
    ChangesAndCloses,
}

impl Interest {
    const fn mask(self) -> u64 {
        match self {
            Self::Closes => libc::FAN_CLOSE_WRITE,
            Self::ChangesAndCloses => libc::FAN_CLOSE_WRITE | libc::FAN_MODIFY,
        }
    }
}

/// What happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FileEvent {
    /// More than the kernel keeps: some of it is lost.
    Overflow,
    /// Something happened to a file.
    File {
        /// On which file system.
        filesystem: FileSystemId,
        /// The file.
        handle: FileHandle,
        /// Its content was changed.
        changed: bool,
        /// A descriptor that could write was closed.
        closed: bool,
        /// By this process; 0 when it is of another name space.
        process: u32,
    },
}

/// A queue of events. Reading never waits.
#[derive(Debug)]
pub struct FileEvents(OwnedFd);

impl FileEvents {
    /// A queue that nothing is reported to yet. Needs CAP_SYS_ADMIN.
    ///
    /// # Errors
    /// `EPERM` without privilege; `ENOSYS` or `EINVAL` where the kernel has no such events (before Linux 5.1).
    pub fn new() -> Result<Self, Errno> {
        let flags = libc::FAN_CLASS_NOTIF
            | libc::FAN_REPORT_FID
            | libc::FAN_CLOEXEC
            | libc::FAN_NONBLOCK
            | libc::FAN_UNLIMITED_MARKS;
        // SAFETY: two integers; no memory is involved.
        let fd = unsafe { libc::fanotify_init(flags, (libc::O_RDONLY | libc::O_LARGEFILE) as libc::c_uint) };
        if fd < 0 {
            return Err(last_errno());
        }
        // SAFETY: the kernel has just given us this descriptor; no other process owns it.
        Ok(Self(unsafe { OwnedFd::from_raw_fd(fd) }))
    }

    /// Asks for events about one file, by whatever name. Keeps its inode in memory, but not its volume mounted.
    ///
    /// # Errors
    /// `EXDEV` on a btrfs subvolume before Linux 6.8; `ENOSPC` when too many files are marked.
    pub fn add_file(&self, file: impl AsFd, interest: Interest) -> Result<(), Errno> {
        self.mark(libc::FAN_MARK_ADD | libc::FAN_MARK_INODE, interest, file)
    }

    /// Asks for no more events about a file; a descriptor that only names it (`O_PATH`) will do.
    ///
    /// # Errors
    /// `ENOENT` when it had not been added.
    pub fn remove_file(&self, file: impl AsFd, interest: Interest) -> Result<(), Errno> {
        self.mark(libc::FAN_MARK_REMOVE | libc::FAN_MARK_INODE, interest, file)
    }

    /// Asks for events about all files of the volume that `root` lies on.
    ///
    /// # Errors
    /// `EXDEV` on a btrfs subvolume that is not the top one.
    pub fn add_volume(&self, root: impl AsFd, interest: Interest) -> Result<(), Errno> {
        self.mark(libc::FAN_MARK_ADD | libc::FAN_MARK_FILESYSTEM, interest, root)
    }

    /// Asks for no more events about a volume; files that were added by themselves stay.
    ///
    /// # Errors
    /// `ENOENT` when it had not been added.
    pub fn remove_volume(&self, root: impl AsFd, interest: Interest) -> Result<(), Errno> {
        self.mark(libc::FAN_MARK_REMOVE | libc::FAN_MARK_FILESYSTEM, interest, root)
    }

    fn mark(&self, flags: libc::c_uint, interest: Interest, file: impl AsFd) -> Result<(), Errno> {
        // By name, since a descriptor that only names the file is refused.
        let name = CString::new(crate::descriptor_path(file).into_os_string().into_encoded_bytes())
            .map_err(|_| Errno::INVAL)?;
        // SAFETY: the name is NUL-terminated and lives during the call; both descriptors are borrowed.
        let rc =
            unsafe { libc::fanotify_mark(self.0.as_raw_fd(), flags, interest.mask(), libc::AT_FDCWD, name.as_ptr()) };
        checked(libc::c_long::from(rc)).map(drop)
    }

    /// The events that are there, oldest first; none when nothing is there.
    ///
    /// # Errors
    /// The kernel's.
    pub fn read(&self) -> Result<Vec<FileEvent>, Errno> {
        let mut buffer = vec![0; 64 << 10];
        match read(&self.0, &mut buffer) {
            Ok(length) => Ok(parse(buffer.get(..length).unwrap_or_default())),
            Err(Errno::AGAIN | Errno::INTR) => Ok(Vec::new()),
            Err(error) => Err(error),
        }
    }
}

impl AsFd for FileEvents {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// Waits until one of `sources` has something to read, or for `timeout`. Says whether one has.
///
/// # Errors
/// The kernel's; an interruption by a signal is no error, and ends the waiting early.
pub fn wait_readable(sources: &[BorrowedFd<'_>], timeout: Duration) -> Result<bool, Errno> {
    let mut polled: Vec<_> = sources.iter().map(|source| PollFd::new(source, PollFlags::IN)).collect();
    let timeout = Timespec::try_from(timeout).map_err(|_| Errno::INVAL)?;
    match poll(&mut polled, Some(&timeout)) {
        Ok(ready) => Ok(ready > 0),
        Err(Errno::INTR) => Ok(false),
        Err(error) => Err(error),
    }
}

/// The length of the fixed part of an event, and of a record in it before the handle.
const EVENT: usize = 24;
const RECORD: usize = 20;

/// Takes apart what the kernel wrote; a part that is invalid ends the list.
fn parse(mut bytes: &[u8]) -> Vec<FileEvent> {
    let mut events = Vec::new();
    while let Some((length, fixed)) = number(bytes, 0).zip(bytes.get(6..8)) {
        let fixed = usize::from(u16::from_ne_bytes([fixed[0], fixed[1]]));
        let Some((event, rest)) = bytes.split_at_checked(length as usize).filter(|_| length as usize >= EVENT) else {
            break;
        };
        bytes = rest;
        let Some(mask) = event.get(8..16).and_then(|mask| mask.try_into().ok()).map(u64::from_ne_bytes) else { break };
        if mask & libc::FAN_Q_OVERFLOW != 0 {
            events.push(FileEvent::Overflow);
        } else if let Some((filesystem, handle)) = event.get(fixed..).and_then(identity) {
            let changed = mask & libc::FAN_MODIFY != 0;
            let closed = mask & libc::FAN_CLOSE_WRITE != 0;
            let process = number(event, 20).unwrap_or(0);
            events.push(FileEvent::File { filesystem, handle, changed, closed, process });
        }
    }
    events
}

/// The first record that names the file itself.
fn identity(mut records: &[u8]) -> Option<(FileSystemId, FileHandle)> {
    loop {
        let length = u16::from_ne_bytes(records.get(2..4)?.try_into().ok()?);
        let (record, rest) = records.split_at_checked(usize::from(length)).filter(|_| length > 0)?;
        if record.first() == Some(&libc::FAN_EVENT_INFO_TYPE_FID) {
            let signed = |at| number(record, at).map(u32::cast_signed);
            let filesystem = FileSystemId([signed(4)?, signed(8)?]);
            let bytes = record.get(RECORD..RECORD + number(record, 12)? as usize)?;
            return Some((filesystem, FileHandle::new(signed(16)?, bytes)?));
        }
        records = rest;
    }
}

fn number(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_ne_bytes(bytes.get(at..at + 4)?.try_into().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event(mask: u64, handle: &[u8]) -> Vec<u8> {
        let record = RECORD + handle.len().next_multiple_of(4);
        let length = if handle.is_empty() { EVENT } else { EVENT + record };
        let mut bytes = Vec::new();
        bytes.extend((length as u32).to_ne_bytes());
        bytes.extend([3, 0]);
        bytes.extend((EVENT as u16).to_ne_bytes());
        bytes.extend(mask.to_ne_bytes());
        bytes.extend([0xff; 4]);
        bytes.extend([1, 0, 0, 0]);
        if !handle.is_empty() {
            bytes.extend([libc::FAN_EVENT_INFO_TYPE_FID, 0]);
            bytes.extend((record as u16).to_ne_bytes());
            bytes.extend(7i32.to_ne_bytes());
            bytes.extend((-8i32).to_ne_bytes());
            bytes.extend((handle.len() as u32).to_ne_bytes());
            bytes.extend(0x81i32.to_ne_bytes());
            bytes.extend(handle);
            bytes.resize(length, 0);
        }
        bytes
    }

    #[test]
    fn events_are_read_in_order_with_their_handles() {
        let mut bytes = event(libc::FAN_CLOSE_WRITE, &[5; 12]);
        bytes.extend(event(libc::FAN_Q_OVERFLOW, &[]));
        bytes.extend(event(libc::FAN_MODIFY | libc::FAN_CLOSE_WRITE, &[6; 10]));
        let file = |byte, length: usize, changed| FileEvent::File {
            filesystem: FileSystemId([7, -8]),
            handle: FileHandle::new(0x81, &vec![byte; length]).unwrap(),
            changed,
            closed: true,
            process: 1,
        };
        assert_eq!(parse(&bytes), [file(5, 12, false), FileEvent::Overflow, file(6, 10, true)]);
    }

    #[test]
    fn whatever_the_bytes_are_reading_them_ends() {
        let good = event(libc::FAN_CLOSE_WRITE, &[5; 12]);
        for cut in 0..good.len() {
            assert_eq!(parse(&good[..cut]), [], "{cut}");
        }
        let mut random = fastrand::Rng::with_seed(1);
        for _ in 0..20_000 {
            let mut bytes = [good.clone(), good.clone()].concat();
            for _ in 0..random.usize(1..4) {
                let at = random.usize(..bytes.len());
                bytes[at] = random.u8(..);
            }
            assert!(parse(&bytes).len() <= 2);
        }
    }
}
