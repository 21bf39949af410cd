//! A process that fills the volume beside an optimizer must get all the space that the volume had free.

use crate::oracle::dump;
use crate::{LoopVolume, Optimizer};
use anyhow::{Result, bail};
use longrun_layout::Bytes;
use longrun_sys::ByteRange;
use serde::Serialize;
use std::fs::File;
use std::io::{self, Write};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::{Duration, Instant};

/// Bytes that the filler writes by one call.
const CHUNK: usize = 1 << 20;
/// Bytes that it asks for by one call when it writes nothing: more than there are, so that it gets to the end within the call.
const REQUEST: u64 = 64 << 30;
/// How long a filler that was refused keeps trying, to tell space that comes late from space that never comes.
const PATIENCE: Duration = Duration::from_secs(2);
/// Longer than any optimizer takes.
const LIMIT: Duration = Duration::from_secs(600);

/// How fast a filler writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Filling {
    /// As fast as memory takes it.
    Burst,
    /// Each chunk reaches the device before the next is written: as fast as the device takes it.
    Steady,
    /// Space only, all of it by one request, as databases and virtual disks ask for it: gigabytes in a millisecond.
    Preallocation,
}

/// What a filler got, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Got {
    /// Until it was refused for the first time.
    pub at_once: u64,
    /// In the end, having tried again for a while.
    pub in_the_end: u64,
}

/// What fillers got.
#[derive(Clone, Debug, Serialize)]
pub struct FullReport {
    /// On a volume without an optimizer.
    pub alone: Got,
    /// On a byte-identical copy, beside the optimizer.
    pub beside: Got,
    /// Whether the optimizer was still at work when the filler started.
    pub optimizer_was_running: bool,
    /// How the optimizer ended.
    pub optimizer_ended: String,
}

/// Fills a copy of `volume` alone and another beside the optimizer, from `after` on. The volume itself is left unmounted.
///
/// # Errors
/// When a tool fails, or a copy is damaged.
pub fn fill_beside(
    volume: &LoopVolume,
    optimizer: &Optimizer,
    after: Duration,
    filling: Filling,
) -> Result<FullReport> {
    // Of a btrfs only one of the copies and the original may be mounted.
    volume.unmount()?;
    let alone = {
        let copy = volume.copy("")?;
        fill(&copy.mount_point(), filling)?
    };
    let copy = volume.copy("")?;
    let mut before = dump(&copy.mount_point())?;
    let mut running = optimizer.start(&copy.mount_point())?;
    std::thread::sleep(after);
    let optimizer_was_running = !running.has_ended()?;
    let beside = fill(&copy.mount_point(), filling)?;
    // With its space back, an optimizer that waits for better times goes on.
    std::fs::remove_file(copy.mount_point().join(FILLER))?;
    let finished = running.wait(LIMIT)?;
    copy.remount()?;
    let mut now = dump(&copy.mount_point())?;
    // The filler itself has changed the times of the directory that it came into.
    [&mut before, &mut now]
        .into_iter()
        .filter_map(|d| d.get_mut(Path::new("")))
        .for_each(|e| e.forget_directory_times());
    optimizer.compare(&before, &now)?;
    copy.check()?;
    let optimizer_ended = format!("{}: {}", finished.status, finished.stderr.lines().last().unwrap_or_default());
    Ok(FullReport { alone, beside, optimizer_was_running, optimizer_ended })
}

/// The filler's file, in the root of the volume.
const FILLER: &str = "filler";

/// Writes or preallocates until the volume is full.
fn fill(mount_point: &Path, filling: Filling) -> Result<Got> {
    let mut file = File::create_new(mount_point.join(FILLER))?;
    let (chunk, mut got, mut refused_at) = (vec![0x5A; CHUNK], Got::default(), None::<Instant>);
    loop {
        let result = match filling {
            Filling::Burst | Filling::Steady => file.write(&chunk).map(|bytes| got.in_the_end += bytes as u64),
            Filling::Preallocation => preallocate(&file, &mut got.in_the_end),
        };
        if refused_at.is_none() {
            got.at_once = got.in_the_end;
        }
        match result {
            Ok(()) if filling == Filling::Steady => file.sync_data()?,
            Ok(()) => {}
            Err(error) if error.kind() == io::ErrorKind::StorageFull => {
                let since = *refused_at.get_or_insert_with(Instant::now);
                if since.elapsed() > PATIENCE {
                    return Ok(got);
                }
                std::thread::sleep(Duration::from_millis(10));
            }
            Err(error) => bail!("the filler failed: {error}"),
        }
    }
}

/// Asks for more space behind the `got` bytes, and counts what the request got even if it failed.
fn preallocate(file: &File, got: &mut u64) -> io::Result<()> {
    let result = longrun_sys::allocate(file, ByteRange { start: Bytes(*got), length: Bytes(REQUEST) });
    *got = file.metadata()?.blocks() * 512;
    Ok(result?)
}
