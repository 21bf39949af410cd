//! The governor of one volume: observes its devices and the machine, and applies the policy.

use crate::arrivals::{Arrivals, Asked};
use crate::behind::behind_others;
use crate::below::{Below, Signals, requests_since};
use crate::machine::Machine;
use crate::neighbour::Finding;
use crate::own::OwnCounters;
use crate::stack::devices_below;
use crate::{Account, Balance, DiskPolicy, Disks, Duty, Law, MinProgress, Pace, Pause, Promise, Rules, Share, Signs};
use longrun_engine::{Permission, Turn};
use longrun_layout::Bytes;
use longrun_sys::DeviceNumber;
use serde::{Deserialize, Serialize};
use std::time::{Duration, Instant};

/// How the I/O of others is detected.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Observed {
    /// By what they ask of the devices, at the moment when they ask, and by the counters of the devices.
    Arrivals,
    /// By the counters of the devices.
    Counters,
    /// The system shows nothing of the devices: only the I/O priority makes way.
    Nothing,
}

/// The time of small reads while no process on this machine uses the disk. With several disks, the values of the disk
/// that deviates most from its usual time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Latency {
    /// As a rule, in microseconds.
    pub usual_us: u64,
    /// Of late, in microseconds.
    pub recent_us: u64,
}

/// What the governor has observed and done so far.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Loads {
    /// How much work gives way.
    pub pace: Pace,
    /// The devices where others are looked for.
    pub devices: Vec<String>,
    /// What the volume lies on, and what follows from that; none where it is not known.
    pub disks: Option<Disks>,
    /// By what.
    pub observed: Observed,
    /// What these devices did for us.
    pub own_bytes: Bytes,
    /// And for others on this machine, while there was work for us.
    pub foreign_bytes: Bytes,
    /// The account of what others waited for us; none where the kernel does not tell.
    pub account: Option<Balance>,
    /// The program that used the devices last, while there was work for us.
    pub other_program: Option<String>,
    /// How long small reads take that look for users outside this machine; none where that is not done.
    pub latency: Option<Latency>,
    /// How often work was paused.
    pub pauses: u64,
    /// And for how long in all.
    pub paused_seconds: f64,
    /// Why it is paused now.
    pub pausing: Option<Pause>,
}

/// What a look at all devices shows.
#[derive(Clone, Copy, Debug, Default)]
struct Seen {
    share: Share,
    /// What others asked for, done or not yet.
    asked: u64,
    asked_bytes: Bytes,
    in_flight: u64,
    /// Of these, those on devices that do nothing for us.
    not_ours: u64,
}

impl Seen {
    /// At least one byte where there was any request.
    fn foreign(&self) -> Bytes {
        Bytes(self.share.foreign.0.max(self.asked_bytes.0).max(self.asked.min(1)))
    }
}

/// How long a probe may wait for our own requests to be done, between two looks and in all.
const DRAIN_LOOK: Duration = Duration::from_millis(2);
const DRAIN_MOST: Duration = Duration::from_millis(200);
/// While others have waited long enough, so many pieces lying apart are read at a time at most.
const FEW_PIECES: usize = 2;
/// What a volume lies on can change: volumes grow onto other disks, and move. It is looked at again after this time.
const LOOK_BELOW: Duration = Duration::from_secs(60);
/// Before the first chunk it is learned how quick the disk is when we do nothing, for at most this long.
const LEARN_MOST: Duration = Duration::from_secs(1);

/// Decides when work on one volume may continue.
pub struct Governor {
    pace: Pace,
    promise: Option<Promise>,
    duty: Duty,
    signals: Signals,
    volume: Option<DeviceNumber>,
    begun: Instant,
    law: Law,
    below: Below,
    /// When it was looked what lies below.
    looked_below: Duration,
    own: OwnCounters,
    machine: Machine,
    /// Since when a probe waits for our own requests to be done.
    draining: Option<Duration>,
    /// When work was first requested.
    asked_first: Option<Duration>,
    loads: Share,
}

impl std::fmt::Debug for Governor {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Governor").field("pace", &self.pace).finish_non_exhaustive()
    }
}

impl Governor {
    /// Of the volume on the device with this number; none where it has no number of a device. What cannot be observed is
    /// done without.
    #[must_use]
    pub fn new(volume: Option<DeviceNumber>, pace: Pace) -> Self {
        Self::with_signals(volume, pace, Signals::All)
    }

    /// The same with only some of the signals, for comparing them.
    #[must_use]
    pub fn with_signals(volume: Option<DeviceNumber>, pace: Pace, signals: Signals) -> Self {
        let promise = Promise::of(pace);
        let below = Below::new(volume.map(devices_below).unwrap_or_default(), promise, signals);
        let mut governor = Self {
            pace,
            promise,
            duty: Duty::ALL,
            signals,
            volume,
            begun: Instant::now(),
            law: Law::new(Rules::of(pace, below.policy().quiet)),
            below,
            looked_below: Duration::ZERO,
            own: OwnCounters::open(),
            machine: Machine::default(),
            draining: None,
            asked_first: None,
            loads: Share::default(),
        };
        // What is done from now on is seen at the first question.
        governor.look(Duration::ZERO);
        governor
    }

    /// From now on work takes no larger share of the time than this, at whatever pace.
    #[must_use]
    pub fn at_most(mut self, duty: Duty) -> Self {
        self.duty = duty;
        self.law.set_rules(self.rules());
        self
    }

    /// From now on work takes this share of the time even if others have to wait, where the accounts decide.
    #[must_use]
    pub fn at_least(mut self, least: MinProgress) -> Self {
        self.promise = self.promise.map(|promise| Promise { least, ..promise });
        if let Some(promise) = self.promise {
            self.below.accounts_mut().for_each(|account| account.set_promise(promise));
        }
        self
    }

    fn rules(&self) -> Rules {
        Rules::of(self.pace, self.below.policy().quiet).at_most(self.duty)
    }

    /// Makes the calling thread's I/O wait for everybody else's, as far as the pace wants that and the device's scheduler
    /// heeds it.
    pub fn prepare_thread(&self) {
        if self.pace != Pace::Fast
            && let Err(error) = longrun_sys::yield_io_to_others()
        {
            tracing::debug!(%error, "setting the I/O priority failed; it is unchanged");
        }
    }

    /// Calls `work`, as far as the pace wants that behind the other threads of the machine. It must hold nothing that others wait
    /// for, since on a busy machine it takes long.
    pub fn compute(&self, work: &mut (dyn FnMut() + Send)) {
        if self.pace == Pace::Fast { work() } else { behind_others(work) }
    }

    /// How much work gives way.
    #[must_use]
    pub fn pace(&self) -> Pace {
        self.pace
    }

    /// How much may be done on one permission; none where it does not give way. But an arm goes from piece to piece in their
    /// order on the platter sooner than it serves many at once, and that needs no permission.
    #[must_use]
    pub fn limits(&self) -> Option<DiskPolicy> {
        let policy = self.below.policy();
        let one_arm = self.below.disks.is_some() && policy.pieces == 1;
        match self.pace {
            Pace::Fast => one_arm.then_some(DiskPolicy { chunk: Bytes(u64::MAX), ..policy }),
            Pace::Invisible | Pace::Balanced => Some(policy),
        }
    }

    /// How much the engine may do on one permission.
    #[must_use]
    pub fn turn(&self) -> Turn {
        self.limits().map_or(Turn::UNLIMITED, |limits| {
            if !self.below.accounts().any(Account::is_short) {
                return Turn { bytes: limits.chunk, pieces: limits.pieces };
            }
            Turn { bytes: limits.least, pieces: limits.pieces.min(FEW_PIECES) }
        })
    }

    /// Whether `next` bytes may be moved now.
    pub fn permission(&mut self, next: Bytes) -> Permission {
        let now = self.begun.elapsed();
        if self.pace == Pace::Fast {
            return self.law.judge(now, &Signs::default());
        }
        if now.saturating_sub(self.looked_below) >= LOOK_BELOW {
            self.looked_below = now;
            self.look_below();
        }
        let mut seen = self.look(now);
        // Each device is asked: its last piece is over.
        let refused = self.below.accounts_mut().filter_map(|account| account.refuses(now)).max();
        let verdict = self.judge(now, &mut seen, refused);
        if verdict == Permission::Go {
            self.own.granted(next);
            self.below.accounts_mut().for_each(|account| account.begin(now));
        }
        self.below.tell();
        verdict
    }

    /// What the policy says. `refused`: when to ask the accounts again, if one refuses.
    fn judge(&mut self, now: Duration, seen: &mut Seen, refused: Option<Duration>) -> Permission {
        let mut hold = self.machine.hold(now);
        if hold.is_none() {
            match self.neighbours(now, seen) {
                Neighbours::Nobody => {}
                Neighbours::Unknown(time) => return Permission::Wait(time),
                Neighbours::Somebody => hold = Some(Pause::External),
            }
        }
        let signs = if self.below.has_account() {
            Signs { hold, refused, ..Signs::default() }
        } else {
            // While we do nothing, no one waits because of us.
            let pressed = self.law.pause().is_some() && self.machine.is_pressed(now);
            Signs { foreign: seen.foreign(), in_flight: seen.not_ours, refused: None, hold, pressed }
        };
        self.law.judge(now, &signs)
    }

    /// Looks again at what the volume lies on, and goes by that from now on: done once a minute by itself while there is work.
    pub fn look_below(&mut self) {
        let devices = self.volume.map(devices_below).unwrap_or_default();
        if devices == self.below.devices && Disks::of(&devices) == self.below.disks {
            return;
        }
        self.below = Below::new(devices, self.promise, self.signals);
        self.draining = None;
        self.law.set_rules(self.rules());
        let disks = self.below.disks.as_ref().map_or_else(|| "none".to_owned(), Disks::to_string);
        tracing::info!(disks, "the devices below the volume have changed");
        // What they did before is no one's.
        self.look(self.begun.elapsed());
    }

    /// Probes when it is time for that, and tells what the probes say.
    fn neighbours(&mut self, now: Duration, seen: &mut Seen) -> Neighbours {
        if self.below.probers.is_empty() {
            return Neighbours::Nobody;
        }
        if seen.foreign().0 > 0 || self.law.pause() == Some(Pause::Foreign) {
            // Slow because of those whom we see anyway.
            self.draining = None;
            return Neighbours::Nobody;
        }
        if self.below.probers.are_due(now) {
            let waited = now.saturating_sub(*self.draining.get_or_insert(now));
            if seen.in_flight > 0 && waited < DRAIN_MOST {
                return Neighbours::Unknown(DRAIN_LOOK);
            }
            self.draining = None;
            if seen.in_flight > 0 {
                self.below.probers.skip(now, waited);
            } else {
                self.probe(now, waited, seen);
            }
        }
        if seen.foreign().0 > 0 {
            return Neighbours::Nobody;
        }
        let learning = self.below.probers.are_learning();
        let first = *self.asked_first.get_or_insert(now);
        if learning && now.saturating_sub(first) < LEARN_MOST {
            return Neighbours::Unknown(DRAIN_LOOK * 5);
        }
        match self.below.probers.finding() {
            Finding::Nobody => Neighbours::Nobody,
            Finding::Doubt => Neighbours::Unknown(DRAIN_LOOK * 5),
            Finding::Somebody => Neighbours::Somebody,
        }
    }

    /// A probe counts when no process on this machine used the disks meanwhile.
    fn probe(&mut self, now: Duration, waited: Duration, seen: &mut Seen) {
        let mut probers = std::mem::take(&mut self.below.probers);
        probers.probe(now, waited, &mut || {
            let meanwhile = self.look(self.begun.elapsed());
            let undisturbed = meanwhile.foreign().0 == 0;
            if !undisturbed {
                *seen = meanwhile;
            }
            undisturbed
        });
        self.below.probers = probers;
    }

    /// Why work is paused now, if it is.
    #[must_use]
    pub fn pausing(&self) -> Option<Pause> {
        self.law.pause()
    }

    /// The program that used the devices last, while there was work for us. Its name can be anything.
    #[must_use]
    pub fn other_program(&self) -> Option<String> {
        let asked = self.below.watched.iter().map(|watched| &watched.asked);
        asked.filter(|asked| asked.requests > 0).max_by_key(|asked| asked.last).map(Asked::program)
    }

    /// What was seen and done so far.
    #[must_use]
    pub fn loads(&self) -> Loads {
        Loads {
            pace: self.pace,
            devices: self.below.watched.iter().map(|watched| watched.device.name.clone()).collect(),
            disks: self.below.disks.clone(),
            observed: match &self.below.arrivals {
                Some(_) => Observed::Arrivals,
                None if self.below.watched.is_empty() => Observed::Nothing,
                None => Observed::Counters,
            },
            own_bytes: self.loads.own,
            foreign_bytes: self.loads.foreign,
            account: self.below.balance(),
            other_program: self.other_program(),
            latency: self.below.probers.latency(),
            pauses: self.law.pauses(),
            paused_seconds: self.law.time_paused().as_secs_f64(),
            pausing: self.law.pause_at(self.begun.elapsed()),
        }
    }

    fn look(&mut self, now: Duration) -> Seen {
        // First what the devices did, then what we had asked for: the other way round their work for us would look foreign.
        let counts: Vec<_> = self.below.watched.iter().map(|watched| watched.counters.read()).collect();
        let own = self.own.read();
        let clock = Duration::from_nanos(longrun_sys::monotonic_nanoseconds());
        let mut seen = Seen::default();
        for (watched, counts) in self.below.watched.iter_mut().zip(counts) {
            let asked = self.below.arrivals.as_ref().and_then(|arrivals| arrivals.asked(watched.device.number));
            // A device that is gone disturbs no other process.
            let Ok(counts) = counts else { continue };
            let share = watched.attribution.share(now, &counts, own);
            if let Some(asked) = asked {
                let before = std::mem::replace(&mut watched.asked, asked);
                let requests = asked.requests.saturating_sub(before.requests);
                seen.asked += requests;
                seen.asked_bytes += asked.bytes.saturating_sub(before.bytes);
                watched.account.observe(now, &requests_since(&before, &asked, clock, share));
                let bounds = watched.account.bounds();
                let set = |arrivals: &Arrivals| arrivals.set_bounds(watched.device.number, &bounds).is_ok();
                if watched.bounds != Some(bounds) && self.below.arrivals.as_ref().is_some_and(set) {
                    watched.bounds = Some(bounds);
                }
            }
            seen.share.own += share.own;
            seen.share.foreign += share.foreign;
            seen.in_flight += counts.in_flight;
            if share.own.0 == 0 {
                seen.not_ours += counts.in_flight;
            }
        }
        self.loads.own += seen.share.own;
        self.loads.foreign += seen.share.foreign;
        seen
    }
}

/// What is known of users outside this machine.
enum Neighbours {
    Nobody,
    /// It will be known after this time.
    Unknown(Duration),
    Somebody,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_a_device_or_in_haste_everything_may_go_on() {
        for mut governor in [Governor::new(None, Pace::Invisible), Governor::new(None, Pace::Fast)] {
            assert_eq!(governor.loads().observed, Observed::Nothing);
            if governor.machine.hold(Duration::ZERO).is_none() {
                assert_eq!(governor.permission(Bytes(1 << 20)), Permission::Go);
            }
        }
    }

    #[test]
    fn a_share_of_the_time_is_kept_at_every_pace_and_whatever_lies_below() {
        for pace in [Pace::Invisible, Pace::Balanced, Pace::Fast] {
            let mut governor = Governor::new(None, pace).at_most(Duty(20));
            assert_eq!(governor.rules().duty, Duty(20));
            governor.look_below();
            assert_eq!(governor.rules().duty, Duty(20));
        }
        assert_eq!(Governor::new(None, Pace::Invisible).at_most(Duty::ALL).rules().duty, Duty(97));
    }
}
