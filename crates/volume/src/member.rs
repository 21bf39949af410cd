//! Whether what looks like a volume is a part of a larger device: RAID, a volume group, a pool, a cache.
//!
//! Owns the question. libblkid knows the signatures, wherever on a device they lie, and the partition table knows types. One part that is
//! changed alone differs from the others, and what is read then comes from one or another.

use crate::probe::EXT4;
use crate::tool;
use longrun_engine::VolumeError;
use longrun_image::{Access, Disk, FileDisk, ImageError, Partition, read_partitions};
use longrun_layout::Bytes;
use longrun_sys::{BlockDevice, BlockDeviceKind, DeviceNumber};
use std::fmt;
use std::fs::File;
use std::io;
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Signatures lie this close to the start or the end, nearly all of them. blkid does not tell a part that it cannot read from one that
/// has no signature, so these are read first.
const ENDS: u64 = 1 << 20;

/// What says that something is a part of a larger device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Sign {
    /// libblkid calls its signature so.
    Signature(String),
    /// The same of the disk that it is a partition of.
    DiskSignature(String),
    /// It has signatures that exclude each other.
    Signatures,
    /// The type of the partition.
    Type(String),
}

impl Sign {
    /// The error of something at `path` that has this sign.
    pub(crate) fn on(&self, path: &Path) -> VolumeError {
        VolumeError::Unsupported { path: path.to_owned(), what: self.to_string() }
    }
}

impl fmt::Display for Sign {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (found, remedy) = match self {
            Self::Signature(name) => (format!("blkid finds {name}"), "remove the signature with wipefs"),
            Self::DiskSignature(name) => {
                (format!("blkid finds {name} on its disk"), "remove the signature of the disk with wipefs")
            }
            Self::Type(name) => {
                (format!("its partition has the type {name}"), "change the type with sfdisk --part-type")
            }
            Self::Signatures => {
                return f.write_str(
                    "a device with the signatures of several formats (wipefs lists them; remove those that are left over from an \
                     earlier use)",
                );
            }
        };
        write!(
            f,
            "a part of a larger device ({found}; use the device that is made of it, or if you are sure that this is left over from an \
             earlier use, {remedy})"
        )
    }
}

/// Why it is not known whether something is a part of a larger device.
#[derive(Debug, thiserror::Error)]
enum Unknown {
    #[error(
        "cannot find out whether {path} is a part of a larger device: there is no program blkid; install the package util-linux"
    )]
    NoProgram { path: PathBuf },
    #[error("cannot find out whether {path} is a part of a larger device: running blkid failed: {source}")]
    Program { path: PathBuf, source: io::Error },
    #[error("cannot find out whether {path} is a part of a larger device: blkid says: {said}")]
    Unclear { path: PathBuf, said: String },
}

// No `From`: a second one would leave `?` in the rest of the crate without a type.
fn unknown(reason: Unknown) -> VolumeError {
    VolumeError::Image(Box::new(reason))
}

/// The sign on a whole disk that has a partition table. What else blkid finds there is of no importance.
pub(crate) fn of_disk(disk: &dyn Disk) -> Result<Option<Sign>, VolumeError> {
    let on_disk = |sign| match sign {
        Sign::Signature(name) => Sign::DiskSignature(name),
        other => other,
    };
    Ok(signature(disk, None, &["-u", "raid"])?.map(on_disk))
}

/// The sign on what looks like a volume with this file system, and where it is the device of a partition, on its disk.
pub(crate) fn of_volume(disk: &dyn Disk, filesystem: &str) -> Result<Option<Sign>, VolumeError> {
    match signature(disk, Some(filesystem), &[])? {
        None => of_partition_device(disk),
        sign => Ok(sign),
    }
}

/// The sign in the entry of a partition.
pub(crate) fn of_entry(partition: &Partition) -> Option<Sign> {
    partition.kind.is_member().then(|| Sign::Type(partition.kind.to_string()))
}

fn of_partition_device(disk: &dyn Disk) -> Result<Option<Sign>, VolumeError> {
    let Some((file, Bytes(0))) = disk.in_file() else { return Ok(None) };
    let Some((whole, number)) = partition_of(file) else { return Ok(None) };
    let image = |error| VolumeError::Image(Box::new(error));
    let whole = FileDisk::open(&whole, Access::Read).map_err(image)?;
    if let Some(sign) = of_disk(&whole)? {
        return Ok(Some(sign));
    }
    let partitions = match read_partitions(&whole) {
        // The kernel knows more tables, and forgives more.
        Err(ImageError::Table { .. }) => Vec::new(),
        read => read.map_err(image)?,
    };
    Ok(partitions.iter().find(|partition| partition.number == number).and_then(of_entry))
}

/// The disk of the partition that `file` is the device of, and its number there.
fn partition_of(file: &File) -> Option<(PathBuf, u32)> {
    let meta = file.metadata().ok().filter(|meta| meta.file_type().is_block_device())?;
    let number = DeviceNumber::from_stat(meta.rdev());
    let device = BlockDevice::numbered(number).ok().filter(|device| device.kind == BlockDeviceKind::Partition)?;
    Some((device.below.first()?.node(), longrun_sys::partition_number(number)?))
}

/// What blkid finds, with these arguments, that is not this file system.
fn signature(disk: &dyn Disk, filesystem: Option<&str>, filter: &[&str]) -> Result<Option<Sign>, VolumeError> {
    let path = || disk.path().to_owned();
    // Memory is no part of anything.
    let Some((file, start)) = disk.in_file() else { return Ok(None) };
    let length = disk.length();
    let mut end = vec![0; ENDS.min(length.0) as usize];
    for at in [Bytes(0), Bytes(length.0 - end.len() as u64)] {
        let io = |source| VolumeError::Io { path: path(), act: "reading the disk", source };
        disk.read(at, &mut end).map_err(io)?;
    }
    let failed = |source: io::Error| match source.kind() {
        io::ErrorKind::NotFound => unknown(Unknown::NoProgram { path: path() }),
        _ => unknown(Unknown::Program { path: path(), source }),
    };
    let mut command = Command::new("blkid");
    // It opens what it is given by name, which for its standard input leads to no other file.
    command.args(["-p", "-o", "export", "-O", &start.0.to_string(), "-S", &length.0.to_string()]);
    command.args(filter).arg("/proc/self/fd/0").stdin(Stdio::from(file.try_clone().map_err(failed)?));
    let answer = tool::ask(command, |_| false).map_err(failed)?;
    meaning(&answer, filesystem).map_err(|said| unknown(Unknown::Unclear { path: path(), said }))
}

/// What an answer of blkid means, or what it says when it means nothing.
fn meaning(answer: &tool::Answer, filesystem: Option<&str>) -> Result<Option<Sign>, String> {
    let of = |key: &str| answer.text.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix('='));
    match (answer.status, of("TYPE"), of("USAGE")) {
        // Nothing is found: also where the checksum of a superblock is wrong, of which the file system's reader says more.
        (Some(2), None, None) if answer.text.is_empty() => Ok(None),
        // The reader of NTFS says what to do.
        (Some(0), Some("BitLocker"), _) => Ok(None),
        (Some(0), Some(kind), Some("filesystem")) if filesystem.is_some_and(|name| is_called(name, kind)) => Ok(None),
        // Another one: which of the two is in use cannot be told.
        (Some(0), Some(kind), Some("filesystem")) if !kind.ends_with("_member") => Ok(Some(Sign::Signatures)),
        (Some(0), Some(kind), Some(_)) => Ok(Some(Sign::Signature(kind.to_owned()))),
        // A partition table, and no superblock.
        (Some(0), None, None) if of("PTTYPE").is_some() => Ok(None),
        (Some(8), ..) => Ok(Some(Sign::Signatures)),
        (Some(2), ..) if answer.text.contains("ambivalent result") => Ok(Some(Sign::Signatures)),
        _ => Err(answer.text.trim().to_owned()),
    }
}

/// Whether libblkid calls a file system of ours `kind`.
fn is_called(filesystem: &str, kind: &str) -> bool {
    filesystem.eq_ignore_ascii_case(kind) || filesystem == EXT4 && ["ext2", "ext3", "ext4dev"].contains(&kind)
}

#[cfg(test)]
#[path = "member/tests.rs"]
mod tests;
