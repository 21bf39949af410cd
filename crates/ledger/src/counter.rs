//! The counters. Owns their names: databases and users' scripts contain them, so they never change, and a name is never
//! reused for another counter.

use serde::{Serialize, Serializer};
use std::fmt;

/// The unit of a counter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    /// Things: files, fragments, events.
    Pieces,
    /// Bytes.
    Bytes,
    /// Milliseconds.
    Milliseconds,
    /// Microseconds.
    Microseconds,
}

macro_rules! counters {
    ($($(#[doc = $doc:literal])+ $variant:ident = $name:literal, $unit:ident;)+) => {
        /// Something that is counted by the hour. Serialised as its name.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum Counter {
            $($(#[doc = $doc])+ $variant,)+
        }

        impl Counter {
            /// All of them, in the order in which they are reported.
            pub const ALL: &'static [Self] = &[$(Self::$variant,)+];

            /// The name in the database and in reports. It never changes.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self { $(Self::$variant => $name,)+ }
            }

            /// The unit.
            #[must_use]
            pub const fn unit(self) -> Unit {
                match self { $(Self::$variant => Unit::$unit,)+ }
            }

            /// The counter with this name.
            #[must_use]
            pub fn from_name(name: &str) -> Option<Self> {
                match name { $($name => Some(Self::$variant),)+ _ => None }
            }
        }
    };
}

counters! {
    /// Excess fragments that were prevented, estimated from each file's own rate before its first runway.
    FragmentsPrevented = "fragments-prevented", Pieces;
    /// Excess fragments that were not prevented, and are left to mending.
    FragmentsSlipped = "fragments-slipped", Pieces;
    /// Files that were mended.
    FilesMended = "files-mended", Pieces;
    /// Excess fragments that mending removed.
    FragmentsMended = "fragments-mended", Pieces;
    /// Bytes that mending moved.
    BytesMoved = "bytes-moved", Bytes;
    /// Passes over whole volumes that finished.
    Passes = "passes", Pieces;
    /// Excess fragments that passes removed.
    FragmentsByPasses = "fragments-by-passes", Pieces;
    /// Bytes that passes moved.
    BytesByPasses = "bytes-by-passes", Bytes;
    /// Time of the volume's device that is saved whenever the files are read once that these fragments, prevented, mended or removed, were of:
    /// each by the mean time of the device for a request.
    ReadTimeSaved = "read-time-saved-us", Microseconds;
    /// Bytes of free space that the storage below took back in `reclaim` jobs.
    BytesReclaimed = "bytes-reclaimed", Bytes;
    /// Runways granted.
    RunwaysGranted = "runways-granted", Pieces;
    /// Bytes of the granted runways.
    RunwayBytesGranted = "runway-bytes-granted", Bytes;
    /// Files whose runways were settled after they were closed.
    RunwaysGivenBack = "runways-given-back", Pieces;
    /// Unused bytes of these runways that were given back.
    RunwayBytesGivenBack = "runway-bytes-given-back", Bytes;
    /// Bytes that were given back before the file was closed, because other processes needed the space.
    RunwayBytesYielded = "runway-bytes-yielded", Bytes;
    /// Files seen fragmenting.
    FilesFragmenting = "files-fragmenting", Pieces;
    /// Signals from the kernel.
    Signals = "signals", Pieces;
    /// Signals that the kernel could not deliver.
    SignalsLost = "signals-lost", Pieces;
    /// Bytes that Longrun itself has read and written.
    OwnIoBytes = "own-io-bytes", Bytes;
    /// Alerts that a volume may run out of usable space by fragmentation of its free space.
    SpaceAlerts = "space-alerts", Pieces;
    /// Processor time of the service.
    CpuMillis = "service-cpu-ms", Milliseconds;
    /// Left alone: too little free space.
    LeftLowSpace = "left-low-space", Pieces;
    /// Left alone: stored compressed.
    LeftCompressed = "left-compressed", Pieces;
    /// Left alone: the file is executable.
    LeftExecutable = "left-executable", Pieces;
    /// Left alone: it has an extent-size hint.
    LeftSizeHint = "left-size-hint", Pieces;
    /// Left alone: immutable, append-only, encrypted, swap.
    LeftAttributes = "left-attributes", Pieces;
    /// Left alone: a program has set its times.
    LeftTimesSet = "left-times-set", Pieces;
    /// Left alone: the kernel keeps such files whole.
    LeftKeptWhole = "left-kept-whole", Pieces;
    /// Left alone: excluded by configuration.
    LeftExcluded = "left-excluded", Pieces;
    /// Left alone: it no longer exists.
    LeftGone = "left-gone", Pieces;
    /// Left alone: the file system refused.
    LeftRefused = "left-refused", Pieces;
    /// Left alone for a reason that this version has no counter for.
    LeftOther = "left-other", Pieces;
}

impl Counter {
    /// The counter of files left alone for `reason`, a word like "low-space".
    #[must_use]
    pub fn left(reason: &str) -> Self {
        let wanted = |counter: &&Self| counter.left_reason() == Some(reason);
        Self::ALL.iter().find(wanted).copied().unwrap_or(Self::LeftOther)
    }

    /// The reason, if this counts files left alone.
    #[must_use]
    pub fn left_reason(self) -> Option<&'static str> {
        self.name().strip_prefix("left-")
    }
}

impl fmt::Display for Counter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl Serialize for Counter {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn every_name_is_unique_and_leads_back_to_its_counter() {
        let names: BTreeSet<&str> = Counter::ALL.iter().map(|counter| counter.name()).collect();
        assert_eq!(names.len(), Counter::ALL.len());
        assert!(Counter::ALL.iter().all(|counter| Counter::from_name(counter.name()) == Some(*counter)));
    }

    #[test]
    fn the_names_that_databases_hold_have_not_changed() {
        let names: Vec<&str> = Counter::ALL.iter().map(|counter| counter.name()).collect();
        insta::assert_snapshot!(names.join("\n"));
    }

    #[test]
    fn a_reason_without_a_counter_is_still_counted() {
        assert_eq!(Counter::left("low-space"), Counter::LeftLowSpace);
        assert_eq!(Counter::left("of-tomorrow"), Counter::LeftOther);
        assert_eq!(Counter::Signals.left_reason(), None);
    }
}
