//! Some hosts of one group `san` and one broker, for tests that look at single things.

use super::broker::Brokers;
use super::host::{self, Host};
use super::observer::Observer;
use super::service::{FakeService, Work};
use crate::cleanup;
use anyhow::{Context, Result};
use std::fs::File;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

/// Hosts, their agents and a broker; everything ends when dropped.
pub struct FleetStage {
    agents: Vec<Option<Host>>,
    /// The services of the hosts.
    pub hosts: Vec<FakeService>,
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
        let directory = cleanup::fresh_directory()?;
        let brokers = Brokers::start(&directory, 1)?;
        let admin = directory.join("admin.toml");
        std::fs::write(&admin, format!("server = \"{}\"\nhost = \"admin\"\n", brokers.servers()))?;
        brokers.make_buckets(&admin)?;
        let mut stage = Self { agents: Vec::new(), hosts: Vec::new(), brokers, admin, directory };
        let observer = Arc::new(Observer::new(File::create(stage.directory.join("observer"))?));
        for number in 0..hosts {
            let name = format!("host-{number}");
            let own = stage.directory.join(&name);
            std::fs::create_dir(&own)?;
            let work = Work { seed: number as u64, term };
            let service = FakeService::start(&own.join("socket"), &name, "san", work, Arc::clone(&observer))?;
            stage.hosts.push(service);
            stage.agents.push(Some(Host::start(&own, &name, "san", &stage.brokers.servers(), term)?));
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
