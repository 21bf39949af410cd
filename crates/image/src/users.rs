//! Who else uses a disk image or a block device.
//!
//! Owns looking: at loop devices, mounts, other devices, open files, and the locks of QEMU. Takes no lock, and keeps
//! nobody away.

use crate::Access;
use longrun_layout::Bytes;
use longrun_sys::{
    BlockDevice, ByteRange, DeviceNumber, Mount, are_bytes_locked, are_bytes_locked_for_writing, loop_devices_on,
    volume_members,
};
use std::fs::{self, File, Metadata};
use std::io;
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _};
use std::path::Path;

const fn bytes(start: u64, length: u64) -> ByteRange {
    ByteRange { start: Bytes(start), length: Bytes(length) }
}

/// What QEMU locks of an image: from byte 100 on what it does with it (read, write, write without change, resize), from
/// byte 200 on what it does not allow others. There is room for one more of each.
pub(crate) const QEMU_LOCKS: [ByteRange; 2] = [bytes(100, 5), bytes(200, 5)];
/// Of these, locked by everybody who may write.
const QEMU_WRITES: ByteRange = bytes(101, 3);

/// A file or a device as the kernel knows it, whatever its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Identity {
    File { device: u64, inode: u64 },
    Device(DeviceNumber),
}

impl Identity {
    /// None for what is neither a regular file nor a block device.
    pub(crate) fn of(meta: &Metadata) -> Option<Self> {
        let kind = meta.file_type();
        if kind.is_block_device() {
            Some(Self::Device(DeviceNumber::from_stat(meta.rdev())))
        } else {
            kind.is_file().then_some(Self::File { device: meta.dev(), inode: meta.ino() })
        }
    }

    pub(crate) fn is_device(self) -> bool {
        matches!(self, Self::Device(_))
    }
}

/// Which descriptors of others count as a use.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Opened {
    Anyhow,
    ForWriting,
    /// The same while we have all its bytes locked for writing: nobody else has such a lock. A child of ours has it until its program
    /// begins.
    ForWritingByOthers,
}

/// Who could write to `file` at the moment, as far as we may know. With [`Access::Write`] we have locked it.
///
/// # Errors
/// When the kernel does not tell.
pub(crate) fn user_of(file: &File, identity: Identity, access: Access) -> io::Result<Option<String>> {
    let used = match identity {
        Identity::Device(number) => use_of_device(number)?,
        Identity::File { .. } => loop_devices_on(file)?.first().map(|device| format!("{} shows it", device.display())),
    };
    let opened = match access {
        Access::Read => Opened::ForWriting,
        Access::Write => Opened::ForWritingByOthers,
    };
    Ok(used.or_else(|| openers(identity, opened).map(|names| format!("{names} has it open for writing"))))
}

/// Who may write to `file` by the locks on it, which are seen though the program is not: one of another user, or on another host.
///
/// # Errors
/// The kernel's.
pub(crate) fn writer_with_lock(file: &File, identity: Identity) -> io::Result<Option<String>> {
    let is_locked = are_bytes_locked(file, QEMU_WRITES)? || are_bytes_locked_for_writing(file, ByteRange::ALL)?;
    Ok(is_locked.then(|| lock_holder(identity)))
}

/// Who holds a lock that keeps us away.
pub(crate) fn lock_holder(identity: Identity) -> String {
    match openers(identity, Opened::Anyhow) {
        Some(names) => format!("{names} has locked it"),
        None => "another program, such as a virtual machine, has locked it".into(),
    }
}

/// What is mounted from a device, or made of it.
pub(crate) fn use_of_device(number: DeviceNumber) -> io::Result<Option<String>> {
    let mounts = longrun_sys::read_mounts()?;
    if let Some(mount) = mounts.iter().find(|mount| lies_on(mount, number)) {
        return Ok(Some(format!("it is mounted at {}", mount.point.display())));
    }
    let holders = fs::read_dir(format!("/sys/dev/block/{number}/holders")).into_iter().flatten().flatten();
    Ok(holders.map(|holder| format!("/dev/{} is made of it", holder.file_name().display())).next())
}

fn lies_on(mount: &Mount, number: DeviceNumber) -> bool {
    // Mounts of btrfs have numbers of their own.
    let source = fs::metadata(&mount.source).ok().filter(|meta| meta.file_type().is_block_device());
    let source = source.map(|meta| DeviceNumber::from_stat(meta.rdev()));
    [Some(mount.device), source].into_iter().flatten().flat_map(volume_members).any(|device| {
        BlockDevice::numbered(device).is_ok_and(|top| top.layers().iter().any(|layer| layer.number == number))
    })
}

/// The names of the processes that have it open, without us; `None` when there is none. Without root, one sees only
/// processes of their own.
///
/// Not every virtual machine locks its images, and no lock is needed to write to a file: only this finds such a one.
fn openers(identity: Identity, opened: Opened) -> Option<String> {
    const MOST_NAMES: usize = 3;
    let processes = fs::read_dir("/proc").into_iter().flatten().flatten();
    let names = processes.filter_map(|entry| {
        let id: u32 = entry.file_name().to_str()?.parse().ok().filter(|id| *id != std::process::id())?;
        let place = entry.path();
        let mut files = fs::read_dir(place.join("fd")).ok()?.flatten();
        files.any(|file| is_open(&place, Path::new(&file.file_name()), identity, opened)).then_some(())?;
        let name = fs::read_to_string(place.join("comm")).unwrap_or_default();
        Some(format!("{} (process {id})", name.trim_end()))
    });
    let names: Vec<String> = names.take(MOST_NAMES).collect();
    (!names.is_empty()).then(|| names.join(", "))
}

/// Whether the descriptor `number` of a process is of this file, opened so.
fn is_open(process: &Path, number: &Path, identity: Identity, opened: Opened) -> bool {
    let Ok(about) = fs::read_to_string(process.join("fdinfo").join(number)) else { return false };
    let descriptor = Descriptor::parse(&about);
    let counts = match opened {
        Opened::Anyhow => true,
        Opened::ForWriting => descriptor.writes,
        Opened::ForWritingByOthers => descriptor.writes && !descriptor.has_write_lock,
    };
    if !counts {
        return false;
    }
    // What cannot be the file is not asked for: the answer of a file system that hangs would be waited for.
    let file = process.join("fd").join(number);
    let may_be_it = match identity {
        Identity::File { inode, .. } => descriptor.inode.is_none_or(|found| found == inode),
        Identity::Device(_) => fs::read_link(&file).is_ok_and(|name| name.starts_with("/dev")),
    };
    may_be_it && fs::metadata(&file).is_ok_and(|meta| Identity::of(&meta) == Some(identity))
}

/// What the kernel tells about a descriptor.
#[derive(Debug, Default, PartialEq, Eq)]
struct Descriptor {
    writes: bool,
    inode: Option<u64>,
    /// It has a lock for writing that belongs to the open file (OFD).
    has_write_lock: bool,
}

impl Descriptor {
    fn parse(about: &str) -> Self {
        const ACCESS: u32 = 0o3;
        let mut found = Self::default();
        for (field, value) in about.lines().filter_map(|line| line.split_once(':')) {
            let value = value.trim();
            match field {
                "flags" => found.writes = u32::from_str_radix(value, 8).is_ok_and(|flags| flags & ACCESS != 0),
                "ino" => found.inode = value.parse().ok(),
                "lock" => found.has_write_lock |= value.contains("OFDLCK") && value.contains("WRITE"),
                _ => {}
            }
        }
        found
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_kernel_tells_about_a_descriptor_is_understood() {
        let about = "pos:\t196616\nflags:\t02100002\nmnt_id:\t27\nino:\t9978029\n\
                     lock:\t1: OFDLCK ADVISORY  READ -1 fe:00:9978029 100 101\n";
        let of_others = Descriptor { writes: true, inode: Some(9_978_029), has_write_lock: false };
        assert_eq!(Descriptor::parse(about), of_others);
        let ours = about.replace("READ", "WRITE");
        assert!(Descriptor::parse(&ours).has_write_lock);
        assert_eq!(Descriptor::parse("flags:\t0100000\nino:\tx\n"), Descriptor::default());
    }

    #[test]
    fn a_process_that_has_a_file_open_is_named_and_we_are_not() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let identity = Identity::of(&file.as_file().metadata().unwrap()).unwrap();
        assert_eq!(openers(identity, Opened::Anyhow), None);
        let mut reader =
            std::process::Command::new("sleep").arg("1000").stdin(File::open(file.path()).unwrap()).spawn().unwrap();
        let read = openers(identity, Opened::Anyhow);
        let written = user_of(file.as_file(), identity, Access::Write).unwrap();
        reader.kill().unwrap();
        reader.wait().unwrap();
        assert_eq!(read, Some(format!("sleep (process {})", reader.id())));
        assert_eq!(written, None, "who reads does no harm");
        let mut writer =
            std::process::Command::new("sleep").arg("1000").stdout(file.reopen().unwrap()).spawn().unwrap();
        let written = user_of(file.as_file(), identity, Access::Write).unwrap();
        writer.kill().unwrap();
        writer.wait().unwrap();
        assert_eq!(written, Some(format!("sleep (process {}) has it open for writing", writer.id())));
    }
}
