//! Users' files: opened by identity, looked at, never by path.
//!
//! Owns what may be done with one file and the reasons to leave it alone. A file is kept open for reading only; it is open
//! for writing just while its blocks are exchanged, because nobody can execute it meanwhile.

use super::Named;
use crate::{MoveError, SkipReason};
use longrun_layout::{BlockSize, Bytes, FileId, Pin, Run};
use longrun_sys::{ByteRange, Errno, FileExtent, InodeAttributes, Mapping, OFlags};
use std::fs::{File, Metadata};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::sync::Arc;

/// Neither the access time nor anybody's lease is to suffer: opening without waiting fails where a lease would have to be
/// broken first.
const QUIETLY: OFlags = OFlags::NOATIME.union(OFlags::NONBLOCK).union(OFlags::NOCTTY).union(OFlags::LARGEFILE);

const EXECUTE_BITS: u32 = 0o111;

/// A file open for reading.
#[derive(Debug)]
pub(super) struct OpenFile {
    id: FileId,
    file: File,
    /// Somebody might execute it.
    pub(super) executable: bool,
    /// Its length when it was opened.
    pub(super) length: Bytes,
}

impl AsFd for OpenFile {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

/// Opens files of one volume.
#[derive(Debug)]
pub(super) struct Files {
    name: Named,
    root: File,
    /// The file opened last: the engine maps, exchanges and maps again.
    latest: Option<Arc<OpenFile>>,
}

impl Files {
    pub(super) fn new(name: Named, root: File) -> Self {
        Self { name, root, latest: None }
    }

    /// The file `id`, if it is still there and its blocks may be exchanged.
    pub(super) fn open(&mut self, id: FileId) -> Result<Arc<OpenFile>, MoveError> {
        if let Some(latest) = self.latest.as_ref().filter(|file| file.id == id) {
            return Ok(Arc::clone(latest));
        }
        self.latest = None;
        let fd = longrun_sys::open_by_id(&self.root, id, OFlags::RDONLY | QUIETLY)
            .map_err(|errno| self.refusal("opening a file", errno))?;
        let file = File::from(fd);
        let meta = file.metadata().map_err(|_| MoveError::Skip(SkipReason::Vanished))?;
        if !meta.is_file() || meta.nlink() == 0 {
            return Err(MoveError::Skip(SkipReason::Vanished));
        }
        // Opening checked the generation; asking again costs a microsecond and guards against a kernel that does not.
        if longrun_sys::generation(&file).is_ok_and(|generation| generation != id.generation) {
            return Err(MoveError::Skip(SkipReason::Vanished));
        }
        let attributes =
            longrun_sys::attributes(&file).map_err(|errno| self.refusal("asking for a file's attributes", errno))?;
        if let Some(reason) = reason_to_skip(attributes) {
            return Err(MoveError::Skip(reason));
        }
        let opened = Arc::new(OpenFile { id, executable: is_executable(&meta), length: Bytes(meta.len()), file });
        self.latest = Some(Arc::clone(&opened));
        Ok(opened)
    }

    /// The same file, open for reading and writing. Hold it only while exchanging.
    pub(super) fn open_for_exchange(&self, file: &OpenFile) -> Result<OwnedFd, MoveError> {
        longrun_sys::open_by_id(&self.root, file.id, OFlags::RDWR | QUIETLY)
            .map_err(|errno| self.refusal_of(file, "opening a file", errno))
    }

    /// As [`Self::refusal`], knowing the file.
    pub(super) fn refusal_of(&self, file: &OpenFile, act: &'static str, errno: Errno) -> MoveError {
        match errno {
            // Nothing without an execute bit is executed: it is in use as swap space then.
            Errno::TXTBSY if !file.executable => MoveError::Skip(SkipReason::Pinned(Pin::Swap)),
            errno => self.refusal(act, errno),
        }
    }

    /// Closes what is kept open.
    pub(super) fn close(&mut self) {
        self.latest = None;
    }

    /// What the kernel's answer means for the file or the run.
    pub(super) fn refusal(&self, act: &'static str, errno: Errno) -> MoveError {
        match errno {
            Errno::STALE | Errno::NOENT => MoveError::Skip(SkipReason::Vanished),
            Errno::TXTBSY => MoveError::Skip(SkipReason::Executing),
            Errno::PERM | Errno::ACCESS => MoveError::Skip(SkipReason::Pinned(Pin::Immutable)),
            Errno::NOKEY => MoveError::Skip(SkipReason::Pinned(Pin::Encrypted)),
            Errno::BUSY | Errno::NODATA | Errno::AGAIN => MoveError::Skip(SkipReason::Busy),
            Errno::OPNOTSUPP | Errno::INVAL => MoveError::Skip(SkipReason::NotExchangeable),
            Errno::NOSPC | Errno::DQUOT => MoveError::Skip(SkipReason::SpaceNeeded),
            Errno::IO | Errno::UCLEAN | Errno::BADMSG => MoveError::Skip(SkipReason::Unreadable),
            errno => MoveError::Fatal(self.name.failed(act)(errno)),
        }
    }
}

fn is_executable(meta: &Metadata) -> bool {
    meta.mode() & EXECUTE_BITS != 0
}

fn reason_to_skip(attributes: InodeAttributes) -> Option<SkipReason> {
    let pins = [
        (attributes.is_immutable() || attributes.is_append_only(), Pin::Immutable),
        (attributes.is_encrypted(), Pin::Encrypted),
        (attributes.has_verity(), Pin::Verity),
        (attributes.journals_data(), Pin::JournalData),
    ];
    let pin = pins.into_iter().find_map(|(applies, pin)| applies.then_some(SkipReason::Pinned(pin)));
    let unfit = attributes.is_inline() || attributes.is_dax();
    let other = unfit.then_some(SkipReason::NotExchangeable);
    // Inline data excludes extents: ask for it first.
    pin.or(other).or_else(|| (!attributes.has_extents()).then_some(SkipReason::Pinned(Pin::Indirect)))
}

/// Where the blocks of `file` lie; data that has no place yet is written back first.
pub(super) fn map(file: &OpenFile, block_size: BlockSize) -> Result<Vec<Run>, Errno> {
    let extents = longrun_sys::map_file(file, ByteRange::ALL, Mapping::AsIs)?;
    let delayed = |extent: &FileExtent| extent.flags.is_delayed();
    let extents = if extents.iter().any(delayed) {
        longrun_sys::wait_writeback(file, ByteRange::ALL)?;
        longrun_sys::map_file(file, ByteRange::ALL, Mapping::AsIs)?
    } else {
        extents
    };
    Ok(extents.iter().filter_map(|extent| extent.run(block_size)).collect())
}
