//! Files that share blocks and are being moved: how they return if one of them cannot move.
//!
//! Owns a nameless file that shares the present blocks with them during the move. The blocks therefore keep their
//! content until all files have moved, and the file shows whether another file shares them, too. Never decides what
//! moves.

use longrun_layout::{BlockSize, Bytes};
use longrun_sys::{ByteRange, Errno, Mapping, Shared, map_file, share_blocks_of, share_if_same};
use std::fs::File;
use std::os::fd::{AsFd, OwnedFd};

/// The nameless file; it is empty between two moves.
#[derive(Debug)]
pub(super) struct Keep(OwnedFd);

/// The blocks that a part of a file has had, held by the nameless file too.
#[must_use]
pub(super) struct Kept<'a>(&'a Keep);

impl Keep {
    pub(super) fn open(root: &File) -> Result<Self, Errno> {
        Ok(Self(longrun_sys::temporary_file(root)?))
    }

    /// Keeps the blocks of a part of a file, which starts and ends with a block or with the file.
    pub(super) fn present(&self, file: impl AsFd, range: ByteRange) -> Result<Kept<'_>, Errno> {
        longrun_sys::set_length(&self.0, Bytes(0))?;
        share_blocks_of(file, range, &self.0, Bytes(0))?;
        Ok(Kept(self))
    }
}

impl Kept<'_> {
    /// Whether another file has some of the blocks too.
    pub(super) fn is_shared(&self) -> Result<bool, Errno> {
        Ok(map_file(&self.0.0, ByteRange::ALL, Mapping::AsIs)?.iter().any(|extent| extent.flags.is_shared()))
    }

    /// Has a file take the kept blocks again wherever it holds the same. What its user has changed meanwhile is shared with
    /// no one any more.
    pub(super) fn put_back(&self, root: &File, file: impl AsFd, range: ByteRange, block_size: BlockSize) {
        let file = file.as_fd();
        let mut left = vec![(Bytes(0), range)];
        while let Some((at, part)) = left.pop() {
            if let Ok(Shared::Differs) = share_if_same(root, &self.0.0, at, file, part)
                && part.length.0 > u64::from(block_size.bytes())
            {
                let half = block_size.to_bytes(block_size.to_blocks(Bytes(part.length.0 / 2)));
                let behind = |bytes: Bytes| bytes + half;
                left.push((at, ByteRange { start: part.start, length: half }));
                let length = part.length.saturating_sub(half);
                left.push((behind(at), ByteRange { start: behind(part.start), length }));
            }
        }
    }

    /// Lets go of the blocks: what no other file refers to is free.
    pub(super) fn give_back(self) -> Result<(), Errno> {
        longrun_sys::set_length(&self.0.0, Bytes(0))
    }
}
