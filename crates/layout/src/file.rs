//! Files of the model: identity, directory, and whether they may move.

use crate::{Blocks, InodeNumber, Run, count_fragments};
use serde::{Deserialize, Serialize};

/// The position of a file in its [`crate::VolumeLayout`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct FileIndex(
    /// The bare index.
    pub u32,
);

/// What identifies a file across time: an inode number is reused, the generation then differs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct FileId {
    /// The inode number.
    pub inode: InodeNumber,
    /// The inode's generation; 0 where the file system has none.
    pub generation: u32,
}

/// The directory of a file whose directory is not known.
pub const NO_DIRECTORY: u32 = u32::MAX;

/// Why a file's blocks must stay where they are. Its blocks are obstacles to the planner, and counted by reason in
/// reports.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[repr(u8)]
pub enum Pin {
    /// Indirect blocks instead of extents: the kernel cannot exchange them.
    Indirect,
    /// Encrypted content cannot be exchanged.
    Encrypted,
    /// Immutable or append-only.
    Immutable,
    /// fs-verity protects the content.
    Verity,
    /// Data is journalled.
    JournalData,
    /// An active swap file.
    Swap,
    /// A long symbolic link: it cannot be opened, so that nothing can exchange its block.
    Symlink,
    /// A file of the file system itself (journal, quota, resize inode).
    System,
    /// Its extents could not be read or contradict each other.
    DamagedMap,
    /// It changed while the volume was read, so that what was read of it contradicts the rest.
    Changed,
    /// No generation: an inode number alone could name another file by the time of the move.
    NoGeneration,
    /// Addresses beyond what the model packs.
    TooLarge,
    /// Its data lies on a device of its own.
    Realtime,
    /// It shares blocks with other files.
    Shared,
    /// It has blocks inside that were preallocated and never written.
    Preallocated,
    /// Its owner has marked it as not to be moved.
    Unwanted,
    /// A directory, on a file system that cannot move any.
    Directory,
    /// It has an attribute of a kind that is not known, so that moving it could contradict something.
    UnknownAttribute,
    /// It could not be moved when that was tried.
    Refused,
    /// It lies where it was gathered with what is read with it.
    Gathered,
}

impl Pin {
    /// The reason in words, for people.
    #[must_use]
    pub const fn phrase(self) -> &'static str {
        match self {
            Self::Indirect => "has indirect blocks instead of extents",
            Self::Encrypted => "encrypted",
            Self::Immutable => "immutable or append-only",
            Self::Verity => "protected by fs-verity",
            Self::JournalData => "its data is journalled",
            Self::Swap => "an active swap file",
            Self::Symlink => "a symbolic link",
            Self::System => "belongs to the file system itself",
            Self::DamagedMap => "its extent map is inconsistent",
            Self::Changed => "changed while the volume was read",
            Self::NoGeneration => "has no inode generation, so that a reused inode number could not be detected",
            Self::TooLarge => "its block addresses are beyond the supported range",
            Self::Realtime => "is on a realtime device",
            Self::Shared => "shares blocks with other files",
            Self::Preallocated => "contains preallocated blocks that were never written",
            Self::Unwanted => "marked as not to be defragmented",
            Self::Directory => "a directory, which stays where it is while the volume is mounted",
            Self::UnknownAttribute => "has an attribute of an unknown kind",
            Self::Refused => "could not be moved when that was tried",
            Self::Gathered => "lies beside what else is read at boot",
        }
    }
}

/// A file in 24 bytes; its runs lie in the layout's run table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileRecord {
    /// Inode number.
    pub inode: InodeNumber,
    /// Inode generation.
    pub generation: u32,
    /// Groups files of one directory (low bits of the directory's inode number); [`NO_DIRECTORY`] when unknown.
    pub directory: u32,
    /// Index of the first run in the layout's run table; the next record's value ends it.
    pub(crate) first_run: u32,
    /// Why it must not move, if so.
    pub pin: Option<Pin>,
    /// Whether it is a directory.
    pub is_directory: bool,
}

/// A file together with its runs, ascending by logical address.
#[derive(Clone, Copy, Debug)]
pub struct FileView<'a> {
    /// Where it is in the layout.
    pub index: FileIndex,
    /// Its record.
    pub record: &'a FileRecord,
    pub(crate) runs: &'a [crate::PackedRun],
}

impl<'a> FileView<'a> {
    /// Its identity.
    #[must_use]
    pub fn id(&self) -> FileId {
        FileId { inode: self.record.inode, generation: self.record.generation }
    }

    /// Its runs, ascending by logical address.
    pub fn runs(&self) -> impl ExactSizeIterator<Item = Run> + Clone + use<'a> {
        self.runs.iter().map(|r| r.unpack())
    }

    /// Blocks it occupies.
    #[must_use]
    pub fn size(&self) -> Blocks {
        self.runs().map(|r| r.length).sum()
    }

    /// Its physically contiguous ranges; see [`count_fragments`].
    #[must_use]
    pub fn fragments(&self) -> u64 {
        count_fragments(self.runs())
    }

    /// Whether it is a directory that stays where it is, as all do on mounted volumes: reports on files leave it out.
    #[must_use]
    pub fn is_fixed_directory(&self) -> bool {
        self.record.is_directory && self.record.pin.is_some()
    }

    /// Whether its blocks may be moved at all.
    #[must_use]
    pub fn is_movable(&self) -> bool {
        self.record.pin.is_none()
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn a_file_record_takes_24_bytes() {
        assert_eq!(std::mem::size_of::<super::FileRecord>(), 24);
    }
}
