//! Divides the I/O of a device into ours and that of others. Pure: subtracts what this process requested from what the
//! device did.
//!
//! Our reads are known exactly. Our writes reach the device later, together with what the file system writes for them
//! (journal, maps, checksums). Each byte that we write therefore gives a credit, which the writes of the device use up.
//! Writes beyond the credit are those of others.

use longrun_layout::Bytes;
use longrun_sys::DeviceCounts;
use std::collections::VecDeque;
use std::time::Duration;

/// What this process has read and written so far, on all devices.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Own {
    /// Asked of devices.
    pub read: Bytes,
    /// Made dirty, or written past the cache.
    pub written: Bytes,
}

/// How long a byte that we asked for may take until the device has done it.
const READS_LIVE: Duration = Duration::from_secs(2);
/// The same for writing: a commit of the journal is at most some seconds away, and what it says is written in place soon
/// after the next.
const WRITES_LIVE: Duration = Duration::from_secs(35);
/// For each so many bytes one byte more is written about them.
const WRITTEN_ABOUT: u64 = 16;
/// And so much with each look at which something was written: a commit.
const COMMIT: Bytes = Bytes(64 << 10);
/// When writing begins, and so much once: what was done before without writing data, such as taking free space, is committed
/// first (100 to 300 KB for 100 MB in 8 KiB pieces).
const BEGUN: Bytes = Bytes(512 << 10);
/// Below a file that serves as a device, what is written stays in memory for a while: more may be due.
const LATE: Bytes = Bytes(64 << 20);
/// What may be due on the volume's own device: more than any mover leaves on its way.
const DUE: Bytes = Bytes(16 << 20);

/// What the device did between two observations.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Share {
    /// By us.
    pub own: Bytes,
    /// By others.
    pub foreign: Bytes,
    /// What was written, by us and by others: part of the above.
    written: Bytes,
    foreign_written: Bytes,
}

impl Share {
    /// What others wrote as a share of all that was written, from 0 to 1.
    #[must_use]
    pub fn of_writes(&self) -> f64 {
        if self.written.0 == 0 { 0.0 } else { self.foreign_written.0 as f64 / self.written.0 as f64 }
    }
}

/// Bytes that may still be done for us.
#[derive(Clone, Debug)]
struct Credit {
    earned: VecDeque<(Duration, u64)>,
    lives: Duration,
    most: Bytes,
}

impl Credit {
    fn new(lives: Duration, most: Bytes) -> Self {
        Self { earned: VecDeque::new(), lives, most }
    }

    fn total(&self) -> u64 {
        self.earned.iter().map(|(_, bytes)| bytes).sum()
    }

    fn forget_old(&mut self, now: Duration) {
        self.earned.retain(|(at, _)| now.saturating_sub(*at) <= self.lives);
    }

    fn earn(&mut self, now: Duration, bytes: u64) {
        self.forget_old(now);
        if bytes > 0 {
            self.earned.push_back((now, bytes));
        }
        // A single large amount counts in full: it is on its way.
        let most = self.most.0.max(bytes);
        let surplus = self.total().saturating_sub(most);
        self.spend(surplus);
    }

    /// Takes `bytes` off, the oldest first. Returns what there was no credit for.
    fn spend(&mut self, bytes: u64) -> u64 {
        let mut left = bytes;
        while left > 0 {
            let Some((_, first)) = self.earned.front_mut() else { break };
            let part = left.min(*first);
            *first -= part;
            left -= part;
            if *first == 0 {
                self.earned.pop_front();
            }
        }
        left
    }
}

/// The account of one device.
#[derive(Clone, Debug)]
pub struct Attribution {
    reads: Credit,
    writes: Credit,
    below_file: bool,
    last: Option<(DeviceCounts, Own)>,
}

impl Attribution {
    /// Nothing seen yet. `below_file`: a file on the device serves as the device of the volume.
    #[must_use]
    pub fn new(below_file: bool) -> Self {
        let (reads, writes) = if below_file { (LATE, LATE) } else { (Bytes(DUE.0 / 2), DUE) };
        let (reads, writes) = (Credit::new(READS_LIVE, reads), Credit::new(WRITES_LIVE, writes));
        Self { reads, writes, below_file, last: None }
    }

    /// What the device did since the last look, given its counters and, read after these, our own: what it did for us we
    /// had asked for by then. Nothing at the first look.
    pub fn share(&mut self, now: Duration, counts: &DeviceCounts, own: Own) -> Share {
        let Some((counts_before, own_before)) = self.last.replace((*counts, own)) else { return Share::default() };
        let asked = own.read.saturating_sub(own_before.read).0;
        let dirtied = own.written.saturating_sub(own_before.written).0;
        // Through a file everything is read ahead once more.
        let ahead = if self.below_file && asked > 0 { asked + COMMIT.0 } else { 0 };
        self.reads.earn(now, asked + ahead);
        self.writes.forget_old(now);
        let begun = if self.writes.total() == 0 { BEGUN.0 } else { 0 };
        let about = if dirtied > 0 { dirtied / WRITTEN_ABOUT + COMMIT.0 + begun } else { 0 };
        let about = if self.below_file { about * 2 } else { about };
        self.writes.earn(now, dirtied + about);
        let read = counts.read.saturating_sub(counts_before.read).0;
        let written = counts.written.saturating_sub(counts_before.written).0;
        let foreign_written = self.writes.spend(written);
        let foreign = self.reads.spend(read) + foreign_written;
        Share {
            own: Bytes(read + written - foreign),
            foreign: Bytes(foreign),
            written: Bytes(written),
            foreign_written: Bytes(foreign_written),
        }
    }
}

#[cfg(test)]
mod tests;
