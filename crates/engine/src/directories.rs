//! Directories that are rewritten in fewer blocks: what came of it.

use longrun_layout::{Bytes, Extent};
use std::collections::BTreeMap;

/// Why a directory keeps more blocks than it needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum WhyLeft {
    /// Its names are encrypted.
    Encrypted,
    /// Its names are found without regard to case.
    Casefold,
    /// On which machine its hashes were made is not known.
    UnknownHash,
    /// It must not be changed.
    Immutable,
    /// It is not in order: the file system's checker should see it.
    Damaged,
    /// The device cannot read it.
    Unreadable,
    /// It has more bytes than are rewritten at once.
    TooLarge,
    /// There is no free space to write it to.
    NoSpace,
}

impl WhyLeft {
    /// The reason in one word, for JSON.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Encrypted => "encrypted",
            Self::Casefold => "casefold",
            Self::UnknownHash => "unknown-hash",
            Self::Immutable => "immutable",
            Self::Damaged => "damaged",
            Self::Unreadable => "unreadable",
            Self::TooLarge => "too-large",
            Self::NoSpace => "no-space",
        }
    }

    /// The reason in a phrase that continues "3 directories …".
    #[must_use]
    pub const fn phrase(self) -> &'static str {
        match self {
            Self::Encrypted => "with encrypted names",
            Self::Casefold => "whose names are found without regard to case",
            Self::UnknownHash => "whose hashes depend on the machine (mount the volume once)",
            Self::Immutable => "marked as immutable",
            Self::Damaged => "not in order (check the volume)",
            Self::Unreadable => "that the device cannot read",
            Self::TooLarge => "larger than 128 MiB",
            Self::NoSpace => "for which there is no free space in one piece",
        }
    }
}

/// What came of compacting directories.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CompactedDirectories {
    /// Directories that were rewritten.
    pub directories: u64,
    /// How much less space they take.
    pub freed: Bytes,
    /// Those that would gain, or may, and were left alone.
    pub left: BTreeMap<WhyLeft, u64>,
    /// What they have left.
    pub vacated: Vec<Extent>,
}

impl CompactedDirectories {
    /// Notes one that takes so much less.
    pub fn add(&mut self, freed: Bytes) {
        self.directories += 1;
        self.freed += freed;
    }

    /// Notes one that is left alone.
    pub fn leave(&mut self, why: WhyLeft) {
        *self.left.entry(why).or_default() += 1;
    }
}
