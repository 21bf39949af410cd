//! What free space was given back, or could be: the object that `reclaim --json` prints, and its text.

use super::json_name;
use super::optimization::{Optimization, Plan};
use super::pauses::pauses;
use crate::text::{counted, duration, printable, size};
use longrun_engine::Stop;
use longrun_governor::Loads;
use longrun_layout::Bytes;
use longrun_volume::reclaim::{Reclaimed, Space};
use longrun_volume::{Reclaim, Target};
use serde::Serialize;
use std::fmt::Write as _;
use std::time::Duration;

/// A volume, and what lies below it.
#[derive(Clone, Debug, Serialize)]
pub struct Volume {
    target: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    target_hex: Option<String>,
    device: String,
    filesystem: String,
    /// The mount option by which the file system gives space back by itself.
    online_discard: Option<String>,
    provisioned_bytes: u64,
    granularity_bytes: u64,
    min_extent_bytes: Option<u64>,
    devices: Vec<DeviceFigures>,
    before: SpaceFigures,
    /// What the file system does not give back again, in words.
    #[serde(skip)]
    skips: Option<&'static str>,
}

#[derive(Clone, Debug, Serialize)]
struct DeviceFigures {
    name: String,
    bytes: u64,
    accepts_discards: bool,
    file: Option<String>,
}

/// What is not known is null.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
struct SpaceFigures {
    used_bytes: Option<u64>,
    free_bytes: u64,
    free_pieces: Option<u64>,
    reclaimable_bytes: Option<u64>,
    allocated_bytes: Option<u64>,
}

impl From<&Space> for SpaceFigures {
    fn from(space: &Space) -> Self {
        Self {
            used_bytes: space.used.map(|used| used.0),
            free_bytes: space.free.0,
            free_pieces: space.pieces.map(|pieces| pieces.count),
            reclaimable_bytes: space.pieces.map(|pieces| pieces.reclaimable.0),
            allocated_bytes: space.allocated.map(|allocated| allocated.0),
        }
    }
}

impl Volume {
    /// Puts what was found into the form that is reported.
    pub fn new(target: &Target, volume: &Reclaim, least: Option<Bytes>, before: &Space) -> Self {
        let (name, target_hex) = json_name(&target.given);
        let storage = volume.storage();
        let devices = storage.devices.iter().map(|device| DeviceFigures {
            name: device.name.clone(),
            bytes: device.size.0,
            accepts_discards: device.discards.is_some(),
            file: device.file.as_ref().map(|file| json_name(file).0),
        });
        Self {
            target: name,
            target_hex,
            device: json_name(&target.device).0,
            filesystem: target.mount.as_ref().map_or_else(String::new, |mount| mount.filesystem.clone()),
            online_discard: volume.online_discard().map(str::to_owned),
            provisioned_bytes: storage.size().0,
            granularity_bytes: storage.granules().bytes.0,
            min_extent_bytes: least.map(|least| least.0),
            devices: devices.collect(),
            before: before.into(),
            skips: volume.skips(),
        }
    }

    /// The volume as it was found, for people.
    pub fn text(&self) -> String {
        let mut text = printable(&format!("{}: {} on {}", self.target, self.filesystem, self.device)) + "\n";
        let mut line = |name: &str, value: String| _ = writeln!(text, "  {name:<20}{value}");
        let before = &self.before;
        line("size", size(Bytes(self.provisioned_bytes)));
        if let Some(used) = before.used_bytes {
            line("used", size(Bytes(used)));
        }
        let pieces = before.free_pieces.map(|pieces| format!(" in {}", counted(pieces, "piece", "pieces")));
        line("free", size(Bytes(before.free_bytes)) + &pieces.unwrap_or_default());
        let granules = format!("in blocks of {}", size(Bytes(self.granularity_bytes)));
        let least = self.min_extent_bytes.map(|least| format!(", from pieces of at least {}", size(Bytes(least))));
        let known =
            before.reclaimable_bytes.map_or_else(|| "not known on several devices".to_owned(), |b| size(Bytes(b)));
        line("can be given back", format!("{known}, {granules}{}", least.unwrap_or_default()));
        let files: Vec<&str> = self.devices.iter().filter_map(|device| device.file.as_deref()).collect();
        let allocated = match before.allocated_bytes {
            Some(allocated) => format!("{} ({})", size(Bytes(allocated)), printable(&files.join(", "))),
            None => "not known: the storage does not tell".to_owned(),
        };
        line("allocated below", allocated);
        for device in self.devices.iter().filter(|device| !device.accepts_discards) {
            let name = printable(&device.name);
            _ = writeln!(text, "{name} accepts no discards: nothing on it is given back.");
        }
        if let Some(option) = &self.online_discard {
            _ = writeln!(
                text,
                "The volume is mounted with {option}: what is freed while it is mounted is given back by the file system itself.",
                option = printable(option)
            );
        }
        text
    }
}

/// What a dry run prints as JSON.
#[derive(Serialize)]
pub struct Foreseen {
    /// The volume as it is.
    #[serde(flatten)]
    pub about: Volume,
    /// What consolidating would move first.
    pub consolidation: Option<Plan>,
}

/// What became of consolidating.
pub enum Consolidation {
    /// It was not asked for.
    NotAsked,
    /// Nearly all of the free space could be given back as it was.
    NotNeeded,
    /// It was done.
    Done(Box<Optimization>),
}

impl Consolidation {
    /// Why it ended early, if so.
    pub fn stop(&self) -> Option<Stop> {
        match self {
            Self::Done(done) => done.stop(),
            Self::NotAsked | Self::NotNeeded => None,
        }
    }
}

/// The object of the contract.
#[derive(Serialize)]
pub struct Reclamation {
    #[serde(flatten)]
    about: Volume,
    consolidation: Option<Box<Optimization>>,
    after: SpaceFigures,
    reclaimed_bytes: Option<u64>,
    storage_reclaimed_bytes: Option<u64>,
    skipped_bytes: u64,
    covered_bytes: u64,
    total_bytes: u64,
    calls: u64,
    longest_call_seconds: f64,
    next_bytes: Option<u64>,
    stopped: Option<Stop>,
    seconds: f64,
    governor: Option<Loads>,
    /// When the first slice began.
    #[serde(skip)]
    ready: SpaceFigures,
    #[serde(skip)]
    was_needless: bool,
}

impl Reclamation {
    /// What was given back, where that is known.
    pub fn bytes(&self) -> Option<Bytes> {
        self.reclaimed_bytes.map(Bytes)
    }

    /// By how much less of the storage is in use; where that cannot be seen, what was given back.
    pub fn taken_back(&self) -> Bytes {
        Bytes(self.storage_reclaimed_bytes.or(self.reclaimed_bytes).unwrap_or(0))
    }

    /// What consolidating moved first.
    pub fn consolidation(&self) -> Option<&Optimization> {
        self.consolidation.as_deref()
    }

    /// Puts what was done into the form that is reported. `ready`: the space when the first slice began.
    pub fn new(
        about: Volume,
        ready: &Space,
        after: &Space,
        done: &Reclaimed,
        consolidation: Consolidation,
        time: Duration,
        governor: Option<Loads>,
    ) -> Self {
        let (ready, after) = (SpaceFigures::from(ready), SpaceFigures::from(after));
        let was_needless = matches!(consolidation, Consolidation::NotNeeded);
        let is_complete = done.stop.is_none() && done.failure.is_none();
        let expected = ready.reclaimable_bytes.filter(|_| is_complete && about.skips.is_some()).unwrap_or(0);
        let allocated = about.before.allocated_bytes.zip(after.allocated_bytes);
        let seconds = |time: Duration| (time.as_secs_f64() * 1e4).round() / 1e4;
        Self {
            about,
            consolidation: match consolidation {
                Consolidation::Done(done) => Some(done),
                Consolidation::NotAsked | Consolidation::NotNeeded => None,
            },
            after,
            reclaimed_bytes: done.is_counted.then_some(done.bytes.0),
            storage_reclaimed_bytes: allocated.map(|(before, after)| before.saturating_sub(after)),
            skipped_bytes: expected.saturating_sub(done.bytes.0),
            covered_bytes: done.covered.0,
            total_bytes: done.total.0,
            calls: done.calls,
            longest_call_seconds: seconds(done.longest_call),
            next_bytes: done.next.map(|next| next.0),
            stopped: done.stop,
            seconds: seconds(time),
            governor,
            ready,
            was_needless,
        }
    }

    /// The result for people.
    pub fn text(&self) -> String {
        let mut text = String::new();
        if self.was_needless {
            text.push_str("The free space was not consolidated: nearly all of it can be given back as it is.\n");
        }
        let time = |seconds: f64| duration(Duration::from_secs_f64(seconds.max(0.0)));
        let what = match self.reclaimed_bytes {
            Some(0) if self.skipped_bytes > 0 => "Nothing new was given back".to_owned(),
            Some(reclaimed) => format!("{} given back", size(Bytes(reclaimed))),
            None => format!("Free space given back (how much, {} does not tell)", printable(&self.about.filesystem)),
        };
        _ = writeln!(
            text,
            "{what} in {}, {}, the longest of which took {}.",
            time(self.seconds),
            counted(self.calls, "call", "calls"),
            time(self.longest_call_seconds),
        );
        if let (Some(before), Some(after)) = (self.about.before.allocated_bytes, self.after.allocated_bytes) {
            _ = writeln!(text, "Allocated below: {} before, {} now.", size(Bytes(before)), size(Bytes(after)));
        }
        let expected = self.ready.reclaimable_bytes.unwrap_or(0);
        // Less than that is what others have written or freed meanwhile.
        if let Some(skips) = self.about.skips.filter(|_| self.skipped_bytes > expected / 50) {
            _ = writeln!(
                text,
                "{} were not given back again: {skips}. To give back all of it once more, mount the volume again.",
                size(Bytes(self.skipped_bytes)),
            );
        }
        text.push_str(&self.governor.as_ref().map(pauses).unwrap_or_default());
        let why = match self.stopped {
            Some(Stop::Deadline) => "at the deadline",
            Some(_) => "by a signal",
            None => return text,
        };
        let (covered, total) = (size(Bytes(self.covered_bytes)), size(Bytes(self.total_bytes)));
        _ = writeln!(
            text,
            "The run was stopped {why} after {covered} of {total} had been gone through. The next run goes on from there."
        );
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use longrun_volume::reclaim::Pieces;

    const MIB: u64 = 1 << 20;

    fn space(allocated: Option<u64>) -> Space {
        Space {
            free: Bytes(488 * MIB),
            used: Some(Bytes(536 * MIB)),
            pieces: Some(Pieces { count: 2012, reclaimable: Bytes(156 * MIB) }),
            allocated: allocated.map(|mebibytes| Bytes(mebibytes * MIB)),
        }
    }

    fn about() -> Volume {
        Volume {
            target: "/mnt/\x1b[2J".to_owned(),
            target_hex: None,
            device: "/dev/loop3".to_owned(),
            filesystem: "ext4".to_owned(),
            online_discard: Some("discard".to_owned()),
            provisioned_bytes: 1024 * MIB,
            granularity_bytes: 64 << 10,
            min_extent_bytes: Some(MIB),
            devices: vec![
                DeviceFigures {
                    name: "loop3".to_owned(),
                    bytes: 1024 * MIB,
                    accepts_discards: true,
                    file: Some("/srv/image".to_owned()),
                },
                DeviceFigures { name: "sdb".to_owned(), bytes: 0, accepts_discards: false, file: None },
            ],
            before: SpaceFigures::from(&space(Some(1024))),
            skips: Some("ext4 skips what it has trimmed"),
        }
    }

    fn reclamation(bytes: u64, stop: Option<Stop>) -> Reclamation {
        let done = Reclaimed {
            bytes: Bytes(bytes * MIB),
            is_counted: true,
            covered: Bytes(1024 * MIB),
            total: Bytes(4096 * MIB),
            calls: 8,
            longest_call: Duration::from_millis(123),
            next: stop.map(|_| Bytes(12 * MIB)),
            stop,
            failure: None,
        };
        let time = Duration::from_micros(1_234_567);
        Reclamation::new(about(), &space(Some(1024)), &space(Some(868)), &done, Consolidation::NotNeeded, time, None)
    }

    #[test]
    fn the_volume_and_what_lies_below_are_told() {
        let text = about().text();
        assert!(!text.contains('\x1b'));
        insta::assert_snapshot!(text);
    }

    #[test]
    fn what_is_not_known_is_called_so() {
        let unknown = Space { used: None, pieces: None, ..space(None) };
        let text = Volume { before: SpaceFigures::from(&unknown), devices: Vec::new(), ..about() }.text();
        assert!(text.contains("not known on several devices") && text.contains("the storage does not tell"), "{text}");
    }

    #[test]
    fn the_result_is_told() {
        insta::assert_snapshot!(reclamation(156, None).text());
    }

    #[test]
    fn nothing_given_back_is_explained_where_the_file_system_remembers_it() {
        let text = reclamation(0, None).text();
        assert!(text.contains("Nothing new was given back in"), "{text}");
        assert!(text.contains("156 MiB were not given back again: ext4 skips what it has trimmed."), "{text}");
        let uncounted = Reclamation { reclaimed_bytes: None, skipped_bytes: 0, ..reclamation(0, None) }.text();
        assert!(uncounted.contains("Free space given back (how much, ext4 does not tell) in"), "{uncounted}");
        let stopped = reclamation(0, Some(Stop::Deadline)).text();
        assert!(!stopped.contains("again") && stopped.contains("The run was stopped at the deadline"), "{stopped}");
    }

    #[test]
    fn the_json_is_stable() {
        insta::assert_json_snapshot!(reclamation(100, Some(Stop::Cancelled)));
    }
}
