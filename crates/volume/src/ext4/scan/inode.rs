//! One inode: checks it, and classifies it by what may be done with its blocks.

use super::bytes::{byte, joined, le16, le32, put};
use super::checksum::Crc32c;
use super::fault::{Read, damaged};
use super::superblock::{Superblock, incompat};
use longrun_layout::Pin;

const CLASSIC_SIZE: usize = 128;
const SIZE_LOW: usize = 4;
const BLOCKS_LOW: usize = 28;
const FLAGS: usize = 32;
const BLOCKS_HIGH: usize = 116;
const CHECKSUM_LOW: usize = 124;
const CHECKSUM_HIGH: usize = 130;
/// Where the file's map lies in the inode, and its size.
const MAP: usize = 40;
pub(in crate::ext4) const MAP_SIZE: usize = 60;

mod flag {
    pub(in crate::ext4) const IMMUTABLE: u32 = 0x10;
    pub(in crate::ext4) const APPEND: u32 = 0x20;
    pub(in crate::ext4) const ENCRYPT: u32 = 0x800;
    pub(in crate::ext4) const INDEX: u32 = 0x1000;
    pub(in crate::ext4) const JOURNAL_DATA: u32 = 0x4000;
    pub(in crate::ext4) const EXTENTS: u32 = 0x8_0000;
    pub(in crate::ext4) const VERITY: u32 = 0x10_0000;
    pub(in crate::ext4) const ATTRIBUTE_VALUE: u32 = 0x20_0000;
    pub(in crate::ext4) const HUGE: u32 = 0x4_0000;
    pub(in crate::ext4) const INLINE_DATA: u32 = 0x1000_0000;
    pub(in crate::ext4) const CASEFOLD: u32 = 0x4000_0000;
}

/// The inode of the root directory.
pub(in crate::ext4) const ROOT: u32 = 2;
/// The inode that owns the room for more group descriptors.
pub(in crate::ext4) const RESIZE: u32 = 7;
/// The inode that lists bad blocks; it has no links and yet is in use.
const BAD_BLOCKS: u32 = 1;

/// What an inode is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::ext4) enum Role {
    /// Not in use, or without blocks (device nodes, sockets, short symbolic links).
    Nothing,
    File,
    Directory,
    /// A symbolic link too long for its inode.
    Symlink,
    /// Deleted while open.
    Deleted,
    /// A file of the file system itself.
    System,
    Journal,
}

/// How an inode tells where its blocks are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::ext4) enum Mapping {
    Extents,
    Indirect,
    /// The content lies in the inode.
    Inline,
}

/// A checked inode.
#[derive(Clone, Copy, Debug)]
pub(in crate::ext4) struct Inode {
    pub(in crate::ext4) number: u32,
    pub(in crate::ext4) generation: u32,
    pub(in crate::ext4) size_bytes: u64,
    pub(in crate::ext4) attribute_block: u64,
    /// Raw content of the map area.
    pub(in crate::ext4) map: [u8; MAP_SIZE],
    /// The seed of the checksums of blocks that belong to this inode.
    pub(in crate::ext4) seed: Option<Crc32c>,
    mode: u16,
    links: u16,
    flags: u32,
    has_blocks: bool,
}

impl Inode {
    /// Checks and takes apart the raw inode `number`, of the volume's inode size.
    pub(in crate::ext4) fn parse(sb: &Superblock, number: u32, raw: &[u8]) -> Read<Self> {
        let generation = le32(raw, 100);
        let seed = sb.seed.map(|s| s.over(&number.to_le_bytes()).over(&generation.to_le_bytes()));
        if let Some(seed) = seed
            && !checksum_fits(seed, raw)
        {
            return damaged(format!("inode {number} has a wrong checksum"));
        }
        let mode = le16(raw, 0);
        let wide_size = mode & 0xF000 == 0x8000 || sb.incompat & incompat::LARGE_DIRECTORY != 0;
        Ok(Self {
            number,
            generation,
            size_bytes: joined(le32(raw, SIZE_LOW), if wide_size { le32(raw, 108) } else { 0 }),
            attribute_block: joined(le32(raw, 104), u32::from(le16(raw, 118))),
            map: raw.get(MAP..).and_then(|m| m.first_chunk()).copied().unwrap_or([0; MAP_SIZE]),
            seed,
            mode,
            links: le16(raw, 26),
            flags: le32(raw, FLAGS),
            has_blocks: le32(raw, 28) != 0 || le16(raw, 116) != 0,
        })
    }

    pub(in crate::ext4) fn role(&self, sb: &Superblock) -> Role {
        if self.number == sb.journal_inode {
            return Role::Journal;
        }
        let reserved = self.number < sb.first_inode && self.number != ROOT;
        if reserved || sb.system_inodes.contains(&self.number) || self.has(flag::ATTRIBUTE_VALUE) {
            let in_use = self.has_blocks && (self.links > 0 || self.number == BAD_BLOCKS);
            return if in_use { Role::System } else { Role::Nothing };
        }
        if self.mode == 0 {
            return Role::Nothing;
        }
        if self.links == 0 {
            return if self.has_blocks { Role::Deleted } else { Role::Nothing };
        }
        match self.mode & 0xF000 {
            0x8000 => Role::File,
            0x4000 => Role::Directory,
            // A short link keeps its target where the map would be, and has at most an attribute block.
            0xA000 if self.size_bytes >= MAP_SIZE as u64 && !self.has(flag::INLINE_DATA) => Role::Symlink,
            _ => Role::Nothing,
        }
    }

    pub(in crate::ext4) fn mapping(&self) -> Mapping {
        if self.has(flag::INLINE_DATA) {
            Mapping::Inline
        } else if self.has(flag::EXTENTS) {
            Mapping::Extents
        } else {
            Mapping::Indirect
        }
    }

    /// Why its blocks must stay, by what the inode itself says.
    pub(in crate::ext4) fn pin(&self, role: Role) -> Option<Pin> {
        let by_flag = [
            (flag::ENCRYPT, Pin::Encrypted),
            (flag::IMMUTABLE | flag::APPEND, Pin::Immutable),
            (flag::VERITY, Pin::Verity),
            (flag::JOURNAL_DATA, Pin::JournalData),
        ];
        match role {
            Role::Directory => None,
            Role::Symlink => Some(Pin::Symlink),
            _ if self.mapping() == Mapping::Indirect => Some(Pin::Indirect),
            _ => by_flag
                .into_iter()
                .find_map(|(flag, pin)| self.has(flag).then_some(pin))
                .or((self.generation == 0).then_some(Pin::NoGeneration)),
        }
    }

    /// The same where nobody has the volume mounted: there every map of extents can be changed. What is immutable stays, because
    /// boot loaders that find their files by block number mark them so.
    pub(in crate::ext4) fn pin_offline(&self) -> Option<Pin> {
        if self.mapping() == Mapping::Indirect {
            return Some(Pin::Indirect);
        }
        self.has(flag::IMMUTABLE).then_some(Pin::Immutable)
    }

    /// Puts another root of its map, and the number of blocks that it has, into the raw inode.
    pub(in crate::ext4) fn put_map(&self, raw: &mut [u8], root: &[u8; MAP_SIZE], more_blocks: i64, block_bytes: u32) {
        // Counted in blocks, or in sectors of 512 bytes.
        let unit = if self.has(flag::HUGE) { 1 } else { i64::from(block_bytes / 512) };
        let blocks = joined(le32(raw, BLOCKS_LOW), u32::from(le16(raw, BLOCKS_HIGH)));
        let blocks = blocks.saturating_add_signed(more_blocks * unit);
        put(raw, MAP, root);
        put(raw, BLOCKS_LOW, &(blocks as u32).to_le_bytes());
        put(raw, BLOCKS_HIGH, &((blocks >> 32) as u16).to_le_bytes());
        if let Some(seed) = self.seed {
            let (sum, has_high) = checksum(seed, raw);
            put(raw, CHECKSUM_LOW, &(sum as u16).to_le_bytes());
            if has_high {
                put(raw, CHECKSUM_HIGH, &((sum >> 16) as u16).to_le_bytes());
            }
        }
    }

    /// Names in an encrypted directory are ciphertext.
    pub(in crate::ext4) fn is_encrypted(&self) -> bool {
        self.has(flag::ENCRYPT)
    }

    /// Names are looked up without regard to case, by hashes that need the tables of Unicode.
    pub(in crate::ext4) fn is_casefolded(&self) -> bool {
        self.has(flag::CASEFOLD)
    }

    pub(in crate::ext4) fn is_immutable(&self) -> bool {
        self.has(flag::IMMUTABLE)
    }

    /// Whether it is a directory with an index of hashes.
    pub(in crate::ext4) fn is_indexed(&self) -> bool {
        self.has(flag::INDEX)
    }

    /// Puts another size of a directory, and whether it is indexed, into the raw inode. The checksum comes with the map
    /// ([`Self::put_map`]).
    pub(in crate::ext4) fn put_directory(&mut self, raw: &mut [u8], bytes: u32, is_indexed: bool) {
        self.size_bytes = u64::from(bytes);
        self.flags = if is_indexed { self.flags | flag::INDEX } else { self.flags & !flag::INDEX };
        put(raw, SIZE_LOW, &bytes.to_le_bytes());
        put(raw, FLAGS, &self.flags.to_le_bytes());
    }

    /// Whether it stands for anything.
    pub(in crate::ext4) fn is_in_use(&self) -> bool {
        self.mode != 0 && (self.links > 0 || self.has_blocks)
    }

    /// Whether it is a directory in use.
    pub(in crate::ext4) fn is_directory(&self) -> bool {
        self.mode & 0xF000 == 0x4000 && self.links > 0
    }

    fn has(&self, flag: u32) -> bool {
        self.flags & flag != 0
    }
}

fn checksum_fits(seed: Crc32c, raw: &[u8]) -> bool {
    let (sum, has_high) = checksum(seed, raw);
    let low = le16(raw, CHECKSUM_LOW);
    if has_high { sum == u32::from(low) | u32::from(le16(raw, CHECKSUM_HIGH)) << 16 } else { sum as u16 == low }
}

/// The checksum of a raw inode, and whether the inode has room for its upper half.
fn checksum(seed: Crc32c, raw: &[u8]) -> (u32, bool) {
    let part = |range: std::ops::Range<usize>| raw.get(range).unwrap_or_default();
    let classic = seed.over(part(0..CHECKSUM_LOW)).over(&[0, 0]).over(part(CHECKSUM_LOW + 2..CLASSIC_SIZE));
    if raw.len() <= CLASSIC_SIZE {
        return (classic.value(), false);
    }
    let extra = classic.over(part(CLASSIC_SIZE..CHECKSUM_HIGH));
    let has_high = usize::from(le16(raw, CLASSIC_SIZE)) + CLASSIC_SIZE >= CHECKSUM_HIGH + 2;
    let field = if has_high { &[0, 0] } else { part(CHECKSUM_HIGH..CHECKSUM_HIGH + 2) };
    (extra.over(field).over(part(CHECKSUM_HIGH + 2..raw.len())).value(), has_high)
}

/// Extended attributes kept in the inode: the value of the one that continues inline data.
pub(in crate::ext4) fn inline_continuation(raw: &[u8]) -> &[u8] {
    const MAGIC: u32 = 0xEA02_0000;
    const SYSTEM_NAMES: u8 = 7;
    let start = CLASSIC_SIZE + usize::from(le16(raw, CLASSIC_SIZE));
    if raw.len() <= CLASSIC_SIZE || le32(raw, start) != MAGIC {
        return &[];
    }
    let entries = raw.get(start + 4..).unwrap_or_default();
    let mut at = 0;
    while le32(entries, at) != 0 {
        let name_length = usize::from(byte(entries, at));
        if byte(entries, at + 1) == SYSTEM_NAMES && entries.get(at + 16..at + 16 + name_length) == Some(b"data") {
            let (offset, length) = (usize::from(le16(entries, at + 2)), le32(entries, at + 8) as usize);
            return entries.get(offset..).and_then(|v| v.get(..length)).unwrap_or_default();
        }
        at += (16 + name_length).next_multiple_of(4);
    }
    &[]
}
