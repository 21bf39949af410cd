//! The quotas of a file's owner, and the capability that would bypass them.

use crate::raw::{checked, last_errno};
use crate::{DeviceNumber, device_number_of_file};
use longrun_layout::Bytes;
use rustix::io::Errno;
use std::ffi::CString;
use std::os::fd::{AsFd, AsRawFd};

/// Whom space is charged to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Charged {
    /// The user that owns the file.
    User(u32),
    /// The group that owns the file.
    Group(u32),
    /// The project that the file belongs to (a directory tree).
    Project(u32),
}

impl Charged {
    const fn kind_and_id(self) -> (libc::c_int, u32) {
        match self {
            Self::User(id) => (0, id),
            Self::Group(id) => (1, id),
            Self::Project(id) => (2, id),
        }
    }
}

/// How much space an owner may use; 0 is no limit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SpaceLimits {
    /// What must never be passed.
    pub hard: Bytes,
    /// What may be passed for some days.
    pub soft: Bytes,
    /// What is used.
    pub used: Bytes,
}

impl SpaceLimits {
    /// Whether there is any limit.
    #[must_use]
    pub fn is_limited(&self) -> bool {
        self.hard.0 > 0 || self.soft.0 > 0
    }
}

/// `struct if_dqblk`.
#[repr(C)]
#[derive(Clone, Copy, Default)]
struct Record {
    hard_kib: u64,
    soft_kib: u64,
    used_bytes: u64,
    inodes: [u64; 3],
    times: [u64; 2],
    valid: u32,
    pad: u32,
}

const GET_QUOTA: libc::c_int = 0x80_0007;

/// The limits of `whom` on the volume of `file`; `None` when no quotas of that kind are in force there, or the
/// kernel knows none. Needs CAP_SYS_ADMIN for others than oneself.
///
/// # Errors
/// The kernel's.
pub fn space_limits(file: impl AsFd, whom: Charged) -> Result<Option<SpaceLimits>, Errno> {
    let (kind, id) = whom.kind_and_id();
    let command = (GET_QUOTA << 8) | kind;
    let file = file.as_fd();
    let mut record = Record::default();
    // SAFETY: the kernel writes one record, which lives during the call.
    let rc =
        unsafe { libc::syscall(libc::SYS_quotactl_fd, file.as_raw_fd(), command as libc::c_uint, id, &raw mut record) };
    let answer = match checked(rc) {
        // Before Linux 5.14, and where a filter of system calls does not know it, the volume is named by its device.
        Err(Errno::NOSYS | Errno::PERM) => by_device(device_number_of_file(file)?, command, id, &mut record),
        answer => answer.map(drop),
    };
    limits(answer, &record)
}

/// Sets the hard limit of `whom` on the volume of `file`. Nothing that is shipped does. Needs CAP_SYS_ADMIN, and
/// Linux 5.14.
///
/// # Errors
/// `ESRCH` where no quotas of that kind are in force; the kernel's otherwise.
pub fn set_space_limit(file: impl AsFd, whom: Charged, hard: Bytes) -> Result<(), Errno> {
    const SET_QUOTA: libc::c_int = 0x80_0008;
    const SPACE_LIMITS: u32 = 1;
    let (kind, id) = whom.kind_and_id();
    let command = (SET_QUOTA << 8) | kind;
    let mut record = Record { hard_kib: hard.0 / 1024, valid: SPACE_LIMITS, ..Record::default() };
    // SAFETY: the kernel reads one record, which lives during the call.
    let rc = unsafe {
        libc::syscall(libc::SYS_quotactl_fd, file.as_fd().as_raw_fd(), command as libc::c_uint, id, &raw mut record)
    };
    checked(rc).map(drop)
}

fn by_device(device: DeviceNumber, command: libc::c_int, id: u32, record: &mut Record) -> Result<(), Errno> {
    let path = CString::new(format!("/dev/block/{device}")).map_err(|_| Errno::INVAL)?;
    // SAFETY: the path ends with NUL; the kernel writes one record; both live during the call.
    let rc = unsafe { libc::quotactl(command, path.as_ptr(), id.cast_signed(), std::ptr::from_mut(record).cast()) };
    if rc < 0 { Err(last_errno()) } else { Ok(()) }
}

fn limits(answer: Result<(), Errno>, record: &Record) -> Result<Option<SpaceLimits>, Errno> {
    match answer {
        Ok(()) => Ok(Some(SpaceLimits {
            hard: Bytes(record.hard_kib.saturating_mul(1024)),
            soft: Bytes(record.soft_kib.saturating_mul(1024)),
            used: Bytes(record.used_bytes),
        })),
        // No quotas in this kernel; not on this volume, or not of this kind; nothing recorded of this one.
        Err(Errno::NOSYS | Errno::SRCH | Errno::NOENT | Errno::OPNOTSUPP) => Ok(None),
        Err(errno) => Err(errno),
    }
}

/// Gives up CAP_SYS_RESOURCE for the calling thread and all that it starts: with it the kernel would let us pass
/// everybody's quota, and use what ext4 sets aside for root. Call it before other threads exist.
///
/// # Errors
/// The kernel's.
pub fn forgo_resource_privilege() -> Result<(), Errno> {
    #[repr(C)]
    struct Header {
        version: u32,
        thread: libc::c_int,
    }
    #[repr(C)]
    #[derive(Clone, Copy, Default)]
    struct Sets {
        effective: u32,
        permitted: u32,
        inheritable: u32,
    }
    const VERSION_3: u32 = 0x2008_0522;
    const RESOURCE: u32 = 1 << 24;
    let mut header = Header { version: VERSION_3, thread: 0 };
    let mut sets = [Sets::default(); 2];
    // SAFETY: version 3 has two records of sets, which the kernel writes during the call.
    checked(unsafe { libc::syscall(libc::SYS_capget, &raw mut header, sets.as_mut_ptr()) })?;
    for set in sets.iter_mut().take(1) {
        set.effective &= !RESOURCE;
        set.permitted &= !RESOURCE;
        set.inheritable &= !RESOURCE;
    }
    // SAFETY: as above; the kernel only reads.
    checked(unsafe { libc::syscall(libc::SYS_capset, &raw mut header, sets.as_ptr()) }).map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_quotas_nobody_is_limited_and_other_errors_are_told() {
        let record = Record { hard_kib: 2, soft_kib: 0, used_bytes: 5, ..Record::default() };
        let limited = SpaceLimits { hard: Bytes(2048), soft: Bytes(0), used: Bytes(5) };
        assert_eq!(limits(Ok(()), &record), Ok(Some(limited)));
        assert!(limited.is_limited() && !SpaceLimits::default().is_limited());
        for errno in [Errno::NOSYS, Errno::SRCH, Errno::NOENT] {
            assert_eq!(limits(Err(errno), &record), Ok(None));
        }
        assert_eq!(limits(Err(Errno::IO), &record), Err(Errno::IO));
        assert_eq!(size_of::<Record>(), 72);
    }

    #[test]
    fn the_privilege_is_given_up_by_the_thread_and_what_it_starts() {
        let effective = || {
            let status = std::fs::read_to_string("/proc/thread-self/status").unwrap_or_default();
            let line =
                status.lines().find_map(|line| line.strip_prefix("CapEff:")).unwrap_or_default().trim().to_owned();
            u64::from_str_radix(&line, 16).ok()
        };
        let after =
            std::thread::spawn(move || forgo_resource_privilege().map(|()| std::thread::spawn(effective).join()));
        let after = after.join().ok().and_then(Result::ok).and_then(Result::ok).flatten();
        assert_eq!(after.map(|set| set & (1 << 24)), Some(0));
    }
}
