//! Waits for changes.

use rustix::event::{EventfdFlags, eventfd};
use rustix::io::Errno;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::time::Duration;

/// Waits until the kernel says that what `file` (such as /proc/self/mountinfo) tells has changed since it was opened
/// or last waited for; whether it did within `timeout`. A signal ends the waiting too.
///
/// # Errors
/// The kernel's.
pub fn wait_for_change(file: impl AsFd, timeout: Duration) -> Result<bool, Errno> {
    let mut wanted = libc::pollfd { fd: file.as_fd().as_raw_fd(), events: libc::POLLPRI, revents: 0 };
    let milliseconds = i32::try_from(timeout.as_millis()).unwrap_or(i32::MAX);
    // SAFETY: one record, alive and exclusively ours during the call.
    let rc = unsafe { libc::poll(std::ptr::from_mut(&mut wanted), 1, milliseconds) };
    match crate::raw::checked(libc::c_long::from(rc)) {
        Ok(ready) => Ok(ready > 0),
        Err(Errno::INTR) => Ok(false),
        Err(errno) => Err(errno),
    }
}

/// Something that a thread can wait for beside files: another one rings it.
#[derive(Debug)]
pub struct Bell(OwnedFd);

impl Bell {
    /// Silent yet.
    ///
    /// # Errors
    /// The kernel's.
    pub fn new() -> Result<Self, Errno> {
        Ok(Self(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?))
    }

    /// Can be read until [`Self::silence`].
    pub fn ring(&self) {
        // It fails only when it has rung 2^64 times, and then it can be read.
        let _ = rustix::io::write(&self.0, &1u64.to_ne_bytes());
    }

    /// Cannot be read until it rings again.
    pub fn silence(&self) {
        // It fails when it is silent already.
        let _ = rustix::io::read(&self.0, &mut [0; 8]);
    }
}

impl AsFd for Bell {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wait_readable;

    #[test]
    fn a_bell_can_be_waited_for_until_it_is_silenced() {
        let bell = Bell::new().unwrap();
        let rings = || wait_readable(&[bell.as_fd()], Duration::ZERO).unwrap();
        assert!(!rings());
        bell.ring();
        bell.ring();
        assert!(rings() && rings());
        bell.silence();
        assert!(!rings());
    }
}
