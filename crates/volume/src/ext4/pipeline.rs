//! Exchanged data that is on its way to the device.
//!
//! Owns the order of write-back. It starts when a chunk has been exchanged, and is waited for some chunks later, so
//! that reading, exchanging and writing overlap across chunks and files. Pages that were not in memory before are
//! dropped again. Owns also what a chunk needs until it is written: its pages, and the blocks that it has left. Chunks
//! that cannot be written are returned (see `rescue`). Never a barrier: the journal commit provides durability.

use super::balloon::{Donor, Engaged};
use super::files::OpenFile;
use longrun_layout::{BlockSize, Bytes, Extent};
use longrun_sys::{ByteRange, Errno, Exchange, HeldPages};
use std::collections::VecDeque;
use std::os::fd::OwnedFd;
use std::sync::Arc;

/// The most that is on its way: enough to keep a device busy, little enough not to get in the way of others' writes.
pub(super) const MOST: Bytes = Bytes(4 << 20);
/// And the most chunks, so that few files are held open.
const MOST_CHUNKS: usize = 256;

/// A chunk that was exchanged.
#[derive(Debug)]
pub(super) struct Chunk {
    pub(super) file: Arc<OpenFile>,
    /// Opened before the exchange and asked for nothing else: an error of writing is told to each opening once, and
    /// this one must tell it to us.
    pub(super) witness: Arc<OwnedFd>,
    pub(super) donor: Arc<Donor>,
    pub(super) exchange: Exchange,
    /// The new place.
    pub(super) target: Extent,
    /// It was in memory before: another process uses it.
    pub(super) was_cached: bool,
    /// Its data, in memory since before the exchange. A page that could not be written counts as clean and may be
    /// forgotten; read again, it would be what is at the new place.
    pub(super) held: HeldPages,
    /// Keeps the blocks that it has left from being given back.
    pub(super) engaged: Engaged,
}

impl Chunk {
    /// The part of the file.
    pub(super) fn range(&self, block_size: BlockSize) -> ByteRange {
        ByteRange::of_blocks(block_size, self.exchange.file_start, self.exchange.length)
    }
}

/// Chunks of one file of which at least one could not be written at its new place; newest first.
#[derive(Debug)]
pub(super) struct Unwritten {
    pub(super) errno: Errno,
    pub(super) chunks: Vec<Chunk>,
}

/// The chunks on their way, oldest first.
#[derive(Debug)]
pub(super) struct Pipeline {
    block_size: BlockSize,
    chunks: VecDeque<Chunk>,
}

impl Pipeline {
    pub(super) fn new(block_size: BlockSize) -> Self {
        Self { block_size, chunks: VecDeque::new() }
    }

    /// Starts writing `chunk` as soon as at most `most` bytes, and not too many chunks, are under way.
    /// Whatever the answer, the chunk is not forgotten before it is written or handed back.
    pub(super) fn push(&mut self, chunk: Chunk, most: Bytes) -> Result<(), Unwritten> {
        let range = chunk.range(self.block_size);
        let witness = Arc::clone(&chunk.witness);
        self.chunks.push_back(chunk);
        while self.chunks.len() > 1 && (self.bytes() > most.0 || self.chunks.len() > MOST_CHUNKS) {
            self.finish_oldest()?;
        }
        // If this fails, waiting for the chunk tells.
        let _ = longrun_sys::start_writeback(&witness, range);
        Ok(())
    }

    /// Finishes all, or as many as can be written before the first that cannot.
    pub(super) fn drain(&mut self) -> Result<(), Unwritten> {
        while !self.chunks.is_empty() {
            self.finish_oldest()?;
        }
        Ok(())
    }

    fn bytes(&self) -> u64 {
        self.chunks.iter().map(|chunk| chunk.range(self.block_size).length.0).sum()
    }

    fn finish_oldest(&mut self) -> Result<(), Unwritten> {
        let Some(chunk) = self.chunks.pop_front() else { return Ok(()) };
        let range = chunk.range(self.block_size);
        if let Err(errno) = longrun_sys::wait_writeback(&chunk.witness, range) {
            return Err(self.all_of_its_file(chunk, errno));
        }
        let Chunk { file, donor, exchange, was_cached, held, engaged, .. } = chunk;
        // Pages that are held cannot be dropped.
        drop((held, engaged));
        if !was_cached {
            // Advice: that a page stays is no error.
            let _ = longrun_sys::drop_cache(&file, range);
        }
        let donor_range = ByteRange::of_blocks(self.block_size, exchange.donor_start, exchange.length);
        let _ = longrun_sys::drop_cache(&donor, donor_range);
        Ok(())
    }

    /// An error is told for the file, not for a part of it: any chunk of it that has not been waited for may be the one.
    fn all_of_its_file(&mut self, failed: Chunk, errno: Errno) -> Unwritten {
        let id = failed.file.id();
        let (its, others) = std::mem::take(&mut self.chunks).into_iter().partition(|chunk| chunk.file.id() == id);
        self.chunks = others;
        let mut chunks: Vec<Chunk> = VecDeque::into_iter(its).rev().collect();
        chunks.push(failed);
        Unwritten { errno, chunks }
    }
}
