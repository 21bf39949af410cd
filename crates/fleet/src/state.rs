//! What a host tells of itself at the broker: figures, troubles, policy and leases, in at most 16 KiB.
//!
//! Owns the record, and how it is made of the answers of the service. It has no names of files. The history stays with the
//! host, in its ledger: the record has the sums of a day, of 30 days and of all time.

use longrun_api::fleet::Fleet;
use longrun_api::model::{HealthLevel, Status, Volume};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};

/// The longest record, in bytes.
pub const MOST_BYTES: usize = 16 << 10;
/// The longest text in it, in characters.
const LONGEST: usize = 300;
/// More volumes have no place, however short their names are.
const MOST_VOLUMES: usize = 150;
/// The most texts of one list.
const MOST_TEXTS: usize = 16;

/// Key `HOST` of the bucket of state.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct HostState {
    /// The version of the service; empty while it does not answer.
    pub version: String,
    /// When this was written, by the clock of the host (seconds since 1970).
    pub at: u64,
    /// The labels of the host.
    pub labels: BTreeMap<String, String>,
    /// Whether everything works.
    pub healthy: bool,
    /// What the service does now, in a few words.
    pub activity: String,
    /// What needs attention.
    pub troubles: Vec<String>,
    /// The same as keys for programs: without numbers that change, so that the same trouble has the same key.
    pub alerts: BTreeSet<String>,
    /// `off`, `rest` or `go-on`.
    pub mode: String,
    /// The version of the policy in force.
    pub policy: Option<u64>,
    /// Settings that the host's own file pins.
    pub pinned: Vec<String>,
    /// Why the policy for this host is not in force.
    pub policy_trouble: Option<String>,
    /// Storage groups, and whether work is permitted there now.
    pub groups: BTreeMap<String, bool>,
    /// The volumes, those with most excess fragments first.
    pub volumes: Vec<VolumeState>,
    /// How many volumes had no place.
    pub volumes_left_out: u64,
    /// Of the last day.
    pub day: Totals,
    /// Of the last 30 days.
    pub month: Totals,
    /// Of all time.
    pub all: Totals,
}

/// A volume.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct VolumeState {
    /// Where it is mounted.
    pub mount: String,
    /// Type of the file system.
    pub filesystem: String,
    /// Its size.
    pub total_bytes: u64,
    /// Free space.
    pub free_bytes: u64,
    /// Files of the last scan.
    pub files: Option<u64>,
    /// Excess fragments of the last scan.
    pub excess_fragments: Option<u64>,
    /// Why mending is paused.
    pub rests: Option<String>,
}

/// Sums of a period, from the ledger of the host.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Totals {
    /// Excess fragments that were prevented.
    pub prevented: u64,
    /// Excess fragments that mending removed.
    pub mended: u64,
    /// Excess fragments that passes removed.
    pub by_passes: u64,
    /// Bytes that mending and passes moved.
    pub moved_bytes: u64,
    /// Device requests saved, at most, when all files that were prevented from fragmenting or mended are read once.
    pub requests_saved: u64,
    /// The time that devices need for these, in microseconds.
    pub saved_us: u64,
    /// Bytes that storage took back in `reclaim` jobs.
    pub reclaimed_bytes: u64,
    /// Unused bytes of runways that were given back.
    pub given_back_bytes: u64,
}

impl Totals {
    /// Both together.
    #[must_use]
    pub const fn plus(self, other: Self) -> Self {
        Self {
            prevented: self.prevented.saturating_add(other.prevented),
            mended: self.mended.saturating_add(other.mended),
            by_passes: self.by_passes.saturating_add(other.by_passes),
            moved_bytes: self.moved_bytes.saturating_add(other.moved_bytes),
            requests_saved: self.requests_saved.saturating_add(other.requests_saved),
            saved_us: self.saved_us.saturating_add(other.saved_us),
            reclaimed_bytes: self.reclaimed_bytes.saturating_add(other.reclaimed_bytes),
            given_back_bytes: self.given_back_bytes.saturating_add(other.given_back_bytes),
        }
    }

    /// Whether files were kept or made whole.
    #[must_use]
    pub const fn has_benefit(self) -> bool {
        self.prevented > 0 || self.mended > 0 || self.by_passes > 0
    }
}

/// The part of `/v1/report` that is told.
#[derive(Clone, Debug, Default, Deserialize)]
pub struct Report {
    totals: BTreeMap<String, u64>,
    benefit: Benefit,
}

#[derive(Clone, Debug, Default, Deserialize)]
struct Benefit {
    #[serde(default)]
    requests_saved_per_full_read: u64,
    #[serde(default)]
    microseconds_saved_per_full_read: u64,
}

impl From<&Report> for Totals {
    fn from(report: &Report) -> Self {
        let of = |counter: &str| report.totals.get(counter).copied().unwrap_or_default();
        Self {
            prevented: of("fragments-prevented"),
            mended: of("fragments-mended"),
            by_passes: of("fragments-by-passes"),
            moved_bytes: of("bytes-moved").saturating_add(of("bytes-by-passes")),
            requests_saved: report.benefit.requests_saved_per_full_read,
            saved_us: report.benefit.microseconds_saved_per_full_read,
            reclaimed_bytes: of("bytes-reclaimed"),
            given_back_bytes: of("runway-bytes-given-back").saturating_add(of("runway-bytes-yielded")),
        }
    }
}

impl HostState {
    /// Of what the service says. Without it, the host says only that.
    #[must_use]
    pub fn of(status: Option<&Status>, fleet: Option<&Fleet>) -> Self {
        let mut state = Self::default();
        match status {
            Some(status) => state.take_status(status),
            None => {
                state.activity = "the service does not answer".to_owned();
                state.trouble("service", &state.activity.clone());
            }
        }
        if let Some(fleet) = fleet {
            state.mode.clone_from(&fleet.mode);
            state.policy = fleet.policy.as_ref().map(|policy| policy.version);
            state.pinned = fleet.policy.iter().flat_map(|policy| policy.pinned.iter().cloned()).collect();
            state.groups = fleet.groups.iter().take(64).map(|group| (group.name.clone(), group.permitted)).collect();
        }
        state
    }

    fn take_status(&mut self, status: &Status) {
        self.version.clone_from(&status.version);
        self.healthy = status.healthy;
        self.activity = activity(status);
        for trouble in &status.troubles {
            let key = format!("trouble: {}", without_numbers(trouble));
            self.trouble(&key, trouble);
        }
        for volume in status.volumes.iter().filter(|volume| volume.enabled) {
            if volume.health.level == HealthLevel::Alert {
                self.trouble(
                    &format!("space {}", volume.mount),
                    &format!("{}: {}", volume.mount, volume.health.sentence),
                );
            }
            if let Some(trouble) = &volume.trouble {
                let key = format!("volume {}: {}", volume.mount, without_numbers(trouble));
                self.trouble(&key, &format!("{}: {trouble}", volume.mount));
            }
            let failed = volume.optimized.failed;
            if failed > 0 {
                // With its number: each further one is new.
                let text = format!("{}: {failed} jobs failed", volume.mount);
                self.trouble(&text, &text);
            }
            self.volumes.push(of_volume(volume));
        }
        self.volumes.sort_by_key(|volume| std::cmp::Reverse(volume.excess_fragments));
    }

    fn trouble(&mut self, key: &str, text: &str) {
        if self.troubles.len() < MOST_TEXTS {
            self.alerts.insert(short(key));
            self.troubles.push(short(text));
        }
    }

    /// As it is written. Volumes that have no place are counted.
    #[must_use]
    pub fn to_value(mut self) -> Vec<u8> {
        self.activity = short(&self.activity);
        self.policy_trouble = self.policy_trouble.as_deref().map(short);
        if self.labels.iter().map(|(label, value)| label.len() + value.len()).sum::<usize>() > MOST_BYTES / 4 {
            self.labels.clear();
            self.trouble("labels", "the labels are too long to be told");
        }
        self.volumes_left_out += self.volumes.len().saturating_sub(MOST_VOLUMES) as u64;
        self.volumes.truncate(MOST_VOLUMES);
        loop {
            let value = serde_json::to_vec(&self).unwrap_or_default();
            if value.len() <= MOST_BYTES {
                return value;
            }
            if self.volumes.pop().is_some() {
                self.volumes_left_out += 1;
            } else {
                (self.troubles, self.pinned, self.groups) = (Vec::new(), Vec::new(), BTreeMap::new());
                self.alerts = ["too much to tell".to_owned()].into();
            }
        }
    }
}

fn of_volume(volume: &Volume) -> VolumeState {
    VolumeState {
        mount: short(&volume.mount),
        filesystem: volume.filesystem.clone(),
        total_bytes: volume.space.total_bytes,
        free_bytes: volume.space.free_bytes,
        files: volume.scan.as_ref().map(|scan| scan.files),
        excess_fragments: volume.scan.as_ref().map(|scan| scan.excess_fragments),
        rests: volume.mending_rests.as_deref().map(short),
    }
}

fn activity(status: &Status) -> String {
    if let Some(job) = status.jobs.first() {
        return format!("job {}", job.id);
    }
    match &status.mending {
        mending if mending.at_work => "mending".to_owned(),
        mending if mending.paused => "paused on request".to_owned(),
        mending if mending.rests => "mending rests".to_owned(),
        mending if mending.queued > 0 => format!("{} files wait to be mended", mending.queued),
        _ => "nothing to do".to_owned(),
    }
}

fn short(text: &str) -> String {
    text.chars().take(LONGEST).collect()
}

fn without_numbers(text: &str) -> String {
    text.chars().filter(|letter| !letter.is_ascii_digit()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn volume(mount: &str, excess: u64) -> Volume {
        let scan = longrun_api::model::Scan { excess_fragments: excess, ..Default::default() };
        Volume { mount: mount.to_owned(), enabled: true, scan: Some(scan), ..Volume::default() }
    }

    #[test]
    fn the_same_trouble_has_the_same_key_and_a_further_failed_job_another() {
        let state = |failed, trouble: &str| {
            let mut volume = volume("/srv", 1);
            volume.optimized.failed = failed;
            let status = Status { troubles: vec![trouble.to_owned()], volumes: vec![volume], ..Status::default() };
            HostState::of(Some(&status), None).alerts
        };
        assert_eq!(state(0, "5 rows were dropped"), state(0, "17 rows were dropped"));
        assert_ne!(state(1, "x"), state(2, "x"));
        assert_eq!(HostState::of(None, None).alerts, ["service".to_owned()].into());
    }

    #[test]
    fn a_report_becomes_sums() {
        let text = r#"{"totals":{"fragments-prevented":7,"bytes-moved":5,"bytes-by-passes":6,"bytes-reclaimed":3},"benefit":{"requests_saved_per_full_read":9,"microseconds_saved_per_full_read":8,"statements":[]},"volumes":[]}"#;
        let totals = Totals::from(&serde_json::from_str::<Report>(text).unwrap());
        let known = Totals {
            prevented: 7,
            moved_bytes: 11,
            requests_saved: 9,
            saved_us: 8,
            reclaimed_bytes: 3,
            ..Totals::default()
        };
        assert_eq!(totals, known);
        assert!(totals.has_benefit() && !Totals { moved_bytes: 3, ..Totals::default() }.has_benefit());
    }

    proptest! {
        #[test]
        fn it_is_never_longer_than_it_may_be_and_keeps_the_worst_volumes(
            volumes in 0..400usize, text in "\\PC{0,2000}", troubles in 0..40usize, labels in 0..300usize,
        ) {
            let volumes = (0..volumes).map(|index| volume(&format!("/srv/{index}"), index as u64)).collect::<Vec<_>>();
            let count = volumes.len();
            let status = Status { volumes, troubles: vec![text.clone(); troubles], ..Status::default() };
            let mut state = HostState::of(Some(&status), None);
            state.labels = (0..labels).map(|label| (label.to_string(), text.clone())).collect();
            let value = state.to_value();
            prop_assert!(value.len() <= MOST_BYTES);
            let read: HostState = serde_json::from_slice(&value).unwrap();
            prop_assert_eq!(read.volumes.len() as u64 + read.volumes_left_out, count as u64);
            if let Some(first) = read.volumes.first() {
                prop_assert_eq!(first.excess_fragments, Some(count as u64 - 1));
            }
        }
    }
}
