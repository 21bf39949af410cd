//! The partitions of a disk: which kind of table it has, and what every table must fulfil.
//!
//! Owns the types and the rules: all inside the disk, nothing overlaps, no number is trusted. Never writes, and knows
//! of file systems only the signatures that tell a volume at the start of a disk from a partition table.

use crate::bytes::le32;
use crate::{Disk, ImageError, gpt, mbr};
use longrun_layout::Bytes;
use std::fmt;
use std::io;

/// A partition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Partition {
    /// As the kernel counts: `sda5` is number 5.
    pub number: u32,
    /// Its first byte on the disk.
    pub start: Bytes,
    /// Its size.
    pub length: Bytes,
    /// What the table says it is for.
    pub kind: PartitionKind,
    /// Its name in a GPT; empty in an MBR, which has none.
    pub name: String,
}

/// What the partition table says a partition is for. The file system on it may be another one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PartitionKind {
    /// The type byte of an MBR.
    Mbr(u8),
    /// The type GUID of a GPT, as it stands on the disk.
    Gpt([u8; 16]),
}

impl PartitionKind {
    /// Whether such a partition is a part of a larger device, and may look like a volume without any sign of that on it: halves of mirrors
    /// whose superblock lies elsewhere or nowhere. Members that have their sign at the start (LVM, ZFS) are not among these.
    #[must_use]
    pub fn is_member(self) -> bool {
        match self {
            Self::Mbr(code) => mbr::member_name_of(code).is_some(),
            Self::Gpt(guid) => gpt::member_name_of(&guid).is_some(),
        }
    }
}

impl fmt::Display for PartitionKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Mbr(code) => match mbr::name_of(*code) {
                Some(name) => f.write_str(name),
                None => write!(f, "type 0x{code:02x}"),
            },
            Self::Gpt(guid) => match gpt::name_of(guid) {
                Some(name) => f.write_str(name),
                None => write!(f, "type {}", gpt::text_of(guid)),
            },
        }
    }
}

/// The first contradiction found in a partition table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TableFault {
    /// Often a truncated image.
    #[error("partition {0} is not inside the disk, or not where its table may have partitions")]
    Outside(u32),
    /// Two partitions, or a partition and the table, share sectors.
    #[error("partitions {0} and {1} overlap, or one of them overlaps the table")]
    Overlap(u32, u32),
    /// The list of logical partitions has no end, or leaves the extended partition.
    #[error("the list of logical partitions is broken")]
    BrokenList,
    /// More than any tool makes.
    #[error("it has more partitions than the kernel knows")]
    TooMany,
    /// A GPT without partitions. That is not the same as no table: nothing on the disk is a volume.
    #[error("it has no partitions")]
    Empty,
    /// An MBR says that there is a GPT, but both its headers are damaged.
    #[error("neither its header nor the backup header is valid")]
    NoValidHeader,
}

/// The partitions of a disk, in the order of their numbers. Empty when there is no partition table: the whole disk is
/// one volume then, or nothing that is known.
///
/// # Errors
/// [`ImageError::Table`] when the table contradicts itself, [`ImageError::Read`] when the disk cannot be read.
pub fn read_partitions(disk: &dyn Disk) -> Result<Vec<Partition>, ImageError> {
    find(disk).map_err(|failure| match failure {
        Failure::Read(source) => ImageError::Read { path: disk.path().to_owned(), source },
        Failure::Fault(fault) => ImageError::Table { path: disk.path().to_owned(), fault },
    })
}

/// Why a table could not be read, for those who do not know the name of the disk.
#[derive(Debug)]
pub(crate) enum Failure {
    Read(io::Error),
    Fault(TableFault),
}

impl From<TableFault> for Failure {
    fn from(fault: TableFault) -> Self {
        Self::Fault(fault)
    }
}

fn find(disk: &dyn Disk) -> Result<Vec<Partition>, Failure> {
    let Some(first) = read(disk, Bytes(0), mbr::RECORD)? else { return Ok(Vec::new()) };
    let Some(entries) = mbr::entries(&first) else { return Ok(Vec::new()) };
    // A GPT counts before a file system: tools that make one keep the old boot code, and the signature that stands in
    // it.
    if entries.iter().any(|entry| entry.kind == mbr::PROTECTIVE && entry.start == 1) {
        return gpt::read(disk);
    }
    if begins_with_a_volume(disk, &first)? {
        return Ok(Vec::new());
    }
    mbr::read(disk, &entries)
}

/// `length` bytes of the disk; `None` when it ends before.
pub(crate) fn read(disk: &dyn Disk, at: Bytes, length: usize) -> Result<Option<Vec<u8>>, Failure> {
    let ends_before = at.0.checked_add(length as u64).is_none_or(|end| end > disk.length().0);
    if ends_before {
        return Ok(None);
    }
    let mut found = vec![0; length];
    disk.read(at, &mut found).map_err(Failure::Read)?;
    Ok(Some(found))
}

/// Boot sectors of NTFS and FAT end as an MBR does; before ext4 and btrfs the MBR of an earlier use may remain.
fn begins_with_a_volume(disk: &dyn Disk, first: &[u8]) -> Result<bool, Failure> {
    const IN_FIRST: [(usize, &[u8]); 5] =
        [(0, b"XFSB"), (3, b"NTFS    "), (3, b"EXFAT   "), (54, b"FAT1"), (82, b"FAT32   ")];
    if IN_FIRST.iter().any(|(at, mark)| first.get(*at..).is_some_and(|rest| rest.starts_with(mark))) {
        return Ok(true);
    }
    // The mark of ext4 is two bytes, which a boot loader behind the MBR may have by chance: look at the block size,
    // too.
    let is_ext4 = |superblock: Vec<u8>| {
        superblock.get(56..58) == Some(b"\x53\xef") && le32(&superblock, 24).is_some_and(|log2| log2 <= 6)
    };
    if read(disk, Bytes(1024), 64)?.is_some_and(is_ext4) {
        return Ok(true);
    }
    Ok(read(disk, Bytes(0x10040), 8)?.is_some_and(|mark| mark == b"_BHRfS_M"))
}

/// What a partition, or a part of the table, takes of the disk.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Taken {
    /// The partition, or the one that the part of the table belongs to.
    pub(crate) number: u32,
    pub(crate) start: u64,
    pub(crate) end: u64,
}

/// Checks that no two share anything.
pub(crate) fn check_disjoint(mut taken: Vec<Taken>) -> Result<(), TableFault> {
    taken.sort_by_key(|one| one.start);
    for (one, next) in taken.iter().zip(taken.iter().skip(1)) {
        if one.end > next.start {
            return Err(TableFault::Overlap(one.number.min(next.number), one.number.max(next.number)));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests;
