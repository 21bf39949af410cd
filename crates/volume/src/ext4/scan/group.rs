//! Block groups: their descriptors, and the places of their fixed metadata (which flex_bg and meta_bg change).

use super::areas::{Area, AreaKind};
use super::bytes::{joined, le16, le32, put};
use super::checksum::crc16;
use super::fault::{Access, Read, damaged, settled};
use super::source::Source;
use super::superblock::Superblock;
use longrun_layout::Extent;

const INODE_UNINIT: u16 = 1;
const BLOCK_UNINIT: u16 = 2;

/// A checked group descriptor.
#[derive(Clone, Copy, Debug)]
pub(in crate::ext4) struct Group {
    pub(in crate::ext4) block_bitmap: u64,
    pub(in crate::ext4) inode_bitmap: u64,
    pub(in crate::ext4) inode_table: u64,
    pub(in crate::ext4) block_bitmap_checksum: u32,
    pub(in crate::ext4) inode_bitmap_checksum: u32,
    /// Inodes of the table, from its start, that were ever used; the rest of the table may be garbage.
    pub(in crate::ext4) initialised_inodes: u32,
    /// The block bitmap was never written: only the fixed metadata is in use.
    pub(in crate::ext4) blocks_uninitialised: bool,
}

/// Reads all descriptors, block by block: memory grows only as far as descriptors are really there and right.
pub(in crate::ext4) fn read_groups(source: &dyn Source, sb: &Superblock, access: Access) -> Read<Vec<Group>> {
    let mut groups = Vec::new();
    for index in 0..sb.descriptor_blocks() {
        let first = index * sb.descriptors_per_block();
        groups.extend(settled(access, || read_descriptor_block(source, sb, index, first))?);
    }
    Ok(groups)
}

/// Reads the descriptor of one group afresh.
pub(in crate::ext4) fn read_group(source: &dyn Source, sb: &Superblock, group: u32) -> Read<Group> {
    let index = group / sb.descriptors_per_block();
    let within = u64::from(group % sb.descriptors_per_block()) * u64::from(sb.descriptor_size);
    let mut raw = vec![0; usize::from(sb.descriptor_size)];
    source.read_exact_at(&mut raw, sb.offset(descriptor_location(sb, index)) + within)?;
    parse_descriptor(sb, group, &raw)
}

fn read_descriptor_block(source: &dyn Source, sb: &Superblock, index: u32, first: u32) -> Read<Vec<Group>> {
    let location = descriptor_location(sb, index);
    if !sb.holds(location, 1) {
        return damaged(format!("group descriptors at block {location}, beyond the end"));
    }
    let mut block = vec![0; sb.block_size.bytes() as usize];
    source.read_exact_at(&mut block, sb.offset(location))?;
    let present = sb.descriptors_per_block().min(sb.group_count - first);
    let records = block.chunks_exact(usize::from(sb.descriptor_size)).take(present as usize);
    records.zip(first..).map(|(raw, group)| parse_descriptor(sb, group, raw)).collect()
}

/// The block with the `index`-th block of descriptors.
pub(in crate::ext4) fn descriptor_location(sb: &Superblock, index: u32) -> u64 {
    if !sb.has_meta_groups() || index < sb.first_meta_group {
        // The superblock's own block comes first: block 0, or block 1 when blocks are 1 KiB.
        return u64::from(sb.block_size.bytes() == 1024) + 1 + u64::from(index);
    }
    let group = index * sb.descriptors_per_block();
    let behind_boot_block = group == 0 && sb.block_size.bytes() == 1024 && sb.first_data_block == 0;
    sb.group_extent(group).start.0 + u64::from(sb.has_superblock(group)) + u64::from(behind_boot_block)
}

fn parse_descriptor(sb: &Superblock, group: u32, raw: &[u8]) -> Read<Group> {
    if sb.has_group_checksums() && !checksum_fits(sb, group, raw) {
        return damaged(format!("group {group}: descriptor has a wrong checksum"));
    }
    let wide = sb.descriptor_size >= 64;
    let high = |at| if wide { le32(raw, at) } else { 0 };
    let high16 = |at| if wide { u32::from(le16(raw, at)) << 16 } else { 0 };
    let flags = if sb.has_group_checksums() { le16(raw, 18) } else { 0 };
    let unused = if sb.has_group_checksums() { u32::from(le16(raw, 28)) | high16(50) } else { 0 };
    let Some(used) = sb.inodes_per_group.checked_sub(unused) else {
        return damaged(format!("group {group}: {unused} unused inodes"));
    };
    let parsed = Group {
        block_bitmap: joined(le32(raw, 0), high(32)),
        inode_bitmap: joined(le32(raw, 4), high(36)),
        inode_table: joined(le32(raw, 8), high(40)),
        block_bitmap_checksum: u32::from(le16(raw, 24)) | high16(56),
        inode_bitmap_checksum: u32::from(le16(raw, 26)) | high16(58),
        initialised_inodes: if flags & INODE_UNINIT != 0 { 0 } else { used },
        blocks_uninitialised: flags & BLOCK_UNINIT != 0,
    };
    let places = [(parsed.block_bitmap, 1), (parsed.inode_bitmap, 1), (parsed.inode_table, sb.inode_table_blocks())];
    match places.into_iter().find(|(start, length)| !sb.holds(*start, *length)) {
        Some((start, _)) => damaged(format!("group {group}: metadata at block {start}")),
        None => Ok(parsed),
    }
}

fn checksum_fits(sb: &Superblock, group: u32, raw: &[u8]) -> bool {
    checksum(sb, group, raw) == le16(raw, 30)
}

fn checksum(sb: &Superblock, group: u32, raw: &[u8]) -> u16 {
    let (before, after) = (raw.get(..30).unwrap_or_default(), raw.get(32..).unwrap_or_default());
    let number = group.to_le_bytes();
    match sb.seed {
        Some(seed) => seed.over(&number).over(before).over(&[0, 0]).over(after).low(),
        None => crc16(crc16(crc16(crc16(!0, &sb.uuid), &number), before), after),
    }
}

/// The number of free blocks that a raw descriptor tells.
pub(in crate::ext4) fn free_blocks(sb: &Superblock, raw: &[u8]) -> u32 {
    u32::from(le16(raw, 12)) | if sb.descriptor_size >= 64 { u32::from(le16(raw, 44)) << 16 } else { 0 }
}

/// Puts what a block bitmap says into the raw descriptor of its group.
pub(in crate::ext4) fn put_bitmap(sb: &Superblock, group: u32, raw: &mut [u8], free: u32, bitmap: &[u8]) {
    let is_wide = sb.descriptor_size >= 64;
    put(raw, 12, &(free as u16).to_le_bytes());
    if is_wide {
        put(raw, 44, &((free >> 16) as u16).to_le_bytes());
    }
    if !sb.has_group_checksums() {
        return;
    }
    put(raw, 18, &(le16(raw, 18) & !BLOCK_UNINIT).to_le_bytes());
    if let Some(seed) = sb.seed {
        let sum = seed.over(bitmap).value();
        put(raw, 24, &(sum as u16).to_le_bytes());
        if is_wide {
            put(raw, 56, &((sum >> 16) as u16).to_le_bytes());
        }
    }
    let sum = checksum(sb, group, raw);
    put(raw, 30, &sum.to_le_bytes());
}

/// Adds the fixed metadata of the volume to `areas`: what lies where it does since the volume was made.
pub(in crate::ext4) fn push_fixed_areas(sb: &Superblock, groups: &[Group], areas: &mut Vec<Area>) {
    let mut push = |start, length, kind| {
        if length > 0 && sb.holds(start, length) {
            areas.push(Area { extent: Extent::new(start, length), kind });
        }
    };
    for (group, number) in groups.iter().zip(0..) {
        push(group.block_bitmap, 1, AreaKind::BlockBitmap);
        push(group.inode_bitmap, 1, AreaKind::InodeBitmap);
        push(group.inode_table, sb.inode_table_blocks(), AreaKind::InodeTable);
        let mut at = sb.group_extent(number).start.0;
        if sb.has_superblock(number) {
            if number == 0 && sb.block_size.bytes() == 1024 && sb.first_data_block == 0 {
                at += 1;
            }
            push(at, 1, AreaKind::Superblock);
            at += 1;
        }
        let (descriptors, reserved) = descriptor_copies(sb, number);
        push(at, descriptors, AreaKind::Descriptors);
        push(at + descriptors, reserved, AreaKind::ReservedDescriptors);
    }
    push(sb.mmp_block, u64::from(sb.mmp_block != 0), AreaKind::MountProtection);
    // Not `holds`: block 0 belongs to no file and, with 1 KiB blocks, to no group.
    areas.push(Area { extent: Extent::new(0, 1), kind: AreaKind::Superblock });
}

/// Blocks of descriptors, and blocks kept for more of them, at the start of the group.
fn descriptor_copies(sb: &Superblock, group: u32) -> (u64, u64) {
    let meta_group = group / sb.descriptors_per_block();
    if !sb.has_meta_groups() || meta_group < sb.first_meta_group {
        if !sb.has_superblock(group) {
            return (0, 0);
        }
        let whole = if sb.has_meta_groups() { sb.first_meta_group } else { sb.descriptor_blocks() };
        return (u64::from(whole), sb.reserved_descriptor_blocks);
    }
    let within = group % sb.descriptors_per_block();
    (u64::from(within <= 1 || within == sb.descriptors_per_block() - 1), 0)
}
