//! The superblock: the features and geometry of the volume. Every number is checked before it is used.

use super::bytes::{byte, joined, le16, le32, put};
use super::checksum::Crc32c;
use super::fault::{Fault, Read, damaged};
use super::source::Source;
use longrun_layout::{BlockSize, Blocks, Bytes, Extent};

/// Where the first superblock lies, whatever the block size, in bytes.
pub(in crate::ext4) const OFFSET_BYTES: u64 = 1024;
pub(in crate::ext4) const SIZE_BYTES: usize = 1024;
const MAGIC: u16 = 0xEF53;

/// Features that must be known before the volume can be read at all.
pub(in crate::ext4) mod incompat {
    pub(crate) const RECOVER: u32 = 0x4;
    pub(crate) const JOURNAL_DEVICE: u32 = 0x8;
    pub(crate) const META_BG: u32 = 0x10;
    pub(crate) const EXTENTS: u32 = 0x40;
    pub(crate) const SIXTY_FOUR_BIT: u32 = 0x80;
    pub(crate) const MOUNT_PROTECTION: u32 = 0x100;
    pub(crate) const CSUM_SEED: u32 = 0x2000;
    pub(crate) const LARGE_DIRECTORY: u32 = 0x4000;
    pub(crate) const FILE_TYPE: u32 = 0x2;
    /// filetype, recover, meta_bg, extents, 64bit, mmp, flex_bg, ea_inode, csum_seed, largedir, inline_data, encrypt,
    /// casefold.
    pub(crate) const KNOWN: u32 =
        0x2 | 0x4 | 0x10 | 0x40 | 0x80 | 0x100 | 0x200 | 0x400 | 0x2000 | 0x4000 | 0x8000 | 0x10000 | 0x20000;
}

/// Features that must be known before the volume can be changed.
pub(in crate::ext4) mod ro_compat {
    pub(crate) const SPARSE_SUPER: u32 = 0x1;
    pub(crate) const GDT_CSUM: u32 = 0x10;
    pub(crate) const QUOTA: u32 = 0x100;
    pub(crate) const BIGALLOC: u32 = 0x200;
    pub(crate) const METADATA_CSUM: u32 = 0x400;
    pub(crate) const READ_ONLY: u32 = 0x1000;
    pub(crate) const SHARED_BLOCKS: u32 = 0x4000;
    pub(crate) const ORPHANS: u32 = 0x1_0000;
    /// sparse_super, large_file, huge_file, gdt_csum, dir_nlink, extra_isize, quota, bigalloc, metadata_csum, readonly,
    /// project, shared_blocks, verity, orphan_present.
    pub(crate) const KNOWN: u32 =
        0x1 | 0x2 | 0x8 | 0x10 | 0x20 | 0x40 | 0x100 | 0x200 | 0x400 | 0x1000 | 0x2000 | 0x4000 | 0x8000 | 0x10000;
}

const COMPAT_HAS_JOURNAL: u32 = 0x4;
const COMPAT_DIR_INDEX: u32 = 0x20;
const COMPAT_SPARSE_SUPER2: u32 = 0x200;
const COMPAT_FAST_COMMIT: u32 = 0x400;
const COMPAT_ORPHAN_FILE: u32 = 0x1000;

/// Of the flags of the superblock: how the bytes of names count in hashes.
const SIGNED_HASH: u32 = 1;
const UNSIGNED_HASH: u32 = 2;

/// How names are hashed, as the superblock says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::ext4) struct NameHash {
    pub(in crate::ext4) seed: [u32; 4],
    /// The function of directories that are indexed from now on.
    pub(in crate::ext4) version: u8,
    /// `None` where it depends on the machine that has the volume.
    pub(in crate::ext4) is_unsigned: Option<bool>,
}

/// The checked superblock.
#[derive(Clone, Debug)]
pub(in crate::ext4) struct Superblock {
    pub(in crate::ext4) block_size: BlockSize,
    pub(in crate::ext4) blocks: u64,
    pub(in crate::ext4) first_data_block: u64,
    pub(in crate::ext4) blocks_per_group: u64,
    /// Blocks in an allocation cluster; 1 without bigalloc.
    pub(in crate::ext4) cluster_blocks: u64,
    pub(in crate::ext4) inodes_per_group: u32,
    pub(in crate::ext4) inode_size: u16,
    pub(in crate::ext4) descriptor_size: u16,
    pub(in crate::ext4) group_count: u32,
    pub(in crate::ext4) first_inode: u32,
    pub(in crate::ext4) journal_inode: u32,
    /// User, group and project quota files, and the orphan file; 0 where there is none.
    pub(in crate::ext4) system_inodes: [u32; 4],
    pub(in crate::ext4) reserved_descriptor_blocks: u64,
    pub(in crate::ext4) first_meta_group: u32,
    pub(in crate::ext4) backup_groups: [u32; 2],
    pub(in crate::ext4) mmp_block: u64,
    pub(in crate::ext4) incompat: u32,
    pub(in crate::ext4) ro_compat: u32,
    /// Large directories are indexed by the hashes of their names.
    pub(in crate::ext4) has_dir_index: bool,
    pub(in crate::ext4) name_hash: NameHash,
    sparse_super2: bool,
    /// The seed of every metadata checksum, when there are any.
    pub(in crate::ext4) seed: Option<Crc32c>,
    pub(in crate::ext4) uuid: [u8; 16],
    pub(in crate::ext4) label: Vec<u8>,
    pub(in crate::ext4) data_journalled: bool,
    pub(in crate::ext4) fast_commit: bool,
    /// The journal lies on a device of its own.
    pub(in crate::ext4) external_journal: bool,
    pub(in crate::ext4) has_errors: bool,
}

impl Superblock {
    /// Reads and checks it.
    pub(in crate::ext4) fn read(source: &dyn Source) -> Read<Self> {
        let mut raw = [0; SIZE_BYTES];
        if source.length() < OFFSET_BYTES + SIZE_BYTES as u64 {
            return Err(Fault::NotExt4(format!("only {} bytes, too small for a file system", source.length())));
        }
        source.read_exact_at(&mut raw, OFFSET_BYTES)?;
        let parsed = Self::parse(&raw)?;
        let needed = parsed.block_size.to_bytes(Blocks(parsed.blocks));
        if needed > Bytes(source.length()) {
            return damaged(format!(
                "truncated: the file system has {needed} bytes, the device or image only {}",
                source.length()
            ));
        }
        Ok(parsed)
    }

    fn parse(raw: &[u8; SIZE_BYTES]) -> Read<Self> {
        let u16_at = |at| le16(raw, at);
        let u32_at = |at| le32(raw, at);
        if u16_at(56) != MAGIC {
            return Err(Fault::NotExt4("it has no ext4 file system".into()));
        }
        let dynamic = u32_at(76) > 0;
        let features = |at| if dynamic { u32_at(at) } else { 0 };
        let (compat, incompat, ro_compat) = (features(92), features(96), features(100));
        check_features(incompat)?;
        let seed = read_seed(raw, incompat, ro_compat)?;
        let wide = incompat & incompat::SIXTY_FOUR_BIT != 0;
        let block_size = match u32_at(24) {
            log @ 0..=6 => BlockSize::new(1024 << log),
            _ => None,
        };
        let Some(block_size) = block_size else {
            return damaged(format!("superblock: block size 2^{} KiB", u32_at(24)));
        };
        let first_inode = if dynamic { u32_at(84) } else { 11 };
        let parsed = Self {
            block_size,
            blocks: joined(u32_at(4), if wide { u32_at(336) } else { 0 }),
            first_data_block: u64::from(u32_at(20)),
            blocks_per_group: u64::from(u32_at(32)),
            cluster_blocks: cluster_blocks(raw, ro_compat)?,
            inodes_per_group: u32_at(40),
            inode_size: if dynamic { u16_at(88) } else { 128 },
            descriptor_size: if wide { u16_at(254) } else { 32 },
            group_count: 0,
            first_inode,
            journal_inode: u32_at(224),
            system_inodes: [
                u32_at(576),
                u32_at(580),
                u32_at(620),
                if compat & COMPAT_ORPHAN_FILE != 0 { u32_at(640) } else { 0 },
            ],
            reserved_descriptor_blocks: u64::from(u16_at(206)),
            first_meta_group: u32_at(260),
            backup_groups: [u32_at(588), u32_at(592)],
            mmp_block: joined(u32_at(360), u32_at(364)),
            incompat,
            ro_compat,
            has_dir_index: compat & COMPAT_DIR_INDEX != 0,
            name_hash: NameHash {
                seed: [236, 240, 244, 248].map(u32_at),
                version: byte(raw, 252),
                is_unsigned: match u32_at(352) & (SIGNED_HASH | UNSIGNED_HASH) {
                    SIGNED_HASH => Some(false),
                    UNSIGNED_HASH => Some(true),
                    _ => None,
                },
            },
            sparse_super2: compat & COMPAT_SPARSE_SUPER2 != 0,
            seed,
            uuid: raw.get(104..120).and_then(|b| b.try_into().ok()).unwrap_or_default(),
            label: raw.get(120..136).unwrap_or_default().iter().copied().take_while(|b| *b != 0).collect(),
            data_journalled: u32_at(256) & 0x60 == 0x20,
            fast_commit: compat & COMPAT_FAST_COMMIT != 0,
            external_journal: compat & COMPAT_HAS_JOURNAL != 0 && u32_at(224) == 0,
            has_errors: u16_at(58) & 2 != 0,
        };
        parsed.check_geometry(u32_at(0), u64::from(u32_at(36)))
    }

    /// Checks that the numbers fit each other, and derives the number of groups from them.
    fn check_geometry(mut self, inodes: u32, clusters_per_group: u64) -> Read<Self> {
        let size = self.block_size.bytes();
        let bits = u64::from(size) * 8;
        let first = u64::from(size == 1024);
        let bigalloc = self.cluster_blocks > 1;
        if self.first_data_block != first && !(bigalloc && self.first_data_block == 0) {
            return damaged(format!("superblock: first data block {}", self.first_data_block));
        }
        if self.blocks <= self.first_data_block {
            return damaged(format!("superblock: {} blocks", self.blocks));
        }
        let clusters = if self.has_bigalloc() { clusters_per_group } else { self.blocks_per_group };
        let whole = clusters > 0 && clusters <= bits && clusters % 8 == 0;
        if !whole || clusters.checked_mul(self.cluster_blocks) != Some(self.blocks_per_group) {
            return damaged(format!("superblock: {} blocks a group", self.blocks_per_group));
        }
        if self.inodes_per_group == 0 || u64::from(self.inodes_per_group) > bits {
            return damaged(format!("superblock: {} inodes a group", self.inodes_per_group));
        }
        let inode_size = u32::from(self.inode_size);
        if !inode_size.is_power_of_two() || inode_size < 128 || inode_size > size {
            return damaged(format!("superblock: inodes of {inode_size} bytes"));
        }
        let descriptor = u32::from(self.descriptor_size);
        let least = if self.incompat & incompat::SIXTY_FOUR_BIT != 0 { 64 } else { 32 };
        if !descriptor.is_power_of_two() || descriptor < least || descriptor > 1024 {
            return damaged(format!("superblock: group descriptors of {descriptor} bytes"));
        }
        let groups = (self.blocks - self.first_data_block).div_ceil(self.blocks_per_group);
        if groups.checked_mul(u64::from(self.inodes_per_group)) != Some(u64::from(inodes)) {
            return damaged(format!("superblock: {inodes} inodes do not fill {groups} groups"));
        }
        self.group_count = u32::try_from(groups).map_err(|_| Fault::Damaged(format!("superblock: {groups} groups")))?;
        if self.first_inode < 11 || self.first_inode > inodes {
            return damaged(format!("superblock: first ordinary inode {}", self.first_inode));
        }
        if self.reserved_descriptor_blocks > u64::from(size / 4) {
            return damaged(format!("superblock: {} reserved descriptor blocks", self.reserved_descriptor_blocks));
        }
        if self.has_meta_groups() && self.first_meta_group > self.descriptor_blocks() {
            return damaged(format!("superblock: first meta group {}", self.first_meta_group));
        }
        Ok(self)
    }

    pub(in crate::ext4) fn has_bigalloc(&self) -> bool {
        self.ro_compat & ro_compat::BIGALLOC != 0
    }

    pub(in crate::ext4) fn has_meta_groups(&self) -> bool {
        self.incompat & incompat::META_BG != 0
    }

    /// Whether group descriptors are checksummed, which is also what makes their "uninitialised" marks count.
    pub(in crate::ext4) fn has_group_checksums(&self) -> bool {
        self.ro_compat & (ro_compat::GDT_CSUM | ro_compat::METADATA_CSUM) != 0
    }

    pub(in crate::ext4) fn descriptors_per_block(&self) -> u32 {
        self.block_size.bytes() / u32::from(self.descriptor_size)
    }

    /// Blocks that all group descriptors take.
    pub(in crate::ext4) fn descriptor_blocks(&self) -> u32 {
        self.group_count.div_ceil(self.descriptors_per_block())
    }

    pub(in crate::ext4) fn inode_table_blocks(&self) -> u64 {
        (u64::from(self.inodes_per_group) * u64::from(self.inode_size)).div_ceil(u64::from(self.block_size.bytes()))
    }

    /// The blocks of a group.
    pub(in crate::ext4) fn group_extent(&self, group: u32) -> Extent {
        let start = self.first_data_block + u64::from(group) * self.blocks_per_group;
        Extent::new(start, self.blocks_per_group.min(self.blocks.saturating_sub(start)))
    }

    /// Whether the group starts with a copy of the superblock.
    pub(in crate::ext4) fn has_superblock(&self, group: u32) -> bool {
        if group == 0 {
            return true;
        }
        if self.sparse_super2 {
            return self.backup_groups.contains(&group);
        }
        let power_of = |base: u32| std::iter::successors(Some(base), |p| p.checked_mul(base)).any(|p| p == group);
        group == 1 || self.ro_compat & ro_compat::SPARSE_SUPER == 0 || [3, 5, 7].into_iter().any(power_of)
    }

    /// Whether `extent` lies among the blocks that the groups manage.
    pub(in crate::ext4) fn holds(&self, start: u64, length: u64) -> bool {
        start >= self.first_data_block.max(1) && start.checked_add(length).is_some_and(|end| end <= self.blocks)
    }

    /// Writes the checksum of the raw superblock `raw`.
    pub(in crate::ext4) fn put_checksum(&self, raw: &mut [u8]) {
        if self.seed.is_some() {
            let sum = Crc32c::START.over(raw.get(..1020).unwrap_or_default()).value();
            put(raw, 1020, &sum.to_le_bytes());
        }
    }

    /// Where a block starts on the device, in bytes. The caller has checked that the block is on the volume.
    pub(in crate::ext4) fn offset(&self, block: u64) -> u64 {
        block.saturating_mul(u64::from(self.block_size.bytes()))
    }
}

fn check_features(incompat: u32) -> Read<()> {
    if incompat & incompat::JOURNAL_DEVICE != 0 {
        return Err(Fault::NotExt4("the external journal of an ext4 volume, not a file system".into()));
    }
    let unknown = incompat & !incompat::KNOWN;
    if unknown != 0 {
        return Err(Fault::Unsupported(format!("an ext4 feature (incompatible, {unknown:#x})")));
    }
    Ok(())
}

/// Checks the superblock's own checksum, and returns the seed of all others.
fn read_seed(raw: &[u8; SIZE_BYTES], incompat: u32, ro_compat: u32) -> Read<Option<Crc32c>> {
    if ro_compat & ro_compat::METADATA_CSUM == 0 {
        return Ok(None);
    }
    if byte(raw, 373) != 1 {
        return Err(Fault::Unsupported(format!("ext4 checksum type {}", byte(raw, 373))));
    }
    if Crc32c::START.over(raw.get(..1020).unwrap_or_default()).value() != le32(raw, 1020) {
        return damaged("superblock: wrong checksum");
    }
    let seeded = incompat & incompat::CSUM_SEED != 0;
    let seed = if seeded {
        Crc32c::from_seed(le32(raw, 624))
    } else {
        Crc32c::START.over(raw.get(104..120).unwrap_or_default())
    };
    Ok(Some(seed))
}

fn cluster_blocks(raw: &[u8; SIZE_BYTES], ro_compat: u32) -> Read<u64> {
    if ro_compat & ro_compat::BIGALLOC == 0 {
        return Ok(1);
    }
    match le32(raw, 28).checked_sub(le32(raw, 24)) {
        Some(ratio @ 0..=20) => Ok(1 << ratio),
        _ => damaged(format!("superblock: cluster size 2^{} KiB", le32(raw, 28))),
    }
}
