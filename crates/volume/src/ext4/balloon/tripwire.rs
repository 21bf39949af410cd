//! Freed blocks that no commit has confirmed yet, kept in this state on purpose.
//!
//! Owns a few blocks of free space. The reason: a process that uses up the free space with one large request gets an
//! error before the guard can react. But ext4 does not refuse space at once while some was freed in an open
//! transaction: it first commits and tries again, up to three times. So while such a block exists, a process that runs
//! out of space waits for a commit, and the guard gives everything back meanwhile.
//!
//! The blocks are allocated in advance, because on a full volume an allocation would itself wait for commits, just when
//! the guard must not wait.

use longrun_layout::{BlockSize, Blocks, LogicalBlock};
use longrun_sys::{ByteRange, Errno};
use std::fs::File;
use std::os::fd::OwnedFd;

/// How many blocks are allocated at a time, for as many commits.
const SUPPLY: Blocks = Blocks(32);

/// Sets a new tripwire after each journal commit.
#[derive(Debug)]
pub(in crate::ext4) struct Tripwire {
    file: Option<OwnedFd>,
    block_size: BlockSize,
    /// How many commits there had been when it was set.
    set_in: Option<u64>,
    /// Blocks of the file that are still allocated.
    left: Blocks,
}

impl Tripwire {
    /// Nothing is allocated yet.
    pub(super) fn new(block_size: BlockSize) -> Self {
        Self { file: None, block_size, set_in: None, left: Blocks(0) }
    }

    /// Makes sure that a block lies about after so many `commits`. Where they cannot be counted none is laid: it would be
    /// a new one each time.
    pub(super) fn set(&mut self, root: &File, commits: Option<u64>) -> Result<(), Errno> {
        if commits.is_none() || self.set_in == commits {
            return Ok(());
        }
        if self.left.0 == 0 {
            let file = longrun_sys::temporary_file(root)?;
            let supply = ByteRange::of_blocks(self.block_size, LogicalBlock(0), SUPPLY);
            longrun_sys::set_length(&file, supply.length)?;
            longrun_sys::allocate(&file, supply)?;
            (self.file, self.left) = (Some(file), SUPPLY);
        }
        if let Some(file) = &self.file {
            self.left = self.left.saturating_sub(Blocks(1));
            let block = ByteRange::of_blocks(self.block_size, LogicalBlock(self.left.0), Blocks(1));
            longrun_sys::punch(file, block)?;
        }
        self.set_in = commits;
        Ok(())
    }

    /// Closes the file.
    pub(super) fn put_away(&mut self) {
        (self.file, self.set_in, self.left) = (None, None, Blocks(0));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn where_commits_cannot_be_counted_nothing_is_allocated() {
        let directory = tempfile::tempdir().unwrap();
        let root = File::open(directory.path()).unwrap();
        let mut tripwire = Tripwire::new(BlockSize::new(4096).unwrap());
        tripwire.set(&root, None).unwrap();
        assert!(tripwire.file.is_none() && tripwire.left == Blocks(0));
    }
}
