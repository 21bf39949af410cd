//! GUID partition tables.
//!
//! Owns the format: which of the two headers is valid, and what it says. Never repairs one.

use crate::bytes::{array, le32, le64};
use crate::partitions::{Failure, Taken, check_disjoint, read as read_disk};
use crate::{Disk, Partition, PartitionKind, TableFault};
use longrun_layout::Bytes;
use std::ops::Range;

/// The part of a header that has a meaning.
const HEADER: usize = 92;
/// The part of an entry that has a meaning.
const ENTRY: u32 = 128;
/// Every tool reserves 16 KiB for the entries; some can make it more.
const MOST_BYTES_OF_ENTRIES: usize = 1 << 20;
const UNUSED: [u8; 16] = [0; 16];

/// The partitions of a disk whose MBR says that it has a GPT.
pub(crate) fn read(disk: &dyn Disk) -> Result<Vec<Partition>, Failure> {
    let own = disk.sector_size().0;
    let sizes = [own].into_iter().chain([512, 4096].into_iter().filter(|size| *size != own));
    // An image tells nothing of the sectors of the disk that it was, so both usual sizes are tried.
    let sizes: Vec<u64> = sizes.filter(|size| (512..=1 << 16).contains(size)).collect();
    let first = sizes.iter().map(|size| (*size, 1));
    let backup = sizes.iter().filter_map(|size| Some((*size, (disk.length().0 / size).checked_sub(1)?)));
    for (size, sector) in first.chain(backup) {
        if let Some(table) = Table::at(disk, size, sector)? {
            return Ok(table.partitions()?);
        }
    }
    Err(TableFault::NoValidHeader.into())
}

/// A table whose checksums are right. All else in it may still be wrong.
struct Table {
    sector_size: u64,
    sectors: u64,
    first_usable: u64,
    last_usable: u64,
    entry_size: usize,
    entries: Vec<u8>,
    /// The sectors of the header and of the entries.
    own: [Range<u64>; 2],
}

impl Table {
    /// The table whose header is in this sector, if there is a valid one.
    fn at(disk: &dyn Disk, sector_size: u64, sector: u64) -> Result<Option<Self>, Failure> {
        let Some(place) = sector.checked_mul(sector_size) else { return Ok(None) };
        let Some(header) = read_disk(disk, Bytes(place), sector_size as usize)? else { return Ok(None) };
        let Some(header) = Header::parse(&header, sector) else { return Ok(None) };
        let Some(place) = header.entries.checked_mul(sector_size) else { return Ok(None) };
        let Some(entries) = read_disk(disk, Bytes(place), header.bytes_of_entries)? else { return Ok(None) };
        let sectors_of_entries = (header.bytes_of_entries as u64).div_ceil(sector_size);
        Ok((crc32fast::hash(&entries) == header.checksum_of_entries).then_some(Self {
            sector_size,
            sectors: disk.length().0 / sector_size,
            first_usable: header.first_usable,
            last_usable: header.last_usable,
            entry_size: header.entry_size,
            entries,
            own: [sector..sector + 1, header.entries..header.entries + sectors_of_entries],
        }))
    }

    fn partitions(&self) -> Result<Vec<Partition>, TableFault> {
        let mut taken = Vec::new();
        let mut partitions = Vec::new();
        for (number, entry) in (1..).zip(self.entries.chunks_exact(self.entry_size)) {
            let kind = array(entry, 0).unwrap_or(UNUSED);
            if kind == UNUSED {
                continue;
            }
            let outside = TableFault::Outside(number);
            let (first, last) = le64(entry, 32).zip(le64(entry, 40)).ok_or(outside)?;
            let is_inside = first >= self.first_usable.max(2) && last <= self.last_usable && last < self.sectors;
            let is_free = self.own.iter().all(|own| last < own.start || first >= own.end);
            if first > last || !is_inside || !is_free {
                return Err(outside);
            }
            // Less than the sectors of the disk, whose number of bytes is known: none of this overflows.
            taken.push(Taken { number, start: first, end: last + 1 });
            partitions.push(Partition {
                number,
                start: Bytes(first * self.sector_size),
                length: Bytes((last + 1 - first) * self.sector_size),
                kind: PartitionKind::Gpt(kind),
                name: name_in(entry),
            });
        }
        check_disjoint(taken)?;
        if partitions.is_empty() { Err(TableFault::Empty) } else { Ok(partitions) }
    }
}

struct Header {
    first_usable: u64,
    last_usable: u64,
    /// The sector that the entries begin with.
    entries: u64,
    entry_size: usize,
    bytes_of_entries: usize,
    checksum_of_entries: u32,
}

impl Header {
    /// What is in `sector`, if it is a valid header that says it is there.
    fn parse(record: &[u8], sector: u64) -> Option<Self> {
        let length = le32(record, 12)? as usize;
        if !record.starts_with(b"EFI PART") || length < HEADER {
            return None;
        }
        let mut checked = record.get(..length)?.to_vec();
        // The checksum is made over itself as zero.
        checked.get_mut(16..20)?.fill(0);
        if le32(record, 16)? != crc32fast::hash(&checked) || le64(record, 24)? != sector {
            return None;
        }
        let (count, entry_size) = (le32(record, 80)?, le32(record, 84)?);
        let bytes_of_entries = usize::try_from(u64::from(count) * u64::from(entry_size)).ok()?;
        if entry_size < ENTRY || entry_size % 8 != 0 || bytes_of_entries > MOST_BYTES_OF_ENTRIES {
            return None;
        }
        Some(Self {
            first_usable: le64(record, 40)?,
            last_usable: le64(record, 48)?,
            entries: le64(record, 72)?,
            entry_size: entry_size as usize,
            bytes_of_entries,
            checksum_of_entries: le32(record, 88)?,
        })
    }
}

/// The name of an entry, up to the first zero.
fn name_in(entry: &[u8]) -> String {
    let units = entry.get(56..ENTRY as usize).unwrap_or_default().chunks_exact(2);
    let units = units.map(|unit| array(unit, 0).map_or(0, u16::from_le_bytes)).take_while(|unit| *unit != 0);
    String::from_utf16_lossy(&units.collect::<Vec<_>>())
}

/// A GUID as people write it.
pub(crate) fn text_of(guid: &[u8; 16]) -> String {
    // The first three groups are little-endian numbers, the other two are bytes.
    let groups: [&[usize]; 5] = [&[3, 2, 1, 0], &[5, 4], &[7, 6], &[8, 9], &[10, 11, 12, 13, 14, 15]];
    let group = |places: &[usize]| -> String {
        places.iter().map(|place| format!("{:02X}", guid.get(*place).copied().unwrap_or(0))).collect()
    };
    groups.map(group).join("-")
}

/// What the types are called whose partitions are parts of larger devices.
pub(crate) fn member_name_of(guid: &[u8; 16]) -> Option<&'static str> {
    Some(match text_of(guid).as_str() {
        "A19D880F-05FC-4D3B-A006-743F0F84911E" => "Linux RAID",
        "AF9B60A0-1431-4F62-BC68-3311714A69AD" => "Windows dynamic disk (LDM)",
        "5808C8AA-7E8F-42E0-85D2-E1E90434CFB3" => "Windows dynamic disk (LDM) metadata",
        "E75CAF8F-F680-4CEE-AFA3-B001E56EFC2D" => "Windows Storage Spaces",
        _ => return None,
    })
}

/// What the usual types are called.
pub(crate) fn name_of(guid: &[u8; 16]) -> Option<&'static str> {
    if let Some(name) = member_name_of(guid) {
        return Some(name);
    }
    Some(match text_of(guid).as_str() {
        "0FC63DAF-8483-4772-8E79-3D69D8477DE4" => "Linux",
        "4F68BCE3-E8CD-4DB1-96E7-FBCAF984B709" | "B921B045-1DF0-41C3-AF44-4C6F280D3FAE" => "Linux root",
        "933AC7E1-2EB4-4F13-B844-0E14E2AEF915" => "Linux home",
        "0657FD6D-A4AB-43C4-84E5-0933C84B4F4F" => "Linux swap",
        "E6D6D379-F507-44C2-A23C-238F2A3DF928" => "Linux LVM",
        "C12A7328-F81F-11D2-BA4B-00A0C93EC93B" => "EFI system",
        "21686148-6449-6E6F-744E-656564454649" => "BIOS boot",
        "EBD0A0A2-B9E5-4433-87C0-68B6B72699C7" => "Microsoft basic data",
        "E3C9E316-0B5C-4DB8-817D-F92DF00215AE" => "Microsoft reserved",
        "DE94BBA4-06D1-4D40-A16A-BFD50179D6AC" => "Windows recovery",
        _ => return None,
    })
}
