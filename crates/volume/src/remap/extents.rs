//! The map of a file, and whether its blocks may move.
//!
//! Owns the examination of one file. Never decides where its blocks should be.

use longrun_engine::SkipReason;
use longrun_engine::share::NotMended;
use longrun_layout::{BlockSize, Blocks, Bytes, LogicalBlock, Pin, Run, count_fragments};
use longrun_sys::{ByteRange, Errno, FileExtent, InodeAttributes, Mapping};
use std::fs::{File, Metadata};
use std::os::unix::fs::MetadataExt;

/// Whether blocks may be shared with other files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sharers {
    /// A file with such blocks is left alone.
    None,
    /// Who they are is known, and they move together.
    Known,
}

/// A file as it lies.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Survey {
    pub(crate) block_size: BlockSize,
    pub(crate) size: Bytes,
    /// Everything that has a place, what was never written and what lies behind the end included.
    pub(crate) runs: Vec<Run>,
    /// What can be read from it: written, and not behind the end.
    pub(crate) data: Vec<Run>,
}

impl Survey {
    /// Looks at `file`, after what was written to it has got its place.
    pub(crate) fn of(file: &File, block_size: BlockSize, sharers: Sharers) -> Result<Self, NotMended> {
        let unreadable = |_| NotMended::Skipped(SkipReason::Unreadable);
        let extents = longrun_sys::map_file(file, ByteRange::ALL, Mapping::Synced).map_err(unreadable)?;
        let size = file.metadata().map_err(|_| NotMended::Skipped(SkipReason::Unreadable))?.len();
        Self::from_extents(&extents, Bytes(size), block_size, sharers)
    }

    fn from_extents(
        extents: &[FileExtent],
        size: Bytes,
        block_size: BlockSize,
        sharers: Sharers,
    ) -> Result<Self, NotMended> {
        let mut survey = Self { block_size, size, runs: Vec::new(), data: Vec::new() };
        let end = LogicalBlock(block_size.to_blocks(size).0);
        for extent in extents {
            let flags = extent.flags;
            if flags.is_shared() && sharers == Sharers::None {
                return Err(NotMended::Shared);
            }
            if flags.is_inline() {
                return Err(NotMended::Skipped(SkipReason::NotExchangeable));
            }
            if flags.is_delayed() {
                return Err(NotMended::Skipped(SkipReason::Busy));
            }
            // What is stored otherwise than it is read has an address that says nothing.
            let run = extent.run(block_size).ok_or(NotMended::Compressed)?;
            survey.runs.push(run);
            let clipped = run.logical_end().min(end);
            if !flags.is_unwritten() && run.logical < clipped {
                survey.data.push(Run { length: clipped - run.logical, ..run });
            }
        }
        Ok(survey)
    }

    /// Fragments beyond the first.
    pub(crate) fn excess(&self) -> u64 {
        count_fragments(self.runs.iter().copied()).saturating_sub(1)
    }

    /// A range of whole blocks in bytes, up to the end of the file.
    pub(crate) fn bytes(&self, start: LogicalBlock, length: Blocks) -> ByteRange {
        let whole = ByteRange::of_blocks(self.block_size, start, length);
        ByteRange { length: Bytes(whole.length.0.min(self.size.0.saturating_sub(whole.start.0))), ..whole }
    }
}

/// What changes when a file is written to. What is written through a memory mapping shows late: the kernel's comparison of
/// the bytes is what safety rests on, this only ends futile work early.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Stamp {
    size: u64,
    modified: (i64, i64),
    changed: (i64, i64),
}

impl Stamp {
    pub(crate) fn of(meta: &Metadata) -> Self {
        Self {
            size: meta.len(),
            modified: (meta.mtime(), meta.mtime_nsec()),
            changed: (meta.ctime(), meta.ctime_nsec()),
        }
    }

    /// Whether `file` still bears it.
    pub(crate) fn is_on(&self, file: &File) -> bool {
        file.metadata().is_ok_and(|meta| Self::of(&meta) == *self)
    }
}

/// Why a file must not be touched, by its attributes.
pub(crate) fn reason_by_attributes(file: &File) -> Result<InodeAttributes, NotMended> {
    let pinned = |pin| NotMended::Skipped(SkipReason::Pinned(pin));
    let attributes = longrun_sys::attributes(file).map_err(|errno| left_for(errno, SkipReason::Unreadable))?;
    let reasons = [
        (attributes.is_immutable() || attributes.is_append_only(), pinned(Pin::Immutable)),
        (attributes.is_encrypted(), pinned(Pin::Encrypted)),
        (attributes.has_verity(), pinned(Pin::Verity)),
        (attributes.is_dax(), NotMended::Skipped(SkipReason::NotExchangeable)),
        (attributes.is_compressed(), NotMended::Compressed),
    ];
    reasons.into_iter().find_map(|(applies, reason)| applies.then_some(reason)).map_or(Ok(attributes), Err)
}

/// What the kernel's answer means for a file; `otherwise` where it means nothing in particular.
pub(crate) fn left_for(errno: Errno, otherwise: SkipReason) -> NotMended {
    NotMended::Skipped(match errno {
        Errno::STALE | Errno::NOENT => SkipReason::Vanished,
        Errno::TXTBSY => SkipReason::Pinned(Pin::Swap),
        Errno::PERM | Errno::ACCESS => SkipReason::Pinned(Pin::Immutable),
        Errno::NOKEY => SkipReason::Pinned(Pin::Encrypted),
        Errno::BUSY | Errno::AGAIN => SkipReason::Busy,
        Errno::OPNOTSUPP | Errno::INVAL | Errno::XDEV | Errno::NOTTY => SkipReason::NotExchangeable,
        Errno::NOSPC | Errno::DQUOT => return NotMended::LowSpace,
        _ => otherwise,
    })
}
