//! `hosts`, `status` and `report`: what all hosts told, as lists and sums.
//!
//! Owns how it is summed up. A host that is enrolled and tells nothing is named; so is one without benefit. Pure.

use crate::accounts::Accounts;
use crate::names::Name;
use crate::policy::{Rollout, rollout_text};
use crate::show::table;
use crate::state::{HostState, Totals};
use crate::text::{count, printable, size};
use longrun_layout::shown_duration;
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::time::Duration;

/// After so many seconds without a word, a host counts as silent: five times the usual time between two records.
const SILENT: u64 = 300;

/// A host, as administrators see it.
#[derive(Clone, Debug, Serialize)]
pub struct HostShown {
    /// Its name.
    pub host: Name,
    /// Whether it has a key; none where the accounts are not here.
    pub enrolled: Option<bool>,
    /// Whether it told something in the last five minutes. A clock that is wrong makes a host look silent.
    pub silent: bool,
    /// The version of the policy that is for it.
    pub policy_wanted: Option<u64>,
    /// What it told last.
    pub state: Option<HostState>,
}

/// All hosts that are enrolled, or that told something.
#[must_use]
pub fn hosts(
    states: &BTreeMap<Name, HostState>,
    accounts: Option<&Accounts>,
    rollout: Option<&Rollout>,
    now: u64,
) -> Vec<HostShown> {
    let enrolled = accounts.iter().flat_map(|accounts| accounts.hosts.iter().map(|host| &host.host));
    let names: BTreeSet<&Name> = states.keys().chain(enrolled).collect();
    let shown = names.into_iter().map(|host| {
        let state = states.get(host);
        HostShown {
            host: host.clone(),
            enrolled: accounts.map(|accounts| accounts.host(host).is_some()),
            silent: state.is_none_or(|state| now.abs_diff(state.at) > SILENT),
            policy_wanted: rollout.and_then(|rollout| rollout.version_for(host)),
            state: state.cloned(),
        }
    });
    shown.collect()
}

/// The fleet in a few figures.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Summary {
    /// All hosts.
    pub hosts: u64,
    /// Those that are silent.
    pub silent: Vec<Name>,
    /// Those with alerts.
    pub with_alerts: Vec<Name>,
    /// How many have each version of the policy in force; 0: none.
    pub policies: BTreeMap<u64, u64>,
    /// Those whose policy is not the one that is for them.
    pub other_policy: Vec<Name>,
    /// Volumes.
    pub volumes: u64,
    /// Their size.
    pub total_bytes: u64,
    /// Their free space.
    pub free_bytes: u64,
    /// Their excess fragments at the last scan.
    pub excess_fragments: u64,
}

/// Sums the hosts up.
#[must_use]
pub fn summary(hosts: &[HostShown]) -> Summary {
    let mut sum = Summary { hosts: hosts.len() as u64, ..Summary::default() };
    for shown in hosts {
        if shown.silent {
            sum.silent.push(shown.host.clone());
        }
        let Some(state) = &shown.state else { continue };
        if !state.alerts.is_empty() {
            sum.with_alerts.push(shown.host.clone());
        }
        if state.policy != shown.policy_wanted && state.mode != "off" {
            sum.other_policy.push(shown.host.clone());
        }
        *sum.policies.entry(state.policy.unwrap_or_default()).or_default() += 1;
        sum.volumes += state.volumes.len() as u64 + state.volumes_left_out;
        for volume in &state.volumes {
            sum.total_bytes = sum.total_bytes.saturating_add(volume.total_bytes);
            sum.free_bytes = sum.free_bytes.saturating_add(volume.free_bytes);
            sum.excess_fragments = sum.excess_fragments.saturating_add(volume.excess_fragments.unwrap_or_default());
        }
    }
    sum
}

/// What Longrun was good for on all hosts.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct FleetReport {
    /// How many hosts told their figures.
    pub hosts: u64,
    /// Of the last day.
    pub day: Totals,
    /// Of the last 30 days.
    pub month: Totals,
    /// Of all time.
    pub all: Totals,
    /// Hosts on which nothing was prevented or removed in 30 days.
    pub without_benefit: Vec<Name>,
    /// Hosts that told nothing: nothing is known of them.
    pub unknown: Vec<Name>,
}

/// Adds up what hosts told.
#[must_use]
pub fn report(hosts: &[HostShown]) -> FleetReport {
    let mut report = FleetReport::default();
    for shown in hosts {
        let Some(state) = &shown.state else {
            report.unknown.push(shown.host.clone());
            continue;
        };
        report.hosts += 1;
        report.day = report.day.plus(state.day);
        report.month = report.month.plus(state.month);
        report.all = report.all.plus(state.all);
        if !state.month.has_benefit() {
            report.without_benefit.push(shown.host.clone());
        }
    }
    report
}

/// Hosts as a table.
#[must_use]
pub fn host_table(hosts: &[HostShown]) -> String {
    let version = |version: Option<u64>| version.map_or_else(|| "-".to_owned(), |version| version.to_string());
    let rows = hosts.iter().map(|shown| {
        let told = |value: &dyn Fn(&HostState) -> String| shown.state.as_ref().map_or_else(String::new, value);
        let policy = told(&|state| match (state.policy, shown.policy_wanted) {
            (is, wanted) if is == wanted => version(is),
            (is, wanted) => format!("{}, not {}", version(is), version(wanted)),
        });
        let excess = told(&|state| count(state.volumes.iter().filter_map(|volume| volume.excess_fragments).sum()));
        let alerts = told(&|state| state.alerts.len().to_string());
        let longrun = told(&|state| printable(&state.version));
        let activity = match &shown.state {
            None => "has told nothing yet".to_owned(),
            Some(_) if shown.silent => "silent".to_owned(),
            Some(state) => printable(&state.activity),
        };
        let activity = if shown.enrolled == Some(false) { activity + " (not enrolled)" } else { activity };
        [shown.host.to_string(), longrun, policy, alerts, excess, activity]
    });
    table(["HOST", "VERSION", "POLICY", "ALERTS", "EXCESS FRAGMENTS", "ACTIVITY"], rows)
}

/// The fleet for people.
#[must_use]
pub fn status_text(summary: &Summary, hosts: &[HostShown], rollout: Option<&Rollout>) -> String {
    let mut text = String::new();
    _ = writeln!(
        text,
        "{} hosts, {} volumes of {}, {} free, {} excess fragments at the last scans.",
        count(summary.hosts),
        count(summary.volumes),
        size(summary.total_bytes),
        size(summary.free_bytes),
        count(summary.excess_fragments)
    );
    text.push_str(&rollout.map_or_else(|| "No policy is rolled out.\n".to_owned(), rollout_text));
    for (names, what) in
        [(&summary.silent, "Silent"), (&summary.other_policy, "Have another policy than the one for them")]
    {
        if !names.is_empty() {
            _ = writeln!(text, "{what}: {}.", listed(names));
        }
    }
    if summary.with_alerts.is_empty() {
        text.push_str("No host has an alert.\n");
    }
    for shown in hosts {
        let Some(state) = &shown.state else { continue };
        for trouble in state.troubles.iter().chain(&state.policy_trouble) {
            _ = writeln!(text, "{}: {}", shown.host, printable(trouble));
        }
    }
    text
}

/// The report for people.
#[must_use]
pub fn report_text(report: &FleetReport) -> String {
    let row = |what: &str, value: &dyn Fn(&Totals) -> String| {
        [what.to_owned(), value(&report.day), value(&report.month), value(&report.all)]
    };
    let rows = [
        row("Excess fragments prevented", &|totals| count(totals.prevented)),
        row("Excess fragments mended", &|totals| count(totals.mended)),
        row("Excess fragments removed by passes", &|totals| count(totals.by_passes)),
        row("Device requests saved, each time all these files are read", &|totals| count(totals.requests_saved)),
        row("Time of the disks saved by that", &|totals| shown_duration(Duration::from_micros(totals.saved_us))),
        row("Storage given back", &|totals| size(totals.reclaimed_bytes)),
        row("Bytes moved for it", &|totals| size(totals.moved_bytes)),
        row("Unused preallocation given back", &|totals| size(totals.given_back_bytes)),
    ];
    let mut text = format!("{} hosts told their figures.\n", count(report.hosts));
    text.push_str(&table(["", "LAST DAY", "LAST 30 DAYS", "ALL TIME"], rows.into_iter()));
    if !report.without_benefit.is_empty() {
        _ = writeln!(text, "No benefit in 30 days: {}.", listed(&report.without_benefit));
    }
    if !report.unknown.is_empty() {
        _ = writeln!(text, "Nothing is known of: {}.", listed(&report.unknown));
    }
    text
}

fn listed(names: &[Name]) -> String {
    names.iter().map(Name::as_str).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::Stage;

    fn name(text: &str) -> Name {
        text.parse().unwrap()
    }

    fn fleet() -> Vec<HostShown> {
        let month = Totals { prevented: 1500, ..Totals::default() };
        let good = HostState {
            at: 1000,
            policy: Some(2),
            month,
            all: month,
            version: "0.1.0".to_owned(),
            ..HostState::default()
        };
        let troubled = HostState {
            at: 100,
            troubles: vec!["/srv: \x1b[31mfull".to_owned()],
            alerts: ["space /srv".to_owned()].into(),
            ..HostState::default()
        };
        let states = [(name("a"), good), (name("b"), troubled)].into();
        let key = nkeys::KeyPair::new_user().public_key();
        let c = crate::accounts::Enrolled { host: name("c"), key, groups: BTreeSet::new() };
        let accounts = Accounts { administrators: Vec::new(), hosts: vec![c] };
        hosts(&states, Some(&accounts), Some(&rollout()), 1010)
    }

    fn rollout() -> Rollout {
        Rollout { version: 2, previous: None, stage: Stage::All, share: 10, canaries: BTreeSet::new(), reason: None }
    }

    #[test]
    fn silent_hosts_other_policies_and_hosts_without_benefit_are_named() {
        let fleet = fleet();
        let sum = summary(&fleet);
        assert_eq!(
            (sum.silent, sum.with_alerts, sum.other_policy),
            (vec![name("b"), name("c")], vec![name("b")], vec![name("b")])
        );
        let report = report(&fleet);
        assert_eq!((report.hosts, report.month.prevented), (2, 1500));
        assert_eq!((report.without_benefit, report.unknown), (vec![name("b")], vec![name("c")]));
    }

    #[test]
    fn what_people_see_names_them_and_drives_no_terminal() {
        let fleet = fleet();
        let text = status_text(&summary(&fleet), &fleet, Some(&rollout()))
            + &host_table(&fleet)
            + &report_text(&report(&fleet));
        for wanted in [
            "3 hosts, 0 volumes",
            "Policy version 2 is for all hosts (before: none).",
            "Silent: b, c.",
            "Have another policy than the one for them: b.",
            "b: /srv: \\u{1b}[31mfull",
            "-, not 2",
            "has told nothing yet",
            "No benefit in 30 days: b.",
            "Nothing is known of: c.",
            "1,500",
        ] {
            assert!(text.contains(wanted), "{wanted}\nis not in\n{text}");
        }
        assert!(!text.contains('\x1b'));
    }
}
