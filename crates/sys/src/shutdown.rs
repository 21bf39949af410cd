//! Stops a file system as a power cut would, for tests. The product never calls this.

use crate::raw::{KernelRecord, update};
use rustix::io::Errno;
use std::os::fd::AsFd;

/// What happens to the journal when the file system is stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Shutdown {
    /// Everything is synced first.
    Synced = 0,
    /// The journal is flushed, data is not.
    LogFlushed = 1,
    /// Nothing is flushed: what a power cut leaves.
    NoLogFlush = 2,
}

#[repr(transparent)]
struct Argument(u32);

// SAFETY: one integer.
unsafe impl KernelRecord for Argument {}

const OPCODE: rustix::ioctl::Opcode = rustix::ioctl::opcode::read::<u32>(b'X', 125);

/// Stops the file system of `file` for good: every later operation on it fails until it is mounted again. Needs
/// CAP_SYS_ADMIN.
///
/// # Errors
/// The kernel's.
pub fn shutdown(file: impl AsFd, how: Shutdown) -> Result<(), Errno> {
    let mut argument = Argument(how as u32);
    // SAFETY: the kernel reads 4 bytes.
    unsafe { update(file, OPCODE, &mut argument) }
}
