//! Block and inode bitmaps: which blocks are free, which inodes are in use.

use super::areas::Area;
use super::bytes::bit;
use super::fault::{Access, Read, damaged, settled};
use super::group::{Group, read_group};
use super::source::Source;
use super::superblock::Superblock;
use longrun_layout::{Blocks, Extent, ExtentSet, PhysicalBlock};

/// A bitmap kept in a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Blocks,
    Inodes,
}

/// The bitmap of inodes in use.
pub(super) fn read_inode_bitmap(
    source: &dyn Source,
    sb: &Superblock,
    access: Access,
    number: u32,
    group: &Group,
) -> Read<Vec<u8>> {
    read_bitmap(source, sb, access, Kind::Inodes, number, group)
}

/// Reads a bitmap. Its checksum lies in the descriptor: on a live volume both are read again when they do not fit, since
/// one may have changed between the two reads.
fn read_bitmap(
    source: &dyn Source,
    sb: &Superblock,
    access: Access,
    kind: Kind,
    number: u32,
    group: &Group,
) -> Read<Vec<u8>> {
    let clusters = sb.blocks_per_group / sb.cluster_blocks;
    let (location, bits) = match kind {
        Kind::Blocks => (group.block_bitmap, clusters),
        Kind::Inodes => (group.inode_bitmap, u64::from(sb.inodes_per_group)),
    };
    let mut bitmap = vec![0; bits.div_ceil(8) as usize];
    let mut first = Some(*group);
    settled(access, || {
        let group = match first.take() {
            Some(group) => group,
            None => read_group(source, sb, number)?,
        };
        source.read_exact_at(&mut bitmap, sb.offset(location))?;
        let Some(seed) = sb.seed else { return Ok(()) };
        let computed = seed.over(&bitmap).value();
        let stored = if kind == Kind::Blocks { group.block_bitmap_checksum } else { group.inode_bitmap_checksum };
        let mask = if sb.descriptor_size >= 64 { u32::MAX } else { 0xFFFF };
        if computed & mask == stored { Ok(()) } else { damaged(format!("group {number}: bitmap has a wrong checksum")) }
    })?;
    Ok(bitmap)
}

/// The free pieces of the volume, ascending, from its bitmaps. `fixed` is the fixed metadata, ascending: all that is in
/// use in a group whose bitmap was never written.
pub(super) fn free_extents(
    source: &dyn Source,
    sb: &Superblock,
    access: Access,
    groups: &[Group],
    fixed: &[Area],
) -> Read<Vec<Extent>> {
    let mut free = Vec::new();
    for (group, number) in groups.iter().zip(0..) {
        let whole = sb.group_extent(number);
        if group.blocks_uninitialised {
            push_unused(sb, whole, fixed, &mut free);
        } else {
            let bitmap = read_bitmap(source, sb, access, Kind::Blocks, number, group)?;
            push_clear_bits(sb, whole, &bitmap, &mut free);
        }
    }
    Ok(free)
}

/// Adds a piece, joined with the one before it where they meet (across a group boundary).
fn push_joined(free: &mut Vec<Extent>, piece: Extent) {
    match free.last_mut() {
        Some(last) if last.end() == piece.start => last.length += piece.length,
        _ => free.push(piece),
    }
}

fn push_unused(sb: &Superblock, whole: Extent, fixed: &[Area], free: &mut Vec<Extent>) {
    // A cluster with any metadata in it is in use as a whole.
    let cluster = |block: u64| (block - whole.start.0) / sb.cluster_blocks * sb.cluster_blocks + whole.start.0;
    let from = fixed.partition_point(|a| a.extent.end() <= whole.start);
    let used: ExtentSet = fixed
        .iter()
        .skip(from)
        .take_while(|a| a.extent.start < whole.end())
        .filter_map(|a| a.extent.intersection(&whole))
        .map(|e| {
            Extent::between(
                PhysicalBlock(cluster(e.start.0)),
                PhysicalBlock(cluster(e.end().0 - 1) + sb.cluster_blocks),
            )
        })
        .collect();
    for gap in used.gaps(whole) {
        push_joined(free, gap);
    }
}

fn push_clear_bits(sb: &Superblock, whole: Extent, bitmap: &[u8], free: &mut Vec<Extent>) {
    let clusters = whole.length.0.div_ceil(sb.cluster_blocks) as usize;
    let mut at = 0;
    while at < clusters {
        // Whole bytes first: most bitmaps are long stretches of one value.
        if at % 8 == 0 && bitmap.get(at / 8) == Some(&0xFF) {
            at += 8;
            continue;
        }
        if bit(bitmap, at) {
            at += 1;
            continue;
        }
        let start = at;
        while at < clusters && !bit(bitmap, at) {
            at += if at % 8 == 0 && bitmap.get(at / 8) == Some(&0) { 8 } else { 1 };
        }
        let first = whole.start + Blocks(start as u64 * sb.cluster_blocks);
        let end = PhysicalBlock((whole.start.0 + at as u64 * sb.cluster_blocks).min(whole.end().0));
        push_joined(free, Extent::between(first, end));
    }
}
