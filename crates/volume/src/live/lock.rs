//! One optimizer to a volume: our own lock, and a look at who else is at work.
//!
//! Never waits, never writes to the volume.

use super::io;
use crate::{Target, VolumeError};
use longrun_sys::{DeviceNumber, Errno, FlockOperation, lock_file};
use std::fs::{self, File};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::Path;

/// Takes the lock of the volume for as long as `root` is open; false when somebody else has it. It is an flock on the root
/// directory.
///
/// Why there: the root directory is one inode, whichever mount point, mount namespace or container it is reached
/// through, while /run and /dev may differ from one to another. Unlike a lock on the block device it does not keep udev
/// from looking at the device. The kernel drops it with our death, so it never goes stale. It stops nobody from using the
/// volume; another program that holds the same lock only makes us refuse.
pub(crate) fn try_lock(root: &File) -> Result<bool, Errno> {
    match lock_file(root, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => Ok(true),
        Err(Errno::WOULDBLOCK) => Ok(false),
        Err(errno) => Err(errno),
    }
}

/// As [`try_lock`], for `target`, naming who has the lock.
pub(crate) fn lock(root: &File, target: &Target) -> Result<(), VolumeError> {
    if try_lock(root).map_err(io(&target.given, "locking the volume"))? {
        return Ok(());
    }
    let holder = lock_holder(root).unwrap_or_else(|| "another process".into());
    Err(VolumeError::InUse { path: target.given.clone(), holder })
}

/// The process that /proc/locks names for the root directory of a volume.
fn lock_holder(root: &File) -> Option<String> {
    let table = fs::read_to_string("/proc/locks").ok()?;
    let meta = root.metadata().ok()?;
    let device = DeviceNumber::from_stat(meta.dev());
    let inode = format!("{:02x}:{:02x}:{}", device.major, device.minor, meta.ino());
    let of_root = |line: &&str| line.contains("FLOCK") && line.split_whitespace().any(|word| word == inode);
    let line = table.lines().find(of_root)?;
    let pid = line.split_whitespace().nth(4)?;
    let name = fs::read_to_string(format!("/proc/{pid}/comm")).ok()?;
    Some(format!("{} (process {pid})", printable(name.trim())))
}

fn printable(name: &str) -> String {
    name.chars().map(|c| if c.is_control() { '?' } else { c }).collect()
}

/// A running process called `name`, a tool that moves blocks of files too, that was told to work on `device` or has a
/// file of it open.
pub(crate) fn other_optimizer(name: &str, device: DeviceNumber) -> Option<String> {
    let processes = fs::read_dir("/proc").ok()?;
    for process in processes.flatten() {
        let directory = process.path();
        let running = fs::read_to_string(directory.join("comm")).unwrap_or_default();
        if running.trim() == name && works_on(&directory, device) {
            return Some(format!("{name} (process {})", process.file_name().to_string_lossy()));
        }
    }
    None
}

fn works_on(process: &Path, device: DeviceNumber) -> bool {
    let is_on = |path: &Path| {
        fs::metadata(path).is_ok_and(|meta| {
            let number = if meta.file_type().is_block_device() { meta.rdev() } else { meta.dev() };
            DeviceNumber::from_stat(number) == device
        })
    };
    let command = fs::read(process.join("cmdline")).unwrap_or_default();
    let directory = process.join("cwd");
    let named = command
        .split(|byte| *byte == 0)
        .skip(1)
        .filter_map(|argument| std::str::from_utf8(argument).ok())
        .any(|argument| !argument.is_empty() && is_on(&directory.join(argument)));
    let open = fs::read_dir(process.join("fd")).into_iter().flatten().flatten().any(|fd| is_on(&fd.path()));
    named || open
}
