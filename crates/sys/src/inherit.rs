//! Open files that a child gets.
//!
//! Owns the names by which it opens them. Never says what it does with them.

use crate::descriptor_path;
use rustix::fs::{Mode, OFlags};
use rustix::io::{Errno, FdFlags};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::process::CommandExt as _;
use std::path::PathBuf;
use std::process::Command;

/// Behind standard input, output and errors.
const FIRST: i32 = 3;

/// A file for a child to open. The child opens the file that is open here, also when its path leads to another one.
#[derive(Debug)]
pub struct PassedFile(OwnedFd);

impl PassedFile {
    /// Of the locks of `file` the child gets none.
    ///
    /// # Errors
    /// The kernel's.
    pub fn of(file: impl AsFd) -> Result<Self, Errno> {
        let opened = rustix::fs::open(descriptor_path(file), OFlags::PATH | OFlags::CLOEXEC, Mode::empty())?;
        Ok(Self(rustix::io::fcntl_dupfd_cloexec(opened, FIRST)?))
    }

    /// What the child calls it.
    #[must_use]
    pub fn name(&self) -> PathBuf {
        descriptor_path(&self.0)
    }
}

/// Lets the child have these, and no other descriptor behind standard errors. The files stay open with `command`.
pub fn pass_files(command: &mut Command, files: Vec<PassedFile>) {
    let pass = move || {
        // SAFETY: three integers. Before Linux 5.11 the call fails, and the child inherits each descriptor that is not marked close-on-exec.
        unsafe { libc::syscall(libc::SYS_close_range, FIRST, libc::c_uint::MAX, libc::CLOSE_RANGE_CLOEXEC) };
        files.iter().try_for_each(|file| rustix::io::fcntl_setfd(&file.0, FdFlags::empty()))?;
        Ok(())
    };
    // SAFETY: between fork and exec only system calls are made, on descriptors that the closure owns; nothing is allocated.
    unsafe { command.pre_exec(pass) };
}
