//! Waits for changes.

use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use rustix::io::Errno;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

/// Waits until the kernel says that what `file` (such as /proc/self/mountinfo) tells has changed since it was opened
/// or last waited for; whether it did within `timeout`. A signal and `bell` end the waiting too.
///
/// # Errors
/// The kernel's.
pub fn wait_for_change(file: impl AsFd, bell: &Bell, timeout: Duration) -> Result<bool, Errno> {
    let mut polled = [PollFd::new(&file, PollFlags::PRI), PollFd::new(bell, PollFlags::IN)];
    let timeout = Timespec::try_from(timeout).map_err(|_| Errno::INVAL)?;
    match poll(&mut polled, Some(&timeout)) {
        Ok(_) => Ok(polled.first().is_some_and(|file| !file.revents().is_empty())),
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
