//! Some hosts of one group `san` and one broker, for tests that look at single things.

use super::broker::Brokers;
use super::host::{self, Host, Surroundings};
use super::link::{Links, NETWORKS};
use super::observer::Observer;
use super::service::{FakeService, Work};
use crate::cleanup;
use anyhow::{Context, Result, ensure};
use std::fs::File;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

/// Hosts, their agents and a broker; everything ends when dropped.
pub struct FleetStage {
    agents: Vec<Option<Host>>,
    /// The services of the hosts.
    pub hosts: Vec<FakeService>,
    links: Option<Links>,
    brokers: Brokers,
    admin: PathBuf,
    directory: PathBuf,
}

impl FleetStage {
    /// Starts so many hosts, called `host-0` and so on, which want to work by turns.
    ///
    /// # Errors
    /// The system's.
    pub fn start(hosts: usize, term: Duration) -> Result<Self> {
        Self::start_with(hosts, term, |_| Ok(None))
    }

    /// As [`Self::start`], each host in a network of its own, whose cable can be unplugged. Needs root.
    ///
    /// # Errors
    /// More hosts than networks; or the system's.
    pub fn on_cables(hosts: usize, term: Duration) -> Result<Self> {
        ensure!(hosts <= NETWORKS, "there are {NETWORKS} networks");
        Self::start_with(hosts, term, |brokers| Links::open(&brokers.ports(), true).map(Some))
    }

    fn start_with(hosts: usize, term: Duration, links: impl FnOnce(&Brokers) -> Result<Option<Links>>) -> Result<Self> {
        let directory = cleanup::fresh_directory()?;
        let (brokers, admin) = Brokers::of_a_fleet(&directory, 1)?;
        let links = links(&brokers)?;
        let mut stage = Self { agents: Vec::new(), hosts: Vec::new(), links, brokers, admin, directory };
        let observer = Arc::new(Observer::new(File::create(stage.directory.join("observer"))?));
        for number in 0..hosts {
            let name = format!("host-{number}");
            let own = stage.directory.join(&name);
            std::fs::create_dir(&own)?;
            let work = Work { seed: number as u64, term };
            let service = FakeService::start(&own.join("socket"), &name, "san", work, Arc::clone(&observer))?;
            stage.hosts.push(service);
            let (servers, enter) = match &stage.links {
                Some(links) => (links.servers(number), links.enter(number)),
                None => (stage.brokers.servers(), Vec::new()),
            };
            let surroundings = Surroundings { servers, enter, clock: None };
            stage.agents.push(Some(Host::start(&own, &name, "san", surroundings, term)?));
        }
        Ok(stage)
    }

    /// How many hosts work.
    #[must_use]
    pub fn working(&self) -> usize {
        self.hosts.iter().filter(|host| host.is_permitted()).count()
    }

    /// Runs a command of the administrator.
    ///
    /// # Errors
    /// Its own.
    pub fn admin(&self, arguments: &[&str]) -> Result<String> {
        host::command(&self.admin)?.run(arguments)
    }

    /// Runs a command of the administrator whose output is JSON.
    ///
    /// # Errors
    /// Its own.
    pub fn json(&self, arguments: &[&str]) -> Result<serde_json::Value> {
        Ok(serde_json::from_str(&self.admin(arguments)?)?)
    }

    /// Plugs the cable of a host in, or out.
    ///
    /// # Errors
    /// The system's.
    pub fn plug(&self, number: usize, in_it: bool) -> Result<()> {
        self.links.as_ref().context("there are no cables")?.plug(number, in_it)
    }

    /// Ends an agent in good order.
    ///
    /// # Errors
    /// It does not end so.
    pub fn end_agent(&mut self, number: usize) -> Result<()> {
        self.agents.get_mut(number).and_then(Option::take).context("no such agent")?.end()
    }

    /// The broker is gone.
    pub fn kill_broker(&mut self) {
        self.brokers.kill_all();
    }

    /// The broker is back.
    ///
    /// # Errors
    /// The system's.
    pub fn revive_broker(&mut self) -> Result<()> {
        self.brokers.revive(0)
    }
}

impl Drop for FleetStage {
    fn drop(&mut self) {
        self.agents.clear();
        self.brokers.kill_all();
        if std::thread::panicking() {
            eprintln!("the logs are in {}", self.directory.display());
        } else {
            _ = std::fs::remove_dir_all(&self.directory);
        }
    }
}
