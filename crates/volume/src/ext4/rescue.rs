//! Handles moved data that cannot be written at its new place.
//!
//! Owns the way back: the file gets its former blocks again, which still hold the data on the device. If that is not
//! possible, the blocks are kept under a name and never given back. The run always ends, because a device that does not
//! write must not be worked on.

use super::Named;
use super::balloon::Shared;
use super::files::Files;
use super::pipeline::{Chunk, Unwritten};
use longrun_engine::{MoveError, Rescued, SkipReason, VolumeError};
use longrun_layout::{BlockSize, LogicalBlock, Run};
use longrun_sys::{Errno, Exchange, Mapping, exchange_with_donor};
use std::fs::File;
use std::path::PathBuf;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

/// How often exchanges back are tried again while the file is executed or written to, and the pause between two tries.
const TRIES: u32 = 60;
const PAUSE: Duration = Duration::from_millis(50);
/// How many names are tried for what is kept of one file.
const NAMES: u32 = 10_000;

/// What it takes.
pub(super) struct Rescue<'a> {
    pub(super) name: &'a Named,
    pub(super) root: &'a File,
    pub(super) block_size: BlockSize,
    pub(super) shared: &'a Shared,
    pub(super) files: &'a Files,
}

impl Rescue<'_> {
    /// Puts the chunks back, and returns the result for the file.
    pub(super) fn put_back(&self, unwritten: Unwritten) -> VolumeError {
        let Unwritten { errno, chunks } = unwritten;
        let inode = chunks.first().map_or(0, |chunk| chunk.file.id().inode.0);
        let (mut rescued, mut tries) = (Rescued::PutBack, TRIES);
        // Newest first: what was exchanged twice goes back twice.
        for chunk in chunks {
            if !self.exchange_back(&chunk, &mut tries) {
                rescued = self.keep(chunk);
            }
        }
        // What the donors hold has changed; where it cannot be asked now it is asked again before anything is given back.
        let _ = self.shared.balloon().verify(self.block_size);
        VolumeError::Unwritten { path: self.name.0.clone(), inode, rescued: Box::new(rescued), source: errno.into() }
    }

    /// Whether no block of a chunk is at its new place any more. A file in use is waited for, but a file system that
    /// accepts no changes is not, because thousands of chunks may be under way.
    fn exchange_back(&self, chunk: &Chunk, tries: &mut u32) -> bool {
        loop {
            match self.go_back(chunk) {
                Ok(()) => return true,
                Err(MoveError::Skip(SkipReason::Busy | SkipReason::Executing)) if *tries > 0 => *tries -= 1,
                Err(_) => return false,
            }
            thread::sleep(PAUSE);
        }
    }

    fn go_back(&self, chunk: &Chunk) -> Result<(), MoveError> {
        let at_new_place = || self.at_new_place(chunk).map_err(|errno| self.files.refusal("mapping moved data", errno));
        let mut result = Ok(());
        for run in at_new_place()? {
            // What can go back does, whatever becomes of the rest.
            result = self.exchange_run(chunk, run).and(result);
        }
        result?;
        if !at_new_place()?.is_empty() {
            return Err(MoveError::Skip(SkipReason::Busy));
        }
        // The same bytes are written over the good copy. If that fails, too, the good copy is still there.
        let _ = longrun_sys::wait_writeback(&chunk.witness, chunk.range(self.block_size));
        Ok(())
    }

    /// The parts of a chunk that lie at its new place: none of what was cut off, or written elsewhere, since.
    fn at_new_place(&self, chunk: &Chunk) -> Result<Vec<Run>, Errno> {
        let extents = longrun_sys::map_file(&chunk.witness, chunk.range(self.block_size), Mapping::AsIs)?;
        let part = |run: Run| {
            let part = run.extent().intersection(&chunk.target)?;
            Some(Run { logical: run.logical + (part.start - run.physical), physical: part.start, length: part.length })
        };
        Ok(extents.iter().filter_map(|extent| extent.run(self.block_size)).filter_map(part).collect())
    }

    fn exchange_run(&self, chunk: &Chunk, run: Run) -> Result<(), MoveError> {
        let Exchange { file_start, donor_start, .. } = chunk.exchange;
        let donor_start = LogicalBlock((donor_start + (run.logical - file_start)).0);
        let back = Exchange { file_start: run.logical, donor_start, length: run.length };
        let writable = self.files.open_for_exchange(&chunk.file)?;
        exchange_with_donor(&writable, &chunk.donor, back).map(drop).map_err(|failure| {
            // What another process has written meanwhile is in the way until it is on the device.
            let _ = longrun_sys::wait_writeback(&chunk.witness, chunk.range(self.block_size));
            self.files.refusal("exchanging blocks", failure.errno)
        })
    }

    /// Gives the former blocks a name, so that they outlive this process.
    fn keep(&self, chunk: Chunk) -> Rescued {
        self.shared.balloon().disown(&chunk.donor);
        // All but what is engaged: others need the rest.
        let _ = chunk.donor.empty(self.block_size);
        match self.give_free_name(&chunk) {
            Ok(name) => Rescued::Kept(self.name.0.join(name)),
            Err(errno) => {
                // Freed when the file is closed: with the process, no sooner.
                std::mem::forget(Arc::clone(&chunk.donor));
                std::mem::forget(chunk);
                Rescued::Stuck(errno.into())
            }
        }
    }

    /// A name that nothing has yet: what an earlier run kept stays.
    fn give_free_name(&self, chunk: &Chunk) -> Result<PathBuf, Errno> {
        let inode = chunk.file.id().inode.0;
        let mut taken = Err(Errno::EXIST);
        for number in 0..NAMES {
            let name = PathBuf::from(format!("longrun-kept-{inode}-{number}"));
            taken = chunk.donor.keep_as(self.root, &name).map(|()| name);
            if !matches!(taken, Err(Errno::EXIST)) {
                break;
            }
        }
        taken
    }
}
