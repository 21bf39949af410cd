//! The head of a map, and the tables at its end.
//!
//! | bytes | content |
//! |---|---|
//! | 0–127 | head: what is mapped, where the tables lie, checksums of both |
//! | 128– | groups of records and cells, each with a checksum in the tables |
//! | the end | tables: words, then the groups of pieces, files, runs and cells |
//!
//! All numbers are little-endian.

use crate::AtlasError;
use crate::groups::Group;
use longrun_layout::{BlockSize, Blocks};

pub(crate) const MAGIC: [u8; 8] = *b"LRATLAS\0";
pub(crate) const VERSION: u32 = 1;
pub(crate) const HEAD: usize = 128;
/// Tables of a map of a billion extents are smaller.
const LARGEST_TABLES: u64 = 64 << 20;

/// What is mapped, and when.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Summary {
    /// The UUID of the volume; zeros when it has none.
    pub uuid: [u8; 16],
    /// The number of the scan.
    pub number: u64,
    /// When it ended, in seconds since 1970.
    pub at: i64,
    /// The block size.
    pub block_size: BlockSize,
    /// The size of the volume.
    pub total: Blocks,
    /// The files and directories.
    pub files: u64,
    /// The runs of all files.
    pub runs: u64,
    /// The pieces.
    pub pieces: u64,
}

/// The head of the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Head {
    pub(crate) summary: Summary,
    pub(crate) tables_at: u64,
    pub(crate) tables_length: u64,
    pub(crate) tables_checksum: u32,
}

impl Head {
    pub(crate) fn encode(&self) -> Vec<u8> {
        let Summary { uuid, number, at, block_size, total, files, runs, pieces } = self.summary;
        let mut out = Vec::with_capacity(HEAD);
        out.extend(MAGIC);
        out.extend(VERSION.to_le_bytes());
        out.extend(block_size.bytes().to_le_bytes());
        out.extend(uuid);
        out.extend(at.to_le_bytes());
        for long in [number, total.0, files, runs, pieces, self.tables_at, self.tables_length] {
            out.extend(long.to_le_bytes());
        }
        out.extend(self.tables_checksum.to_le_bytes());
        out.resize(HEAD - 4, 0);
        out.extend(crc32c::crc32c(&out).to_le_bytes());
        out
    }

    /// What `bytes`, the first of a file of `length` bytes, say.
    pub(crate) fn decode(bytes: &[u8; HEAD], length: u64) -> Result<Self, AtlasError> {
        let short = |at: usize| bytes.get(at..).and_then(<[u8]>::first_chunk).map_or(0, |b| u32::from_le_bytes(*b));
        let long = |at: usize| bytes.get(at..).and_then(<[u8]>::first_chunk).map_or(0, |b| u64::from_le_bytes(*b));
        if !bytes.starts_with(&MAGIC) {
            return Err(AtlasError::Damaged("it does not begin like a map"));
        }
        if short(8) != VERSION {
            return Err(AtlasError::Version(short(8)));
        }
        if bytes.get(..HEAD - 4).map(crc32c::crc32c) != Some(short(HEAD - 4)) {
            return Err(AtlasError::Damaged("its head has a wrong checksum"));
        }
        let mut uuid = [0; 16];
        uuid.copy_from_slice(bytes.get(16..32).unwrap_or(&[0; 16]));
        let head = Self {
            summary: Summary {
                uuid,
                at: long(32).cast_signed(),
                number: long(40),
                block_size: BlockSize::new(short(12)).ok_or(AtlasError::Damaged("its block size"))?,
                total: Blocks(long(48)),
                files: long(56),
                runs: long(64),
                pieces: long(72),
            },
            tables_at: long(80),
            tables_length: long(88),
            tables_checksum: short(96),
        };
        let fits = head.tables_at.checked_add(head.tables_length) == Some(length);
        if fits && head.tables_length <= LARGEST_TABLES {
            Ok(head)
        } else {
            Err(AtlasError::Damaged("it has not the length that its head says"))
        }
    }
}

/// The tables at the end of the file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Tables {
    /// What areas are called, and why files cannot be moved.
    pub(crate) words: Vec<String>,
    pub(crate) pieces: Vec<Group>,
    pub(crate) files: Vec<Group>,
    pub(crate) runs: Vec<Group>,
    pub(crate) cells: Vec<Group>,
}

impl Tables {
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut out = Vec::new();
        out.extend((self.words.len() as u64).to_le_bytes());
        for word in &self.words {
            out.extend((word.len() as u64).to_le_bytes());
            out.extend(word.as_bytes());
        }
        for groups in [&self.pieces, &self.files, &self.runs, &self.cells] {
            out.extend((groups.len() as u64).to_le_bytes());
            groups.iter().for_each(|group| group.put(&mut out));
        }
        out
    }

    pub(crate) fn decode(mut bytes: &[u8]) -> Option<Self> {
        let mut words = Vec::new();
        for _ in 0..length(&mut bytes)? {
            let length = length(&mut bytes)?;
            words.push(String::from_utf8(bytes.split_off(..length)?.to_vec()).ok()?);
        }
        let mut groups = || -> Option<Vec<Group>> {
            let length = length(&mut bytes)?.checked_mul(Group::SIZE)?;
            bytes.split_off(..length)?.chunks_exact(Group::SIZE).map(Group::take).collect()
        };
        let (pieces, files, runs, cells) = (groups()?, groups()?, groups()?, groups()?);
        bytes.is_empty().then_some(Self { words, pieces, files, runs, cells })
    }
}

fn length(bytes: &mut &[u8]) -> Option<usize> {
    let (first, rest) = bytes.split_first_chunk()?;
    *bytes = rest;
    usize::try_from(u64::from_le_bytes(*first)).ok()
}
