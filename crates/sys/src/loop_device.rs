//! A loop device of our own: a range of a file or device, seen as a block device.
//!
//! Owns its making, and its end with its last user. Never decides what it is made of, and never takes a device that another
//! process made.

use crate::loop_backing::Status;
use crate::raw::{KernelRecord, last_errno, update};
use longrun_layout::Bytes;
use rustix::io::Errno;
use rustix::ioctl::Opcode;
use std::fs::{File, OpenOptions};
use std::io::{Seek as _, SeekFrom};
use std::os::fd::{AsFd, AsRawFd as _};
use std::path::{Path, PathBuf};

/// `struct loop_config`.
#[repr(C)]
struct Config {
    file: u32,
    block_size: u32,
    status: Status,
    reserved: [u64; 8],
}

// SAFETY: repr(C), integers and a record of integers, 304 bytes without padding: the two 32-bit fields fill a word.
unsafe impl KernelRecord for Config {}

const _: () = assert!(size_of::<Config>() == 304);

/// `LOOP_CONFIGURE` (since Linux 5.8), and `LOOP_CTL_GET_FREE`.
const CONFIGURE: Opcode = rustix::ioctl::opcode::none(b'L', 0x0a);
const GET_FREE: Opcode = rustix::ioctl::opcode::none(b'L', 0x82);

const READ_ONLY: u32 = 1;
/// The device ends with its last user, whether that closes it or dies.
const AUTOCLEAR: u32 = 4;

const CONTROL: &str = "/dev/loop-control";
/// What ranges are counted in.
const SECTOR: u64 = 512;
/// Each time another process has taken the number that was free. So many in a row means that something else is wrong.
const TRIES: u32 = 64;

/// A loop device. It ends when this is dropped, nothing is mounted from it, and nobody else has it open; with our death likewise.
#[derive(Debug)]
pub struct LoopDevice {
    file: File,
    path: PathBuf,
}

impl LoopDevice {
    /// Makes a device of the `length` bytes of `file` from `start` on, both in whole sectors of 512 bytes. Requests to it go
    /// through the page cache of the file: what was flushed to the device is durable in the file.
    ///
    /// The kernel keeps `file` open as long as the device lives, and with it the locks that belong to that open file.
    ///
    /// # Errors
    /// `EINVAL` when the range is empty, not of whole sectors, or not inside the file; `EBADF` when `read_only` is false and the
    /// file is not open for writing; `EBUSY` when others took each device that was free; others of the kernel's: `ENOENT` and
    /// `ENXIO` where there are no loop devices, `EACCES` and `EPERM` without root.
    pub fn attach(file: &File, start: Bytes, length: Bytes, read_only: bool) -> Result<Self, Errno> {
        let is_whole = start.0.is_multiple_of(SECTOR) && length.0.is_multiple_of(SECTOR);
        if length.0 == 0 || !is_whole || start.0.checked_add(length.0).is_none() {
            return Err(Errno::INVAL);
        }
        let may_write = rustix::fs::fcntl_getfl(file)?.contains(rustix::fs::OFlags::RDWR);
        if !read_only && !may_write {
            // The kernel would make a device that cannot be written to, without saying so.
            return Err(Errno::BADF);
        }
        let control = OpenOptions::new().read(true).write(true).open(CONTROL).map_err(errno)?;
        let mut last = Errno::BUSY;
        for _ in 0..TRIES {
            let path = PathBuf::from(format!("/dev/loop{}", free_number(&control)?));
            let device = match OpenOptions::new().read(true).write(!read_only).open(&path).map_err(errno) {
                // Another process removed it.
                Err(Errno::NXIO) => {
                    last = Errno::NXIO;
                    continue;
                }
                opened => opened?,
            };
            match configure(&device, file, start, length, read_only) {
                Err(Errno::BUSY) => last = Errno::BUSY,
                configured => {
                    configured?;
                    let made = Self { file: device, path };
                    // The kernel cuts off what the file does not have.
                    let end = (&made.file).seek(SeekFrom::End(0)).map_err(errno)?;
                    return if end == length.0 { Ok(made) } else { Err(Errno::INVAL) };
                }
            }
        }
        Err(last)
    }

    /// Its name.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// It, open. Without this and its copies it ends.
    #[must_use]
    pub fn file(&self) -> &File {
        &self.file
    }
}

/// The number of a device that has no file, made if need be.
fn free_number(control: &File) -> Result<u32, Errno> {
    // SAFETY: the call takes no argument, and answers with a number.
    let rc = unsafe { libc::ioctl(control.as_fd().as_raw_fd(), GET_FREE as libc::c_ulong as _) };
    u32::try_from(rc).map_err(|_| last_errno())
}

fn configure(device: &File, file: &File, start: Bytes, length: Bytes, read_only: bool) -> Result<(), Errno> {
    let flags = AUTOCLEAR | if read_only { READ_ONLY } else { 0 };
    let status = Status::of_range(start, length, flags);
    let descriptor = u32::try_from(file.as_raw_fd()).map_err(|_| Errno::BADF)?;
    let mut config = Config { file: descriptor, block_size: 0, status, reserved: [0; 8] };
    // SAFETY: the kernel reads one record; `file` is borrowed, thus open, during the call.
    unsafe { update(device, CONFIGURE, &mut config) }
}

fn errno(error: std::io::Error) -> Errno {
    Errno::from_io_error(&error).unwrap_or(Errno::IO)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_whole_sectors_of_a_file_that_may_be_written_become_a_device_that_may_be() {
        let file = tempfile::tempfile().unwrap();
        file.set_len(1 << 20).unwrap();
        for (start, length) in [(0, 0), (1, 512), (512, 513), (u64::MAX - 511, 512)] {
            let refused = LoopDevice::attach(&file, Bytes(start), Bytes(length), true).unwrap_err();
            assert_eq!(refused, Errno::INVAL, "{start} {length}");
        }
        let named = tempfile::NamedTempFile::new().unwrap();
        let read_only = File::open(named.path()).unwrap();
        assert_eq!(LoopDevice::attach(&read_only, Bytes(0), Bytes(512), false).unwrap_err(), Errno::BADF);
    }
}
