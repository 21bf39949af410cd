use super::*;
use crate::MemoryDisk;
use proptest::prelude::*;

/// The structures of an image, each with where it lies.
type Parts = Vec<(u64, Vec<u8>)>;

fn little(numbers: &[u32]) -> Vec<u8> {
    numbers.iter().flat_map(|number| number.to_le_bytes()).collect()
}

fn big(numbers: &[u32]) -> Vec<u8> {
    numbers.iter().flat_map(|number| number.to_be_bytes()).collect()
}

/// A sound image: format, length, its structures, and the offset of the first of two entries for parts with the bytes of an entry.
struct Image(Format, usize, Parts, (usize, usize));

/// Four parts of a sector, in two tables with copies. Sector 0: header, 1: description, 2 and 3: directories, 4 to 7: tables.
fn vmdk() -> Image {
    let header = little(&[0, 0, 0b110, 4, 0, 1, 0, 1, 0, 1, 0, 2, 2, 0, 3, 0]);
    let tables = [(2, [6, 7]), (3, [4, 5]), (4, [8, 9]), (5, [0, 1]), (6, [8, 9]), (7, [0, 1])];
    let tables = tables.map(|(sector, entries)| (sector * SECTOR, little(&entries)));
    Image(Format::Vmdk, 10 * 512, [vec![(0, header)], tables.to_vec()].concat(), (4 * 512, 4))
}

/// Three parts of 4 KiB, each with a bitmap of a sector. Sector 0: footer, 1 and 2: header, 3: table.
fn vhd() -> Image {
    let table = big(&[4, 13, u32::MAX]);
    let parts = vec![(16, big(&[0, 512])), (512 + 16, big(&[0, 3 * 512, 0, 3, 4096])), (3 * SECTOR, table)];
    Image(Format::Vhd, 23 * 512, parts, (3 * 512, 4))
}

/// Four parts of 1 KiB. Sector 0: header, 1: table.
fn vdi() -> Image {
    let header = vec![(0x154, little(&[512, 1024])), (0x178, little(&[1024, 0, 4, 2]))];
    let table = vec![(512, little(&[1, 0, u32::MAX, u32::MAX - 1]))];
    Image(Format::Vdi, 3 * 1024, [header, table].concat(), (512, 4))
}

/// Three parts of 1 MiB. MiB 0: headers, 1: log, 2: table, 3: description.
fn vhdx() -> Image {
    let header = |sequence: u32, log: u32| {
        let mut header = vec![0; 4096];
        header[..4].copy_from_slice(b"head");
        header[8..12].copy_from_slice(&sequence.to_le_bytes());
        header[68..80].copy_from_slice(&little(&[1 << 20, log << 20, 0]));
        let sum = crc32c::crc32c(&header);
        header[4..8].copy_from_slice(&sum.to_le_bytes());
        header
    };
    let guid = |text: &str| {
        let bytes = u128::from_str_radix(&text.replace('-', ""), 16).unwrap().to_be_bytes();
        [3, 2, 1, 0, 5, 4, 7, 6, 8, 9, 10, 11, 12, 13, 14, 15].map(|place: usize| bytes[place]).to_vec()
    };
    let item = |name, numbers: &[u32]| [guid(name), little(numbers)].concat();
    let regions = [
        little(&[0, 0, 2, 0]),
        item("2DC27766-F623-4200-9D64-115E9BFD4A08", &[2 << 20, 0, 1 << 20, 1]),
        item("8B7CA206-4790-4B9A-B8FE-575F050F886E", &[3 << 20, 0, 1 << 20, 1]),
    ];
    let description = [
        little(&[0, 0, 3 << 16, 0, 0, 0, 0, 0]),
        item("CAA16737-FA36-4D43-B3B6-33F0AA44E76B", &[65536, 8, 0, 0]),
        item("2FA54224-CD1B-4876-B211-5DBED83BF4B8", &[65544, 8, 0, 0]),
        item("8141BF1D-A96F-4709-BA47-F233A8FAAB5F", &[65552, 4, 0, 0]),
    ];
    let parts = vec![
        // The log of an older header does not count.
        (64 << 10, header(7, 4)),
        (128 << 10, header(8, 1)),
        (192 << 10, regions.concat()),
        (2 << 20, little(&[5 << 20 | 6, 0, 4 << 20 | 6, 0, 4 << 20, 0])),
        (3 << 20, description.concat()),
        ((3 << 20) + 65536, little(&[1 << 20, 0, 3 << 20, 0, 512])),
    ];
    Image(Format::Vhdx, 6 << 20, parts, (2 << 20, 8))
}

const IMAGES: [fn() -> Image; 4] = [vmdk, vhd, vdi, vhdx];

fn content(Image(_, length, parts, _): &Image) -> Vec<u8> {
    let mut content = vec![0; *length];
    for (at, bytes) in parts {
        content[*at as usize..*at as usize + bytes.len()].copy_from_slice(bytes);
    }
    content
}

fn checked(format: Format, content: Vec<u8>) -> Result<(), String> {
    check_places(&MemoryDisk::new(content), format).map_err(|error| error.to_string())
}

/// The answer to an image of which some bytes are replaced.
fn changed(image: &Image, at: u64, bytes: &[u8]) -> Result<(), String> {
    let mut content = content(image);
    content[at as usize..at as usize + bytes.len()].copy_from_slice(bytes);
    checked(image.0, content)
}

#[test]
fn a_sound_image_of_each_format_is_accepted() {
    for image in IMAGES {
        let image = image();
        assert_eq!(checked(image.0, content(&image)), Ok(()));
    }
}

#[test]
fn parts_with_one_place_are_found() {
    for image in IMAGES {
        let image = image();
        let mut content = content(&image);
        let (first, bytes) = image.3;
        content.copy_within(first..first + bytes, first + bytes);
        assert!(checked(image.0, content).unwrap_err().contains("the same place"), "{}", image.0);
    }
}

#[test]
fn a_part_in_the_place_of_a_table_is_found() {
    let overlaps = |image: &Image, at, bytes: &[u8]| {
        let said = changed(image, at, bytes).unwrap_err();
        assert!(said.contains("the same place"), "{} at {at}, {bytes:?}: {said}", image.0);
    };
    for sector in 0..8 {
        // An entry of a table, where 0 and 1 mean no place, and one of a directory, where 0 means none and 6 is the copy.
        if ![0, 1].contains(&sector) {
            overlaps(&vmdk(), 4 * SECTOR, &[sector]);
        }
        if ![0, 4, 6].contains(&sector) {
            overlaps(&vmdk(), 3 * SECTOR, &[sector]);
        }
    }
    // 14: the second part, and the footer at the end.
    for sector in [0, 1, 2, 3, 5, 14] {
        overlaps(&vhd(), 3 * SECTOR + if sector == 14 { 7 } else { 3 }, &[sector]);
    }
    // The parts begin in the table.
    overlaps(&vdi(), 0x159, &[2]);
    for mib in 0..4_u32 {
        overlaps(&vhdx(), 2 << 20, &(mib << 20 | 6).to_le_bytes());
    }
}

#[test]
fn a_part_where_the_next_one_would_go_is_found() {
    let beyond = |image: &Image, at, bytes: &[u8]| {
        let said = changed(image, at, bytes).unwrap_err();
        assert!(said.contains("beyond the end"), "{} at {at}, {bytes:?}: {said}", image.0);
    };
    beyond(&vmdk(), 4 * SECTOR, &[10]);
    beyond(&vhd(), 3 * SECTOR + 3, &[20]);
    beyond(&vhdx(), 2 << 20, &(6_u32 << 20 | 6).to_le_bytes());
    // VDI: its number is that of the parts that are there.
    let mut image = vdi();
    image.1 = 4 * 1024;
    beyond(&image, 512, &[2]);
}

#[test]
fn a_vmdk_without_a_copy_of_a_table_is_refused() {
    assert!(changed(&vmdk(), 2 * SECTOR, &[0]).unwrap_err().contains("no copy"));
    // Tables that are their own copies, and a directory that is.
    for (at, bytes) in [(2 * SECTOR, &[4]), (48, &[3])] {
        assert_eq!(changed(&vmdk(), at, bytes), Ok(()));
    }
}

#[test]
fn an_image_that_ends_within_its_tables_is_damaged() {
    for image in IMAGES {
        let image = image();
        for length in [0, 100, 511, 600, 1400, 70_000, 3 << 20].into_iter().filter(|length| *length < image.1) {
            let mut content = content(&image);
            content.truncate(length);
            assert!(checked(image.0, content).is_err(), "{} of {length} bytes", image.0);
        }
    }
}

proptest! {
    #[test]
    fn no_numbers_make_it_panic_or_read_much(
        which in 0..IMAGES.len(), change in any::<(prop::sample::Index, prop::sample::Index)>(), number: u64, bytes in 1..=8_usize,
    ) {
        let image = IMAGES[which]();
        let mut content = content(&image);
        let (at, part) = change.0.get(&image.2);
        let at = *at as usize + change.1.index(part.len());
        let bytes = bytes.min(content.len() - at);
        content[at..at + bytes].copy_from_slice(&number.to_le_bytes()[..bytes]);
        let _ = checked(image.0, content);
    }
}
