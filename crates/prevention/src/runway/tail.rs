//! The space that btrfs does not give back with a runway: the unused part of the extent in which the file ends.
//!
//! Owns the decision when a copy is worthwhile; [`longrun_volume::btrfs::tail`] makes the copy. Never delays an opener:
//! no lease is needed, because the kernel compares and shares under its own locks.

use super::give_back::Settled;
use crate::Watched;
use longrun_sys::FileSystem;
use longrun_volume::btrfs::tail;
use std::os::unix::fs::MetadataExt as _;

/// At most one part in this many of the file is left unused …
const PART_OF_FILE: u64 = 33;
/// … unless it is as little as this …
const LITTLE: u64 = 64 << 10;
/// … or copying it takes longer than a process that wants to execute the file should wait.
const MOST: u64 = 16 << 20;

/// Has the file end in an extent of its own length, where it leaves too much of one unused.
pub(super) fn tidy(volume: &Watched, settled: &Settled) {
    if volume.filesystem != FileSystem::Btrfs || settled.file.stat.mode() & 0o111 != 0 {
        return;
    }
    let file = &settled.file.file;
    let worth = |tail: &tail::Tail| {
        tail.unused.0 > LITTLE && tail.unused.0 > settled.file.stat.len() / PART_OF_FILE && tail.used.0 <= MOST
    };
    let done = tail::tail(file).map_err(Into::into).and_then(|tail| match tail.filter(worth) {
        Some(tail) => volume.open_root().and_then(|root| tail::renew(&root, file, &tail)),
        None => Ok(false),
    });
    if let Err(error) = done {
        tracing::debug!(
            "{}: the unused end of a file's last extent was not given back: {error}",
            volume.point.display()
        );
    }
}
