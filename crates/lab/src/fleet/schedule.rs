//! The course of a campaign: which fault comes when.

use super::FleetSettings;
use super::broker::Brokers;
use super::host::Host;
use super::link::{Links, NETWORKS};
use super::observer::{Disturbed, Killed, Observer};
use super::service::FakeService;
use anyhow::Result;
use rustix::process::Signal;
use serde::Serialize;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

const LOOK: Duration = Duration::from_millis(10);

/// How many faults of each kind there were.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Faults {
    /// Agents killed, those that held a lease included.
    pub agents_killed: u32,
    /// Agents killed while they held a lease.
    pub holders_killed: u32,
    /// Agents stopped for a while.
    pub agents_stopped: u32,
    /// Brokers killed, and started again.
    pub brokers_killed: u32,
    /// Brokers stopped for a while.
    pub brokers_stopped: u32,
    /// Times that the only broker lost all data.
    pub data_lost: u32,
    /// Times that the only broker came back with older data.
    pub data_older: u32,
    /// Networks frozen, after which what was sent arrived late.
    pub networks_frozen: u32,
    /// Networks cut, with all connections.
    pub networks_cut: u32,
    /// Cables unplugged for a while: packets were lost.
    pub cables_unplugged: u32,
    /// Wall clocks of hosts set, by seconds to months.
    pub clocks_set: u32,
}

/// What ends a fault.
enum Remedy {
    ReviveAgent(usize),
    ContinueAgent(usize),
    ReviveBroker { broker: usize, data: Data },
    ContinueBroker(usize),
    Thaw(usize),
    PlugIn(usize),
}

/// What a broker finds when it is started again.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Data {
    AsItWas,
    None,
    Older,
}

/// The course of a campaign.
pub(super) struct Course {
    settings: FleetSettings,
    admin: PathBuf,
    slots: BTreeMap<String, usize>,
    random: fastrand::Rng,
    faults: Faults,
    kills: Vec<Killed>,
    disturbed: Vec<Disturbed>,
    remedies: Vec<(Duration, Remedy)>,
    /// No broker is disturbed before, so that a cluster gets together again.
    brokers_rest_until: Duration,
}

impl Course {
    pub(super) fn new(settings: &FleetSettings, admin: &Path, slots: &BTreeMap<String, usize>) -> Self {
        Self {
            settings: settings.clone(),
            admin: admin.to_owned(),
            slots: slots.clone(),
            random: fastrand::Rng::with_seed(settings.seed),
            faults: Faults::default(),
            kills: Vec::new(),
            disturbed: Vec::new(),
            remedies: Vec::new(),
            brokers_rest_until: Duration::ZERO,
        }
    }

    pub(super) const fn faults(&self) -> Faults {
        self.faults
    }

    pub(super) fn kills(&self) -> &[Killed] {
        &self.kills
    }

    pub(super) fn disturbed(&self) -> &[Disturbed] {
        &self.disturbed
    }

    /// Faults until the time is over: for a third of it, only holders are killed, so that it can be measured how long others wait.
    pub(super) fn run(
        &mut self,
        hosts: &mut [Host],
        services: &[FakeService],
        brokers: &mut Brokers,
        links: &Links,
        observer: &Observer,
        progress: &mut dyn FnMut(u64),
    ) -> Result<()> {
        let term = self.settings.term;
        let begin = longrun_sys::since_boot();
        let (mut next, mut told) = (begin, begin);
        loop {
            let now = longrun_sys::since_boot();
            let over = now - begin >= self.settings.time || observer.count() >= self.settings.grants;
            if over && self.remedies.is_empty() {
                return Ok(());
            }
            self.remedy(now, hosts, brokers, links)?;
            if now >= next && !over {
                if now - begin < self.settings.time / 3 && observer.count() < self.settings.grants / 3 {
                    self.kill_a_lone_holder(hosts, services, now);
                    next = now + term / 4;
                } else {
                    self.fault(hosts, services, brokers, links, now)?;
                    let few = f64::from(u32::try_from(self.settings.agents).unwrap_or(1)).max(12.0);
                    next = now + term.mul_f64(self.random.f64() * 12.0 / few);
                }
            }
            if now - told >= Duration::from_secs(10) {
                told = now;
                progress(observer.count());
            }
            thread::sleep(LOOK);
        }
    }

    /// Stopped processes and frozen networks go on.
    pub(super) fn end_all_stops(&mut self, hosts: &mut [Host]) {
        hosts.iter().for_each(|host| host.signal(Signal::CONT));
    }

    fn kill_a_lone_holder(&mut self, hosts: &mut [Host], services: &[FakeService], now: Duration) {
        let patience = self.settings.term * 4;
        let candidates: Vec<_> = (0..hosts.len())
            .filter(|&number| {
                hosts.get(number).zip(services.get(number)).is_some_and(|(host, service)| {
                    let last = self.kills.iter().rfind(|kill| kill.group == host.group);
                    let is_long_ago = last.is_none_or(|kill| now - kill.at > patience);
                    self.slots.get(&host.group) == Some(&1) && service.is_permitted() && is_long_ago
                })
            })
            .collect();
        if let Some(&number) = candidates.get(self.random.usize(..candidates.len().max(1))) {
            self.kill_agent(number, hosts, services);
        }
    }

    fn kill_agent(&mut self, number: usize, hosts: &mut [Host], services: &[FakeService]) {
        let (Some(host), Some(service)) = (hosts.get_mut(number), services.get(number)) else { return };
        if self.has_fault(number) {
            return;
        }
        // Before it dies: afterwards it may have given the lease back already.
        let at = longrun_sys::since_boot();
        let held = service.is_permitted();
        host.kill();
        self.faults.agents_killed += 1;
        if held && service.is_permitted() {
            self.faults.holders_killed += 1;
            let alone = self.slots.get(&host.group) == Some(&1);
            self.kills.push(Killed { at, group: host.group.clone(), alone });
        } else {
            self.disturb(at, at + self.settings.term, Some(host.group.clone()));
        }
        // Not at once: a new agent that tells its service "nothing" ends the work of the old one.
        let pause = self.settings.term.mul_f64(self.random.f64() * 2.0);
        self.remedies.push((at + pause, Remedy::ReviveAgent(number)));
    }

    /// Its agent is dead or stopped already.
    fn has_fault(&self, number: usize) -> bool {
        self.remedies.iter().any(|(_, remedy)| {
            matches!(remedy, Remedy::ReviveAgent(other) | Remedy::ContinueAgent(other) if *other == number)
        })
    }

    fn disturb(&mut self, from: Duration, until: Duration, group: Option<String>) {
        self.disturbed.push(Disturbed { from, until, group });
    }

    fn fault(
        &mut self,
        hosts: &mut [Host],
        services: &[FakeService],
        brokers: &mut Brokers,
        links: &Links,
        now: Duration,
    ) -> Result<()> {
        let term = self.settings.term;
        let until = now + term.mul_f64(self.random.f64() * 2.5);
        match self.random.u8(0..100) {
            0..35 => {
                let number = self.random.usize(..hosts.len().max(1));
                self.kill_agent(number, hosts, services);
            }
            35..65 => {
                let number = self.random.usize(..hosts.len().max(1));
                let has_fault = self.has_fault(number);
                if let Some(host) = hosts.get(number).filter(|_| !has_fault) {
                    host.signal(Signal::STOP);
                    self.faults.agents_stopped += 1;
                    self.disturb(now, until + term, Some(host.group.clone()));
                    self.remedies.push((until, Remedy::ContinueAgent(number)));
                }
            }
            // Leases must not notice: nothing counts as disturbed.
            65..70 => {
                let number = self.random.usize(..hosts.len().max(1));
                let furthest = self.random.choice([10, 3600, 100 * 86_400]).unwrap_or(10);
                let wrong_by = self.random.i64(-furthest..=furthest);
                if let Some(host) = hosts.get(number) {
                    self.faults.clocks_set += u32::from(host.set_clock(wrong_by)?);
                }
            }
            70..76 => self.fault_of_network(links, now, until)?,
            _ => self.fault_of_broker(brokers, now, until)?,
        }
        Ok(())
    }

    fn fault_of_network(&mut self, links: &Links, now: Duration, until: Duration) -> Result<()> {
        let network = self.random.usize(..NETWORKS);
        match self.random.u8(0..if links.has_cables() { 3 } else { 2 }) {
            0 => {
                self.faults.networks_cut += 1;
                links.cut(network);
            }
            1 => {
                self.faults.networks_frozen += 1;
                links.freeze(network, true);
                self.remedies.push((until, Remedy::Thaw(network)));
            }
            _ => {
                self.faults.cables_unplugged += 1;
                links.plug(network, false)?;
                self.remedies.push((until, Remedy::PlugIn(network)));
            }
        }
        self.disturb(now, until + self.settings.term * 2, None);
        Ok(())
    }

    /// One broker at a time, and with time between to get the cluster together again.
    fn fault_of_broker(&mut self, brokers: &mut Brokers, now: Duration, until: Duration) -> Result<()> {
        if now < self.brokers_rest_until {
            return Ok(());
        }
        self.brokers_rest_until = until + self.settings.term * 3;
        let broker = self.random.usize(..brokers.count());
        let is_alone = brokers.count() == 1;
        self.disturb(now, until + self.settings.term * 2, None);
        if self.random.u8(0..10) < 3 {
            self.faults.brokers_stopped += 1;
            brokers.signal(broker, Signal::STOP);
            self.remedies.push((until, Remedy::ContinueBroker(broker)));
            return Ok(());
        }
        brokers.kill(broker);
        self.faults.brokers_killed += 1;
        let data = match self.random.u8(0..10) {
            0..2 if is_alone => Data::None,
            2..6 if is_alone => Data::Older,
            _ => Data::AsItWas,
        };
        if is_alone && data == Data::AsItWas {
            brokers.copy_data(broker, false)?;
        }
        self.remedies.push((until, Remedy::ReviveBroker { broker, data }));
        Ok(())
    }

    /// Ends the faults whose time is over.
    fn remedy(&mut self, now: Duration, hosts: &mut [Host], brokers: &mut Brokers, links: &Links) -> Result<()> {
        let (due, later) = std::mem::take(&mut self.remedies).into_iter().partition(|(until, _)| *until <= now);
        self.remedies = later;
        let due: Vec<(Duration, Remedy)> = due;
        for (_, remedy) in due {
            match remedy {
                Remedy::ReviveAgent(number) => {
                    if let Some(host) = hosts.get_mut(number) {
                        host.revive()?;
                    }
                }
                Remedy::ContinueAgent(number) => {
                    if let Some(host) = hosts.get_mut(number) {
                        host.check()?;
                        host.signal(Signal::CONT);
                    }
                }
                Remedy::ReviveBroker { broker, data } => {
                    match data {
                        Data::AsItWas => {}
                        Data::None => {
                            brokers.lose_data(broker)?;
                            self.faults.data_lost += 1;
                        }
                        Data::Older => self.faults.data_older += u32::from(brokers.copy_data(broker, true)?),
                    }
                    brokers.revive(broker)?;
                    if data == Data::None {
                        brokers.make_buckets(&self.admin)?;
                        for (group, slots) in &self.slots {
                            super::host::command(&self.admin)?.run(&[
                                "groups",
                                "set",
                                group,
                                "--slots",
                                &slots.to_string(),
                            ])?;
                        }
                    }
                }
                Remedy::ContinueBroker(broker) => brokers.signal(broker, Signal::CONT),
                Remedy::Thaw(network) => links.freeze(network, false),
                Remedy::PlugIn(network) => links.plug(network, true)?,
            }
        }
        Ok(())
    }
}
