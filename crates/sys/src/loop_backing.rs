//! The loop devices that a file is the backing file of.
//!
//! Owns the kernel's record of a loop device. Never makes or removes one: see [`crate::LoopDevice`].

use crate::raw::{KernelRecord, update};
use longrun_layout::Bytes;
use rustix::fs::fstat;
use rustix::io::Errno;
use std::ffi::OsString;
use std::fs::{self, File};
use std::io;
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStringExt as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

/// `struct loop_info64`.
#[repr(C)]
pub(crate) struct Status {
    device: u64,
    inode: u64,
    number_of_device: u64,
    offset: u64,
    limit: u64,
    number: u32,
    encryption: [u32; 2],
    flags: u32,
    names: [[u8; 64]; 2],
    key: [u8; 32],
    reserved: [u64; 2],
}

// SAFETY: repr(C), integers only, 232 bytes without padding: the six 32-bit and smaller fields fill whole words.
unsafe impl KernelRecord for Status {}

const _: () = assert!(size_of::<Status>() == 232);

impl Status {
    const EMPTY: Self = Self {
        device: 0,
        inode: 0,
        number_of_device: 0,
        offset: 0,
        limit: 0,
        number: 0,
        encryption: [0; 2],
        flags: 0,
        names: [[0; 64]; 2],
        key: [0; 32],
        reserved: [0; 2],
    };

    /// That of a device to be made, of `limit` bytes from `offset` on.
    pub(crate) fn of_range(offset: Bytes, limit: Bytes, flags: u32) -> Self {
        Self { offset: offset.0, limit: limit.0, flags, ..Self::EMPTY }
    }
}

/// `LOOP_GET_STATUS64`.
const OPCODE: rustix::ioctl::Opcode = rustix::ioctl::opcode::none(b'L', 5);

/// The device and the inode number of the backing file of a loop device.
fn backing(device: impl AsFd) -> Result<(u64, u64), Errno> {
    let mut status = Status::EMPTY;
    // SAFETY: the kernel writes one record.
    unsafe { update(device, OPCODE, &mut status) }?;
    Ok((status.device, status.inode))
}

/// The loop devices that have `file` for their backing file, under whatever name, and whether or not something is
/// mounted from them.
///
/// Whoever may not open loop devices gets those whose backing file has a name that leads to `file`.
///
/// # Errors
/// When `file` or /sys/block cannot be read.
pub fn loop_devices_on(file: impl AsFd) -> io::Result<Vec<PathBuf>> {
    let stat = fstat(file)?;
    let is_it = |device: u64, inode: u64| device == stat.st_dev && inode == stat.st_ino;
    let mut found = Vec::new();
    for entry in fs::read_dir("/sys/block")? {
        let entry = entry?;
        // Only a loop device that has a file has this.
        let Ok(name) = fs::read(entry.path().join("loop/backing_file")) else { continue };
        let device = Path::new("/dev").join(entry.file_name());
        let is_on_it = match File::open(&device).map_err(|_| Errno::ACCESS).and_then(backing) {
            Ok((device, inode)) => is_it(device, inode),
            // It lost its file just now.
            Err(Errno::NXIO) => false,
            Err(_) => {
                let name = OsString::from_vec(name.strip_suffix(b"\n").unwrap_or(&name).to_vec());
                fs::metadata(name).is_ok_and(|meta| is_it(meta.dev(), meta.ino()))
            }
        };
        if is_on_it {
            found.push(device);
        }
    }
    Ok(found)
}
