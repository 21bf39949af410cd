//! What has been exchanged and is on its way to the device.
//!
//! Owns the order of write-back: started when a chunk has been exchanged, waited for some chunks later, so that reading,
//! exchanging and writing overlap across chunks and files. Pages that nobody had in memory before are dropped again.
//! Never a barrier: durability comes from the journal commit.

use super::balloon::Donor;
use super::files::OpenFile;
use longrun_layout::Bytes;
use longrun_sys::{ByteRange, Errno};
use std::collections::VecDeque;
use std::sync::Arc;

/// The most that is on its way: enough to keep a device busy, little enough not to get in the way of others' writes.
pub(super) const MOST: Bytes = Bytes(4 << 20);
/// And the most chunks, so that few files are held open.
const MOST_CHUNKS: usize = 256;

/// A chunk that was exchanged.
#[derive(Debug)]
pub(super) struct Chunk {
    pub(super) file: Arc<OpenFile>,
    pub(super) range: ByteRange,
    pub(super) donor: Arc<Donor>,
    pub(super) donor_range: ByteRange,
    /// It was in memory before: somebody uses it.
    pub(super) was_cached: bool,
}

/// The chunks on their way, oldest first.
#[derive(Debug, Default)]
pub(super) struct Pipeline {
    chunks: VecDeque<Chunk>,
    bytes: u64,
}

impl Pipeline {
    /// Starts writing `chunk` as soon as that makes no more than `most` bytes, nor too many chunks, that are on their way.
    pub(super) fn push(&mut self, chunk: Chunk, most: Bytes) -> Result<(), Errno> {
        let length = chunk.range.length.0;
        while !self.chunks.is_empty() && (self.bytes + length > most.0 || self.chunks.len() >= MOST_CHUNKS) {
            self.finish_oldest()?;
        }
        longrun_sys::start_writeback(&chunk.file, chunk.range)?;
        self.bytes += length;
        self.chunks.push_back(chunk);
        Ok(())
    }

    /// Finishes all.
    pub(super) fn drain(&mut self) -> Result<(), Errno> {
        while !self.chunks.is_empty() {
            self.finish_oldest()?;
        }
        Ok(())
    }

    fn finish_oldest(&mut self) -> Result<(), Errno> {
        let Some(chunk) = self.chunks.pop_front() else { return Ok(()) };
        self.bytes -= chunk.range.length.0;
        longrun_sys::wait_writeback(&chunk.file, chunk.range)?;
        if !chunk.was_cached {
            // Advice: that a page stays is no error.
            let _ = longrun_sys::drop_cache(&chunk.file, chunk.range);
        }
        let _ = longrun_sys::drop_cache(&chunk.donor, chunk.donor_range);
        Ok(())
    }
}
