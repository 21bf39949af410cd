//! The last extent of a file, of which only a part may be in use. btrfs frees an extent only as a whole, so the rest is
//! not usable while the file exists.
//!
//! Owns the measurement of the unused part, and its removal: the file takes a copy that is only as long as its data.
//! Never writes to a file: the kernel compares the copy with the file under its own locks, and lets the file share it
//! if both are equal.

use super::items::{ExtentPart, FilePart, kind};
use longrun_layout::Bytes;
use longrun_sys::{ByteRange, Errno, Mapping, Shared, TreeKey, TreeReader, Visit};
use std::fs::File;
use std::io;
use std::os::unix::fs::{FileExt as _, MetadataExt as _};

/// No extent is longer than this.
const LONGEST: u64 = 256 << 20;
const COPIED_AT_ONCE: usize = 1 << 20;

/// The last extent of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tail {
    /// Where in the file it begins; the file ends with it.
    pub start: Bytes,
    /// What of the extent the file uses.
    pub used: Bytes,
    /// What it does not use.
    pub unused: Bytes,
}

/// The last extent of `file`; `None` when it has none, or compressed, or when what lies at its end is a hole.
///
/// # Errors
/// The kernel's.
pub fn tail(file: &File) -> Result<Option<Tail>, Errno> {
    let stat = file.metadata().map_err(|_| Errno::IO)?;
    let (inode, size) = (stat.ino(), stat.len());
    let key = |offset| TreeKey { object: inode, kind: kind::FILE_EXTENT, offset };
    let tree = longrun_sys::subvolume_of_file(file)?;
    let mut parts: Vec<(u64, ExtentPart)> = Vec::new();
    let first = key(size.saturating_sub(LONGEST));
    TreeReader::default().for_each_item(file, tree, first, key(size), |item| {
        match FilePart::decode(item.bytes) {
            Some(FilePart::Extent(part)) => parts.push((item.key.offset, part)),
            _ => parts.clear(),
        }
        Visit::Next
    })?;
    Ok(last(&parts, size))
}

fn last(parts: &[(u64, ExtentPart)], size: u64) -> Option<Tail> {
    let &(at, end) = parts.last()?;
    if end.is_compressed || at.checked_add(end.length.0)? < size || at >= size {
        return None;
    }
    let same = parts.iter().rev().take_while(|(_, part)| part.disk == end.disk);
    let (mut start, mut used) = (at, 0_u64);
    for (at, part) in same {
        (start, used) = (*at, used.checked_add(part.length.0)?);
    }
    Some(Tail { start: Bytes(start), used: Bytes(used), unused: end.disk_length.saturating_sub(Bytes(used)) })
}

/// Has `file` take a copy of its last extent that is as long as what it uses of it, made in the directory `beside` of the same
/// subvolume; whether it did. It does not where a snapshot or another file shares the extent, which would go on
/// holding it, or where the file changes meanwhile. Times and content stay as they are.
///
/// # Errors
/// The kernel's; the file is as it was then.
pub fn renew(beside: &File, file: &File, tail: &Tail) -> io::Result<bool> {
    let size = file.metadata()?.len();
    let length = size.saturating_sub(tail.start.0);
    if length == 0 || length > tail.used.0 {
        return Ok(false);
    }
    let range = ByteRange { start: tail.start, length: Bytes(length) };
    let mut shared = false;
    longrun_sys::for_each_extent(file, range, Mapping::Synced, |extent| {
        shared |= extent.flags.is_shared();
        !shared
    })?;
    if shared {
        return Ok(false);
    }
    let donor = File::from(longrun_sys::temporary_file(beside)?);
    longrun_sys::set_written_in_place(&donor, longrun_sys::attributes(file)?.is_written_in_place())?;
    longrun_sys::allocate(&donor, ByteRange { start: Bytes(0), length: tail.used })?;
    copy(file, range, &donor)?;
    // Durable before the file refers to it: a crash finds the one or the other, both whole.
    longrun_sys::sync_file(&donor)?;
    Ok(longrun_sys::share_if_same(beside, &donor, Bytes(0), file, range)? == Shared::Same(Bytes(length)))
}

fn copy(file: &File, range: ByteRange, donor: &File) -> io::Result<()> {
    let mut buffer = vec![0; COPIED_AT_ONCE];
    let mut done = 0;
    while done < range.length.0 {
        let next = COPIED_AT_ONCE.min(usize::try_from(range.length.0 - done).unwrap_or(COPIED_AT_ONCE));
        let Some(part) = buffer.get_mut(..next) else { break };
        file.read_exact_at(part, range.start.0 + done)?;
        donor.write_all_at(part, done)?;
        done += next as u64;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::super::Address;
    use super::*;

    const MIB: u64 = 1 << 20;

    fn part(disk: u64, disk_length: u64, length: u64) -> ExtentPart {
        ExtentPart {
            disk: Address(disk),
            disk_length: Bytes(disk_length),
            offset: Bytes(0),
            length: Bytes(length),
            data_length: Bytes(disk_length),
            is_compressed: false,
            is_preallocated: false,
        }
    }

    #[test]
    fn what_several_parts_use_of_the_last_extent_is_counted_together() {
        let parts = [(0, part(5, MIB, MIB)), (MIB, part(9, 16 * MIB, 4096)), (MIB + 4096, part(9, 16 * MIB, 8192))];
        let expected = Tail { start: Bytes(MIB), used: Bytes(12288), unused: Bytes(16 * MIB - 12288) };
        assert_eq!(last(&parts, MIB + 12000), Some(expected));
        // It ends in a hole.
        assert_eq!(last(&parts, 3 * MIB), None);
        assert_eq!(last(&[], MIB), None);
        let compressed = ExtentPart { is_compressed: true, ..part(9, MIB, MIB) };
        assert_eq!(last(&[(0, compressed)], 10), None);
        assert_eq!(last(&[(u64::MAX, part(1, MIB, u64::MAX))], 10), None);
    }
}
