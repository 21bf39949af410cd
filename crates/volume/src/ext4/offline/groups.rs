//! Which blocks are in use after the next commit: block bitmaps, descriptors, and the superblock's count.
//!
//! Owns the free space of the volume. Never decides what is taken.

use super::patches::Patches;
use crate::bytes::{bit, le32, put};
use crate::ext4::scan::device::Device;
use crate::ext4::scan::fault::{Read, damaged};
use crate::ext4::scan::group::{descriptor_location, free_blocks, put_bitmap, read_group};
use crate::ext4::scan::superblock::incompat;
use crate::ext4::scan::{Area, Areas};
use longrun_layout::{Blocks, Extent, ExtentSet, PhysicalBlock};
use std::collections::BTreeMap;

/// A group whose bitmap is changed.
struct Bitmap {
    old: Vec<u8>,
    new: Vec<u8>,
}

/// The block groups of a volume that is being changed.
pub(super) struct Groups {
    free: ExtentSet,
    fixed: Areas,
    changed: BTreeMap<u32, Bitmap>,
}

/// The writes of a transaction that concern the free space.
pub(super) struct Steps {
    /// What becomes used is marked so, nothing is marked as free.
    pub(super) allocate: Patches,
    /// What became free is marked so.
    pub(super) free: Patches,
    /// How many more blocks are free afterwards.
    pub(super) more_free: i64,
}

impl Groups {
    pub(super) fn new(free: ExtentSet, fixed: Areas) -> Self {
        Self { free, fixed, changed: BTreeMap::new() }
    }

    /// What is free, or becomes free by the next commit.
    pub(super) fn free(&self) -> &ExtentSet {
        &self.free
    }

    /// Marks blocks as in use, or as free. They must have been the opposite.
    pub(super) fn set(&mut self, device: &Device, extent: Extent, is_used: bool) -> Read<()> {
        let mut at = extent.start;
        while at < extent.end() {
            let number = (at.0 - device.sb.first_data_block) / device.sb.blocks_per_group;
            let Ok(number) = u32::try_from(number) else { return damaged(format!("there is no block {at}")) };
            let whole = device.sb.group_extent(number);
            let part = Extent::between(at, extent.end().min(whole.end()));
            if !self.changed.contains_key(&number) {
                let old = self.read(device, number)?;
                self.changed.insert(number, Bitmap { new: old.clone(), old });
            }
            let Some(bitmap) = self.changed.get_mut(&number) else { return damaged("a group is missing") };
            let first = (part.start.0 - whole.start.0) as usize;
            for index in first..first + part.length.0 as usize {
                if bit(&bitmap.new, index) == is_used {
                    return damaged(format!("block {} is not as its bitmap says", whole.start.0 + index as u64));
                }
                if let Some(byte) = bitmap.new.get_mut(index / 8) {
                    *byte ^= 1 << (index % 8);
                }
            }
            at = part.end();
        }
        if is_used {
            self.free.remove(extent);
        } else {
            self.free.insert(extent);
        }
        Ok(())
    }

    /// The block with the bitmap of a group; made, where the group was never written to.
    fn read(&self, device: &Device, number: u32) -> Read<Vec<u8>> {
        let sb = &device.sb;
        let Some(group) = device.groups.get(number as usize) else {
            return damaged(format!("there is no group {number}"));
        };
        let whole = sb.group_extent(number);
        if group.blocks_uninitialised {
            let mut bitmap = vec![0; sb.block_size.bytes() as usize];
            let mut set = |range: std::ops::Range<usize>| {
                range.for_each(|index| {
                    bitmap.get_mut(index / 8).into_iter().for_each(|byte| *byte |= 1 << (index % 8));
                });
            };
            // Bits that stand for no block are set.
            set(whole.length.0 as usize..sb.block_size.bytes() as usize * 8);
            for area in self.fixed_in(whole) {
                let first = (area.start.0 - whole.start.0) as usize;
                set(first..first + area.length.0 as usize);
            }
            return Ok(bitmap);
        }
        let mut bitmap = vec![0; sb.block_size.bytes() as usize];
        device.source.read_exact_at(&mut bitmap, sb.offset(group.block_bitmap))?;
        Ok(bitmap)
    }

    fn fixed_in(&self, whole: Extent) -> impl Iterator<Item = Extent> {
        let areas: &[Area] = self.fixed.all();
        let first = areas.partition_point(|area| area.extent.end() <= whole.start);
        let within =
            areas.get(first..).unwrap_or_default().iter().take_while(move |area| area.extent.start < whole.end());
        within.filter_map(move |area| area.extent.intersection(&whole))
    }

    /// What is to be written. The state on the disk must be that before the changes.
    pub(super) fn steps(&self, device: &Device) -> Read<Steps> {
        let sb = &device.sb;
        let block_bytes = sb.block_size.bytes() as usize;
        let mut allocate = Patches::new(block_bytes);
        let mut more_free = 0;
        for (number, Bitmap { old, new }) in &self.changed {
            let (valid, was) = (sb.group_extent(*number).length, self.told_free(device, *number)?);
            if free_in(old, valid) != was {
                return damaged(format!("group {number}: {was} free blocks, {} in its bitmap", free_in(old, valid)));
            }
            more_free += i64::from(free_in(new, valid)) - i64::from(was);
            let both: Vec<u8> = old.iter().zip(new).map(|(old, new)| old | new).collect();
            put_group(device, &mut allocate, *number, &both)?;
        }
        let mut free = allocate.applied();
        for (number, Bitmap { new, .. }) in &self.changed {
            put_group(device, &mut free, *number, new)?;
        }
        Ok(Steps { allocate, free, more_free })
    }

    fn told_free(&self, device: &Device, number: u32) -> Read<u32> {
        let mut raw = vec![0; usize::from(device.sb.descriptor_size)];
        let (block, within) = descriptor(device, number);
        device.source.read_exact_at(&mut raw, device.sb.offset(block) + within as u64)?;
        Ok(free_blocks(&device.sb, &raw))
    }

    /// The changes are on the disk.
    pub(super) fn committed(&mut self, device: &mut Device) -> Read<()> {
        for number in std::mem::take(&mut self.changed).into_keys() {
            let read = read_group(device.source.as_ref(), &device.sb, number)?;
            if let Some(group) = device.groups.get_mut(number as usize) {
                *group = read;
            }
        }
        Ok(())
    }
}

/// The block that a group's descriptor lies in, and where in it.
fn descriptor(device: &Device, number: u32) -> (u64, usize) {
    let in_block = device.sb.descriptors_per_block();
    let within = (number % in_block) as usize * usize::from(device.sb.descriptor_size);
    (descriptor_location(&device.sb, number / in_block), within)
}

fn put_group(device: &Device, patches: &mut Patches, number: u32, bitmap: &[u8]) -> Read<()> {
    let sb = &device.sb;
    let Some(group) = device.groups.get(number as usize) else { return damaged(format!("there is no group {number}")) };
    let source = device.source.as_ref();
    patches.block(source, group.block_bitmap)?.copy_from_slice(bitmap);
    let (block, within) = descriptor(device, number);
    let size = usize::from(sb.descriptor_size);
    let descriptors = patches.block(source, block)?;
    let Some(raw) = descriptors.get_mut(within..within + size) else {
        return damaged(format!("group {number}: no descriptor"));
    };
    // The checksum covers as many bits as a group has blocks.
    let covered = bitmap.get(..(sb.blocks_per_group / 8) as usize).unwrap_or(bitmap);
    put_bitmap(sb, number, raw, free_in(bitmap, sb.group_extent(number).length), covered);
    Ok(())
}

/// Free blocks of a group that has `valid` of them.
fn free_in(bitmap: &[u8], valid: Blocks) -> u32 {
    let whole = (valid.0 / 8) as usize;
    let bytes: u32 = bitmap.iter().take(whole).map(|byte| byte.count_zeros()).sum();
    bytes + (whole * 8..valid.0 as usize).map(|index| u32::from(!bit(bitmap, index))).sum::<u32>()
}

/// Puts another count of free blocks into the raw superblock.
pub(super) fn put_free(device: &Device, raw: &mut [u8], more_free: i64) {
    let is_wide = device.sb.incompat & incompat::SIXTY_FOUR_BIT != 0;
    let low = u64::from(le32(raw, 12));
    let high = if is_wide { u64::from(le32(raw, 344)) << 32 } else { 0 };
    let free = (low | high).saturating_add_signed(more_free);
    put(raw, 12, &(free as u32).to_le_bytes());
    if is_wide {
        put(raw, 344, &((free >> 32) as u32).to_le_bytes());
    }
}

/// The last `count` free blocks that `may_be_taken`, from the ends of pieces: that makes no piece more.
pub(super) fn last_free(free: &ExtentSet, count: usize, may_be_taken: impl Fn(Extent) -> bool) -> Option<Vec<u64>> {
    let mut found = Vec::with_capacity(count);
    for piece in free.iter().rev() {
        for block in (piece.start.0..piece.end().0).rev() {
            if found.len() == count {
                return Some(found);
            }
            if !may_be_taken(Extent { start: PhysicalBlock(block), length: Blocks(1) }) {
                break;
            }
            found.push(block);
        }
    }
    (found.len() == count).then_some(found)
}
