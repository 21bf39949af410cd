//! The kernel's counters of the I/O of a block device.
//!
//! Owns their format and location. Never touches the device.

use crate::DeviceNumber;
use longrun_layout::Bytes;
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::FileExt;
use std::time::Duration;

/// The kernel counts in sectors of this size, whatever the device has.
const SECTOR: u64 = 512;

/// The counters of a device at a moment: totals since it came to be.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DeviceCounts {
    /// Requests that read.
    pub reads: u64,
    /// What these read.
    pub read: Bytes,
    /// Requests that wrote.
    pub writes: u64,
    /// What these wrote.
    pub written: Bytes,
    /// Requests under way now.
    pub in_flight: u64,
    /// How long at least one was.
    pub busy: Duration,
    /// The times of all requests, added up.
    pub waited: Duration,
}

impl DeviceCounts {
    /// How long the device was busy for each request, on average; `None` before it has done a hundred. Requests that were under way at the same
    /// time share the time: it says what one costs the device, not how long one is waited for.
    #[must_use]
    pub fn per_request(&self) -> Option<Duration> {
        const ENOUGH: u64 = 100;
        let requests = self.reads.saturating_add(self.writes);
        let nanoseconds = u64::try_from(self.busy.as_nanos()).unwrap_or(u64::MAX);
        (requests >= ENOUGH).then(|| Duration::from_nanos(nanoseconds / requests))
    }

    /// Reads the fields of a `stat` file in sysfs.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let fields: Vec<u64> = text.split_whitespace().map_while(|field| field.parse().ok()).collect();
        let &[reads, _, read, _, writes, _, written, _, in_flight, busy, waited, ..] = fields.as_slice() else {
            return None;
        };
        Some(Self {
            reads,
            read: Bytes(read.saturating_mul(SECTOR)),
            writes,
            written: Bytes(written.saturating_mul(SECTOR)),
            in_flight,
            busy: Duration::from_millis(busy),
            waited: Duration::from_millis(waited),
        })
    }
}

/// The counters of one device, kept open.
#[derive(Debug)]
pub struct DeviceCounters {
    source: Source,
}

#[derive(Debug)]
enum Source {
    /// One device's, in sysfs.
    Stat(File),
    /// Where a container hides that: the same fields stand in a table behind number and name.
    Table(DeviceNumber),
}

impl DeviceCounters {
    /// Of the device with this number.
    ///
    /// # Errors
    /// When the kernel shows none.
    pub fn open(device: DeviceNumber) -> io::Result<Self> {
        let source = match File::open(format!("/sys/dev/block/{device}/stat")) {
            Ok(file) => Source::Stat(file),
            Err(error) => {
                let counters = Self { source: Source::Table(device) };
                counters.read().map_err(|_| error)?;
                return Ok(counters);
            }
        };
        Ok(Self { source })
    }

    /// The counters now.
    ///
    /// # Errors
    /// When the device is gone, or its counters have an unknown form.
    pub fn read(&self) -> io::Result<DeviceCounts> {
        let strange = || io::Error::new(io::ErrorKind::InvalidData, "the counters have an unknown format");
        match &self.source {
            Source::Stat(file) => {
                let mut buffer = [0; 512];
                let length = file.read_at(&mut buffer, 0)?;
                let text = buffer.get(..length).and_then(|bytes| std::str::from_utf8(bytes).ok());
                text.and_then(DeviceCounts::parse).ok_or_else(strange)
            }
            Source::Table(device) => {
                let table = fs::read_to_string("/proc/diskstats")?;
                let wanted = [device.major.to_string(), device.minor.to_string()];
                let line = table.lines().find(|line| line.split_whitespace().take(2).eq(&wanted));
                let line = line.ok_or_else(|| io::Error::from(io::ErrorKind::NotFound))?;
                let fields: Vec<&str> = line.split_whitespace().skip(3).collect();
                DeviceCounts::parse(&fields.join(" ")).ok_or_else(strange)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_fields_are_read_by_their_places() {
        let counts = DeviceCounts::parse("  10 1 80 5 20 2 160 9 3 1000 14 0 0 0 0 0 0\n").unwrap();
        assert_eq!((counts.reads, counts.read), (10, Bytes(40_960)));
        assert_eq!((counts.writes, counts.written), (20, Bytes(81_920)));
        assert_eq!((counts.in_flight, counts.busy), (3, Duration::from_secs(1)));
        assert_eq!(counts.waited, Duration::from_millis(14));
    }

    #[test]
    fn a_request_costs_what_the_device_was_busy_for_it() {
        let counts = DeviceCounts { reads: 150, writes: 50, busy: Duration::from_secs(2), ..DeviceCounts::default() };
        assert_eq!(counts.per_request(), Some(Duration::from_millis(10)));
        assert_eq!(DeviceCounts { reads: 49, ..counts }.per_request(), None, "too few to tell");
    }

    #[test]
    fn counters_of_another_form_are_not_taken_for_something() {
        for text in ["", "1 2 3", "a b c d e f g h i j k", "1 2 3 4 5 6 7 8 9 10"] {
            assert_eq!(DeviceCounts::parse(text), None, "{text}");
        }
    }

    #[test]
    fn a_device_that_is_not_there_has_no_counters() {
        assert!(DeviceCounters::open(DeviceNumber { major: 0, minor: 0 }).is_err());
    }
}
