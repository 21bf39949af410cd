//! The structures of NTFS, as the documentation of the Linux-NTFS project defines them.

use super::{Field, Layout, Structures, number};

const BOOT: Layout = &[
    ("sector bytes", 11, 2),
    ("cluster sectors", 13, 1),
    ("media", 21, 1),
    ("sectors", 40, 8),
    ("$MFT", 48, 8),
    ("$MFTMirr", 56, 8),
    ("record size", 64, 1),
    ("index block size", 68, 1),
    ("serial number", 72, 8),
    ("end mark", 510, 2),
];

const RECORD: Layout = &[
    ("magic", 0, 4),
    ("update sequence offset", 4, 2),
    ("update sequence count", 6, 2),
    ("log sequence number", 8, 8),
    ("sequence number", 16, 2),
    ("links", 18, 2),
    ("attributes offset", 20, 2),
    ("flags", 22, 2),
    ("used bytes", 24, 4),
    ("allocated bytes", 28, 4),
    ("base record", 32, 4),
    ("base sequence", 38, 2),
    ("next attribute", 40, 2),
    ("number", 44, 4),
];

const ATTRIBUTE: Layout = &[
    ("type", 0, 4),
    ("length", 4, 4),
    ("non-resident", 8, 1),
    ("name length", 9, 1),
    ("name offset", 10, 2),
    ("flags", 12, 2),
    ("instance", 14, 2),
];

const RESIDENT: Layout = &[("value length", 16, 4), ("value offset", 20, 2), ("indexed", 22, 1)];

const NON_RESIDENT: Layout = &[
    ("lowest cluster", 16, 8),
    ("highest cluster", 24, 8),
    ("mapping offset", 32, 2),
    ("compression unit", 34, 1),
    ("allocated", 40, 8),
    ("size", 48, 8),
    ("initialized", 56, 8),
    ("compressed", 64, 8),
];

const FILE_NAME: Layout = &[
    ("parent", 0, 4),
    ("parent sequence", 6, 2),
    ("allocated", 40, 8),
    ("size", 48, 8),
    ("flags", 56, 4),
    ("name length", 64, 1),
    ("name space", 65, 1),
];

const LIST_ENTRY: Layout = &[
    ("type", 0, 4),
    ("length", 4, 2),
    ("name length", 6, 1),
    ("name offset", 7, 1),
    ("lowest cluster", 8, 8),
    ("record", 16, 4),
    ("record sequence", 22, 2),
    ("instance", 24, 2),
];

const INDEX_ROOT: Layout = &[
    ("type", 0, 4),
    ("collation", 4, 4),
    ("block bytes", 8, 4),
    ("block clusters", 12, 1),
    ("entries offset", 16, 4),
    ("entries bytes", 20, 4),
    ("allocated", 24, 4),
    ("flags", 28, 1),
];

const INDEX_BLOCK: Layout = &[
    ("magic", 0, 4),
    ("update sequence offset", 4, 2),
    ("update sequence count", 6, 2),
    ("number", 16, 8),
    ("entries offset", 24, 4),
    ("entries bytes", 28, 4),
    ("allocated", 32, 4),
    ("flags", 36, 1),
];

const INDEX_ENTRY: Layout =
    &[("record", 0, 4), ("record sequence", 6, 2), ("length", 8, 2), ("key length", 10, 2), ("flags", 12, 2)];

const VOLUME_INFORMATION: Layout = &[("major", 8, 1), ("minor", 9, 1), ("flags", 10, 2)];

const RESTART: Layout = &[
    ("magic", 0, 4),
    ("check disk number", 8, 8),
    ("system page bytes", 16, 4),
    ("log page bytes", 20, 4),
    ("restart offset", 24, 2),
    ("minor", 26, 2),
    ("major", 28, 2),
];

/// The mirror has the first records.
const MIRRORED: u64 = 4;
const SECTOR: usize = 512;
const INDEX_BYTES: usize = 4096;

/// Sizes and places, of the boot sector.
struct Geometry {
    cluster: usize,
    record: usize,
    mft: usize,
    mirror: usize,
}

impl Geometry {
    fn of(image: &[u8]) -> Self {
        let cluster = (number(image, 11, 2) * number(image, 13, 1)) as usize;
        let record = number(image, 64, 1) as u8 as i8;
        let record = if record < 0 { 1 << -record } else { record as usize * cluster };
        let [mft, mirror] = [48, 56].map(|at| number(image, at, 8) as usize * cluster);
        Self { cluster, record, mft, mirror }
    }
}

/// A run: first cluster, unless it is a hole, and how many.
type Run = (Option<usize>, usize);

/// The structures of a sound volume.
#[must_use]
pub fn ntfs(image: &[u8]) -> Structures {
    let geometry = Geometry::of(image);
    // What is read has the ends of sectors in their places.
    let mut whole = image.to_vec();
    put_ends_right(&mut whole, geometry.mft, geometry.record);
    let records = places_of_records(&whole, &geometry);
    records.iter().skip(1).for_each(|at| put_ends_right(&mut whole, *at, geometry.record));
    for at in (0..whole.len()).step_by(geometry.cluster).filter(|at| image.get(*at..at + 4) == Some(b"INDX")) {
        put_ends_right(&mut whole, at, INDEX_BYTES);
    }
    let image = &whole;
    // A hostile writer makes the mirror equal.
    let (mft, mirror, length) = (geometry.mft, geometry.mirror, MIRRORED as usize * geometry.record);
    let mut found = Structures::new(move |image| image.copy_within(mft..mft + length, mirror));
    found.add("boot sector", 0, SECTOR, BOOT);
    let clusters = number(image, 40, 8) * number(image, 11, 2) / geometry.cluster as u64;
    found.notable.extend([clusters, geometry.cluster as u64, geometry.record as u64]);
    found.notable.extend([geometry.mft, geometry.mirror].map(|at| (at / geometry.cluster) as u64));
    found.notable.push(records.len() as u64);
    for (number, at) in records.into_iter().enumerate() {
        // A magic number and the mark that says that it is in use.
        if image.get(at..at + 4) == Some(b"FILE") && super::number(image, at + 22, 2) & 1 != 0 {
            add_record(&mut found, image, &geometry, (at, number as u64));
        }
    }
    // The last two bytes of each sector of a record lie elsewhere.
    let records: Vec<_> =
        ["record", "index block"].iter().flat_map(|kind| found.kinds.get(kind)).flatten().copied().collect();
    let is_replaced = |at: usize| {
        at % SECTOR >= SECTOR - 2 && records.iter().any(|(start, length)| (*start..start + length).contains(&at))
    };
    found.retain(|at, bytes| !(at..at + bytes).any(is_replaced));
    found
}

/// Puts the last two bytes of each sector of a record or an index block, which a copy in its head keeps, where they belong.
fn put_ends_right(image: &mut [u8], at: usize, length: usize) {
    let ends = at + number(image, at + 4, 2) as usize + 2;
    for sector in 0..length / SECTOR {
        image.copy_within(ends + 2 * sector..ends + 2 * sector + 2, at + (sector + 1) * SECTOR - 2);
    }
}

/// Where each record lies. For the records of volumes whose $MFT has no attribute list.
fn places_of_records(image: &[u8], geometry: &Geometry) -> Vec<usize> {
    let mut records = Vec::new();
    for (at, kind) in attributes(image, geometry.mft) {
        if kind == 0x80 {
            for (first, count) in mapping(image, at, |_| ()) {
                let Some(first) = first else { continue };
                let bytes = first * geometry.cluster..(first + count) * geometry.cluster;
                records.extend(bytes.step_by(geometry.record));
            }
        }
    }
    records
}

/// Place and type of each attribute of the record there.
fn attributes(image: &[u8], record: usize) -> Vec<(usize, u64)> {
    let mut found = Vec::new();
    let mut at = record + number(image, record + 20, 2) as usize;
    loop {
        let (kind, length) = (number(image, at, 4), number(image, at + 4, 4) as usize);
        if kind == u64::from(u32::MAX) || length == 0 {
            return found;
        }
        found.push((at, kind));
        at += length;
    }
}

/// The runs of the non-resident attribute there; each number of them is shown to `see`.
fn mapping(image: &[u8], attribute: usize, mut see: impl FnMut(Field)) -> Vec<Run> {
    let mut at = attribute + number(image, attribute + 32, 2) as usize;
    let (mut runs, mut first) = (Vec::new(), 0i64);
    let mut field = |name, at, bytes| see(Field { name, at, bytes, is_big_endian: false });
    loop {
        let header = number(image, at, 1) as usize;
        field("header", at, 1);
        let (length, offset) = (header & 15, header >> 4);
        if header == 0 || length > 8 || offset > 8 || length == 0 {
            return runs;
        }
        field("clusters", at + 1, length);
        let count = number(image, at + 1, length) as usize;
        if offset > 0 {
            field("place", at + 1 + length, offset);
            let unused = 64 - 8 * offset as u32;
            first += (number(image, at + 1 + length, offset) << unused) as i64 >> unused;
        }
        runs.push(((offset > 0).then_some(first as usize), count));
        at += 1 + length + offset;
    }
}

fn add_record(found: &mut Structures, image: &[u8], geometry: &Geometry, (at, record): (usize, u64)) {
    found.add("record", at, geometry.record, RECORD);
    found.notable.push(record);
    if record < MIRRORED {
        found.add("record of the mirror", geometry.mirror + record as usize * geometry.record, geometry.record, RECORD);
    }
    for (at, kind) in attributes(image, at) {
        let length = number(image, at + 4, 4) as usize;
        found.add("attribute", at, length, ATTRIBUTE);
        let is_resident = number(image, at + 8, 1) == 0;
        let named = number(image, at + 9, 1) > 0;
        // Places and lengths of the parts of the value that are looked at.
        let parts = if is_resident {
            found.add("resident attribute", at, length, RESIDENT);
            vec![(at + number(image, at + 20, 2) as usize, number(image, at + 16, 4) as usize)]
        } else {
            found.add("non-resident attribute", at, length, NON_RESIDENT);
            let runs = mapping(image, at, |field| found.add_field("run", field));
            let parts = runs.into_iter().filter_map(|(first, count)| Some((first?, count)));
            parts.map(|(first, count)| (first * geometry.cluster, count * geometry.cluster)).collect()
        };
        match kind {
            0x20 => parts.into_iter().for_each(|(at, length)| add_list(found, image, at, at + length)),
            0x30 => parts.into_iter().for_each(|(at, length)| found.add("file name", at, length, FILE_NAME)),
            0x70 => parts.into_iter().for_each(|(at, length)| found.add("volume", at, length, VOLUME_INFORMATION)),
            0x80 if record == 6 && !named => add_bitmap(found, "cluster bitmap", &parts),
            0xb0 if record == 0 => add_bitmap(found, "record bitmap", &parts),
            0xb0 => add_bitmap(found, "index bitmap", &parts),
            0x80 if record == 2 => {
                for page in 0..2 {
                    parts.iter().for_each(|(at, _)| found.add("restart page", at + page * 4096, 4096, RESTART));
                }
            }
            0x90 => {
                for (at, length) in parts {
                    found.add("index root", at, length, INDEX_ROOT);
                    add_entries(found, image, at + 16);
                }
            }
            0xa0 => {
                for (start, length) in parts {
                    for at in (start..start + length).step_by(INDEX_BYTES) {
                        if image.get(at..at + 4) == Some(b"INDX") {
                            found.add("index block", at, INDEX_BYTES, INDEX_BLOCK);
                            add_entries(found, image, at + 24);
                        }
                    }
                }
            }
            _ => {}
        }
    }
}

fn add_list(found: &mut Structures, image: &[u8], mut at: usize, end: usize) {
    while at + 26 <= end {
        let length = number(image, at + 4, 2) as usize;
        if length == 0 {
            return;
        }
        found.add("list entry", at, length, LIST_ENTRY);
        at += length;
    }
}

/// The entries of an index, whose header is at `header`.
fn add_entries(found: &mut Structures, image: &[u8], header: usize) {
    let mut at = header + number(image, header, 4) as usize;
    let end = header + number(image, header + 4, 4) as usize;
    while at + 16 <= end {
        let length = number(image, at + 8, 2) as usize;
        found.add("index entry", at, length, INDEX_ENTRY);
        if length < 16 {
            return;
        }
        at += length;
    }
}

fn add_bitmap(found: &mut Structures, kind: &'static str, parts: &[(usize, usize)]) {
    parts.iter().for_each(|(at, length)| found.add_bytes(kind, *at..at + length));
}
