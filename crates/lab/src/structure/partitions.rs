//! Partition tables: the MBR with its chain of logical partitions, and the GPT as the UEFI specification defines it.

use super::{Layout, Structures, number};

const SECTOR: usize = 512;

const ENTRY_OF_MBR: Layout = &[("status", 0, 1), ("type", 4, 1), ("first", 8, 4), ("sectors", 12, 4)];
const MARK: Layout = &[("mark", 510, 2)];

const HEADER: Layout = &[
    ("magic", 0, 8),
    ("revision", 8, 4),
    ("length", 12, 4),
    ("own sector", 24, 8),
    ("other sector", 32, 8),
    ("first usable", 40, 8),
    ("last usable", 48, 8),
    ("entries", 72, 8),
    ("entry count", 80, 4),
    ("entry bytes", 84, 4),
];

const ENTRY_OF_GPT: Layout =
    &[("type", 0, 8), ("identifier", 16, 8), ("first", 32, 8), ("last", 40, 8), ("attributes", 48, 8), ("name", 56, 2)];

/// Entries that are looked at, of the 128 that tools make.
const ENTRIES: usize = 6;

/// The structures of a disk with a sound GPT and sectors of 512 bytes.
#[must_use]
pub fn gpt(image: &[u8]) -> Structures {
    let mut found = Structures::new(with_checksums);
    add_mbr(&mut found, 0);
    found.notable.push((image.len() / SECTOR) as u64);
    for at in headers(image) {
        found.add("header", at, SECTOR, HEADER);
        let entries = number(image, at + 72, 8) as usize * SECTOR;
        for index in 0..ENTRIES {
            found.add("entry", entries + index * 128, 128, ENTRY_OF_GPT);
        }
    }
    found
}

/// The structures of a disk with a sound MBR, logical partitions included.
#[must_use]
pub fn mbr(image: &[u8]) -> Structures {
    let mut found = Structures::new(|_| ());
    found.notable.push((image.len() / SECTOR) as u64);
    add_mbr(&mut found, 0);
    let first_of = |record: usize, kinds: &[u64]| {
        let entries = (0..4).map(|index| record + 446 + index * 16);
        let mut wanted = entries.filter(|at| kinds.contains(&number(image, at + 4, 1)));
        wanted.next().map(|at| number(image, at + 8, 4) as usize)
    };
    const EXTENDED: &[u64] = &[5, 15];
    let Some(start) = first_of(0, EXTENDED) else { return found };
    let mut next = Some(start);
    while let Some(sector) = next {
        add_mbr(&mut found, sector * SECTOR);
        found.notable.push(sector as u64);
        next = first_of(sector * SECTOR, EXTENDED).map(|from_start| start + from_start);
    }
    found
}

fn add_mbr(found: &mut Structures, at: usize) {
    found.add("boot record", at, SECTOR, MARK);
    for index in 0..4 {
        found.add("partition", at + 446 + index * 16, 16, ENTRY_OF_MBR);
    }
}

fn headers(image: &[u8]) -> [usize; 2] {
    [SECTOR, image.len() - SECTOR]
}

/// Makes the checksums right that the headers, as they are now, ask for.
fn with_checksums(image: &mut [u8]) {
    for at in headers(image) {
        let [count, bytes, sector, length] =
            [(80, 4), (84, 4), (72, 8), (12, 4)].map(|(offset, bytes)| number(image, at + offset, bytes) as usize);
        let entries = count.checked_mul(bytes).zip(sector.checked_mul(SECTOR));
        let entries = entries.and_then(|(length, start)| image.get(start..start.checked_add(length)?));
        if let Some(sum) = entries.map(crc32fast::hash) {
            put(image, at + 88, sum);
        }
        put(image, at + 16, 0);
        if let Some(sum) = image.get(at..at.saturating_add(length)).map(crc32fast::hash) {
            put(image, at + 16, sum);
        }
    }
}

fn put(image: &mut [u8], at: usize, sum: u32) {
    if let Some(place) = image.get_mut(at..at + 4) {
        place.copy_from_slice(&sum.to_le_bytes());
    }
}
