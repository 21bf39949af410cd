//! The structures of images that keep a disk in blocks, found by tables: VMDK, VHD, VDI and VHDX, as the specifications of VMware and Microsoft
//! and VirtualBox's VDICore.h define them.

use super::{Layout, Structures, big_endian_number, number};

const ENTRY_OF_4: Layout = &[("entry", 0, 4)];
const ENTRY_OF_8: Layout = &[("entry", 0, 8)];
/// A table may be long; what is behind the first blocks of the disk is like them.
const MOST: usize = 512;

/// The structures of a sound VMDK in one file, without its description, which is text.
#[must_use]
pub fn vmdk(image: &[u8]) -> Structures {
    const HEADER: Layout = &[
        ("magic", 0, 4),
        ("version", 4, 4),
        ("flags", 8, 4),
        ("capacity", 12, 8),
        ("grain", 20, 8),
        ("description", 28, 8),
        ("description length", 36, 8),
        ("table length", 44, 4),
        ("second directory", 48, 8),
        ("directory", 56, 8),
        ("overhead", 64, 8),
        ("dirty", 72, 1),
        ("compression", 77, 2),
    ];
    let get = |at, bytes| number(image, at, bytes) as usize;
    let mut found = Structures::new(|_| ());
    found.add("header", 0, 512, HEADER);
    let entries = get(44, 4);
    let tables = get(12, 8).div_ceil(get(20, 8) * entries);
    for (kind, table_kind, directory) in
        [("directory", "table", get(56, 8)), ("second directory", "second table", get(48, 8))]
    {
        for at in (0..tables).map(|entry| directory * 512 + entry * 4) {
            found.add(kind, at, 4, ENTRY_OF_4);
            let table = get(at, 4) * 512;
            for at in (table..table + entries * 4).step_by(4).filter(|at| get(*at, 4) != 0).take(MOST) {
                found.add(table_kind, at, 4, ENTRY_OF_4);
            }
        }
    }
    found
        .notable
        .extend([image.len() / 512, get(48, 8), get(56, 8), get(64, 8), entries].map(|notable| notable as u64));
    found
}

/// The structures of a sound VHD that grows.
#[must_use]
pub fn vhd(image: &[u8]) -> Structures {
    const FOOTER: Layout = &[
        ("features", 8, 4),
        ("version", 12, 4),
        ("header", 16, 8),
        ("creator", 28, 4),
        ("original size", 40, 8),
        ("size", 48, 8),
        ("cylinders", 56, 2),
        ("heads", 58, 1),
        ("sectors", 59, 1),
        ("kind", 60, 4),
        ("saved", 84, 1),
    ];
    const HEADER: Layout =
        &[("magic", 0, 8), ("next", 8, 8), ("table", 16, 8), ("version", 24, 4), ("entries", 28, 4), ("block", 32, 4)];
    let get = |at, bytes| big_endian_number(image, at, bytes) as usize;
    let (header, footer) = (get(16, 8), image.len() - 512);
    let (table, entries) = (get(header + 16, 8), get(header + 28, 4));
    let mut found = Structures::new(move |image| {
        image.copy_within(..512, footer);
        for (at, length, sum) in [(0, 512, 64), (footer, 512, 64), (header, 1024, 36)] {
            let Some(all) = image.get_mut(at..at + length) else { continue };
            all[sum..sum + 4].fill(0);
            let total: u32 = all.iter().map(|byte| u32::from(*byte)).sum();
            all[sum..sum + 4].copy_from_slice(&(!total).to_be_bytes());
        }
    });
    found.add_ordered("footer", (0, 512), FOOTER, true);
    found.add_ordered("header", (header, 1024), HEADER, true);
    for at in (table..table + entries * 4).step_by(4).take(MOST) {
        found.add_ordered("table", (at, 4), ENTRY_OF_4, true);
    }
    found.notable.extend([image.len() / 512, header / 512, table / 512, entries].map(|notable| notable as u64));
    found
}

/// The structures of a sound VDI.
#[must_use]
pub fn vdi(image: &[u8]) -> Structures {
    const HEADER: Layout = &[
        ("signature", 64, 4),
        ("version", 68, 4),
        ("header length", 72, 4),
        ("kind", 76, 4),
        ("flags", 80, 4),
        ("table", 0x154, 4),
        ("blocks", 0x158, 4),
        ("sector", 0x168, 4),
        ("size", 0x170, 8),
        ("block", 0x178, 4),
        ("block extra", 0x17c, 4),
        ("block count", 0x180, 4),
        ("blocks there", 0x184, 4),
    ];
    let get = |at, bytes| number(image, at, bytes) as usize;
    let mut found = Structures::new(|_| ());
    found.add("header", 0, 512, HEADER);
    let (table, entries) = (get(0x154, 4), get(0x180, 4));
    for at in (table..table + entries * 4).step_by(4).take(MOST) {
        found.add("table", at, 4, ENTRY_OF_4);
    }
    found.notable.extend([image.len(), table, get(0x158, 4), entries, get(0x184, 4)].map(|notable| notable as u64));
    found
}

/// The structures of a sound VHDX.
#[must_use]
pub fn vhdx(image: &[u8]) -> Structures {
    const HEADER: Layout = &[
        ("signature", 0, 4),
        ("sequence", 8, 8),
        ("log id", 48, 8),
        ("log version", 64, 2),
        ("version", 66, 2),
        ("log length", 68, 4),
        ("log", 72, 8),
    ];
    const REGIONS: Layout = &[("signature", 0, 4), ("count", 8, 4)];
    const REGION: Layout = &[("name", 0, 4), ("place", 16, 8), ("length", 24, 4), ("required", 28, 4)];
    const ITEMS: Layout = &[("signature", 0, 8), ("count", 10, 2)];
    const ITEM: Layout = &[("name", 0, 4), ("place", 16, 4), ("length", 20, 4), ("flags", 24, 4)];
    /// The longest items are numbers of 8 bytes.
    const VALUE: Layout = &[("value", 0, 4), ("second half", 4, 4)];
    /// Offsets and lengths of what has a checksum, at its fifth byte.
    const SUMMED: [(usize, usize); 4] =
        [(64 << 10, 4096), (128 << 10, 4096), (192 << 10, 64 << 10), (256 << 10, 64 << 10)];
    let get = |at, bytes| number(image, at, bytes) as usize;
    let mut found = Structures::new(|image| {
        image.copy_within(192 << 10..256 << 10, 256 << 10);
        for (at, length) in SUMMED {
            let Some(all) = image.get_mut(at..at + length) else { continue };
            all[4..8].fill(0);
            let sum = crc32c::crc32c(all);
            all[4..8].copy_from_slice(&sum.to_le_bytes());
        }
    });
    found.add("header", 64 << 10, 80, HEADER);
    found.add("header", 128 << 10, 80, HEADER);
    let regions = 192 << 10;
    found.add("regions", regions, 16, REGIONS);
    // qemu-img writes the table first, and then what describes the disk.
    let [table, description] = [0, 1].map(|region| regions + 16 + region * 32);
    for at in [table, description] {
        found.add("region", at, 32, REGION);
    }
    let [table, description] = [table, description].map(|region| get(region + 16, 8));
    found.add("items", description, 32, ITEMS);
    for at in (0..get(description + 10, 2)).map(|item| description + 32 + item * 32) {
        found.add("item", at, 32, ITEM);
        found.add("value", description + get(at + 16, 4), get(at + 20, 4).min(8), VALUE);
    }
    for at in (table..table + MOST * 8).step_by(8).filter(|at| get(*at, 8) != 0) {
        found.add("table", at, 8, ENTRY_OF_8);
    }
    // Entries have the state of a block in their last bits.
    let places = [image.len(), table, description, get((64 << 10) + 72, 8)];
    found.notable.extend(places.into_iter().flat_map(|place| [place as u64, place as u64 | 6]));
    found
}
