//! Reasons why the files of a volume can be analyzed but must not be moved.

use super::superblock::{Superblock, incompat, ro_compat};
use crate::probe::EXT4;
use longrun_engine::checker;
use std::fmt;

/// A reason that applies to the whole volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// Space is allocated in clusters of several blocks: the kernel does not exchange blocks then.
    Bigalloc,
    /// Data goes through the journal by default.
    JournalledData,
    /// The journal may record single changes instead of whole blocks. Kernels before 2026 leave exchanges out of such
    /// records: after a crash a file would have the other's data.
    FastCommit,
    /// The journal is on a device of its own.
    ExternalJournal,
    /// No file has extents (ext2, ext3).
    NoExtents,
    /// The file system declares itself read-only.
    ReadOnly,
    /// Files share blocks.
    SharedBlocks,
    /// The kernel has noted errors.
    Errors,
    /// A feature that is not known, by its bits in the read-only-compatible set.
    UnknownFeature(u32),
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Bigalloc => f.write_str("ext4 with bigalloc"),
            Self::JournalledData => f.write_str("ext4 with data=journal"),
            Self::FastCommit => f.write_str("ext4 with fast_commit"),
            Self::ExternalJournal => f.write_str("ext4 with an external journal"),
            Self::NoExtents => f.write_str("ext2 or ext3 (no extents)"),
            Self::ReadOnly => f.write_str("a file system marked read-only"),
            Self::SharedBlocks => f.write_str("ext4 with shared blocks"),
            Self::Errors => write!(f, "a file system with recorded errors (run {} on it)", checker(EXT4)),
            Self::UnknownFeature(bits) => write!(f, "an ext4 feature (read-only compatible, {bits:#x})"),
        }
    }
}

/// All reasons that the superblock gives.
pub(super) fn refusals(sb: &Superblock) -> Vec<Refusal> {
    let unknown = sb.ro_compat & !ro_compat::KNOWN;
    [
        (sb.has_bigalloc(), Refusal::Bigalloc),
        (sb.data_journalled, Refusal::JournalledData),
        (sb.fast_commit, Refusal::FastCommit),
        (sb.external_journal, Refusal::ExternalJournal),
        (sb.incompat & incompat::EXTENTS == 0, Refusal::NoExtents),
        (sb.ro_compat & ro_compat::READ_ONLY != 0, Refusal::ReadOnly),
        (sb.ro_compat & ro_compat::SHARED_BLOCKS != 0, Refusal::SharedBlocks),
        (sb.has_errors, Refusal::Errors),
        (unknown != 0, Refusal::UnknownFeature(unknown)),
    ]
    .into_iter()
    .filter_map(|(applies, refusal)| applies.then_some(refusal))
    .collect()
}
