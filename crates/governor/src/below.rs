//! The devices below a volume, and what observes them.

use crate::account::{Account, Balance, Completed, Promise, Requests};
use crate::arrivals::{Arrivals, Asked};
use crate::neighbour::Probers;
use crate::{Attribution, Device, DiskPolicy, Disks, Pace, Share};
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
    /// What they have waited for us; none at a pace that does not give way.
    pub(crate) account: Option<Account>,
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
    pub(crate) fn new(devices: Vec<Device>, pace: Pace, signals: Signals) -> Self {
        let disks = Disks::of(&devices);
        if pace == Pace::Fast {
            return Self { devices, disks, ..Self::default() };
        }
        let silence = disks.as_ref().map_or_else(|| DiskPolicy::of_all([]), |disks| disks.policy).quiet;
        let account = Promise::of(pace).map(|promise| Account::new(promise, silence));
        let watched: Vec<Watched> = devices.iter().filter_map(|device| watch(device, account.as_ref())).collect();
        let numbers: Vec<DeviceNumber> = watched.iter().map(|watched| watched.device.number).collect();
        let arrivals = if numbers.is_empty() || signals == Signals::Counters { None } else { arrivals_at(&numbers) };
        let probers = if signals == Signals::All { Probers::of(&devices) } else { Probers::default() };
        Self { devices, disks, watched, arrivals, probers }
    }

    /// Whether the accounts decide: where the kernel tells how long the requests of others take.
    pub(crate) fn has_account(&self) -> bool {
        self.arrivals.is_some() && self.watched.iter().any(|watched| watched.account.is_some())
    }

    pub(crate) fn balance(&self) -> Option<Balance> {
        let accounts = self.watched.iter().filter_map(|watched| watched.account.as_ref());
        accounts.map(Account::balance).reduce(Balance::and).filter(|_| self.has_account())
    }

    pub(crate) fn policy(&self) -> DiskPolicy {
        self.disks.as_ref().map_or_else(|| DiskPolicy::of_all([]), |disks| disks.policy)
    }
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

fn watch(device: &Device, account: Option<&Account>) -> Option<Watched> {
    match DeviceCounters::open(device.number) {
        Ok(counters) => {
            let (device, attribution) = (device.clone(), Attribution::new(device.below_file));
            Some(Watched { device, counters, attribution, asked: Asked::default(), account: account.cloned() })
        }
        Err(error) => {
            tracing::warn!(device = device.name, %error, "the counters of a device cannot be read; its load is not observed");
            None
        }
    }
}
