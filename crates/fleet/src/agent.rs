//! The agent: asks the service what it wants, takes part in the leases of its storage groups, and tells the service what is
//! permitted, and until when.
//!
//! Owns the order of these. Decides nothing that the service could be harmed by: what it says only permits, by moments of the
//! machine's clock that pass whether this process lives or not. That, and not a timer here, is the end of each permission.

mod exchange;
mod group;

use crate::broker::{Broker, BrokerError};
use crate::daemon::{Daemon, DaemonError};
use crate::host_config::HostConfig;
use crate::lease::{GroupsRecord, Moment, Owner, Term};
use crate::names::{self, Name};
use futures_util::future::join_all;
use group::Group;
use longrun_api::fleet::{Fleet, Permission};
use std::collections::BTreeMap;
use std::io;
use std::rc::Rc;
use std::time::Duration;
use tokio::signal::unix::{SignalKind, signal};

/// A source of names that are never given twice.
const UNIQUE: &str = "/proc/sys/kernel/random/uuid";

/// Why there is no agent.
#[derive(Debug, thiserror::Error)]
pub enum AgentError {
    /// About the broker.
    #[error(transparent)]
    Broker(#[from] BrokerError),
    /// The kernel has no unique name for this start.
    #[error("{UNIQUE} cannot be read: {0}")]
    Unique(io::Error),
    /// Signals cannot be received.
    #[error("signals cannot be received: {0}")]
    Signals(io::Error),
}

/// What was said to the service.
#[derive(Debug, Default)]
struct Told {
    /// It may still receive a permission that ends here: its confirmation is missing.
    unconfirmed_until: Moment,
    /// The error that was logged last, so that it is logged once.
    logged: Option<String>,
}

/// The agent of this host.
struct Agent {
    term: Term,
    me: Owner,
    broker: Rc<Broker>,
    daemon: Daemon,
    groups: BTreeMap<Name, Group>,
    limits: GroupsRecord,
    limits_read: Option<Moment>,
    told: Told,
}

/// Runs until SIGTERM or SIGINT. `term` is the same on all hosts.
///
/// # Errors
/// [`AgentError`]. A broker or a service that is away is none.
pub async fn run(config: &HostConfig, term: Term) -> Result<(), AgentError> {
    let mut terminated = signal(SignalKind::terminate()).map_err(AgentError::Signals)?;
    let mut interrupted = signal(SignalKind::interrupt()).map_err(AgentError::Signals)?;
    let instance = std::fs::read_to_string(UNIQUE).map_err(AgentError::Unique)?;
    let mut agent = Agent {
        term,
        me: Owner { host: config.host.clone(), instance: instance.trim().to_owned() },
        broker: Rc::new(Broker::connect(config, term.patience()).await?),
        daemon: Daemon::new(&config.socket, term.patience()),
        groups: BTreeMap::new(),
        limits: GroupsRecord::new(),
        limits_read: None,
        told: Told::default(),
    };
    _ = agent.broker.connected_within(term.patience()).await;
    _ = sd_notify::notify(&[sd_notify::NotifyState::Ready]);
    tracing::info!("host {} takes part in the fleet at {}", config.host, config.server);
    let (broker, daemon) = (Rc::clone(&agent.broker), agent.daemon.clone());
    let leases = async {
        loop {
            let pause = agent.tick().await;
            tokio::select! {
                () = tokio::time::sleep(pause) => {}
                _ = terminated.recv() => break,
                _ = interrupted.recv() => break,
            }
        }
        agent.end().await;
    };
    tokio::select! {
        () = leases => {}
        () = exchange::exchange(&broker, &daemon, config, term.pause()) => {}
    }
    Ok(())
}

impl Agent {
    /// One round; how long to wait for the next.
    async fn tick(&mut self) -> Duration {
        let fleet = self.daemon.fleet().await;
        self.log_once(&fleet);
        self.take_in(fleet.ok().as_ref());
        self.read_limits().await;
        let (broker, limits) = (&self.broker, &self.limits);
        join_all(self.groups.iter_mut().map(|(name, group)| group.account(name, broker, limits))).await;
        for (name, group) in &mut self.groups {
            group.decide(name, self.term, &self.limits);
        }
        if self.groups.values().any(|group| group.keeper.is_leaving()) {
            self.tell().await;
        }
        let broker = &self.broker;
        let next = join_all(self.groups.iter_mut().map(|(name, group)| group.keep(name, broker))).await;
        self.groups.retain(|_, group| group.present || group.keeper.is_engaged());
        self.tell().await;
        let now = Moment::now();
        let wait = next.into_iter().map(|moment| moment.since(now)).min().unwrap_or(self.term.pause());
        wait.clamp(self.term.full() / 32, self.term.pause())
    }

    /// What the administrator set for the groups; it also shows that the broker is in reach.
    async fn read_limits(&mut self) {
        let now = Moment::now();
        // Half a term, less what a round may come early.
        let fresh = self.term.full() * 3 / 8;
        if self.limits_read.is_some_and(|read| now.since(read) < fresh) {
            return;
        }
        let Ok(found) = self.broker.get(names::POLICY, names::GROUPS_KEY).await else { return };
        self.limits_read = Some(now);
        match found.read::<GroupsRecord>() {
            Ok(limits) => self.limits = limits.unwrap_or_default(),
            // Those before go on to hold.
            Err(error) => tracing::warn!("the limits of the storage groups at the broker are not understood: {error}"),
        }
    }

    /// What the service wants. Without an answer of the service, nothing is wanted.
    fn take_in(&mut self, fleet: Option<&Fleet>) {
        for group in self.groups.values_mut() {
            (group.present, group.wants) = (false, false);
        }
        let Some(fleet) = fleet else { return };
        for found in &fleet.groups {
            let Ok(name) = found.name.parse::<Name>() else {
                tracing::debug!("{:?} is no name of a storage group", found.name);
                continue;
            };
            let (me, term) = (self.me.clone(), self.term);
            let group = self.groups.entry(name).or_insert_with(|| Group::new(me, term));
            group.take_in(found, fleet.mode != "off");
        }
    }

    /// Tells the service what is permitted; then what it works on no more can be given back.
    async fn tell(&mut self) {
        let now = Moment::now();
        let permitted = |group: &Group| group.keeper.permitted_until(now);
        let groups: BTreeMap<_, _> =
            self.groups.iter().filter_map(|(name, group)| Some((name.clone(), permitted(group)?))).collect();
        let latest = groups.values().max().copied().unwrap_or_default();
        let in_touch = self.broker.answered().map_or(Moment::default(), |answered| answered.plus(self.term.full()));
        let permission = Permission {
            in_touch_until: in_touch.nanoseconds(),
            groups: groups.into_iter().map(|(name, until)| (name.into(), until.nanoseconds())).collect(),
        };
        let answer = self.daemon.permit(&permission).await;
        self.log_once(&answer);
        if answer.is_err() {
            self.told.unconfirmed_until = self.told.unconfirmed_until.max(latest);
        } else if Moment::now() >= self.told.unconfirmed_until {
            self.groups.values_mut().for_each(|group| group.keeper.stopped());
        }
    }

    /// Gives back all leases, as far as that is possible soon. What is left ends by itself.
    async fn end(&mut self) {
        _ = sd_notify::notify(&[sd_notify::NotifyState::Stopping]);
        for group in self.groups.values_mut() {
            group.keeper.leave();
        }
        self.tell().await;
        let broker = &self.broker;
        join_all(self.groups.iter_mut().map(|(name, group)| group.keep(name, broker))).await;
    }

    fn log_once<T>(&mut self, answer: &Result<T, DaemonError>) {
        match answer {
            Ok(_) => self.told.logged = None,
            Err(error) => {
                let text = error.to_string();
                if self.told.logged.as_ref() != Some(&text) {
                    tracing::warn!("{text}");
                    self.told.logged = Some(text);
                }
            }
        }
    }
}
