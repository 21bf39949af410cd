//! The volume as it shall be after the next commit, and the commit.
//!
//! Owns the files that have moved since the last commit, and the order in which all that reaches the disk: data first, then the
//! journal, then maps, bitmaps and counts. Never decides where data goes.

use super::directory::Built;
use super::groups::{Groups, last_free, put_free};
use super::patches::Patches;
use super::tree::{Piece, Tree, capacity};
use crate::bytes::{le16, put};
use crate::ext4::scan::device::Device;
use crate::ext4::scan::fault::{Read, damaged};
use crate::ext4::scan::inode::{Inode, Mapping, Role};
use crate::ext4::scan::map::FileMap;
use crate::ext4::scan::superblock::{OFFSET_BYTES, SIZE_BYTES};
use crate::ext4::scan::{Areas, Ext4Reader};
use crate::offline::{Copied, CopyError, Held, Journal, Phase, Write, apply, copy};
use longrun_image::{Disk as _, FailStop};
use longrun_layout::{Bytes, Extent, ExtentSet, LogicalBlock};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Where the superblock keeps its state.
pub(super) const STATE: usize = 58;
/// The volume was unmounted in order, or checked since.
pub(super) const VALID: u16 = 1;

/// A file as it shall be.
pub(super) struct Moving {
    pub(super) inode: Inode,
    raw: Vec<u8>,
    pub(super) tree: Tree,
    /// Blocks that it has on the disk, with those of its tree.
    blocks_before: u64,
}

impl Moving {
    /// The file as it is; `None` when there is none with a map of extents.
    pub(super) fn read(device: &Device, number: u32) -> Read<Option<Self>> {
        let (inode, raw) = device.read_inode(number)?;
        let is_file = matches!(inode.role(&device.sb), Role::File | Role::Directory | Role::Symlink);
        if !is_file || inode.mapping() != Mapping::Extents {
            return Ok(None);
        }
        let mut map = FileMap::default();
        device.mapper().read(&inode, &mut map)?;
        let tree = Tree::new(&map);
        Ok(Some(Self { inode, raw, blocks_before: tree.blocks() + tree.nodes.len() as u64, tree }))
    }
}

/// A volume that is being changed.
pub(super) struct State {
    pub(super) reader: Ext4Reader,
    /// After a failure nothing is committed: what is on the disk is known to the journal alone, or what was noted contradicts itself.
    disk: Arc<FailStop>,
    groups: Groups,
    pub(super) held: Held,
    changed: BTreeMap<u32, Moving>,
    /// The file that was read last, unless it has changed: with each move a file is mapped, moved and mapped again.
    latest: Option<Moving>,
    journal: Journal,
    is_marked: bool,
    /// What was copied since the last commit.
    copies: Vec<Copied>,
}

impl State {
    /// The state of a volume with this free space. `is_marked`: an interrupted run may have marked it as not checked.
    pub(super) fn new(
        reader: Ext4Reader,
        disk: Arc<FailStop>,
        (free, fixed): (ExtentSet, Areas),
        journal: Journal,
        is_marked: bool,
    ) -> Self {
        Self {
            reader,
            disk,
            groups: Groups::new(free, fixed),
            held: Held::default(),
            changed: BTreeMap::new(),
            latest: None,
            journal,
            is_marked,
            copies: Vec::new(),
        }
    }

    /// The free blocks, those included that become free by the next commit.
    pub(super) fn free(&self) -> &ExtentSet {
        self.groups.free()
    }

    /// Holds what of `wanted` is free.
    pub(super) fn capture(&mut self, wanted: &ExtentSet) -> ExtentSet {
        self.held.capture(self.groups.free(), wanted)
    }

    pub(super) fn block_bytes(&self) -> u64 {
        u64::from(self.reader.device.sb.block_size.bytes())
    }

    /// The file as it shall be; `None` when there is none with a map of extents any more.
    pub(super) fn file(&mut self, number: u32) -> Read<Option<&Moving>> {
        if let Some(changed) = self.changed.get(&number) {
            return Ok(Some(changed));
        }
        if self.latest.as_ref().is_none_or(|latest| latest.inode.number != number) {
            self.latest = Moving::read(&self.reader.device, number)?;
        }
        Ok(self.latest.as_ref())
    }

    /// Copies blocks, each piece from its first extent to its second. The targets must be held.
    pub(super) fn copy(&self, pieces: &[(Extent, Extent)], buffer: &mut Vec<u8>) -> Result<Vec<Copied>, CopyError> {
        copy(&*self.disk, self.block_bytes(), pieces.iter().copied(), buffer)
    }

    /// Notes that `pieces` of a file, which follow each other from `logical` on, lie at `target` now, where they were `copied`:
    /// what they leave is free after the next commit. False, and nothing is noted, when there is no block for the file's map.
    pub(super) fn note(
        &mut self,
        (number, logical): (u32, LogicalBlock),
        target: Extent,
        copied: Vec<Copied>,
        pieces: &[Piece],
    ) -> Read<bool> {
        // After an error bitmaps may be changed in part: blocks of a file that has not moved may be marked as free. They must not be
        // written.
        let disk = Arc::clone(&self.disk);
        let is_noted = disk.change(|| self.mark_blocks(number, logical, target, pieces))?;
        if is_noted {
            self.copies.extend(copied);
        }
        Ok(is_noted)
    }

    fn mark_blocks(&mut self, number: u32, logical: LogicalBlock, target: Extent, pieces: &[Piece]) -> Read<bool> {
        let capacity = capacity(self.block_bytes() as usize);
        let Self { reader, groups, held, changed, latest, .. } = self;
        let device = &reader.device;
        let its = |file: &&mut Moving| file.inode.number == number;
        let Some(file) = changed.get_mut(&number).or(latest.as_mut().filter(its)) else {
            return damaged(format!("file {number} was not read before it moved"));
        };
        file.tree.put(logical.0, target.start.0, target.length.0);
        let missing = file.tree.needs(capacity).saturating_sub(file.tree.nodes.len());
        if missing > 0 {
            let Some(blocks) = last_free(groups.free(), missing, |block| held.leaves(block)) else {
                pieces.iter().for_each(|piece| file.tree.put(piece.logical, piece.physical, piece.length));
                return Ok(false);
            };
            for block in &blocks {
                groups.set(device, Extent::new(*block, 1), true)?;
            }
            file.tree.nodes.extend(blocks);
        }
        groups.set(device, target, true)?;
        let sources: Vec<Extent> = pieces.iter().map(Piece::extent).collect();
        for source in &sources {
            groups.set(device, *source, false)?;
        }
        held.exchanged(target, &sources);
        if let Some(file) = latest.take_if(|latest| latest.inode.number == number) {
            changed.insert(number, file);
        }
        Ok(true)
    }

    /// The free blocks that anything may be written to.
    pub(super) fn writable(&self) -> ExtentSet {
        self.held.writable(self.groups.free())
    }

    /// Writes the content of a directory to `targets`, which must be free and as long as it is, and notes that it lies there. What it had
    /// is free after the next commit. The map of `directory` must fit its inode.
    pub(super) fn replace(&mut self, mut directory: Moving, targets: &[Extent], built: &Built) -> Read<()> {
        let unit = self.block_bytes();
        let mut rest = built.data.as_slice();
        let mut copies = Vec::with_capacity(targets.len());
        for target in targets {
            let (part, behind) = rest.split_at_checked((target.length.0 * unit) as usize).unwrap_or_default();
            let at = Bytes(target.start.0 * unit);
            self.disk.write(at, part)?;
            copies.push(Copied::new(at, part));
            rest = behind;
        }
        let sources: Vec<Extent> = directory.tree.runs().iter().map(|run| run.extent()).collect();
        directory.tree = directory.tree.rewritten(targets);
        directory.inode.put_directory(&mut directory.raw, built.data.len() as u32, built.is_indexed);
        let (device, groups) = (&self.reader.device, &mut self.groups);
        // After an error bitmaps may be changed in part: they must not be written.
        self.disk.change(|| {
            targets.iter().try_for_each(|target| groups.set(device, *target, true))?;
            sources.iter().try_for_each(|source| groups.set(device, *source, false))
        })?;
        self.held.left(&sources);
        self.copies.extend(copies);
        self.latest = None;
        self.changed.insert(directory.inode.number, directory);
        Ok(())
    }

    /// Makes everything durable that was noted: the data, then maps and bitmaps by one transaction.
    pub(super) fn commit(&mut self) -> Read<()> {
        // What is taken here is either written or never: after an error there is no second attempt.
        let disk = Arc::clone(&self.disk);
        disk.change(|| if self.changed.is_empty() { Ok(()) } else { self.commit_changes() })
    }

    fn commit_changes(&mut self) -> Read<()> {
        self.mark()?;
        self.disk.flush()?;
        let mut changes = Patches::new(self.block_bytes() as usize);
        for file in std::mem::take(&mut self.changed).into_values() {
            self.put_file(file, &mut changes)?;
        }
        let steps = self.groups.steps(&self.reader.device)?;
        if steps.more_free != 0 {
            let device = &self.reader.device;
            put_superblock(&self.reader, &mut changes, |raw| put_free(device, raw, steps.more_free))?;
        }
        let mut writes = Vec::new();
        steps.allocate.writes(Phase::Allocate, &mut writes);
        changes.writes(Phase::Change, &mut writes);
        steps.free.writes(Phase::Free, &mut writes);
        self.note_mark(&mut changes)?;
        let copies = std::mem::take(&mut self.copies);
        self.write(&copies, &writes)?;
        self.held.committed();
        self.groups.committed(&mut self.reader.device)
    }

    /// What has to be written of a file. Blocks that its tree needs no more are free afterwards.
    fn put_file(&mut self, mut file: Moving, changes: &mut Patches) -> Read<()> {
        let device = &self.reader.device;
        let block_bytes = device.sb.block_size.bytes();
        let needed = file.tree.needs(capacity(block_bytes as usize)).min(file.tree.nodes.len());
        for node in file.tree.nodes.split_off(needed) {
            self.groups.set(device, Extent::new(node, 1), false)?;
        }
        let encoded = file.tree.encode(block_bytes as usize, file.inode.seed);
        let more = (file.tree.blocks() + encoded.nodes.len() as u64) as i64 - file.blocks_before as i64;
        for (block, content) in encoded.nodes {
            *changes.block(device.source.as_ref(), block)? = content;
        }
        file.inode.put_map(&mut file.raw, &encoded.root, more, block_bytes);
        let at = device.inode_place(file.inode.number)?;
        let table = changes.block(device.source.as_ref(), at / u64::from(block_bytes))?;
        put(table, (at % u64::from(block_bytes)) as usize, &file.raw);
        Ok(())
    }

    /// A transaction: the journal, the volume, the journal again.
    fn write(&mut self, copies: &[Copied], writes: &[Write]) -> Read<()> {
        // Until the journal is durable nothing has changed; from then on it knows what to complete.
        self.journal.put(&*self.disk, copies, writes)?;
        apply(&*self.disk, writes)?;
        Ok(self.journal.done()?)
    }

    /// Marks the volume as to be checked, for the case that this run is interrupted and the journal is lost.
    fn mark(&mut self) -> Read<()> {
        if !self.is_marked {
            self.set_state(|state| state & !VALID)?;
            self.is_marked = true;
        }
        Ok(())
    }

    fn set_state(&mut self, change: impl Fn(u16) -> u16) -> Read<()> {
        let mut changes = Patches::new(self.block_bytes() as usize);
        put_superblock(&self.reader, &mut changes, |raw| put(raw, STATE, &change(le16(raw, STATE)).to_le_bytes()))?;
        let mut writes = Vec::new();
        changes.writes(Phase::Change, &mut writes);
        self.note_mark(&mut changes)?;
        self.write(&[], &writes)
    }

    /// Tells the journal what the superblock looks like after the transaction, so that the next run knows the mark as ours.
    fn note_mark(&mut self, changes: &mut Patches) -> Read<()> {
        let mut raw = Vec::new();
        put_superblock(&self.reader, changes, |superblock| raw.extend_from_slice(superblock))?;
        self.reader.device.sb.put_checksum(&mut raw);
        self.journal.set_mark(&raw);
        Ok(())
    }

    /// Commits, and says that the volume need not be checked and that nothing is left to be completed.
    pub(super) fn close(mut self) -> Read<()> {
        self.commit()?;
        let disk = Arc::clone(&self.disk);
        disk.change(|| {
            if self.is_marked {
                self.set_state(|state| state | VALID)?;
            }
            Ok(self.journal.remove()?)
        })
    }
}

/// Changes the superblock, and its checksum with it.
fn put_superblock(reader: &Ext4Reader, changes: &mut Patches, change: impl FnOnce(&mut [u8])) -> Read<()> {
    let device = &reader.device;
    let block_bytes = u64::from(device.sb.block_size.bytes());
    let block = changes.block(device.source.as_ref(), OFFSET_BYTES / block_bytes)?;
    let start = (OFFSET_BYTES % block_bytes) as usize;
    let Some(raw) = block.get_mut(start..start + SIZE_BYTES) else { return damaged("there is no superblock") };
    change(raw);
    device.sb.put_checksum(raw);
    Ok(())
}
