//! The three kinds of records of a map, and how each is written in few bytes.

use crate::groups::Coded;
use crate::piece::{Owner, Piece, Traits};
use crate::varint::{Cursor, put, put_way};
use longrun_layout::{Blocks, Extent, FileId, FileIndex, InodeNumber, LogicalBlock, PhysicalBlock, Run};

const FREE: u8 = 0;
const FILE: u8 = 1;
const AREA: u8 = 2;
const KIND: u8 = 3;
const FIXED: u8 = 4;
const FRAGMENTED: u8 = 8;
const SHARED: u8 = 16;
const DIRECTORY: u8 = 32;

/// What is known of the pieces before.
#[derive(Default)]
pub(crate) struct Pieces {
    end: u64,
    file: u32,
    /// The block with which that file would go on.
    logical: u64,
}

/// By place. Keys: its first block.
impl Coded for Piece {
    type State = Pieces;

    fn keys(&self) -> [u64; 3] {
        [self.extent.start.0, 0, 0]
    }

    fn start(keys: &[u64; 3]) -> Pieces {
        Pieces { end: keys[0], ..Pieces::default() }
    }

    fn put(&self, state: &mut Pieces, out: &mut Vec<u8>) {
        let bit = |is: bool, bit: u8| if is { bit } else { 0 };
        let tag = match self.owner {
            Owner::Free => FREE,
            Owner::Area(_) => AREA,
            Owner::File { traits, .. } => {
                FILE | bit(traits.fixed, FIXED)
                    | bit(traits.fragmented, FRAGMENTED)
                    | bit(traits.shared, SHARED)
                    | bit(traits.directory, DIRECTORY)
            }
        };
        out.push(tag);
        put(out, self.extent.start.0.saturating_sub(state.end));
        put(out, self.extent.length.0);
        match self.owner {
            Owner::Free => {}
            Owner::Area(word) => put(out, u64::from(word)),
            Owner::File { file, logical, .. } => {
                put_way(out, u64::from(state.file), u64::from(file.0));
                put_way(out, if state.file == file.0 { state.logical } else { 0 }, logical.0);
                (state.file, state.logical) = (file.0, (logical + self.extent.length).0);
            }
        }
        state.end = self.extent.end().0;
    }

    fn take(state: &mut Pieces, bytes: &mut Cursor<'_>) -> Option<Self> {
        let tag = bytes.byte()?;
        let start = state.end.checked_add(bytes.number()?)?;
        let length = bytes.number()?;
        let end = start.checked_add(length).filter(|_| length > 0)?;
        let owner = match tag & KIND {
            FREE => Owner::Free,
            AREA => Owner::Area(u16::try_from(bytes.number()?).ok()?),
            FILE => {
                let file = u32::try_from(bytes.way(u64::from(state.file))?).ok()?;
                let logical = bytes.way(if state.file == file { state.logical } else { 0 })?;
                (state.file, state.logical) = (file, logical.checked_add(length)?);
                let is = |bit: u8| tag & bit != 0;
                let traits = Traits {
                    fixed: is(FIXED),
                    fragmented: is(FRAGMENTED),
                    shared: is(SHARED),
                    directory: is(DIRECTORY),
                };
                Owner::File { file: FileIndex(file), logical: LogicalBlock(logical), traits }
            }
            _ => return None,
        };
        state.end = end;
        Some(Self { extent: Extent::new(start, length), owner })
    }
}

/// A file or directory of a map.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileEntry {
    /// Its identity.
    pub id: FileId,
    /// What the layout knows of its directory; see [`longrun_layout::FileRecord`].
    pub directory: u32,
    /// Whether it is a directory.
    pub is_directory: bool,
    /// Why it cannot be moved: the number of a word.
    pub fixed: Option<u16>,
    /// The number of its first run among those of all files.
    pub first_run: u64,
    /// How many runs it has.
    pub runs: u64,
    /// Its contiguous ranges.
    pub fragments: u64,
    /// Its blocks.
    pub blocks: Blocks,
}

/// What is known of the files before.
#[derive(Default)]
pub(crate) struct Files {
    id: (u64, u64),
    directory: u64,
    next_run: u64,
}

/// In the order of the layout. Keys: the lowest and the highest inode number, and the number of the first run.
impl Coded for FileEntry {
    type State = Files;

    fn keys(&self) -> [u64; 3] {
        [self.id.inode.0, self.id.inode.0, self.first_run]
    }

    fn widen(&self, keys: &mut [u64; 3]) {
        keys[0] = keys[0].min(self.id.inode.0);
        keys[1] = keys[1].max(self.id.inode.0);
    }

    fn start(keys: &[u64; 3]) -> Files {
        Files { next_run: keys[2], ..Files::default() }
    }

    fn put(&self, state: &mut Files, out: &mut Vec<u8>) {
        put_way(out, state.id.0, self.id.inode.0);
        put_way(out, state.id.1, u64::from(self.id.generation));
        put_way(out, state.directory, u64::from(self.directory));
        put(out, u64::from(self.is_directory) | self.fixed.map_or(0, |word| u64::from(word) + 1) << 1);
        put(out, self.runs);
        put(out, self.fragments);
        put(out, self.blocks.0);
        *state = Files {
            id: (self.id.inode.0, u64::from(self.id.generation)),
            directory: u64::from(self.directory),
            next_run: self.first_run + self.runs,
        };
    }

    fn take(state: &mut Files, bytes: &mut Cursor<'_>) -> Option<Self> {
        let inode = bytes.way(state.id.0)?;
        let generation = u32::try_from(bytes.way(state.id.1)?).ok()?;
        let directory = u32::try_from(bytes.way(state.directory)?).ok()?;
        let tag = bytes.number()?;
        let (first_run, runs) = (state.next_run, bytes.number()?);
        let next_run = first_run.checked_add(runs)?;
        *state = Files { id: (inode, u64::from(generation)), directory: u64::from(directory), next_run };
        Some(Self {
            id: FileId { inode: InodeNumber(inode), generation },
            directory,
            is_directory: tag & 1 != 0,
            fixed: (tag >> 1).checked_sub(1).map(u16::try_from).transpose().ok()?,
            first_run,
            runs,
            fragments: bytes.number()?,
            blocks: Blocks(bytes.number()?),
        })
    }
}

/// What is known of the runs before: where the last one ends, in its file and on the volume.
#[derive(Default)]
pub(crate) struct Runs {
    logical: u64,
    physical: u64,
}

/// File by file. Keys: none.
impl Coded for Run {
    type State = Runs;

    fn keys(&self) -> [u64; 3] {
        [0; 3]
    }

    fn start(_: &[u64; 3]) -> Runs {
        Runs::default()
    }

    fn put(&self, state: &mut Runs, out: &mut Vec<u8>) {
        put_way(out, state.logical, self.logical.0);
        put_way(out, state.physical, self.physical.0);
        put(out, self.length.0);
        *state = Runs { logical: self.logical_end().0, physical: self.extent().end().0 };
    }

    fn take(state: &mut Runs, bytes: &mut Cursor<'_>) -> Option<Self> {
        let (logical, physical) = (bytes.way(state.logical)?, bytes.way(state.physical)?);
        let length = bytes.number()?;
        *state = Runs { logical: logical.checked_add(length)?, physical: physical.checked_add(length)? };
        Some(Self { logical: LogicalBlock(logical), physical: PhysicalBlock(physical), length: Blocks(length) })
    }
}
