//! Where the parts of a disk are in an image, and where the tables are that say so.
//!
//! Owns the refusal of an image in which two of them share a byte: what is written to one would change the other, and a table that is
//! overwritten takes files with it. `qemu-img check` looks for all of that in qcow2 only. Never reads what is in the parts.
//!
//! The layouts are those of Microsoft's VHD and VHDX and VMware's virtual disk specifications, and of VirtualBox's VDICore.h. What counts is
//! what QEMU does when it writes (block/vmdk.c, vpc.c, vhdx.c and vdi.c of 7.2).

use crate::bytes::{array, be32, be64, le32, le64};
use crate::format::{Format, damaged, read};
use crate::gpt::text_of;
use crate::{Disk, ImageError};
use std::ops::RangeInclusive;

const SECTOR: u64 = 512;
const MIB: u64 = 1 << 20;
/// Bytes of a table that are read at a time. A multiple of the length of every entry.
const READ_AT_ONCE: u64 = MIB;

/// Fails when two parts of the disk, two tables, or a part and a table have the same place in an image, or a part has one that QEMU would give
/// to another. Raw images have no tables, and qcow2 is left to `qemu-img check`.
///
/// Takes 16 bytes of memory for each part that does not lie behind the one before: for an image with blocks of 64 KiB at most 1/4096 of its
/// length.
pub(crate) fn check_places(image: &dyn Disk, format: Format) -> Result<(), ImageError> {
    let length = image.length().0;
    let mut places = Places { image, format, all: Vec::new(), total: 0, end: length };
    match format {
        Format::Raw | Format::Qcow2 => {}
        Format::Vmdk => vmdk(&mut places)?,
        Format::Vhdx => vhdx(&mut places)?,
        Format::Vhd => vhd(&mut places)?,
        Format::Vdi => vdi(&mut places)?,
    }
    places.check()
}

struct Places<'a> {
    image: &'a dyn Disk,
    format: Format,
    /// First byte and length of each.
    all: Vec<(u64, u64)>,
    total: u64,
    /// Where QEMU puts the next part. None may reach beyond that, and all together have no more bytes.
    end: u64,
}

impl Places<'_> {
    fn add(&mut self, at: u64, length: u64) -> Result<(), ImageError> {
        if length == 0 {
            return Ok(());
        }
        let end = at.checked_add(length).filter(|end| *end <= self.end);
        let end = end.ok_or_else(|| {
            self.error(
                "a part of the disk or a table is beyond the end of the image, or where the next new part would go",
            )
        })?;
        self.total = self.total.saturating_add(length);
        if self.total > self.end {
            return Err(self.overlap());
        }
        match self.all.last_mut() {
            Some(last) if last.0 + last.1 == at => last.1 = end - last.0,
            _ => self.all.push((at, length)),
        }
        Ok(())
    }

    fn check(mut self) -> Result<(), ImageError> {
        self.all.sort_unstable();
        let meet = |pair: &[(u64, u64)]| matches!(pair, [(at, length), (next, _)] if at + length > *next);
        if self.all.windows(2).any(meet) { Err(self.overlap()) } else { Ok(()) }
    }

    fn overlap(&self) -> ImageError {
        self.error("two parts of the disk, or a part and a table, have the same place in the image")
    }

    fn error(&self, message: &str) -> ImageError {
        ImageError::Errors { path: self.image.path().to_owned(), message: message.to_owned() }
    }

    fn damaged(&self) -> ImageError {
        damaged(self.image, self.format)
    }

    /// All bytes of a range, which must lie in the image.
    fn read(&self, at: u64, length: u64) -> Result<Vec<u8>, ImageError> {
        let wanted = usize::try_from(length).map_err(|_| self.damaged())?;
        let found = read(self.image, at, wanted)?;
        if found.len() == wanted { Ok(found) } else { Err(self.damaged()) }
    }

    /// Calls `with` for each entry of `N` bytes of the table at `at`, with its number.
    fn entries<const N: usize>(
        &mut self,
        at: u64,
        count: u64,
        mut with: impl FnMut(&mut Self, u64, [u8; N]) -> Result<(), ImageError>,
    ) -> Result<(), ImageError> {
        let (mut number, each) = (0, N as u64);
        while number < count {
            let here = (count - number).min(READ_AT_ONCE / each);
            let at = at.checked_add(number * each).ok_or_else(|| self.damaged())?;
            let part = self.read(at, here * each)?;
            for entry in part.as_chunks().0 {
                with(self, number, *entry)?;
                number += 1;
            }
        }
        Ok(())
    }

    /// What was found in the header, which is damaged if there is nothing.
    fn sound<T>(&self, found: Option<T>) -> Result<T, ImageError> {
        found.ok_or_else(|| self.damaged())
    }
}

/// A header, two directories of tables with the same content, and the parts, all in sectors.
fn vmdk(places: &mut Places<'_>) -> Result<(), ImageError> {
    const HAS_SECOND_DIRECTORY: u32 = 1 << 1;
    const HAS_ZEROED: u32 = 1 << 2;
    /// Of a part that reads as zeros.
    const ZEROED: u32 = 1;
    /// What QEMU accepts.
    const MOST_TABLES: u64 = 32 << 20;
    const LONGEST_PART: u64 = 0x20_0000;
    let header = places.read(0, SECTOR)?;
    let sectors = |at| le64(&header, at).and_then(|sectors| sectors.checked_mul(SECTOR));
    let part = places.sound(le64(&header, 20).filter(|part| (1..=LONGEST_PART).contains(part)))?;
    let entries = places.sound(le32(&header, 44).filter(|count| *count > 0).map(u64::from))?;
    let capacity = places.sound(le64(&header, 12))?;
    let tables = part.checked_mul(entries).map(|sectors| capacity.div_ceil(sectors));
    let tables = places.sound(tables.filter(|count| *count <= MOST_TABLES))?;
    let flags = places.sound(le32(&header, 8))?;
    let (description, length) = places.sound(sectors(28).zip(sectors(36)))?;
    let (second, first) = places.sound(sectors(48).zip(sectors(56)))?;
    places.end = places.sound(places.end.checked_next_multiple_of(part * SECTOR))?;
    places.add(0, SECTOR)?;
    places.add(description, length)?;
    places.add(first, tables * 4)?;
    // Two names of one are no harm: both copies are always written alike.
    let second = Some(second).filter(|second| flags & HAS_SECOND_DIRECTORY != 0 && *second != first);
    let copies = match second {
        Some(at) => {
            places.add(at, tables * 4)?;
            Some(places.read(at, tables * 4)?)
        }
        None => None,
    };
    places.entries(first, tables, |places, number, table: [u8; 4]| {
        let table = u32::from_le_bytes(table);
        if table == 0 {
            return Ok(());
        }
        let place = u64::from(table) * SECTOR;
        places.add(place, entries * 4)?;
        match copies.as_ref().and_then(|copies| le32(copies, number as usize * 4)) {
            // QEMU would write the copy of an entry to the header of the image.
            Some(0) => return Err(places.error("a table of its parts has no copy")),
            Some(copy) if copy != table => places.add(u64::from(copy) * SECTOR, entries * 4)?,
            _ => {}
        }
        places.entries(place, entries, |places, _, entry: [u8; 4]| match u32::from_le_bytes(entry) {
            0 => Ok(()),
            ZEROED if flags & HAS_ZEROED != 0 => Ok(()),
            at => places.add(u64::from(at) * SECTOR, part * SECTOR),
        })
    })
}

/// A copy of the footer, a header, the table, and the parts, each behind the bitmap of its sectors; then the footer.
fn vhd(places: &mut Places<'_>) -> Result<(), ImageError> {
    const NOT_THERE: u32 = u32::MAX;
    const HEADER: u64 = 1024;
    let start = places.read(0, SECTOR)?;
    let at = places.sound(be64(&start, 16))?;
    places.add(0, SECTOR)?;
    places.add(at, HEADER)?;
    let header = places.read(at, HEADER)?;
    let table = places.sound(be64(&header, 16))?;
    let count = places.sound(be32(&header, 28).map(u64::from))?;
    let part = places.sound(be32(&header, 32).filter(|part| part.is_power_of_two()).map(u64::from))?;
    let bitmap = (part / (8 * SECTOR)).next_multiple_of(SECTOR);
    places.add(table, count * 4)?;
    // Virtual PC before 2004 made footers with a byte less.
    let footer = (places.end - 1) / SECTOR * SECTOR;
    places.add(footer, places.end - footer)?;
    places.entries(table, count, |places, _, entry: [u8; 4]| match u32::from_be_bytes(entry) {
        NOT_THERE => Ok(()),
        at => places.add(u64::from(at) * SECTOR, bitmap + part),
    })
}

/// A header, the table, and the parts, one behind the other. The table has their numbers.
fn vdi(places: &mut Places<'_>) -> Result<(), ImageError> {
    /// Not there, or discarded.
    const NOT_THERE: u32 = u32::MAX - 1;
    let header = places.read(0, SECTOR)?;
    let number = |at| le32(&header, at).map(u64::from);
    let (table, parts) = places.sound(number(0x154).zip(number(0x158)))?;
    let length = places.sound(number(0x178).filter(|length| *length > 0))?;
    let (count, used) = places.sound(number(0x180).zip(number(0x184)))?;
    // The next part gets the number of those that are there.
    places.end = (parts + used * length).min(places.end + length).max(table + count * 4);
    places.add(0, SECTOR)?;
    places.add(table, count * 4)?;
    places.entries(table, count, |places, _, entry: [u8; 4]| match u32::from_le_bytes(entry) {
        NOT_THERE.. => Ok(()),
        number => places.add(parts + u64::from(number) * length, length),
    })
}

type Guid = [u8; 16];

/// The headers, a log, regions, and the parts. One region is the table, another one describes the disk.
fn vhdx(places: &mut Places<'_>) -> Result<(), ImageError> {
    const REGIONS: u64 = 192 << 10;
    const TABLE: &str = "2DC27766-F623-4200-9D64-115E9BFD4A08";
    const DESCRIPTION: &str = "8B7CA206-4790-4B9A-B8FE-575F050F886E";
    const PARAMETERS: &str = "CAA16737-FA36-4D43-B3B6-33F0AA44E76B";
    const SIZE: &str = "2FA54224-CD1B-4876-B211-5DBED83BF4B8";
    const SECTOR_SIZE: &str = "8141BF1D-A96F-4709-BA47-F233A8FAAB5F";
    /// Of a part that is there.
    const PRESENT: u64 = 6;
    /// What the format allows.
    const LENGTHS: RangeInclusive<u64> = MIB..=256 * MIB;
    let (log, log_length) = current_log(places)?;
    places.end = places.sound(places.end.checked_next_multiple_of(MIB))?;
    places.add(0, MIB)?;
    places.add(log, log_length)?;
    let regions = items(places, REGIONS, |table| le32(table, 8), 16, |item| le64(item, 16).zip(le32(item, 24)))?;
    for (_, (at, length)) in &regions {
        places.add(*at, u64::from(*length))?;
    }
    let (table, _) = find(places, &regions, TABLE)?;
    let (description, _) = find(places, &regions, DESCRIPTION)?;
    let described =
        items(places, description, |table| array(table, 10).map(u16::from_le_bytes), 32, |item| le32(item, 16))?;
    let value = |wanted, length| places.read(description + u64::from(find(places, &described, wanted)?), length);
    let part = le32(&value(PARAMETERS, 4)?, 0).map(u64::from);
    let part = places.sound(part.filter(|part| LENGTHS.contains(part)))?;
    let size = places.sound(le64(&value(SIZE, 8)?, 0))?;
    let sector = places.sound(le32(&value(SECTOR_SIZE, 4)?, 0).map(u64::from))?;
    // Behind the entries of each group of parts there is one for the bitmap of their sectors.
    let group = places.sound(Some((sector << 23) / part).filter(|group| *group > 0))?;
    let parts = size.div_ceil(part);
    places.entries(table, parts + parts.saturating_sub(1) / group, |places, number, entry: [u8; 8]| {
        let entry = u64::from_le_bytes(entry);
        if entry % 8 != PRESENT || number % (group + 1) == group {
            return Ok(());
        }
        places.add(entry / MIB * MIB, part)
    })
}

/// Place and length of the log, by that of two headers that is newer and whole.
fn current_log(places: &Places<'_>) -> Result<(u64, u64), ImageError> {
    const HEADERS: [u64; 2] = [64 << 10, 128 << 10];
    let mut newest = None;
    for at in HEADERS {
        let mut header = places.read(at, 4096)?;
        let sum = le32(&header, 4);
        header.get_mut(4..8).unwrap_or_default().fill(0);
        if header.starts_with(b"head") && sum == Some(crc32c::crc32c(&header)) {
            newest = newest.max(le64(&header, 8).zip(le64(&header, 72).zip(le32(&header, 68))));
        }
    }
    let (_, (at, length)) = places.sound(newest)?;
    Ok((at, u64::from(length)))
}

/// The items of a table of a VHDX, as `decode` finds them. `count` finds their number in it, and `first` is where the first one is.
fn items<T, N: Into<u32>>(
    places: &Places<'_>,
    table: u64,
    count: impl Fn(&[u8]) -> Option<N>,
    first: usize,
    decode: impl Fn(&[u8]) -> Option<T>,
) -> Result<Vec<(Guid, T)>, ImageError> {
    const ITEM: usize = 32;
    let table = places.read(table, 64 << 10)?;
    let count: u32 = places.sound(count(&table))?.into();
    let item = |number: u32| {
        let item = table.get(first + (number as usize).checked_mul(ITEM)?..)?.first_chunk::<ITEM>()?;
        Some((array(item, 0)?, decode(item)?))
    };
    (0..count).map(|number| places.sound(item(number))).collect()
}

fn find<T: Copy>(places: &Places<'_>, items: &[(Guid, T)], wanted: &str) -> Result<T, ImageError> {
    places.sound(items.iter().find(|(name, _)| text_of(name) == wanted).map(|(_, item)| *item))
}

#[cfg(test)]
mod tests;
