//! Waits for changes.

use rustix::io::Errno;
use std::os::fd::{AsFd, AsRawFd};
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
