use super::*;
use crate::MemoryDisk;
use proptest::prelude::*;

const SECTOR: usize = 512;

fn put(disk: &mut [u8], at: usize, bytes: &[u8]) {
    disk[at..at + bytes.len()].copy_from_slice(bytes);
}

/// An entry of an MBR: kind, start, count.
type Entry = (u8, u32, u32);

/// Writes an MBR, or the record before a logical partition.
fn record(disk: &mut [u8], sector: usize, entries: &[Entry]) {
    for (number, (kind, start, count)) in entries.iter().enumerate() {
        let at = sector * SECTOR + 446 + 16 * number;
        disk[at + 4] = *kind;
        put(disk, at + 8, &start.to_le_bytes());
        put(disk, at + 12, &count.to_le_bytes());
    }
    put(disk, sector * SECTOR + 510, b"\x55\xaa");
}

const LINUX: [u8; 16] =
    [0xaf, 0x3d, 0xc6, 0x0f, 0x83, 0x84, 0x72, 0x47, 0x8e, 0x79, 0x3d, 0x69, 0xd8, 0x47, 0x7d, 0xe4];

/// A disk with a GPT and its backup; partitions by first and last sector.
fn gpt_disk(sector: usize, sectors: u64, partitions: &[(u64, u64)]) -> Vec<u8> {
    let mut disk = vec![0; sector * sectors as usize];
    record(&mut disk, 0, &[(0xee, 1, u32::MAX)]);
    let mut entries = vec![0; 128 * 128];
    for (number, (first, last)) in partitions.iter().enumerate() {
        put(&mut entries, 128 * number, &LINUX);
        put(&mut entries, 128 * number + 32, &first.to_le_bytes());
        put(&mut entries, 128 * number + 40, &last.to_le_bytes());
        let name: Vec<u8> = "data".encode_utf16().flat_map(u16::to_le_bytes).collect();
        put(&mut entries, 128 * number + 56, &name);
    }
    let of_entries = (entries.len() / sector) as u64;
    let last = sectors - 1;
    for (own, other, at) in [(1, last, 2), (last, 1, last - of_entries)] {
        let mut header = vec![0; 92];
        put(&mut header, 0, b"EFI PART\0\0\x01\0\x5c\0\0\0");
        for (place, value) in [(24, own), (32, other), (40, 2 + of_entries), (48, last - of_entries - 1), (72, at)] {
            put(&mut header, place, &u64::to_le_bytes(value));
        }
        put(&mut header, 80, &128u32.to_le_bytes());
        put(&mut header, 84, &128u32.to_le_bytes());
        put(&mut header, 88, &crc32fast::hash(&entries).to_le_bytes());
        let checksum = crc32fast::hash(&header);
        put(&mut header, 16, &checksum.to_le_bytes());
        put(&mut disk, own as usize * sector, &header);
        put(&mut disk, at as usize * sector, &entries);
    }
    disk
}

/// Number, first sector and number of sectors.
fn sectors(content: Vec<u8>) -> Vec<(u32, u64, u64)> {
    let found = read_partitions(&MemoryDisk::new(content)).unwrap();
    found.iter().map(|one| (one.number, one.start.0 / SECTOR as u64, one.length.0 / SECTOR as u64)).collect()
}

fn fault(content: Vec<u8>) -> TableFault {
    match read_partitions(&MemoryDisk::new(content)) {
        Err(ImageError::Table { fault, .. }) => fault,
        other => panic!("{other:?}"),
    }
}

fn empty() -> Vec<u8> {
    vec![0; 1024 * SECTOR]
}

#[test]
fn primary_and_logical_partitions_are_numbered_as_the_kernel_does() {
    let mut disk = empty();
    record(&mut disk, 0, &[(0x83, 10, 20), (0, 0, 0), (0x0f, 100, 200), (0x07, 400, 624)]);
    record(&mut disk, 100, &[(0x83, 2, 10), (0x05, 50, 50)]);
    record(&mut disk, 150, &[(0x82, 1, 49)]);
    assert_eq!(sectors(disk.clone()), [(1, 10, 20), (4, 400, 624), (5, 102, 10), (6, 151, 49)]);
    let kinds: Vec<String> =
        read_partitions(&MemoryDisk::new(disk)).unwrap().iter().map(|one| one.kind.to_string()).collect();
    assert_eq!(kinds, ["Linux", "NTFS or exFAT", "Linux", "Linux swap"]);
}

#[test]
fn an_extended_partition_may_be_empty() {
    let mut disk = empty();
    record(&mut disk, 0, &[(0x05, 100, 200)]);
    assert_eq!(sectors(disk.clone()), []);
    record(&mut disk, 100, &[]);
    assert_eq!(sectors(disk), []);
}

#[test]
fn a_volume_that_begins_with_the_disk_has_no_partitions() {
    for (at, mark) in [
        (3, &b"NTFS    "[..]),
        (3, b"EXFAT   "),
        (54, b"FAT16   "),
        (82, b"FAT32   "),
        (0, b"XFSB"),
        (1080, b"\x53\xef"),
        (0x10040, b"_BHRfS_M"),
    ] {
        let mut disk = empty();
        record(&mut disk, 0, &[(0x83, 10, 20)]);
        put(&mut disk, at, mark);
        assert_eq!(sectors(disk), [], "{mark:?}");
    }
    assert_eq!(sectors(empty()), []);
    assert_eq!(sectors(vec![7; 100]), [], "shorter than a sector");
    // Code where the entries would be.
    let mut disk = empty();
    disk[440..510].fill(0x33);
    put(&mut disk, 510, b"\x55\xaa");
    assert_eq!(sectors(disk), []);
}

#[test]
fn what_contradicts_itself_is_refused() {
    let with = |entries: &[Entry]| {
        let mut disk = empty();
        record(&mut disk, 0, entries);
        disk
    };
    assert_eq!(fault(with(&[(0x83, 10, 20), (0x83, 29, 1)])), TableFault::Overlap(1, 2));
    assert_eq!(fault(with(&[(0x83, 1000, 25)])), TableFault::Outside(1));
    assert_eq!(fault(with(&[(0x83, u32::MAX, u32::MAX)])), TableFault::Outside(1));
    assert_eq!(fault(with(&[(0x83, 1, 1), (0x05, 1000, 25)])), TableFault::Outside(2));
    assert_eq!(fault(with(&[(0xee, 2, 25)])), TableFault::NoValidHeader);
    assert_eq!(fault(with(&[(0xee, 1, 25)])), TableFault::NoValidHeader);
}

#[test]
fn lists_of_logical_partitions_end() {
    let with = |records: &[(usize, &[Entry])]| {
        let mut disk = empty();
        record(&mut disk, 0, &[(0x05, 100, 200), (0x83, 300, 10)]);
        records.iter().for_each(|(sector, entries)| record(&mut disk, *sector, entries));
        fault(disk)
    };
    assert_eq!(with(&[(100, &[(0x83, 1, 1), (0x05, 0, 10)])]), TableFault::BrokenList, "it leads to itself");
    assert_eq!(with(&[(100, &[(0x05, 5, 9)]), (105, &[(0x05, 0, 9)])]), TableFault::BrokenList, "it is a ring");
    assert_eq!(with(&[(100, &[(0x05, 200, 9)])]), TableFault::BrokenList, "it leaves the extended partition");
    assert_eq!(with(&[(100, &[(0x05, 9, 9)])]), TableFault::BrokenList, "it ends in nothing");
    assert_eq!(with(&[(100, &[(0x83, 1, 200)])]), TableFault::Outside(5));
    assert_eq!(with(&[(100, &[(0x83, 1, 10), (0x05, 5, 9)]), (105, &[])]), TableFault::Overlap(1, 5));
    let mut long = empty();
    long.resize(4096 * SECTOR, 0);
    record(&mut long, 0, &[(0x05, 1, 4000)]);
    (0..4000).for_each(|number| record(&mut long, 1 + number as usize, &[(0x05, number + 1, 1)]));
    assert_eq!(fault(long), TableFault::BrokenList);
}

#[test]
fn a_gpt_is_read_with_sectors_of_both_sizes() {
    assert_eq!(sectors(gpt_disk(512, 1024, &[(34, 40), (100, 990)])), [(1, 34, 7), (2, 100, 891)]);
    let content = gpt_disk(4096, 200, &[(6, 6), (100, 194)]);
    assert_eq!(sectors(content.clone()), [(1, 48, 8), (2, 800, 760)]);
    let found = read_partitions(&MemoryDisk::new(content)).unwrap();
    assert_eq!((found[0].name.as_str(), found[0].kind.to_string().as_str()), ("data", "Linux"));
    let unknown = PartitionKind::Gpt(std::array::from_fn(|at| at as u8)).to_string();
    assert_eq!(unknown, "type 03020100-0504-0706-0809-0A0B0C0D0E0F");
}

#[test]
fn a_gpt_counts_although_the_boot_code_of_a_volume_is_left() {
    let mut disk = gpt_disk(512, 1024, &[(34, 40)]);
    put(&mut disk, 3, b"NTFS    ");
    assert_eq!(sectors(disk), [(1, 34, 7)]);
}

#[test]
fn the_backup_header_counts_when_the_first_one_or_its_entries_are_damaged() {
    for sector in [512, 4096] {
        let good = gpt_disk(sector, 200, &[(40, 60)]);
        let expected = sectors(good.clone());
        for at in (sector..sector + 92).chain([2 * sector + 33, 2 * sector + 16383]) {
            let mut disk = good.clone();
            disk[at] ^= 0x10;
            assert_eq!(sectors(disk), expected, "byte {at}");
        }
        let mut disk = good.clone();
        disk[sector..2 * sector].fill(0);
        let end = disk.len();
        disk[end - sector] = 0;
        assert_eq!(fault(disk), TableFault::NoValidHeader);
    }
}

#[test]
fn a_gpt_with_right_checksums_is_not_trusted() {
    let faults = |partitions: &[(u64, u64)]| fault(gpt_disk(512, 1024, partitions));
    assert_eq!(faults(&[(34, 50), (50, 60)]), TableFault::Overlap(1, 2));
    assert_eq!(faults(&[(33, 50)]), TableFault::Outside(1), "its own entries");
    assert_eq!(faults(&[(34, 991)]), TableFault::Outside(1), "the backup's entries");
    assert_eq!(faults(&[(60, 50)]), TableFault::Outside(1));
    assert_eq!(faults(&[]), TableFault::Empty);
    assert_eq!(faults(&[(34, u64::MAX)]), TableFault::Outside(1));
    let mut truncated = gpt_disk(512, 1024, &[(34, 900)]);
    truncated.truncate(900 * 512);
    assert_eq!(fault(truncated), TableFault::Outside(1));
}

/// What every answer must fulfil, whatever the disk.
fn is_sound(content: &[u8]) {
    let disk = MemoryDisk::new(content.to_vec());
    let Ok(mut found) = read_partitions(&disk) else { return };
    found.sort_by_key(|one| one.start);
    assert!(found.iter().all(|one| one.length.0 > 0 && one.start.0 + one.length.0 <= content.len() as u64));
    assert!(found.windows(2).all(|pair| pair[0].start + pair[0].length <= pair[1].start));
}

proptest! {
    #[test]
    fn whatever_a_disk_holds_the_answer_is_sound(
        mut content in proptest::collection::vec(any::<u8>(), 512..4096),
    ) {
        put(&mut content, 510, b"\x55\xaa");
        is_sound(&content);
    }

    #[test]
    fn whatever_the_entries_say_the_answer_is_sound(
        records in proptest::collection::vec(
            (0usize..64, proptest::collection::vec((prop::sample::select(vec![0u8, 5, 0x0f, 0x83, 7]), 0u32..80, 0u32..80), 4)),
            1..20,
        ),
    ) {
        let mut disk = vec![0; 64 * SECTOR];
        for (sector, entries) in &records {
            record(&mut disk, *sector, entries);
        }
        record(&mut disk, 0, &records[0].1);
        is_sound(&disk);
    }

    #[test]
    fn a_changed_gpt_is_read_as_it_was_or_refused(changes in proptest::collection::vec((512usize..3 * 512, any::<u8>()), 1..8)) {
        let good = gpt_disk(512, 256, &[(34, 60), (70, 200)]);
        let mut disk = good.clone();
        for (at, byte) in changes {
            disk[at] = byte;
        }
        prop_assert_eq!(sectors(disk), sectors(good));
    }
}
