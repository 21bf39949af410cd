//! The structures of a qcow2 image, as QEMU's specification of the format (docs/interop/qcow2) defines them. All numbers are big-endian.

use super::{Layout, Structures, big_endian_number};

const HEADER: Layout = &[
    ("magic", 0, 4),
    ("version", 4, 4),
    ("backing file", 8, 8),
    ("backing file length", 16, 4),
    ("cluster bits", 20, 4),
    ("size", 24, 8),
    ("encryption", 32, 4),
    ("first table entries", 36, 4),
    ("first table", 40, 8),
    ("count table", 48, 8),
    ("count table clusters", 56, 4),
    ("snapshots", 60, 4),
    ("snapshot table", 64, 8),
    ("incompatible features", 72, 8),
    ("compatible features", 80, 8),
    ("automatically cleared features", 88, 8),
    ("count order", 96, 4),
    ("header length", 100, 4),
    ("compression", 104, 1),
];

const EXTENSION: Layout = &[("type", 0, 4), ("length", 4, 4)];
const ENTRY: Layout = &[("entry", 0, 8)];
const COUNT: Layout = &[("count", 0, 2)];

/// Where an entry of a table leads.
const PLACE: u64 = 0x00ff_ffff_ffff_fe00;

/// The structures of a sound image of version 3 with reference counts of 16 bits.
#[must_use]
pub fn qcow2(image: &[u8]) -> Structures {
    let number = |at, bytes| big_endian_number(image, at, bytes);
    let mut found = Structures::new(|_| ());
    let mut add = |kind, at, length, layout| found.add_ordered(kind, (at, length), layout, true);
    add("header", 0, 112, HEADER);
    let (cluster, length) = (1usize << number(20, 4), number(100, 4) as usize);
    let mut at = length;
    while number(at, 4) != 0 {
        add("extension", at, 8, EXTENSION);
        at += 8 + (number(at + 4, 4) as usize).next_multiple_of(8);
    }
    let entries = |table: usize, count: usize| (table..table + count * 8).step_by(8).filter(|at| number(*at, 8) != 0);
    for at in entries(number(40, 8) as usize, number(36, 4) as usize) {
        add("first table", at, 8, ENTRY);
        for at in entries((number(at, 8) & PLACE) as usize, cluster / 8) {
            add("second table", at, 8, ENTRY);
        }
    }
    for at in entries(number(48, 8) as usize, number(56, 4) as usize * cluster / 8) {
        add("count table", at, 8, ENTRY);
        let block = number(at, 8) as usize;
        for at in (block..block + cluster).step_by(2).filter(|at| number(*at, 2) != 0) {
            add("count block", at, 2, COUNT);
        }
    }
    found.notable.extend([cluster as u64, image.len() as u64, (image.len() / cluster) as u64, number(24, 8)]);
    found
}
