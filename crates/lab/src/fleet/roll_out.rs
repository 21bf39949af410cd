//! A policy for many real services: a bad one that is taken back when one of the hosts that try it raises an alert, a good one that
//! reaches all, and its roll-back. Judged by what each service says that is in force.

use super::broker::Brokers;
use super::real::{Real, until};
use super::{host, in_directory};
use anyhow::{Context, Result, anyhow, bail, ensure};
use serde::Serialize;
use serde_json::Value;
use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::thread::{self, ScopedJoinHandle};
use std::time::{Duration, Instant};

/// The canaries must have it for so long.
const WATCH: &str = "20s";

/// What was seen.
#[derive(Clone, Debug, Serialize)]
pub struct RollOutReport {
    /// How many services, each with its agent.
    pub hosts: usize,
    /// How many had the policy that was taken back.
    pub canaries: usize,
    /// From the alert on one of them until none had it, in seconds.
    pub taken_back_seconds: f64,
    /// From the begin of the trial of the good policy, in which canaries had it for 20 s, until all had it.
    pub reached_all_seconds: f64,
    /// From the roll-back until none had it.
    pub rolled_back_seconds: f64,
    /// Memory of one service, on average, in KiB.
    pub service_kib: u64,
    /// Memory of one agent, on average, in KiB.
    pub agent_kib: u64,
}

/// Runs the story with so many hosts.
///
/// # Errors
/// The policy reached hosts that it should not have, or not those that it should; or the system's.
pub fn roll_out(hosts: usize, term: Duration, progress: &mut dyn FnMut(&str)) -> Result<RollOutReport> {
    in_directory(|directory| run(hosts, term, directory, progress))
}

fn run(count: usize, term: Duration, directory: &Path, progress: &mut dyn FnMut(&str)) -> Result<RollOutReport> {
    let (brokers, admin) = Brokers::of_a_fleet(directory, 1)?;
    let start = |number| {
        let name = format!("host-{number}");
        Real::start(&directory.join(&name), &name, &brokers.servers(), term, &[])
    };
    let hosts = (0..count).map(start).collect::<Result<Vec<_>>>()?;
    let told = || -> Result<Value> { Ok(serde_json::from_str(&host::command(&admin)?.run(&["hosts", "--json"])?)?) };
    until("all hosts tell their state", || Ok(told()?.as_array().map_or(0, Vec::len) == count))?;
    progress("all hosts tell their state");
    let have = |version: Option<u64>| -> Result<bool> {
        hosts.iter().map(Real::version).try_fold(true, |all, has| Ok(all & (has? == version)))
    };

    let policy = directory.join("policy.toml");
    let path = policy.to_str().context("a path that is no text")?;
    let trial = ["policy", "apply", path, "--canary", "10%", "--watch", WATCH, "--patience", "120s"];
    let apply = || host::command(&admin)?.run(&trial);
    fs::write(&policy, "name = \"bad\"\n[defaults]\npace = \"fast\"\n")?;
    let (canaries, taken_back_seconds) = thread::scope(|scope| {
        let applied = scope.spawn(apply);
        let mut canaries = BTreeSet::new();
        let canary = first_canary(&hosts, &mut canaries)?;
        canary.break_configuration(true)?;
        let alerted = Instant::now();
        until("it is taken back", || {
            note_canaries(&hosts, &mut canaries)?;
            Ok(applied.is_finished() && have(None)?)
        })?;
        let seconds = alerted.elapsed().as_secs_f64();
        canary.break_configuration(false)?;
        match end(applied)? {
            Err(refused) if refused.to_string().contains("new alert") => {}
            other => bail!("an alert did not stop the trial: {other:?}"),
        }
        anyhow::Ok((canaries.len(), seconds))
    })?;
    // A tenth, chosen by a hash of names and version: never all, never more than a few more.
    ensure!(canaries <= count.div_ceil(10) * 3 && canaries < count, "{canaries} of {count} hosts tried it");
    progress("a bad policy was taken back");
    let healthy = |host: &Value| host.get("alerts").and_then(Value::as_array).is_none_or(Vec::is_empty);
    until("no host has an alert", || Ok(told()?.as_array().is_some_and(|all| all.iter().all(healthy))))?;

    fs::write(&policy, "name = \"good\"\n[defaults]\npace = \"invisible\"\n")?;
    let begun = Instant::now();
    thread::scope(|scope| {
        let applied = scope.spawn(apply);
        // For as long as several of the agent's requests: no reason to take it back.
        first_canary(&hosts, &mut BTreeSet::new())?.hold_up_service(term * 2)?;
        end(applied)?
    })?;
    until("all have it", || have(Some(2)))?;
    let reached_all_seconds = begun.elapsed().as_secs_f64();
    progress("a good policy has reached all");
    host::command(&admin)?.run(&["policy", "rollback", "--reason", "a test"])?;
    let rolled_back_seconds = until("none has it", || have(None))?;
    let mean = |sum: u64| sum / (count as u64).max(1);
    let report = RollOutReport {
        hosts: count,
        canaries,
        taken_back_seconds,
        reached_all_seconds,
        rolled_back_seconds,
        service_kib: mean(hosts.iter().map(|host| host::resident_kib(host.service.id())).sum()),
        agent_kib: mean(hosts.iter().map(|host| host.agent.resident_kib()).sum()),
    };
    for Real { service, agent, .. } in hosts {
        agent.end()?;
        service.stop()?;
    }
    Ok(report)
}

/// How a trial ended.
fn end(trial: ScopedJoinHandle<'_, Result<String>>) -> Result<Result<String>> {
    trial.join().map_err(|_| anyhow!("the thread of the trial ended badly"))
}

/// The first host that has a policy; all that have one are noted.
fn first_canary<'a>(hosts: &'a [Real], canaries: &mut BTreeSet<usize>) -> Result<&'a Real> {
    until("a host tries it", || {
        note_canaries(hosts, canaries)?;
        Ok(!canaries.is_empty())
    })?;
    canaries.first().and_then(|&number| hosts.get(number)).context("no canary")
}

/// Adds those that have a policy: the first one is on trial.
fn note_canaries(hosts: &[Real], canaries: &mut BTreeSet<usize>) -> Result<()> {
    for (number, host) in hosts.iter().enumerate() {
        if host.version()?.is_some() {
            canaries.insert(number);
        }
    }
    Ok(())
}
