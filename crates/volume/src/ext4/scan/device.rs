//! An opened ext4 device or image: reads single inodes and directories when they are needed.

use super::bitmap;
use super::directory::{self, Entry};
use super::fault::{Access, Fault, Read, damaged, settled, settled_briefly};
use super::group::{Group, read_groups};
use super::inode::{Inode, Mapping, inline_continuation};
use super::map::{FileMap, Mapper};
use super::source::Source;
use super::superblock::{Superblock, incompat};
use crate::probe::EXT4;
use longrun_engine::checker;
use longrun_layout::{Extent, PhysicalBlock};

/// What is needed to read anything of the volume.
pub(in crate::ext4) struct Device {
    pub(in crate::ext4) source: Box<dyn Source>,
    pub(in crate::ext4) access: Access,
    pub(in crate::ext4) sb: Superblock,
    pub(in crate::ext4) groups: Vec<Group>,
}

impl Device {
    /// Reads superblock and descriptors.
    pub(in crate::ext4) fn open(source: Box<dyn Source>, access: Access) -> Read<Self> {
        let sb = settled(access, || Superblock::read(source.as_ref()))?;
        if access == Access::Still && sb.incompat & incompat::RECOVER != 0 {
            let checker = checker(EXT4);
            let what = format!("a journal that was not replayed (mount the volume once, or run {checker} on it)");
            return Err(Fault::Unsupported(what));
        }
        let groups = read_groups(source.as_ref(), &sb, access)?;
        Ok(Self { source, access, sb, groups })
    }

    /// Reads superblock and descriptors again: what is in use has changed since, and the volume may have grown.
    pub(in crate::ext4) fn refresh(&mut self) -> Read<()> {
        self.sb = settled(self.access, || Superblock::read(self.source.as_ref()))?;
        self.groups = read_groups(self.source.as_ref(), &self.sb, self.access)?;
        Ok(())
    }

    pub(in crate::ext4) fn mapper(&self) -> Mapper<'_> {
        Mapper::new(self.source.as_ref(), &self.sb)
    }

    /// Reads one inode, with its raw content.
    pub(in crate::ext4) fn read_inode(&self, number: u32) -> Read<(Inode, Vec<u8>)> {
        let place = self.inode_place(number)?;
        let mut raw = vec![0; usize::from(self.sb.inode_size)];
        settled(self.access, || {
            self.source.read_exact_at(&mut raw, place)?;
            Inode::parse(&self.sb, number, &raw)
        })
        .map(|inode| (inode, raw))
    }

    /// Where an inode lies on the device, in bytes.
    pub(in crate::ext4) fn inode_place(&self, number: u32) -> Read<u64> {
        let index = number.wrapping_sub(1);
        let (group, within) = (index / self.sb.inodes_per_group, index % self.sb.inodes_per_group);
        let Some(group) = self.groups.get(group as usize) else {
            return damaged(format!("there is no inode {number}"));
        };
        Ok(self.sb.offset(group.inode_table) + u64::from(within) * u64::from(self.sb.inode_size))
    }

    /// Reads an inode and its map, both afresh on each attempt: the map may have changed together with the inode.
    pub(in crate::ext4) fn read_map(&self, number: u32, mapper: &mut Mapper<'_>, map: &mut FileMap) -> Read<Inode> {
        settled(self.access, || {
            let (inode, _) = self.read_inode(number)?;
            mapper.read(&inode, map)?;
            Ok(inode)
        })
    }

    /// Calls `each` for all entries of a directory. Blocks that cannot be understood are left out: names are never worth
    /// refusing a volume for.
    pub(in crate::ext4) fn for_each_entry(&self, number: u32, mut each: impl FnMut(Entry<'_>)) -> Read<()> {
        let (inode, raw) = self.read_inode(number)?;
        if !inode.is_directory() {
            return Ok(());
        }
        if inode.mapping() == Mapping::Inline {
            return directory::for_each_inline_entry(&inode.map, inline_continuation(&raw), each);
        }
        let mut map = FileMap::default();
        let inode = self.read_map(number, &mut self.mapper(), &mut map)?;
        let mut block = vec![0; self.sb.block_size.bytes() as usize];
        for run in &map.runs {
            for index in 0..run.length.0 {
                let location = run.physical.0 + index;
                let checked = settled_briefly(self.access, || {
                    self.source.read_exact_at(&mut block, self.sb.offset(location))?;
                    directory::check_block(inode.seed, &block)
                });
                match checked.and_then(|()| directory::for_each_entry(&block, &mut each)) {
                    Ok(()) | Err(Fault::Damaged(_)) => {}
                    Err(other) => return Err(other),
                }
            }
        }
        Ok(())
    }

    /// The free space as the bitmaps on the device say.
    pub(in crate::ext4) fn free_extents(&self, fixed: &[super::areas::Area]) -> Read<Vec<Extent>> {
        bitmap::free_extents(self.source.as_ref(), &self.sb, self.access, &self.groups, fixed)
    }

    /// The volume as one extent.
    pub(in crate::ext4) fn whole(&self) -> Extent {
        Extent::between(PhysicalBlock(0), PhysicalBlock(self.sb.blocks))
    }
}
