//! The type of a file system.

use rustix::io::Errno;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::os::fd::AsFd;

/// The file systems that Longrun changes anything on. What is not here is never touched.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum FileSystem {
    /// ext4.
    Ext4,
    /// XFS.
    Xfs,
    /// btrfs.
    Btrfs,
}

impl FileSystem {
    /// From the kernel's name of the type.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        match name {
            "ext4" => Some(Self::Ext4),
            "xfs" => Some(Self::Xfs),
            "btrfs" => Some(Self::Btrfs),
            _ => None,
        }
    }

    /// The one that an open file lies on, if it is one of these. ext2 and ext3 cannot be told from ext4 in this way.
    ///
    /// # Errors
    /// The kernel's.
    pub fn of(file: impl AsFd) -> Result<Option<Self>, Errno> {
        // Some architectures have a signed 32-bit word here.
        Ok(match rustix::fs::fstatfs(file)?.f_type as u64 & u64::from(u32::MAX) {
            0xef53 => Some(Self::Ext4),
            0x5846_5342 => Some(Self::Xfs),
            0x9123_683e => Some(Self::Btrfs),
            _ => None,
        })
    }

    /// The kernel's name of the type.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Ext4 => "ext4",
            Self::Xfs => "xfs",
            Self::Btrfs => "btrfs",
        }
    }
}

impl fmt::Display for FileSystem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
