//! The devices below a volume, and what observes them.

use crate::account::{Account, Balance, Bounds, Completed, KINDS, Promise, Requests, Work};
use crate::arrivals::{Arrivals, Asked};
use crate::neighbour::Probers;
use crate::{Attribution, Device, DiskPolicy, Disks, Share};
use longrun_sys::{DeviceCounters, DeviceNumber};
use std::time::Duration;

/// Which signals may be observed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Signals {
    /// Whatever there is.
    All,
    /// The counters of the devices alone.
    Counters,
}

/// A device that is observed.
pub(crate) struct Watched {
    pub(crate) device: Device,
    pub(crate) counters: DeviceCounters,
    pub(crate) attribution: Attribution,
    /// What others had asked of it by the last look.
    pub(crate) asked: Asked,
    /// What they have waited for us.
    pub(crate) account: Account,
    /// What the kernel's side compares the times of requests with.
    pub(crate) bounds: Option<[Bounds; KINDS]>,
}

/// What the volume lies on, and what shows of its use.
#[derive(Default)]
pub(crate) struct Below {
    pub(crate) devices: Vec<Device>,
    pub(crate) disks: Option<Disks>,
    pub(crate) watched: Vec<Watched>,
    pub(crate) arrivals: Option<Arrivals>,
    pub(crate) probers: Probers,
}

impl Below {
    /// The `devices`, for work that promises this to others; without a promise nothing is watched.
    pub(crate) fn new(devices: Vec<Device>, promise: Option<Promise>, signals: Signals) -> Self {
        let disks = Disks::of(&devices);
        let Some(promise) = promise else {
            return Self { devices, disks, ..Self::default() };
        };
        let account = Account::new(promise, policy(disks.as_ref()).quiet);
        let watched: Vec<Watched> = devices.iter().filter_map(|device| watch(device, &account)).collect();
        let numbers: Vec<DeviceNumber> = watched.iter().map(|watched| watched.device.number).collect();
        let arrivals = if numbers.is_empty() || signals == Signals::Counters { None } else { arrivals_at(&numbers) };
        let probers = if signals == Signals::All { Probers::of(&devices) } else { Probers::default() };
        Self { devices, disks, watched, arrivals, probers }
    }

    /// Whether the accounts decide: where the kernel tells how long the requests of others take.
    pub(crate) fn has_account(&self) -> bool {
        self.arrivals.is_some() && self.accounts().next().is_some()
    }

    pub(crate) fn accounts(&self) -> impl Iterator<Item = &Account> {
        self.watched.iter().map(|watched| &watched.account)
    }

    pub(crate) fn accounts_mut(&mut self) -> impl Iterator<Item = &mut Account> {
        self.watched.iter_mut().map(|watched| &mut watched.account)
    }

    /// Tells the kernel's side the state of our work: that of the device that gives way, if one does.
    pub(crate) fn tell(&mut self) {
        let is = |state: &Work| self.accounts().any(|account| account.work() == *state);
        let state = [Work::UnderWay, Work::GivesWay].into_iter().find(is).unwrap_or(Work::Rests);
        // The last requests of a piece end a little later.
        let rest = self.accounts().map(Account::piece).max().unwrap_or_default() / 2;
        let told = self.arrivals.as_mut().map_or(Ok(()), |arrivals| arrivals.tell(state, rest));
        if let Err(error) = told {
            tracing::debug!(%error, "the BPF programs were not told of our work");
        }
    }

    pub(crate) fn balance(&self) -> Option<Balance> {
        self.accounts().map(Account::balance).reduce(Balance::and).filter(|_| self.has_account())
    }

    pub(crate) fn policy(&self) -> DiskPolicy {
        policy(self.disks.as_ref())
    }
}

fn policy(disks: Option<&Disks>) -> DiskPolicy {
    disks.map_or_else(|| DiskPolicy::of_all([]), |disks| disks.policy)
}

/// What was added to what others asked of a device.
pub(crate) fn requests_since(before: &Asked, now: &Asked, clock: Duration, share: Share) -> Requests {
    let mut completed = now.completed;
    for (now, before) in completed.iter_mut().zip(&before.completed) {
        *now = Completed {
            alone: now.alone.since(before.alone),
            met: now.met.since(before.met),
            between: now.between.since(before.between),
            after: now.after.since(before.after),
        };
    }
    Requests {
        asked: now.requests.saturating_sub(before.requests),
        since_last: clock.saturating_sub(now.last),
        own: now.own.saturating_sub(before.own),
        own_squares: now.own_squares.saturating_sub(before.own_squares) as f64 * 1e-12,
        completed,
        foreign_writes: share.of_writes(),
    }
}

fn arrivals_at(devices: &[DeviceNumber]) -> Option<Arrivals> {
    Arrivals::watch(devices)
        .inspect_err(
            |error| tracing::info!(%error, "the BPF program cannot be used; other I/O is detected by the device counters, with a short delay"),
        )
        .ok()
}

fn watch(device: &Device, account: &Account) -> Option<Watched> {
    match DeviceCounters::open(device.number) {
        Ok(counters) => {
            let (device, attribution) = (device.clone(), Attribution::new(device.below_file));
            let account = account.clone();
            Some(Watched { device, counters, attribution, asked: Asked::default(), account, bounds: None })
        }
        Err(error) => {
            tracing::warn!(device = device.name, %error, "the counters of a device cannot be read; its load is not observed");
            None
        }
    }
}
