//! The free space of a volume, to check that two measurements start in the same state.

use crate::BenchError;
use longrun_layout::{Bytes, ExtentSet};
use longrun_sys::{all_free_extents, capacity};
use serde::{Deserialize, Serialize};
use std::fs::File;
use std::path::Path;
use std::time::{Duration, Instant};

/// Free space in figures.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SpaceState {
    /// All of it.
    pub free: Bytes,
    /// Contiguous free ranges, where root can read them (ext4 and XFS).
    pub pieces: Option<u64>,
    /// The longest of them.
    pub largest: Option<Bytes>,
}

/// File systems give deleted blocks back a moment later.
const PATIENCE: Duration = Duration::from_secs(3);
/// Metadata that a file system keeps for itself once it has needed it.
const TOLERANCE: u64 = 4 << 20;

impl SpaceState {
    /// The free space of the volume that has `directory`, after everything has been made durable.
    ///
    /// # Errors
    /// [`BenchError::Io`].
    pub fn of(directory: &Path) -> Result<Self, BenchError> {
        let failed = |e: std::io::Error| BenchError::io("reading the free space of", directory, e);
        let opened = File::open(directory).map_err(failed)?;
        longrun_sys::sync_volume(&opened).map_err(|e| failed(e.into()))?;
        let known = capacity(&opened).map_err(|e| failed(e.into()))?;
        // btrfs does not tell, and others than root may not know. What goes on in the next group is one piece.
        let pieces =
            all_free_extents(&opened, known.block_size).ok().map(|free| free.into_iter().collect::<ExtentSet>());
        let longest = |pieces: &ExtentSet| pieces.iter().map(|piece| known.block_size.to_bytes(piece.length)).max();
        Ok(Self {
            free: known.block_size.to_bytes(known.free),
            pieces: pieces.as_ref().map(|pieces| pieces.iter().count() as u64),
            largest: pieces.as_ref().and_then(longest),
        })
    }

    /// As [`Self::of`], after waiting until it changes no more, for some seconds at most: what was deleted before
    /// may still be on its way.
    ///
    /// # Errors
    /// [`BenchError::Io`].
    pub fn at_rest(directory: &Path) -> Result<Self, BenchError> {
        let deadline = Instant::now() + PATIENCE;
        let mut before = Self::of(directory)?;
        loop {
            std::thread::sleep(Duration::from_millis(300));
            let now = Self::of(directory)?;
            if now == before || Instant::now() > deadline {
                return Ok(now);
            }
            before = now;
        }
    }

    /// As [`Self::of`], after waiting until as much is free as in `before`, for some seconds at most.
    ///
    /// # Errors
    /// [`BenchError::Io`].
    pub fn settled(directory: &Path, before: &Self) -> Result<Self, BenchError> {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let now = Self::of(directory)?;
            if now.is_like(before) || Instant::now() > deadline {
                return Ok(now);
            }
            std::thread::sleep(Duration::from_millis(100));
        }
    }

    /// Whether both are the same but for what a file system keeps for itself.
    #[must_use]
    pub fn is_like(&self, other: &Self) -> bool {
        let near = |one: Option<u64>, two: Option<u64>, tolerance: u64| match (one, two) {
            (Some(one), Some(two)) => one.abs_diff(two) <= tolerance,
            (one, two) => one == two,
        };
        near(Some(self.free.0), Some(other.free.0), TOLERANCE)
            && near(self.pieces, other.pieces, 8 + other.pieces.unwrap_or_default() / 100)
            && near(self.largest.map(|b| b.0), other.largest.map(|b| b.0), TOLERANCE)
    }
}
