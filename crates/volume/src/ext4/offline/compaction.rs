//! Directories that have lost most of their entries get fewer blocks.
//!
//! Owns which directories are rewritten, and where to. A directory is written anew to free blocks; the old ones stay as they are until the
//! commit that makes its inode say so. What is not understood to the last byte is left alone.

use super::directory::{Built, Format, build, read, space_needed};
use super::state::{Moving, State};
use crate::ext4::scan::device::Device;
use crate::ext4::scan::fault::{Fault, Read};
use crate::ext4::scan::inode::ROOT;
use longrun_engine::{CompactedDirectories, Progress, WhyLeft};
use longrun_layout::{Blocks, Bytes, Extent, ExtentSet, VolumeLayout};
use std::collections::BTreeSet;

/// A directory is rewritten when that frees one of so many of its blocks: less is a part of ordinary use.
const WORTH: u64 = 4;

/// Larger ones are left alone: all of one is in memory, twice.
const LARGEST: Bytes = Bytes(128 << 20);

/// What is written before a commit.
const BATCH: u64 = 32 << 20;
const BATCH_DIRECTORIES: u64 = 1000;

/// Extents for which no block is needed beside the inode.
const MOST_EXTENTS: usize = 4;

/// A directory that needs fewer blocks than it has.
struct Candidate {
    directory: Moving,
    built: Built,
    /// How many blocks it has now, and how many it needs.
    blocks: u64,
    needed: u64,
    /// In how many pieces it lies now.
    fragments: usize,
}

enum Found {
    /// It has about as many blocks as it needs.
    Nothing,
    Left(WhyLeft),
    Candidate(Box<Candidate>),
}

fn is_worth(blocks: u64, needed: u64) -> bool {
    needed < blocks && (blocks - needed) * WORTH >= blocks
}

/// Looks at a directory, and makes its blocks anew in memory.
fn examine(device: &Device, number: u32) -> Read<Found> {
    match candidate(device, number) {
        Err(Fault::Damaged(_)) => Ok(Found::Left(WhyLeft::Damaged)),
        Err(Fault::Io(_)) => Ok(Found::Left(WhyLeft::Unreadable)),
        other => other,
    }
}

fn candidate(device: &Device, number: u32) -> Read<Found> {
    let Some(directory) = Moving::read(device, number)?.filter(|found| found.inode.is_directory()) else {
        return Ok(Found::Nothing);
    };
    let inode = &directory.inode;
    let unit = u64::from(device.sb.block_size.bytes());
    let blocks = inode.size_bytes / unit;
    if blocks < 2 {
        return Ok(Found::Nothing);
    }
    if inode.size_bytes > LARGEST.0 {
        return Ok(Found::Left(WhyLeft::TooLarge));
    }
    let extents = directory.tree.whole(blocks).filter(|_| inode.size_bytes.is_multiple_of(unit));
    let Some(extents) = extents else { return Ok(Found::Left(WhyLeft::Damaged)) };
    let mut data = vec![0; inode.size_bytes as usize];
    let mut rest = data.as_mut_slice();
    for extent in &extents {
        let (part, behind) = rest.split_at_mut_checked((extent.length.0 * unit) as usize).unwrap_or_default();
        device.source.read_exact_at(part, device.sb.offset(extent.start.0))?;
        rest = behind;
    }
    let format = Format::new(&device.sb, inode.seed);
    let has_unknown_hash = inode.is_indexed() && device.sb.name_hash.is_unsigned.is_none();
    let not_understood = [
        (inode.is_encrypted(), WhyLeft::Encrypted),
        (inode.is_casefolded(), WhyLeft::Casefold),
        (has_unknown_hash, WhyLeft::UnknownHash),
    ];
    if let Some((_, why)) = not_understood.into_iter().find(|(is_so, _)| *is_so) {
        // With what ordinary use leaves free.
        let needed = (space_needed(&format, &data) as u64 * 5 / 4).div_ceil(unit) + 1;
        return Ok(if is_worth(blocks, needed) { Found::Left(why) } else { Found::Nothing });
    }
    let content = read(&format, number, inode.is_indexed(), &data)?;
    let Some(built) = build(&format, number, &content) else { return Ok(Found::Nothing) };
    let needed = built.data.len() as u64 / unit;
    if !is_worth(blocks, needed) {
        return Ok(Found::Nothing);
    }
    if inode.is_immutable() {
        return Ok(Found::Left(WhyLeft::Immutable));
    }
    let fragments = directory.tree.runs().len();
    Ok(Found::Candidate(Box::new(Candidate { directory, built, blocks, needed, fragments })))
}

/// Where the checker puts what has no name. It has empty blocks, so that the checker need not allocate any.
const KEPT: &[u8] = b"lost+found";

/// The directories of a scan that may be compacted, by their inodes.
fn directories(device: &Device, layout: &VolumeLayout) -> Read<Vec<u32>> {
    let mut kept = BTreeSet::new();
    device.for_each_entry(ROOT, |entry| {
        if entry.name == KEPT {
            kept.insert(entry.inode);
        }
    })?;
    let directories = layout.files().filter(|file| file.record.is_directory);
    let inodes = directories.filter_map(|file| u32::try_from(file.id().inode.0).ok());
    Ok(inodes.filter(|inode| !kept.contains(inode)).collect())
}

/// What compacting the directories of a scan would do. Changes nothing.
pub(in crate::ext4) fn foresee(
    device: &Device,
    layout: &VolumeLayout,
    progress: &dyn Progress,
) -> Read<CompactedDirectories> {
    let mut done = CompactedDirectories::default();
    for number in directories(device, layout)? {
        progress.give_way();
        if progress.cancelled() {
            return Err(Fault::Interrupted);
        }
        match examine(device, number)? {
            Found::Nothing => {}
            Found::Left(why) => done.leave(why),
            Found::Candidate(found) => done.add(device.sb.block_size.to_bytes(Blocks(found.blocks - found.needed))),
        }
    }
    Ok(done)
}

/// Compacts those directories of a scan that gain by it. What was noted before must be committed. Stops between directories.
pub(super) fn compact(state: &mut State, layout: &VolumeLayout, progress: &dyn Progress) -> Read<CompactedDirectories> {
    let mut done = CompactedDirectories::default();
    let mut batch = Batch { writable: state.writable(), written: 0, directories: 0 };
    for number in directories(&state.reader.device, layout)? {
        progress.give_way();
        if progress.cancelled() {
            break;
        }
        let found = match examine(&state.reader.device, number)? {
            Found::Nothing => continue,
            Found::Left(why) => {
                done.leave(why);
                continue;
            }
            Found::Candidate(found) => found,
        };
        let mut targets = batch.take(&found);
        if targets.is_none() && batch.directories > 0 {
            // What others have left is free after a commit.
            batch.commit(state)?;
            targets = batch.take(&found);
        }
        let Some(targets) = targets else {
            done.leave(WhyLeft::NoSpace);
            continue;
        };
        done.add(Bytes((found.blocks - found.needed) * state.block_bytes()));
        done.vacated.extend(found.directory.tree.runs().iter().map(|run| run.extent()));
        batch.written += found.built.data.len() as u64;
        batch.directories += 1;
        state.replace(found.directory, &targets, &found.built)?;
        if batch.written >= BATCH || batch.directories >= BATCH_DIRECTORIES {
            batch.commit(state)?;
        }
    }
    batch.commit(state)?;
    Ok(done)
}

/// What one commit makes durable.
struct Batch {
    /// Free blocks that nothing was written to.
    writable: ExtentSet,
    written: u64,
    directories: u64,
}

impl Batch {
    fn commit(&mut self, state: &mut State) -> Read<()> {
        state.commit()?;
        *self = Self { writable: state.writable(), written: 0, directories: 0 };
        Ok(())
    }

    /// Takes the blocks that a directory needs: from the beginning of the first piece that has them, or of the largest ones, as long as it
    /// then lies in no more pieces than before.
    fn take(&mut self, found: &Candidate) -> Option<Vec<Extent>> {
        let needed = found.needed;
        let one = self.writable.iter().find(|piece| piece.length.0 >= needed);
        let mut targets: Vec<Extent> =
            one.map(|piece| Extent { length: Blocks(needed), ..piece }).into_iter().collect();
        if targets.is_empty() {
            let mut pieces: Vec<Extent> = self.writable.iter().collect();
            pieces.sort_unstable_by_key(|piece| std::cmp::Reverse((piece.length, piece.start)));
            let mut left = needed;
            for piece in pieces.into_iter().take(MOST_EXTENTS.min(found.fragments)) {
                let length = Blocks(piece.length.0.min(left));
                targets.extend((length.0 > 0).then_some(Extent { length, ..piece }));
                left -= length.0;
            }
            if left > 0 {
                return None;
            }
        }
        // Its map must fit the inode, so that no block is needed for it.
        if found.directory.tree.rewritten(&targets).needs(usize::MAX) > 0 {
            return None;
        }
        targets.iter().for_each(|target| _ = self.writable.remove(*target));
        Some(targets)
    }
}
