//! Converts inodes into the layout: files with their runs, areas, and files that are reported separately.

use super::areas::{Area, AreaKind};
use super::device::Device;
use super::fault::{Access, Fault, Read};
use super::inode::{Inode, Mapping, RESIZE, Role, inline_continuation};
use super::map::{FileMap, Mapper};
use super::parents::Parents;
use longrun_layout::{Blocks, Extent, FileId, InodeNumber, LayoutBuilder, NO_DIRECTORY, Run, count_fragments};

/// Blocks beyond the end of files: preallocated, and kept in place by every kernel operation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BeyondEnd {
    /// Files that have such blocks.
    pub files: u64,
    /// The blocks.
    pub blocks: Blocks,
    /// Fragments that `filefrag` counts on top of the layout's, since it looks behind the end too.
    pub fragments: u64,
}

/// Files that were deleted while open. They are in no directory, and their blocks become free when they are closed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Deleted {
    /// How many.
    pub files: u64,
    /// Their blocks.
    pub blocks: Blocks,
}

/// Takes inodes one by one.
pub(super) struct Collector<'a> {
    device: &'a Device,
    mapper: Mapper<'a>,
    map: FileMap,
    kept: Vec<Run>,
    pub(super) builder: LayoutBuilder,
    pub(super) areas: Vec<Area>,
    /// Inode numbers of the layout's files, in its order.
    pub(super) listed: Vec<u32>,
    pub(super) parents: Option<Parents>,
    pub(super) beyond_end: BeyondEnd,
    pub(super) deleted: Deleted,
    /// What may move where the volume is not mounted.
    is_offline: bool,
}

impl<'a> Collector<'a> {
    pub(super) fn new(device: &'a Device, areas: Vec<Area>, parents: Option<Parents>, is_offline: bool) -> Self {
        let builder = LayoutBuilder::new(device.sb.block_size, Blocks(device.sb.blocks));
        Self {
            device,
            mapper: device.mapper(),
            map: FileMap::default(),
            kept: Vec::new(),
            builder: if is_offline { builder.moving_directories() } else { builder },
            areas,
            listed: Vec::new(),
            parents,
            beyond_end: BeyondEnd::default(),
            deleted: Deleted::default(),
            is_offline,
        }
    }

    /// Takes the inode `number` from its raw content; when that is torn, reads it again.
    pub(super) fn take(&mut self, number: u32, raw: &[u8]) -> Read<()> {
        let mut map = std::mem::take(&mut self.map);
        let result = self.take_with(number, raw, &mut map);
        self.map = map;
        result
    }

    fn take_with(&mut self, number: u32, raw: &[u8], map: &mut FileMap) -> Read<()> {
        let sb = &self.device.sb;
        let first = Inode::parse(sb, number, raw).and_then(|inode| {
            if inode.role(sb) != Role::Nothing {
                self.mapper.read(&inode, map)?;
            }
            Ok(inode)
        });
        let (inode, again) = match first {
            Ok(inode) => (inode, None),
            Err(Fault::Damaged(_)) if self.device.access == Access::Live => {
                let inode = self.device.read_map(number, &mut self.mapper, map)?;
                (inode, Some(self.device.read_inode(number)?.1))
            }
            Err(fault) => return Err(fault),
        };
        self.sort(&inode, again.as_deref().unwrap_or(raw), map);
        Ok(())
    }

    fn sort(&mut self, inode: &Inode, raw: &[u8], map: &FileMap) {
        let inode_number = inode.number;
        let role = inode.role(&self.device.sb);
        let in_file = |kind| map.runs.iter().map(move |run| Area { extent: run.extent(), kind });
        match role {
            Role::Nothing => {}
            Role::Journal => self.areas.extend(in_file(AreaKind::Journal)),
            Role::System if inode_number == RESIZE => {
                // Its other blocks are the room for descriptors, which is an area already.
                let top = map.nodes.first().map(|b| Extent::new(*b, 1));
                let kind = AreaKind::System { inode: inode_number };
                self.areas.extend(top.map(|extent| Area { extent, kind }));
                return;
            }
            Role::System => self.areas.extend(in_file(AreaKind::System { inode: inode_number })),
            Role::Deleted => {
                self.deleted.files += 1;
                self.deleted.blocks += map.runs.iter().map(|r| r.length).sum();
                self.areas.extend(in_file(AreaKind::Deleted { inode: inode_number }));
            }
            Role::File | Role::Symlink | Role::Directory => self.list(inode, role, raw, map),
        }
        if role != Role::Nothing {
            let node = |block: &u64| Area {
                extent: Extent::new(*block, 1),
                kind: if role == Role::Journal { AreaKind::Journal } else { AreaKind::FileMap { inode: inode_number } },
            };
            self.areas.extend(map.nodes.iter().map(node));
        }
        if inode.attribute_block != 0 && inode.is_in_use() && self.device.sb.holds(inode.attribute_block, 1) {
            let kind = AreaKind::Attributes { inode: inode_number };
            self.areas.push(Area { extent: Extent::new(inode.attribute_block, 1), kind });
        }
    }

    /// Adds a file to the layout, without what lies behind its end.
    fn list(&mut self, inode: &Inode, role: Role, raw: &[u8], map: &FileMap) {
        let is_directory = role == Role::Directory;
        self.keep_up_to_end(inode, map);
        if let Some(parents) = self.parents.as_mut().filter(|_| is_directory) {
            if inode.mapping() == Mapping::Inline {
                parents.add_inline(inode, inline_continuation(raw));
            } else {
                parents.add_directory(inode, &self.kept);
            }
        }
        let pin = if self.is_offline { inode.pin_offline() } else { inode.pin(role) };
        let id = FileId { inode: InodeNumber(u64::from(inode.number)), generation: inode.generation };
        self.builder.push_file(id, NO_DIRECTORY, is_directory, pin, &mut self.kept);
        self.listed.push(inode.number);
    }

    /// Fills `kept` with the runs before the end of the file, and counts those behind it, which only an offline engine moves.
    fn keep_up_to_end(&mut self, inode: &Inode, map: &FileMap) {
        self.kept.clear();
        if self.is_offline {
            self.kept.extend(&map.runs);
            return;
        }
        let end = inode.size_bytes.div_ceil(u64::from(self.device.sb.block_size.bytes()));
        let mut behind = Blocks(0);
        for run in &map.runs {
            let inside = end.saturating_sub(run.logical.0).min(run.length.0);
            if inside > 0 {
                self.kept.push(Run { length: Blocks(inside), ..*run });
            }
            if inside < run.length.0 {
                let extent = Extent::new(run.physical.0 + inside, run.length.0 - inside);
                behind += extent.length;
                self.areas.push(Area { extent, kind: AreaKind::BeyondEnd { inode: inode.number } });
            }
        }
        if behind.0 > 0 {
            let count = |runs: &[Run]| count_fragments(runs.iter().copied());
            self.beyond_end.files += 1;
            self.beyond_end.blocks += behind;
            self.beyond_end.fragments += count(&map.runs) - count(&self.kept);
        }
    }
}
