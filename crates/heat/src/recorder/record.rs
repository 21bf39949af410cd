//! Decodes and encodes the records of the BPF programs. Pure. The layout, which the C header defines, comes from the type information
//! of the compiled object.

use super::skeleton::types;
use super::{Counted, Harvested};
use longrun_bpf::{KernelDevice, put, u32_at, u64_at};
use longrun_layout::{FileId, InodeNumber};
use std::mem::offset_of;

/// The value of a device of `volume` that was not used yet.
pub(super) fn device(volume: KernelDevice, subvolumes: bool) -> Vec<u8> {
    use types::heat_device as D;
    let mut value = vec![0; size_of::<D>()];
    put(&mut value, offset_of!(D, volume), &volume.bytes());
    put(&mut value, offset_of!(D, subvolumes), &u32::from(subvolumes).to_ne_bytes());
    value
}

/// Adds the totals of a device.
pub(super) fn add_device(to: &mut Harvested, bytes: &[u8], sign: i64) {
    use types::heat_device as D;
    let at = |offset| u64_at(bytes, offset).unwrap_or(0);
    let change = |to: &mut u64, by: u64| *to = if sign < 0 { to.saturating_sub(by) } else { to.saturating_add(by) };
    change(&mut to.reads, at(offset_of!(D, reads)));
    change(&mut to.read_bytes, at(offset_of!(D, read_bytes)));
    change(&mut to.own_reads, at(offset_of!(D, own_reads)));
}

/// The file of a key, and its volume.
pub(super) fn key(bytes: &[u8]) -> Option<(KernelDevice, FileId)> {
    use types::heat_key as K;
    let inode = InodeNumber(u64_at(bytes, offset_of!(K, inode))?);
    let generation = u32_at(bytes, offset_of!(K, generation))?;
    Some((KernelDevice(u32_at(bytes, offset_of!(K, volume))?), FileId { inode, generation }))
}

/// The counts of a file.
pub(super) fn count(bytes: &[u8]) -> Option<Counted> {
    use types::heat_count as C;
    Some(Counted {
        reads: u64_at(bytes, offset_of!(C, reads))?,
        read_bytes: u64_at(bytes, offset_of!(C, read_bytes))?,
        writes: u64_at(bytes, offset_of!(C, writes))?,
        written_bytes: u64_at(bytes, offset_of!(C, written_bytes))?,
    })
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests may fail loudly")]
mod tests {
    use super::*;

    #[test]
    fn the_layout_of_the_compiled_object_is_the_headers() {
        assert_eq!((size_of::<types::heat_key>(), size_of::<types::heat_count>()), (16, 32));
        assert_eq!((size_of::<types::heat_device>(), size_of::<types::heat_task>()), (32, 24));
    }

    #[test]
    fn records_are_read_as_they_were_written_and_short_ones_are_none() {
        let bytes: Vec<u8> = [9u64, 5 | 77 << 32].iter().flat_map(|n| n.to_ne_bytes()).collect();
        let file = FileId { inode: InodeNumber(9), generation: 5 };
        assert_eq!(key(&bytes), Some((KernelDevice(77), file)));
        assert_eq!(key(&bytes[..15]), None);
        let bytes: Vec<u8> = [1u64, 2, 3, 4].iter().flat_map(|n| n.to_ne_bytes()).collect();
        assert_eq!(count(&bytes), Some(Counted { reads: 1, read_bytes: 2, writes: 3, written_bytes: 4 }));
        assert_eq!(count(&bytes[..31]), None);
    }
}
