//! Addresses on btrfs: a byte of its address space, and a subvolume.

use longrun_layout::Bytes;
use std::fmt;

/// The number of a subvolume or snapshot: the ID of its tree.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SubvolumeId(
    /// The bare id.
    pub u64,
);

impl SubvolumeId {
    /// The subvolume that all others lie in.
    pub const TOP: Self = Self(5);
}

impl fmt::Display for SubvolumeId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// A byte in the address space of btrfs, which chunks map to devices.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Address(
    /// The bare address.
    pub u64,
);

impl Address {
    /// The address `bytes` further on (saturating: a lying length must not wrap).
    #[must_use]
    pub fn plus(self, bytes: Bytes) -> Self {
        Self(self.0.saturating_add(bytes.0))
    }
}
