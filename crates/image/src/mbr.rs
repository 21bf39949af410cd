//! MBR partition tables: four primary partitions, and a list of logical ones inside an extended one.
//!
//! Owns the format. Never follows a list further than the extended partition, or for ever.

use crate::bytes::{array, le32};
use crate::partitions::{Failure, Taken, check_disjoint, read as read_disk};
use crate::{Disk, Partition, PartitionKind, TableFault};
use longrun_layout::Bytes;
use std::collections::BTreeSet;

/// A record of the table, here and at the start of each logical partition.
pub(crate) const RECORD: usize = 512;
/// The type of the entry that protects a GPT from tools that do not know it.
pub(crate) const PROTECTIVE: u8 = 0xee;
/// Logical partitions have the numbers behind those of the primary ones.
const FIRST_LOGICAL: u32 = 5;
/// The kernel knows no more on one disk.
const MOST_PARTITIONS: usize = 256;

/// An entry of a record, in sectors.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Entry {
    flag: u8,
    pub(crate) kind: u8,
    pub(crate) start: u32,
    count: u32,
}

impl Entry {
    fn is_used(self) -> bool {
        self.kind != 0 && self.count != 0
    }

    fn is_extended(self) -> bool {
        matches!(self.kind, 0x05 | 0x0f | 0x85)
    }

    fn taken(self, number: u32, offset: u64) -> Taken {
        let start = offset + u64::from(self.start);
        Taken { number, start, end: start + u64::from(self.count) }
    }
}

/// The four entries of a record; `None` when it does not have the mark of one.
pub(crate) fn entries(record: &[u8]) -> Option<[Entry; 4]> {
    (record.get(510..RECORD)? == b"\x55\xaa").then_some(())?;
    let entry = |number: usize| {
        let entry: [u8; 16] = array(record, 446 + 16 * number)?;
        Some(Entry { flag: entry[0], kind: entry[4], start: le32(&entry, 8)?, count: le32(&entry, 12)? })
    };
    Some([entry(0)?, entry(1)?, entry(2)?, entry(3)?])
}

/// The partitions of a disk whose first record has these entries.
pub(crate) fn read(disk: &dyn Disk, entries: &[Entry; 4]) -> Result<Vec<Partition>, Failure> {
    let used = || (1..).zip(entries).filter(|(_, entry)| entry.is_used());
    // A boot sector of something unknown ends likewise, but has code where the entries would be.
    if entries.iter().any(|entry| entry.flag & 0x7f != 0) || used().any(|(_, entry)| entry.start == 0) {
        return Ok(Vec::new());
    }
    // Tools write such an entry for the whole disk at sector 1, and that was looked for before.
    if used().any(|(_, entry)| entry.kind == PROTECTIVE) {
        return Err(TableFault::NoValidHeader.into());
    }
    let mut table = Table { disk, sector: disk.sector_size().0.max(1), partitions: Vec::new(), taken: Vec::new() };
    for (number, entry) in used() {
        let taken = table.take(entry.taken(number, 0), table.sectors())?;
        if !entry.is_extended() {
            table.add(entry.kind, taken);
        }
    }
    check_disjoint(std::mem::take(&mut table.taken))?;
    let mut number = FIRST_LOGICAL;
    for (extended, entry) in used().filter(|(_, entry)| entry.is_extended()) {
        table.read_logical(entry.taken(extended, 0), &mut number)?;
        check_disjoint(std::mem::take(&mut table.taken))?;
    }
    Ok(table.partitions)
}

struct Table<'disk> {
    disk: &'disk dyn Disk,
    sector: u64,
    partitions: Vec<Partition>,
    /// What must not overlap.
    taken: Vec<Taken>,
}

impl Table<'_> {
    fn sectors(&self) -> u64 {
        self.disk.length().0 / self.sector
    }

    /// Notes what is taken, which must end before `end`.
    fn take(&mut self, taken: Taken, end: u64) -> Result<Taken, TableFault> {
        if taken.end > end {
            return Err(TableFault::Outside(taken.number));
        }
        self.taken.push(taken);
        Ok(taken)
    }

    fn add(&mut self, kind: u8, taken: Taken) {
        self.partitions.push(Partition {
            number: taken.number,
            start: Bytes(taken.start * self.sector),
            length: Bytes((taken.end - taken.start) * self.sector),
            kind: PartitionKind::Mbr(kind),
            name: String::new(),
        });
    }

    /// Follows the list of records in an extended partition. Each describes the partition behind it, and where the
    /// next record is.
    fn read_logical(&mut self, extended: Taken, number: &mut u32) -> Result<(), Failure> {
        let mut seen = BTreeSet::new();
        let mut at = extended.start;
        loop {
            if !seen.insert(at) || seen.len() > MOST_PARTITIONS {
                return Err(TableFault::BrokenList.into());
            }
            let record = read_disk(self.disk, Bytes(at * self.sector), RECORD)?;
            let Some(entries) = record.as_deref().and_then(entries) else {
                // An extended partition may be empty.
                return if at == extended.start { Ok(()) } else { Err(TableFault::BrokenList.into()) };
            };
            self.take(Taken { number: extended.number, start: at, end: at + 1 }, extended.end)?;
            for entry in entries.iter().filter(|entry| entry.is_used() && !entry.is_extended()) {
                if self.partitions.len() >= MOST_PARTITIONS {
                    return Err(TableFault::TooMany.into());
                }
                let taken = self.take(entry.taken(*number, at), extended.end)?;
                self.add(entry.kind, taken);
                *number += 1;
            }
            let Some(next) = entries.iter().find(|entry| entry.is_used() && entry.is_extended()) else {
                return Ok(());
            };
            at = extended.start + u64::from(next.start);
            if at >= extended.end {
                return Err(TableFault::BrokenList.into());
            }
        }
    }
}

/// What the types are called whose partitions are parts of larger devices.
pub(crate) fn member_name_of(code: u8) -> Option<&'static str> {
    Some(match code {
        0x42 => "Windows dynamic disk (LDM)",
        0xfd => "Linux RAID",
        _ => return None,
    })
}

/// What the usual types are called.
pub(crate) fn name_of(code: u8) -> Option<&'static str> {
    if let Some(name) = member_name_of(code) {
        return Some(name);
    }
    Some(match code {
        0x01 | 0x04 | 0x06 | 0x0b | 0x0c | 0x0e => "FAT",
        0x07 => "NTFS or exFAT",
        0x27 => "Windows recovery",
        0x82 => "Linux swap",
        0x83 => "Linux",
        0x8e => "Linux LVM",
        0xef => "EFI system",
        _ => return None,
    })
}
