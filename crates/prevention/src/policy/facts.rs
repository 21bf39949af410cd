//! The facts about a file and its volume that a decision needs.

use super::FileKind;
use longrun_layout::Bytes;
use longrun_sys::FileSystem;
use longrun_sys::{Capacity, InodeAttributes};
use std::path::PathBuf;
use std::time::Duration;

/// The state of a file at the time of the decision.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileFacts {
    /// Where it lies.
    pub filesystem: FileSystem,
    /// Its name, when it has one: compared with what is excluded.
    pub path: Option<PathBuf>,
    /// What kind of file it is: looked up in the history.
    pub kind: FileKind,
    /// Its length.
    pub size: Bytes,
    /// What it occupies, unused runways included.
    pub allocated: Bytes,
    /// How many names it has.
    pub links: u64,
    /// Whether anybody may execute it.
    pub executable: bool,
    /// Whether btrfs stores it compressed (by its own attribute, its directory's or the mount's).
    pub compressed: bool,
    /// Whether it has an extent-size hint of its own or inherited.
    pub size_hint: bool,
    /// Whether its owner, or another account that it is charged to, has a limit on the space that they may use.
    pub limited: bool,
    /// What its attributes forbid.
    pub attributes: Attributes,
    /// When it was modified last.
    pub modified: Modified,
    /// In how many fragments it is, when that is known.
    pub fragments: Option<u64>,
}

/// Attributes of a file that forbid runways.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Attributes {
    /// Must not change, or may only grow: a runway could not be taken back.
    pub fixed: bool,
    /// Encrypted or protected by fs-verity.
    pub sealed: bool,
    /// In use as swap space.
    pub swap: bool,
    /// Not mapped by extents, or its content lies in the inode; on ext4 also what cannot be written past the page cache: there
    /// a runway could not be taken back.
    pub no_extents: bool,
    /// Gives privileges to those who execute it, which the kernel takes away with each change.
    pub privileged: bool,
}

impl Attributes {
    /// What `lsattr` shows, read for `filesystem`; `swap` is known from elsewhere.
    #[must_use]
    pub fn new(filesystem: FileSystem, flags: InodeAttributes, swap: bool) -> Self {
        let ext4 = filesystem == FileSystem::Ext4;
        Self {
            fixed: flags.is_immutable() || flags.is_append_only(),
            sealed: flags.is_encrypted() || flags.has_verity(),
            swap,
            no_extents: ext4 && (!flags.has_extents() || flags.is_inline()),
            privileged: false,
        }
    }

    /// Whether any of them forbids a runway.
    #[must_use]
    pub fn forbid(self) -> bool {
        self.fixed || self.sealed || self.swap || self.no_extents || self.privileged
    }
}

/// When a file was last modified, according to its time stamp.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Modified {
    /// So long ago.
    Ago(Duration),
    /// In the future, by so much.
    Ahead(Duration),
}

/// The space of a volume at the time of the decision.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SpaceFacts {
    /// All there is.
    pub total: Bytes,
    /// What is free for everybody (not only for root): runways are not part of it.
    pub free: Bytes,
    /// What our unused runways and windows hold.
    pub held: Bytes,
}

impl SpaceFacts {
    /// Of a volume that is so full, when so much is held.
    #[must_use]
    pub fn of(capacity: Capacity, held: Bytes) -> Self {
        let bytes = |blocks| capacity.block_size.to_bytes(blocks);
        Self { total: bytes(capacity.total), free: bytes(capacity.available), held }
    }
}
