//! Finds the directory of each file, in one pass over all directory blocks in physical order.

use super::device::Device;
use super::directory::{self, Entry, is_self_or_parent};
use super::fault::{Fault, Read, settled_briefly};
use super::inode::Inode;
use longrun_layout::{NO_DIRECTORY, Run};

/// Bytes of directory blocks read at once.
const WINDOW_BYTES: u64 = 1 << 20;
/// A gap between directory blocks that is cheaper to read than to skip, in bytes.
const GAP_BYTES: u64 = 64 << 10;

/// A contiguous part of a directory, in 24 bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Part {
    physical: u64,
    length: u64,
    directory: u32,
    generation: u32,
}

/// Collects directories during the inode pass, and finds parents afterwards.
#[derive(Debug, Default)]
pub(super) struct Parents {
    parts: Vec<Part>,
    /// (child, directory) from directories kept in their inodes.
    inline: Vec<(u32, u32)>,
    /// Directory blocks that could not be understood.
    pub(super) unreadable_blocks: u64,
}

impl Parents {
    /// Remembers where a directory lies.
    pub(super) fn add_directory(&mut self, inode: &Inode, runs: &[Run]) {
        let (directory, generation) = (inode.number, inode.generation);
        self.parts.extend(runs.iter().map(|r| Part {
            physical: r.physical.0,
            length: r.length.0,
            directory,
            generation,
        }));
    }

    /// Takes the entries of a directory kept in its inode.
    pub(super) fn add_inline(&mut self, inode: &Inode, continuation: &[u8]) {
        let mut found = Vec::new();
        let read = directory::for_each_inline_entry(&inode.map, continuation, |entry| {
            if !is_self_or_parent(entry.name) {
                found.push((entry.inode, inode.number));
            }
        });
        self.unreadable_blocks += u64::from(read.is_err());
        self.inline.extend(found);
    }

    /// The directory of each of `inodes` (ascending); [`NO_DIRECTORY`] where none names it. Of several hard links the
    /// first found counts.
    pub(super) fn find(&mut self, device: &Device, inodes: &[u32]) -> Read<Vec<u32>> {
        let mut parents = vec![NO_DIRECTORY; inodes.len()];
        let mut note = |child: u32, directory: u32| {
            if let Ok(at) = inodes.binary_search(&child)
                && let Some(parent) = parents.get_mut(at)
                && *parent == NO_DIRECTORY
            {
                *parent = directory;
            }
        };
        for (child, directory) in self.inline.drain(..) {
            note(child, directory);
        }
        self.parts.sort_unstable();
        let parts = std::mem::take(&mut self.parts);
        let mut buffer = Vec::new();
        let mut rest = parts.as_slice();
        while !rest.is_empty() {
            rest = self.read_window(device, rest, &mut buffer, &mut note)?;
        }
        Ok(parents)
    }

    /// Reads as many parts as lie close together; returns those left.
    fn read_window<'p>(
        &mut self,
        device: &Device,
        parts: &'p [Part],
        buffer: &mut Vec<u8>,
        note: &mut impl FnMut(u32, u32),
    ) -> Read<&'p [Part]> {
        let size = u64::from(device.sb.block_size.bytes());
        let Some(first) = parts.first() else { return Ok(&[]) };
        if first.length * size > WINDOW_BYTES {
            self.read_long(device, first, buffer, note)?;
            return Ok(parts.get(1..).unwrap_or_default());
        }
        let mut end = first.physical + first.length;
        let taken = parts.iter().take_while(|part| {
            let part_end = (part.physical + part.length).max(end);
            let near = part.physical <= end + GAP_BYTES / size && (part_end - first.physical) * size <= WINDOW_BYTES;
            if near {
                end = part_end;
            }
            near
        });
        let (window, left) = parts.split_at_checked(taken.count().max(1)).unwrap_or_default();
        buffer.resize(((end - first.physical) * size) as usize, 0);
        device.source.read_exact_at(buffer, device.sb.offset(first.physical))?;
        for part in window {
            let from = ((part.physical - first.physical) * size) as usize;
            let bytes = buffer.get(from..from + (part.length * size) as usize).unwrap_or_default();
            self.read_blocks(device, part, part.physical, bytes, note)?;
        }
        Ok(left)
    }

    /// Reads a part that is longer than a window, window by window.
    fn read_long(
        &mut self,
        device: &Device,
        part: &Part,
        buffer: &mut Vec<u8>,
        note: &mut impl FnMut(u32, u32),
    ) -> Read<()> {
        let size = u64::from(device.sb.block_size.bytes());
        let step = WINDOW_BYTES / size;
        for at in (part.physical..part.physical + part.length).step_by(step as usize) {
            let blocks = step.min(part.physical + part.length - at);
            buffer.resize((blocks * size) as usize, 0);
            device.source.read_exact_at(buffer, device.sb.offset(at))?;
            self.read_blocks(device, part, at, buffer, note)?;
        }
        Ok(())
    }

    fn read_blocks(
        &mut self,
        device: &Device,
        part: &Part,
        first: u64,
        bytes: &[u8],
        note: &mut impl FnMut(u32, u32),
    ) -> Read<()> {
        let numbers = (part.directory.to_le_bytes(), part.generation.to_le_bytes());
        let seed = device.sb.seed.map(|s| s.over(&numbers.0).over(&numbers.1));
        let mut each = |entry: Entry<'_>| {
            if !is_self_or_parent(entry.name) {
                note(entry.inode, part.directory);
            }
        };
        for (block, location) in bytes.chunks_exact(device.sb.block_size.bytes() as usize).zip(first..) {
            let mut result = directory::check_block(seed, block);
            let mut again = Vec::new();
            if result.is_err() {
                again.resize(block.len(), 0);
                result = settled_briefly(device.access, || {
                    device.source.read_exact_at(&mut again, device.sb.offset(location))?;
                    directory::check_block(seed, &again)
                });
            }
            let checked = if again.is_empty() { block } else { &again };
            match result.and_then(|()| directory::for_each_entry(checked, &mut each)) {
                Ok(()) => {}
                // A live directory may have shrunk or moved meanwhile: then its files just have no directory.
                Err(Fault::Damaged(_)) => self.unreadable_blocks += 1,
                Err(other) => return Err(other),
            }
        }
        Ok(())
    }
}
