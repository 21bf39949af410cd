//! Probes: small reads from the disk itself, past all caches, at intervals.
//!
//! Owns the time and place of each probe. Probes run only while there is work for the disk, so a sleeping disk is not
//! woken.

use super::{Detector, Finding};
use crate::Latency;
use longrun_sys::OFlags;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// What one probe reads: 4 of them a second are 16 KB.
const SIZE: usize = 4096;
/// Waiting for our own requests to be done costs time: work goes on for so many times as long before the next probe.
const WORK_FOR_WAITING: u32 = 8;
/// The distance of two places in blocks: odd, so that all places have their turn, and far from any pattern.
const STRIDE: u64 = 0x9e37_79b9_7f4a_7c15;

fn open(node: &Path) -> io::Result<File> {
    let flags = OFlags::DIRECT.bits().cast_signed();
    OpenOptions::new().read(true).custom_flags(flags).open(node)
}

/// How long this thread has waited for a processor so far, as the scheduler counts it; none where it does not.
fn wait_for_processor() -> Option<Duration> {
    parse_wait(&std::fs::read_to_string("/proc/thread-self/schedstat").ok()?)
}

/// Time on a processor, time waiting for one, and how often it got one.
fn parse_wait(schedstat: &str) -> Option<Duration> {
    schedstat.split_whitespace().nth(1)?.parse().ok().map(Duration::from_nanos)
}

/// How long the disk took: a thread that waits for a processor, and not for the disk, finds every disk slow.
fn without_waiting(took: Duration, before: Option<Duration>, after: Option<Duration>) -> Duration {
    let waited = before.zip(after).map_or(Duration::ZERO, |(before, after)| after.saturating_sub(before));
    took.saturating_sub(waited)
}

/// Probes one disk.
#[derive(Debug)]
pub(crate) struct Prober {
    node: PathBuf,
    blocks: u64,
    buffer: Vec<u8>,
    place: u64,
    last: Option<Duration>,
    /// How long our own work stood still for the last probe.
    waited: Duration,
    detector: Detector,
}

impl Prober {
    /// For the disk with this name.
    pub(crate) fn open(name: &str) -> io::Result<Self> {
        let node = Path::new("/dev").join(name);
        open(&node)?;
        let sectors: u64 = std::fs::read_to_string(Path::new("/sys/class/block").join(name).join("size"))?
            .trim()
            .parse()
            .map_err(|_| io::Error::from(io::ErrorKind::InvalidData))?;
        Ok(Self::at(node, (sectors * 512 / SIZE as u64).max(1)))
    }

    /// Of so many blocks at `node`.
    pub(super) fn at(node: PathBuf, blocks: u64) -> Self {
        Self {
            node,
            blocks,
            buffer: vec![0; 2 * SIZE],
            place: 0,
            last: None,
            waited: Duration::ZERO,
            detector: Detector::default(),
        }
    }

    /// Whether it is time for the next probe.
    pub(crate) fn is_due(&self, now: Duration) -> bool {
        let distance = self.detector.interval().max(self.waited * WORK_FOR_WAITING);
        self.last.is_none_or(|last| now.saturating_sub(last) >= distance)
    }

    /// What the probes say.
    pub(crate) fn finding(&self) -> Finding {
        self.detector.finding()
    }

    /// Whether it is not known yet how long probes usually take.
    pub(crate) fn is_learning(&self) -> bool {
        self.detector.baseline().is_none()
    }

    /// How long probes take, as soon as that is known.
    pub(crate) fn latency(&self) -> Option<Latency> {
        let micros = |time: Duration| u64::try_from(time.as_micros()).unwrap_or(u64::MAX);
        let (usual, recent) = self.detector.baseline().zip(self.detector.recent())?;
        Some(Latency { usual_us: micros(usual), recent_us: micros(recent) })
    }

    /// Reads after our own work has `waited` for its requests to be done, and returns how long the disk took. Whether that is
    /// to be judged the caller knows: only when no process on this machine used the disk meanwhile.
    pub(crate) fn probe(&mut self, now: Duration, waited: Duration) -> io::Result<Duration> {
        (self.last, self.waited) = (Some(now), waited);
        self.place = self.place.wrapping_add(STRIDE);
        let at = self.place % self.blocks * SIZE as u64;
        // The kernel wants such buffers to begin on a page.
        let start = self.buffer.as_ptr().align_offset(SIZE);
        let target = self.buffer.get_mut(start..start + SIZE).ok_or(io::ErrorKind::OutOfMemory)?;
        // Not kept open: an administrator who removes the disk after its volume must not find it in use.
        let disk = open(&self.node)?;
        let before = wait_for_processor();
        let begun = Instant::now();
        disk.read_exact_at(target, at)?;
        let took = begun.elapsed();
        Ok(without_waiting(took, before, wait_for_processor()))
    }

    /// No moment was quiet enough for a probe: the next one has its own time.
    pub(crate) fn skip(&mut self, now: Duration, waited: Duration) {
        (self.last, self.waited) = (Some(now), waited);
    }

    /// The probe was undisturbed.
    pub(crate) fn judge(&mut self, took: Duration) {
        self.detector.probed(took);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_without_a_processor_is_not_the_disks() {
        assert_eq!(parse_wait("1385240 7000000 12\n"), Some(Duration::from_millis(7)));
        assert_eq!(parse_wait("0 0 0\n"), Some(Duration::ZERO));
        assert_eq!((parse_wait(""), parse_wait("1 many 2")), (None, None));
        let ms = Duration::from_millis;
        assert_eq!(without_waiting(ms(9), Some(ms(100)), Some(ms(107))), ms(2));
        assert_eq!(without_waiting(ms(9), Some(ms(100)), Some(ms(200))), ms(0), "waiting beside the probe");
        assert_eq!(without_waiting(ms(9), None, Some(ms(200))), ms(9), "a kernel that does not tell");
    }

    #[test]
    fn what_the_scheduler_counts_is_found_where_it_counts() {
        assert_eq!(wait_for_processor().is_some(), Path::new("/proc/self/schedstat").exists());
    }
}
