//! The I/O of a block device: the kernel's own counters, before and after.
//!
//! Finds the device below a directory (also for loop devices and partitions), and converts counters to rates. Never
//! touches a device.

use crate::BenchError;
use longrun_layout::Bytes;
use longrun_sys::{DeviceCounters, DeviceCounts, DeviceNumber};
use longrun_sys::{MOUNT_TABLE, Mount};
use serde::{Deserialize, Serialize};
use std::fs::{self, File};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::time::Instant;

/// The mount that a directory is reached through.
///
/// # Errors
/// [`BenchError::Io`]; [`BenchError::Unsuitable`] when the table of mounts does not have it.
pub fn mount_of(directory: &Path) -> Result<Mount, BenchError> {
    let id = File::open(directory)
        .and_then(|opened| longrun_sys::mount_of_file(opened).map_err(std::io::Error::from))
        .map_err(|e| BenchError::io("looking up its mount", directory, e))?;
    let failed = |e| BenchError::io("reading the mount table", Path::new(MOUNT_TABLE), e);
    Mount::numbered(id).map_err(failed)?.ok_or_else(|| BenchError::Unsuitable {
        path: directory.to_owned(),
        problem: "its mount is not in the mount table; use a directory on a mounted volume".to_owned(),
    })
}

/// A block device whose counters are read.
#[derive(Debug)]
pub struct Device {
    number: DeviceNumber,
    name: String,
    counters: DeviceCounters,
}

impl Device {
    /// The device under a mount. Of a volume on several devices, the one that it was mounted by.
    ///
    /// # Errors
    /// [`BenchError::Unsuitable`] when there is none, as under tmpfs or a network.
    pub fn under(mount: &Mount) -> Result<Self, BenchError> {
        // btrfs gives its volumes numbers of their own, which no device has.
        let by_source =
            fs::metadata(&mount.source).ok().filter(|meta| meta.file_type().is_block_device()).map(|meta| meta.rdev());
        let numbers = [Some(mount.device), by_source.map(DeviceNumber::from_stat)];
        numbers.into_iter().flatten().find_map(Self::numbered).ok_or_else(|| BenchError::Unsuitable {
            path: mount.point.clone(),
            problem: "it is not on a block device that can be measured; use a directory on a disk".to_owned(),
        })
    }

    fn numbered(number: DeviceNumber) -> Option<Self> {
        let link = fs::read_link(format!("/sys/dev/block/{number}")).ok()?;
        let name = link.file_name()?.to_string_lossy().into_owned();
        let device = Self { number, name, counters: DeviceCounters::open(number).ok()? };
        device.sample().is_ok().then_some(device)
    }

    /// The kernel's name of it.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Its number.
    #[must_use]
    pub fn number(&self) -> DeviceNumber {
        self.number
    }

    /// The counters now.
    ///
    /// # Errors
    /// [`BenchError::Io`] when the device is gone.
    pub fn sample(&self) -> Result<Sample, BenchError> {
        let at = Instant::now();
        let counts = self.counters.read().map_err(|e| {
            let path = PathBuf::from(format!("/sys/dev/block/{}", self.number));
            BenchError::io("reading the counters of the device", &path, e)
        })?;
        Ok(Sample { at, counts })
    }
}

/// The counters of a device at a moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sample {
    at: Instant,
    counts: DeviceCounts,
}

impl Sample {
    /// What the device did since an earlier moment.
    #[must_use]
    pub fn since(&self, earlier: &Self) -> Activity {
        let (now, then) = (&self.counts, &earlier.counts);
        Activity {
            seconds: self.at.saturating_duration_since(earlier.at).as_secs_f64(),
            reads: now.reads.saturating_sub(then.reads),
            writes: now.writes.saturating_sub(then.writes),
            read_bytes: now.read.saturating_sub(then.read),
            written_bytes: now.written.saturating_sub(then.written),
            busy_seconds: now.busy.saturating_sub(then.busy).as_secs_f64(),
            waited_seconds: now.waited.saturating_sub(then.waited).as_secs_f64(),
        }
    }
}

/// What a device did during some time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Activity {
    /// How long.
    pub seconds: f64,
    /// Transfers from it.
    pub reads: u64,
    /// Transfers to it.
    pub writes: u64,
    /// Bytes from it.
    pub read_bytes: Bytes,
    /// Bytes to it.
    pub written_bytes: Bytes,
    /// How long at least one transfer was under way.
    pub busy_seconds: f64,
    /// The times of all transfers, added up.
    pub waited_seconds: f64,
}

impl Activity {
    /// Transfers in both directions.
    #[must_use]
    pub fn transfers(&self) -> u64 {
        self.reads + self.writes
    }

    /// Transfers a second.
    #[must_use]
    pub fn transfers_per_second(&self) -> f64 {
        per(self.transfers() as f64, self.seconds)
    }

    /// KiB of the average transfer.
    #[must_use]
    pub fn kib_per_transfer(&self) -> f64 {
        per(self.bytes() / 1024.0, self.transfers() as f64)
    }

    /// MB (millions of bytes) a second.
    #[must_use]
    pub fn mb_per_second(&self) -> f64 {
        per(self.bytes() / 1e6, self.seconds)
    }

    /// MB (millions of bytes) written a second.
    #[must_use]
    pub fn written_mb_per_second(&self) -> f64 {
        per(self.written_bytes.0 as f64 / 1e6, self.seconds)
    }

    /// How many transfers were under way on average.
    #[must_use]
    pub fn queue_length(&self) -> f64 {
        per(self.waited_seconds, self.seconds)
    }

    /// How much of the time nothing was under way, in per cent.
    #[must_use]
    pub fn idle_percent(&self) -> f64 {
        100.0 * (1.0 - per(self.busy_seconds, self.seconds)).clamp(0.0, 1.0)
    }

    fn bytes(&self) -> f64 {
        (self.read_bytes + self.written_bytes).0 as f64
    }
}

/// A quotient that is 0 where there is nothing to divide by.
pub(crate) fn per(amount: f64, unit: f64) -> f64 {
    if unit > 0.0 { amount / unit } else { 0.0 }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn counters_become_rates() {
        let start = Instant::now();
        let sample = |seconds, text| Sample {
            at: start + Duration::from_secs(seconds),
            counts: DeviceCounts::parse(text).unwrap(),
        };
        let before = sample(0, "  10 1 80 5 20 2 160 9 0 1000 14 0 0 0 0 0 0\n");
        let after = sample(2, "110 1 1680 5 120 2 1760 9 0 1500 6014 0 0 0 0 0 0");
        let activity = after.since(&before);
        assert_eq!((activity.reads, activity.writes), (100, 100));
        assert_eq!(activity.transfers_per_second(), 100.0);
        assert_eq!(activity.kib_per_transfer(), 8.0);
        assert_eq!(activity.queue_length(), 3.0);
        assert_eq!(activity.idle_percent(), 75.0);
        assert!((activity.mb_per_second() - 0.8192).abs() < 1e-9);
        assert_eq!(Activity::default().kib_per_transfer(), 0.0);
    }

    #[test]
    fn what_has_no_block_device_is_named() {
        let mount = mount_of(Path::new("/proc")).unwrap();
        let error = Device::under(&mount).unwrap_err().to_string();
        assert!(error.contains("/proc: it is not on a block device"), "{error}");
    }
}
