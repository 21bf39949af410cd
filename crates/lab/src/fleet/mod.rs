//! Real agents of a fleet at real brokers, with services that are not real but note when work was permitted; and faults. Judged
//! by an observer who knows groups and times, and no leases.

mod broker;
mod clock;
mod host;
mod link;
mod name_space;
mod observer;
mod real;
mod roll_out;
mod schedule;
mod service;
mod sharing;
mod stage;

use crate::cleanup;
use anyhow::{Context, Result, ensure};
use broker::Brokers;
use clock::Clocks;
use host::{Host, Surroundings};
use link::Links;
use observer::{Judgement, judge};
use serde::Serialize;
use service::Work;
use std::collections::BTreeMap;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

pub use observer::Observer;
pub use roll_out::{RollOutReport, roll_out};
pub use schedule::Faults;
pub use service::{FakeService, Said};
pub use sharing::share_one_slot;
pub use stage::FleetStage;

/// What to do.
#[derive(Clone, Debug)]
pub struct FleetSettings {
    /// Seed of everything that is random here. The moments at which processes run are not.
    pub seed: u64,
    /// How many hosts.
    pub agents: usize,
    /// In how many storage groups; each second one has two slots, the others one.
    pub groups: usize,
    /// How many brokers: 1, or 3 as a cluster.
    pub brokers: usize,
    /// The term of leases.
    pub term: Duration,
    /// How long.
    pub time: Duration,
    /// End earlier, after so many grants.
    pub grants: u64,
    /// Networks are name spaces of the kernel, whose cables are unplugged; as root only.
    pub name_spaces: bool,
}

/// What was seen.
#[derive(Clone, Debug, Serialize)]
pub struct FleetReport {
    /// How often a host began to work.
    pub grants: u64,
    /// For each group: its slots, and the most hosts that worked at a time.
    pub most_holders: BTreeMap<String, (usize, usize)>,
    /// The longest time from killing the only holder of a group to the next one, in terms; and of how many.
    pub longest_wait_terms: f64,
    /// How many such times were measured.
    pub waits: usize,
    /// The longest time from the end of all brokers to the end of all work, in terms.
    pub rest_after_broker_terms: f64,
    /// The longest time from the end of all brokers until no agent counted as in touch, in terms.
    pub silent_after_broker_terms: f64,
    /// The faults.
    pub faults: Faults,
    /// Memory of one agent, on average, in KiB.
    pub agent_kib: u64,
    /// The most memory of one broker in KiB.
    pub broker_kib: u64,
    /// Messages that the broker took and sent, per second, while no broker was away.
    pub messages_per_second: f64,
    /// Of these, those of one host in one term.
    pub messages_per_host_and_term: f64,
    /// How long it took.
    pub seconds: f64,
}

/// Whether networks can be name spaces with cables here.
///
/// # Errors
/// Why not: no root, or a kernel without such networks.
pub fn has_cables() -> Result<()> {
    name_space::NameSpace::open().map(drop)
}

/// The program of the agent: `LONGRUN_FLEET_BIN`, or that beside this program.
///
/// # Errors
/// There is none.
pub fn fleet_binary() -> Result<PathBuf> {
    if let Some(path) = std::env::var_os("LONGRUN_FLEET_BIN") {
        return Ok(path.into());
    }
    let own = std::env::current_exe().context("cannot find the path of this program")?;
    let beside = own.ancestors().skip(1).take(2).map(|directory| directory.join("longrun-fleet"));
    beside.into_iter().find(|path| path.is_file()).with_context(|| {
        format!("no longrun-fleet beside {}: build it with cargo build -p longrun-fleet", own.display())
    })
}

/// Runs the campaign.
///
/// # Errors
/// Too many hosts worked at a time, or too long without a broker; or the system's.
pub fn fleet(settings: &FleetSettings, progress: &mut dyn FnMut(u64)) -> Result<FleetReport> {
    in_directory(|directory| run(settings, directory, progress))
}

/// Gives a story a directory for its logs, which stays when it fails.
fn in_directory<T>(story: impl FnOnce(&Path) -> Result<T>) -> Result<T> {
    let directory = cleanup::fresh_directory()?;
    let result = story(&directory);
    if result.is_ok() {
        std::fs::remove_dir_all(&directory)?;
    } else {
        eprintln!("the logs are in {}", directory.display());
    }
    result
}

fn run(settings: &FleetSettings, directory: &Path, progress: &mut dyn FnMut(u64)) -> Result<FleetReport> {
    let (mut brokers, admin) = Brokers::of_a_fleet(directory, settings.brokers)?;
    let links = Links::open(&brokers.ports(), settings.name_spaces)?;
    let clocks = Clocks::find()?;
    clocks.check(directory)?;
    let slots = slots_of_groups(settings);
    for (group, slots) in &slots {
        host::command(&admin)?.run(&["groups", "set", group, "--slots", &slots.to_string()])?;
    }
    let observer = Arc::new(Observer::new(File::create(directory.join("observer"))?));
    let names: Vec<_> = slots.keys().collect();
    let mut hosts = Vec::with_capacity(settings.agents);
    let mut services = Vec::with_capacity(settings.agents);
    for number in 0..settings.agents {
        let name = format!("host-{number}");
        let group = (*names.get(number % names.len()).context("no group")?).clone();
        let own = directory.join(&name);
        std::fs::create_dir(&own)?;
        let work = Work { seed: settings.seed + number as u64, term: settings.term };
        let service = FakeService::start(&own.join("socket"), &name, &group, work, Arc::clone(&observer))?;
        services.push(service);
        let clock = Some(clocks.clock(&own.join("clock"))?);
        let surroundings = Surroundings { servers: links.servers(number), enter: links.enter(number), clock };
        hosts.push(Host::start(&own, &name, &group, surroundings, settings.term)?);
    }
    let started = longrun_sys::since_boot();
    let mut course = schedule::Course::new(settings, &admin, &slots);
    let before = brokers.messages()?;
    // First without faults: what it costs.
    let calm = settings.term * 8;
    thread::sleep(calm);
    let messages = (brokers.messages()? - before) as f64;
    let agent_kib = hosts.iter().map(Host::resident_kib).sum::<u64>() / hosts.len().max(1) as u64;
    course.run(&mut hosts, &services, &mut brokers, &links, &observer, progress)?;
    let broker_kib = brokers.resident_kib();
    course.end_all_stops(&mut hosts);
    thread::sleep(settings.term * 4);
    brokers.kill_all();
    let gone = longrun_sys::since_boot();
    thread::sleep(settings.term * 3 / 2);
    let rested = services.iter().map(FakeService::end_of_work).max().unwrap_or_default();
    let silent = services.iter().map(FakeService::end_of_touch).max().unwrap_or_default();
    drop((hosts, services));
    let text = std::fs::read_to_string(directory.join("observer"))?;
    let Judgement { grants, most, waits } = judge(&text, course.kills(), course.disturbed(), settings.term)?;
    let terms = |time: Duration| time.as_secs_f64() / settings.term.as_secs_f64();
    let report = FleetReport {
        grants,
        most_holders: slots
            .iter()
            .map(|(group, &slots)| (group.clone(), (slots, most.get(group).copied().unwrap_or(0))))
            .collect(),
        longest_wait_terms: terms(waits.iter().max().copied().unwrap_or_default()),
        waits: waits.len(),
        rest_after_broker_terms: terms(rested.saturating_sub(gone)),
        silent_after_broker_terms: terms(silent.saturating_sub(gone)),
        faults: course.faults(),
        agent_kib,
        broker_kib,
        messages_per_second: messages / calm.as_secs_f64(),
        messages_per_host_and_term: messages / 8.0 / settings.agents as f64,
        seconds: (longrun_sys::since_boot() - started).as_secs_f64(),
    };
    check(&report).with_context(|| {
        let FleetSettings { seed, agents, groups, brokers, .. } = settings;
        let name_spaces = if settings.name_spaces { " --name-spaces" } else { "" };
        format!(
            "again: longrun-lab fleet --seed {seed} --agents {agents} --groups {groups} --brokers {brokers}{name_spaces}\n{report:#?}"
        )
    })?;
    Ok(report)
}

fn slots_of_groups(settings: &FleetSettings) -> BTreeMap<String, usize> {
    (0..settings.groups).map(|number| (format!("group-{number}"), 1 + number % 2)).collect()
}

fn check(report: &FleetReport) -> Result<()> {
    for (group, (slots, most)) in &report.most_holders {
        ensure!(most <= slots, "{most} hosts worked on {group} at a time, which has {slots} slots");
        ensure!(
            most == slots,
            "{group} has {slots} slots, and never did more than {most} hosts work: this proves nothing"
        );
    }
    ensure!(
        report.rest_after_broker_terms <= 1.0,
        "a host worked {} terms without broker",
        report.rest_after_broker_terms
    );
    ensure!(
        report.silent_after_broker_terms <= 1.0,
        "an agent counted as in touch {} terms after the broker was gone",
        report.silent_after_broker_terms
    );
    Ok(())
}
