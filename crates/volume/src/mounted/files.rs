//! Users' files: opened by identity, never by path.
//!
//! Owns the operations on one file, and the reasons to leave it in place. A file is kept open read-only; it is open for
//! writing only during an exchange of its blocks, because it cannot be executed meanwhile.

use super::Named;
use longrun_engine::{MoveError, SkipReason};
use longrun_layout::{BlockSize, Bytes, FileId, Pin, Run};
use longrun_sys::unescape;
use longrun_sys::{ByteRange, Errno, InodeAttributes, Mapping, OFlags};
use std::fs::{self, File, Metadata};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::PathBuf;
use std::sync::Arc;

/// Opening must not change the access time, and must not wait for a lease of another process. The kernel still asks a
/// process that holds a lease to give it up; until then opening fails, and the file is left alone.
const QUIETLY: OFlags = OFlags::NOATIME.union(OFlags::NONBLOCK).union(OFlags::NOCTTY).union(OFlags::LARGEFILE);

const EXECUTE_BITS: u32 = 0o111;

/// A file open for reading.
#[derive(Debug)]
pub(crate) struct OpenFile {
    id: FileId,
    file: File,
    device: u64,
    /// Another process might execute it.
    pub(crate) executable: bool,
    /// Its length when it was opened.
    pub(crate) length: Bytes,
}

impl OpenFile {
    /// Which file it is.
    pub(crate) fn id(&self) -> FileId {
        self.id
    }

    /// The open file itself.
    pub(crate) fn file(&self) -> &File {
        &self.file
    }

    /// Its length now.
    pub(crate) fn current_length(&self) -> std::io::Result<Bytes> {
        Ok(Bytes(self.file.metadata()?.len()))
    }

    /// Reads from `offset` on until the buffer is full or the file ends; answers how much was read.
    pub(crate) fn read_at(&self, buffer: &mut [u8], offset: Bytes) -> Result<usize, Errno> {
        let mut done = 0;
        while let Some(left) = buffer.get_mut(done..).filter(|left| !left.is_empty()) {
            match self.file.read_at(left, offset.0 + done as u64) {
                Ok(0) => break,
                Ok(read) => done += read,
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
                Err(error) => return Err(Errno::from_io_error(&error).unwrap_or(Errno::IO)),
            }
        }
        Ok(done)
    }
}

impl AsFd for OpenFile {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

/// What differs between file systems.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FileCalls {
    /// Opens a file by its identity.
    pub(crate) open: fn(&File, FileId, OFlags) -> Result<OwnedFd, Errno>,
    /// Why files with these attributes are left alone.
    pub(crate) reason_to_skip: fn(InodeAttributes) -> Option<SkipReason>,
}

/// Opens files of one volume.
#[derive(Debug)]
pub(crate) struct Files {
    name: Named,
    root: File,
    calls: FileCalls,
    /// The file opened last: the engine maps, exchanges and maps again.
    latest: Option<Arc<OpenFile>>,
}

impl Files {
    pub(crate) fn new(name: Named, root: File, calls: FileCalls) -> Self {
        Self { name, root, calls, latest: None }
    }

    /// The file `id`, if it is still there and its blocks may be exchanged.
    pub(crate) fn open(&mut self, id: FileId) -> Result<Arc<OpenFile>, MoveError> {
        if let Some(latest) = self.latest.as_ref().filter(|file| file.id == id) {
            return Ok(Arc::clone(latest));
        }
        self.latest = None;
        let fd = (self.calls.open)(&self.root, id, OFlags::RDONLY | QUIETLY)
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
            longrun_sys::attributes(&file).map_err(|errno| self.refusal("reading the attributes of a file", errno))?;
        if let Some(reason) = (self.calls.reason_to_skip)(attributes) {
            return Err(MoveError::Skip(reason));
        }
        let (device, executable, length) = (meta.dev(), is_executable(&meta), Bytes(meta.len()));
        let opened = Arc::new(OpenFile { id, file, device, executable, length });
        self.latest = Some(Arc::clone(&opened));
        Ok(opened)
    }

    /// The same file, open for reading and writing. Hold it only while exchanging.
    pub(crate) fn open_for_exchange(&self, file: &OpenFile) -> Result<OwnedFd, MoveError> {
        (self.calls.open)(&self.root, file.id, OFlags::RDWR | QUIETLY)
            .map_err(|errno| self.refusal_of(file, "opening a file", errno))
    }

    /// The same file, opened once more for reading. The kernel reports a write error once to each open file
    /// description: this one receives all errors from now on, independently of other descriptors.
    pub(crate) fn open_witness(&self, file: &OpenFile) -> Result<OwnedFd, MoveError> {
        (self.calls.open)(&self.root, file.id, OFlags::RDONLY | QUIETLY)
            .map_err(|errno| self.refusal_of(file, "opening a file", errno))
    }

    /// As [`Self::refusal`], knowing the file.
    pub(crate) fn refusal_of(&self, file: &OpenFile, act: &'static str, errno: Errno) -> MoveError {
        match errno {
            Errno::TXTBSY if is_swap_space(file) => MoveError::Skip(SkipReason::Pinned(Pin::Swap)),
            // The kernel is reading it for a purpose of its own, or it could be executed when that began.
            Errno::TXTBSY if !file.executable => MoveError::Skip(SkipReason::Busy),
            errno => self.refusal(act, errno),
        }
    }

    /// Writes back a part of a file.
    pub(crate) fn write_back(&self, file: &OpenFile, range: ByteRange) -> Result<(), MoveError> {
        longrun_sys::wait_writeback(file, range).map_err(|errno| self.unwritten(errno))
    }

    fn unwritten(&self, errno: Errno) -> MoveError {
        let act = "writing back a file";
        match errno {
            // It may be data that we moved: only once is it told that this has not reached the device.
            Errno::IO => MoveError::Fatal(self.name.failed(act)(errno)),
            errno => self.refusal(act, errno),
        }
    }

    /// Where the blocks of `file` lie; data that has no place yet is written back first.
    pub(crate) fn map(&self, file: &OpenFile, block_size: BlockSize) -> Result<Vec<Run>, MoveError> {
        let ask = || {
            longrun_sys::map_file(file, ByteRange::ALL, Mapping::AsIs)
                .map_err(|errno| self.refusal("mapping a file", errno))
        };
        let mut extents = ask()?;
        if extents.iter().any(|extent| extent.flags.is_delayed()) {
            self.write_back(file, ByteRange::ALL)?;
            extents = ask()?;
        }
        Ok(extents.iter().filter_map(|extent| extent.run(block_size)).collect())
    }

    /// Closes what is kept open.
    pub(crate) fn close(&mut self) {
        self.latest = None;
    }

    /// What the kernel's answer means for the file or the run.
    pub(crate) fn refusal(&self, act: &'static str, errno: Errno) -> MoveError {
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

/// Whether the file is in use as swap space; not known where its path cannot be reached.
fn is_swap_space(file: &OpenFile) -> bool {
    let table = fs::read("/proc/swaps").unwrap_or_default();
    let is_it =
        |path: PathBuf| fs::metadata(path).is_ok_and(|meta| (meta.dev(), meta.ino()) == (file.device, file.id.inode.0));
    let paths =
        table.split(|byte| *byte == b'\n').skip(1).filter_map(|line| line.split(u8::is_ascii_whitespace).next());
    paths.map(unescape).any(is_it)
}

#[cfg(test)]
mod tests {
    use super::*;
    use longrun_engine::VolumeError;

    const FILE_CALLS: FileCalls = FileCalls { open: |_, _, _| Err(Errno::STALE), reason_to_skip: |_| None };

    #[test]
    fn data_that_was_not_written_ends_the_run_while_data_that_cannot_be_read_is_left_alone() {
        let files = Files::new(Named("/volume".into()), tempfile::tempfile().unwrap(), FILE_CALLS);
        assert!(matches!(files.unwritten(Errno::IO), MoveError::Fatal(VolumeError::Io { .. })));
        assert!(matches!(files.refusal("reading", Errno::IO), MoveError::Skip(SkipReason::Unreadable)));
    }
}
