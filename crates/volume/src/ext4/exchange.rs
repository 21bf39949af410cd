//! Exchanges the blocks of a file with owned blocks.
//!
//! Owns the method that is fast and does not disturb others: small chunks, data read in single pages beforehand,
//! retries after write-back, and exact accounts of the vacated blocks. Never plans, never waits for a commit.

use super::Named;
use super::balloon::{Shared, Stock};
use super::files::{Files, OpenFile};
use super::pipeline::{self, Chunk, Pipeline};
use super::rescue::Rescue;
use crate::mounted::reading::{Reading, ask_for, ranges_of, steps_of};
use longrun_engine::{Exchanged, MoveError, Part, SkipReason, VolumeError};
use longrun_layout::{BlockSize, Blocks, Bytes, Extent, FileId, LogicalBlock, PhysicalBlock, Run};
use longrun_sys::{ByteRange, Errno, Exchange, MoveFailure, Moved, exchange_with_donor};
use std::fs::File;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// The kernel holds the file's lock during a call: this bounds how long its users wait (about 5 ms).
const CHUNK: Bytes = Bytes(1 << 20);
/// When a call takes longer than this, the next chunks are smaller.
const LONG_CALL: Duration = Duration::from_millis(20);
const SMALLEST_CHUNK: Blocks = Blocks(16);
/// What was read for an exchange longer ago than this may lie otherwise in memory by now.
const FRESH: Duration = Duration::from_secs(2);
/// The largest folio that ext4 makes: dropping a range leaves folios in memory that reach beyond it.
const LARGEST_FOLIO: u64 = 8 << 20;
/// How often a chunk that is being written to is tried again.
const RETRIES: u32 = 2;

/// What an exchange works with.
pub(super) struct Mover<'a> {
    pub(super) name: &'a Named,
    pub(super) root: &'a File,
    pub(super) block_size: BlockSize,
    pub(super) shared: &'a Shared,
    pub(super) files: &'a mut Files,
    pub(super) pipeline: &'a mut Pipeline,
    pub(super) reading: &'a mut Reading,
}

/// One file being worked on.
struct Work {
    file: Arc<OpenFile>,
    /// Tells whether what is exchanged from now on could be written.
    witness: Arc<OwnedFd>,
    /// Open while chunks are exchanged; closed after each when another process might want to execute the file.
    writable: Option<OwnedFd>,
    /// Up to where the data has been brought into memory.
    read_to: LogicalBlock,
    /// The most that may be on its way to the device at a time.
    on_its_way: Bytes,
    was_cached: bool,
    /// How many blocks one call may move.
    chunk: Blocks,
}

/// The folios that can hold a part of `range`.
fn widened(range: ByteRange) -> ByteRange {
    let start = range.start.0 / LARGEST_FOLIO * LARGEST_FOLIO;
    let end = (range.start.0 + range.length.0).next_multiple_of(LARGEST_FOLIO);
    ByteRange { start: Bytes(start), length: Bytes(end - start) }
}

impl Mover<'_> {
    /// Exchanges `length` blocks of `id` from `logical` with the owned blocks at `target`.
    pub(super) fn exchange(
        &mut self,
        id: FileId,
        logical: LogicalBlock,
        target: PhysicalBlock,
        length: Blocks,
    ) -> Result<Exchanged, MoveError> {
        let file = self.files.open(id)?;
        let writable = if file.executable { None } else { Some(self.files.open_for_exchange(&file)?) };
        let chunk = self.block_size.to_blocks(CHUNK);
        let witness = Arc::new(self.files.open_witness(&file)?);
        // Errors of earlier writes are not ours: they are asked for here, so that later ones are.
        let _ = longrun_sys::wait_writeback(&witness, ByteRange::of_blocks(self.block_size, logical, Blocks(1)));
        let on_its_way = pipeline::MOST;
        let mut work = Work { file, witness, writable, read_to: logical, on_its_way, was_cached: false, chunk };
        let range = ByteRange::of_blocks(self.block_size, logical, length);
        if let Some(ahead) = self.reading.take(id, range) {
            if ahead.is_more_than(range) {
                // They follow each other at once, and other I/O waits for what is being written.
                work.on_its_way = CHUNK;
            }
            if ahead.since.elapsed() < FRESH || !longrun_sys::has_large_folios(&work.file, range).unwrap_or(true) {
                (work.read_to, work.was_cached) = (logical + length, ahead.was_cached);
            }
        }
        let mut done = Exchanged::default();
        while done.blocks < length {
            match self.next_chunk(&mut work, logical, target, length, &mut done) {
                Ok(true) => {}
                Ok(false) => break,
                // What was exchanged before stays exchanged, and must be told.
                Err(MoveError::Skip(_)) if done.blocks.0 > 0 => break,
                Err(error) => return Err(error),
            }
        }
        Ok(done)
    }

    /// Asks for pieces of what is exchanged next.
    pub(super) fn ask_for(&mut self, part: Part, pieces: &[Run]) -> Result<(), MoveError> {
        let file = self.files.open(part.file)?;
        let range = ByteRange::of_blocks(self.block_size, part.logical, part.length);
        if !self.reading.is_of(part.file, range) {
            let was_cached = self.clear(&file, range)?;
            self.reading.begin(part.file, range, was_cached);
        }
        ask_for(file.file(), &ranges_of(self.block_size, pieces));
        Ok(())
    }

    /// Exchanges the next chunk; false when it went only in part.
    fn next_chunk(
        &mut self,
        work: &mut Work,
        logical: LogicalBlock,
        target: PhysicalBlock,
        length: Blocks,
        done: &mut Exchanged,
    ) -> Result<bool, MoveError> {
        let chunk = work.chunk;
        let (at, left) = (logical + done.blocks, length - done.blocks);
        let wanted = Extent { start: target + done.blocks, length: left.min(chunk) };
        let Some(stock) = self.stock(wanted) else {
            let yielded = self.shared.balloon().has_yielded();
            let reason = if yielded { SkipReason::SpaceNeeded } else { SkipReason::TargetTaken };
            return Err(MoveError::Skip(reason));
        };
        let count = stock.extent.length;
        let Some(engaged) = stock.donor.engage(stock.logical, count) else {
            return Err(MoveError::Skip(SkipReason::SpaceNeeded));
        };
        // This chunk and the next: while one is being exchanged the other is being read.
        self.bring_in(work, at, (at + left).min(at + chunk + chunk))?;
        let exchange = Exchange { file_start: at, donor_start: stock.logical, length: count };
        let held = longrun_sys::hold_pages(&work.file, ByteRange::of_blocks(self.block_size, at, count))
            .map_err(|errno| VolumeError::MemoryLimit { path: self.name.0.clone(), source: errno.into() })?;
        let begun = Instant::now();
        let moved = self.perform(work, exchange, &stock)?;
        if begun.elapsed() > LONG_CALL {
            work.chunk = Blocks(chunk.0 / 2).max(SMALLEST_CHUNK);
        }
        let sent = Chunk {
            file: Arc::clone(&work.file),
            witness: Arc::clone(&work.witness),
            donor: Arc::clone(&stock.donor),
            exchange,
            target: stock.extent,
            was_cached: work.was_cached,
            held,
            engaged,
        };
        // Before anything else can fail: what was exchanged must be watched until it is written.
        let sent = self.pipeline.push(sent, work.on_its_way);
        sent.map_err(|unwritten| self.rescue().put_back(unwritten))?;
        let vacated = self.settle(&stock)?;
        done.vacated.extend(vacated);
        done.blocks += moved;
        Ok(moved == count)
    }

    fn rescue(&self) -> Rescue<'_> {
        let Self { name, root, block_size, shared, files, .. } = self;
        Rescue { name, root, block_size: *block_size, shared, files }
    }

    fn stock(&self, wanted: Extent) -> Option<Stock> {
        self.shared.balloon().at(wanted)
    }

    /// Brings the data up to `end` into memory: clean, and in single pages.
    fn bring_in(&self, work: &mut Work, at: LogicalBlock, end: LogicalBlock) -> Result<(), MoveError> {
        let start = work.read_to.max(at);
        if start >= end {
            return Ok(());
        }
        work.read_to = end;
        let range = ByteRange::of_blocks(self.block_size, start, end - start);
        work.was_cached |= self.clear(&work.file, range)?;
        for step in steps_of(range) {
            // Only a hint: data that cannot be read shows when it is exchanged.
            let _ = longrun_sys::read_ahead(&work.file, step);
        }
        Ok(())
    }

    /// Drops the cached pages of a range, so that it is read again in single pages. Returns whether there were any.
    fn clear(&self, file: &OpenFile, range: ByteRange) -> Result<bool, MoveError> {
        // Where the kernel cannot tell what is cached, everything is taken for cached and left in memory.
        let cached = longrun_sys::cache_state(file, range).ok();
        if cached.is_some_and(|state| state.cached_pages == 0) {
            return Ok(false);
        }
        let around = widened(range);
        self.files.write_back(file, around)?;
        let _ = longrun_sys::drop_cache(file, around);
        self.check_folios(file, range)?;
        Ok(true)
    }

    /// Pages that another process has mapped or is reading cannot be dropped. In larger folios they must not be
    /// exchanged: each block would force a commit with the file locked, seconds for a chunk.
    fn check_folios(&self, file: &OpenFile, range: ByteRange) -> Result<(), MoveError> {
        let still_cached = longrun_sys::cache_state(file, range).is_ok_and(|state| state.cached_pages > 0);
        // Where the kernel does not tell how pages lie, the worst is assumed. A program that is in use even now will be
        // executed again: not even single pages are worth keeping others from it.
        let untouchable = || file.executable || longrun_sys::has_large_folios(file, range).unwrap_or(true);
        if still_cached && untouchable() {
            // Opening tells whether it is mapped because it is being executed.
            self.files.open_for_exchange(file)?;
            return Err(MoveError::Skip(SkipReason::Busy));
        }
        Ok(())
    }

    /// Makes the exchange, again after write-back when the file is being written to. Returns how many blocks went.
    fn perform(&self, work: &mut Work, exchange: Exchange, stock: &Stock) -> Result<Blocks, MoveError> {
        let at = exchange.file_start;
        // Each attempt on a busy file takes the kernel some commits, during which no one can execute it.
        let mut tries = if work.file.executable { RETRIES } else { 0 };
        loop {
            let writable = match work.writable.take() {
                Some(open) => open,
                None => self.files.open_for_exchange(&work.file)?,
            };
            let result = exchange_with_donor(&writable, &stock.donor, exchange);
            if !work.file.executable {
                work.writable = Some(writable);
            }
            match result {
                Ok(Moved(blocks)) => return Ok(blocks),
                Err(MoveFailure { moved: Moved(blocks), .. }) if blocks.0 > 0 => return Ok(blocks),
                Err(MoveFailure { errno: Errno::BUSY | Errno::NODATA | Errno::AGAIN, .. }) if tries < RETRIES => {
                    tries += 1;
                    self.files.write_back(&work.file, ByteRange::of_blocks(self.block_size, at, exchange.length))?;
                }
                Err(MoveFailure { errno, .. }) => {
                    if stock.donor.is_revoked() {
                        return Err(MoveError::Skip(SkipReason::SpaceNeeded));
                    }
                    // Behind the end of the file lies preallocated space, which does not move.
                    let behind = self.block_size.to_bytes(Blocks(at.0)) >= work.file.length;
                    let preallocated = errno == Errno::NODATA && behind;
                    return Err(if preallocated {
                        MoveError::Skip(SkipReason::NotExchangeable)
                    } else {
                        self.files.refusal_of(&work.file, "exchanging blocks", errno)
                    });
                }
            }
        }
    }

    /// Asks the donor what it holds after an exchange, and corrects the books. Returns what the file vacated.
    fn settle(&self, stock: &Stock) -> Result<Vec<Extent>, MoveError> {
        let runs = stock
            .donor
            .map(self.block_size, stock.logical, stock.extent.length)
            .map_err(self.name.failed("mapping vacated space"))?;
        let mut vacated = Vec::with_capacity(runs.len());
        let mut balloon = self.shared.balloon();
        if stock.donor.is_revoked() {
            return Ok(vacated);
        }
        balloon.forget(stock.extent);
        for run in runs {
            if balloon.hold(stock.id, run) && stock.extent.intersection(&run.extent()).is_none() {
                vacated.push(run.extent());
            }
        }
        Ok(vacated)
    }
}
