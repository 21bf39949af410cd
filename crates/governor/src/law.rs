//! The policy of the governor: when the next chunk may be moved. Pure: time and observations are arguments.
//!
//! Where the kernel tells how long the requests of others take, an account of harm decides ([`crate::Account`]), and this
//! policy adds the other reasons to wait. Elsewhere one sign of other I/O pauses the work after the present chunk. The work
//! continues when the device has been quiet for some time. This time is short at first, and becomes longer when the work
//! is interrupted repeatedly, so that a process which uses the disk every second meets our I/O less and less often.

use crate::{Duty, Pace};
use longrun_engine::Permission;
use longrun_layout::Bytes;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::time::Duration;

/// The constants of the policy.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Rules {
    /// Between two looks while work is paused.
    pub poll: Duration,
    /// How long the device must be quiet before work goes on, at first.
    pub quiet_first: Duration,
    /// And at most, after many interruptions.
    pub quiet_most: Duration,
    /// So much foreign I/O during one chunk is no reason to pause.
    pub tolerated: Bytes,
    /// The share of the time that work may take.
    pub duty: Duty,
}

impl Rules {
    /// The rules of a pace on a device that wants to be quiet for `quiet` before it counts as unused.
    #[must_use]
    pub fn of(pace: Pace, quiet: Duration) -> Self {
        let poll = Duration::from_millis(10);
        match pace {
            Pace::Invisible => Self {
                poll,
                quiet_first: quiet,
                quiet_most: Duration::from_secs(2),
                tolerated: Bytes(0),
                duty: Duty(97),
            },
            Pace::Balanced => Self {
                poll,
                quiet_first: quiet / 4,
                quiet_most: quiet * 2,
                // A sixteenth of a chunk on a disk: beside so little others hardly notice us.
                tolerated: Bytes(64 << 10),
                duty: Duty::ALL,
            },
            Pace::Fast => Self {
                poll,
                quiet_first: Duration::ZERO,
                quiet_most: Duration::ZERO,
                tolerated: Bytes(u64::MAX),
                duty: Duty::ALL,
            },
        }
    }

    /// The same, but for a share of the time that is not larger than `duty`.
    #[must_use]
    pub fn at_most(self, duty: Duty) -> Self {
        Self { duty: self.duty.min(duty), ..self }
    }
}

/// Why work is paused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Pause {
    /// Others on this machine use the device.
    Foreign,
    /// The device is slow although no process on this machine uses it.
    External,
    /// The machine is short of memory.
    Memory,
    /// The machine runs on its battery.
    Battery,
}

impl fmt::Display for Pause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Foreign => "other I/O is using the device",
            Self::External => "another machine is using the device",
            Self::Memory => "the machine is short of memory",
            Self::Battery => "running on battery",
        })
    }
}

/// What was observed since the policy was last applied.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Signs {
    /// What others moved.
    pub foreign: Bytes,
    /// Requests under way that may be anybody's. While work is paused ours are done soon, and the rest is foreign.
    pub in_flight: u64,
    /// The account of harm refuses the next chunk, and is to be asked again after this time. Where there is an account, the
    /// two figures above are 0.
    pub refused: Option<Duration>,
    /// A reason to pause that has nothing to do with the counters of the device.
    pub hold: Option<Pause>,
    /// While work is paused: a process on this machine waits for a device or a processor, whichever that is.
    pub pressed: bool,
}

/// Undisturbed work for so many quiet times halves the quiet time.
const CALM_FACTOR: u32 = 10;
/// The longest time between two observations of a paused volume, and between two questions in a long rest.
const LONGEST_LOOK: Duration = Duration::from_secs(1);
/// Of a time without a question so much counts as work at most: much of it may have been none.
const LONGEST_WORK: Duration = Duration::from_secs(1);
/// A refusal is called a pause when it lasts longer. Shorter ones are the gaps in which others' requests are let through.
const SHORTEST_PAUSE: Duration = Duration::from_millis(250);

#[derive(Clone, Copy, Debug, PartialEq)]
enum State {
    /// Since when, and when it rested last.
    Working { since: Duration, rested: Duration },
    /// Work has used up its share of the time.
    Resting { until: Duration, since: Duration },
    /// The account of harm refuses.
    Refused(Refusal),
    /// The last sign of others.
    Paused { last_sign: Duration, why: Pause },
}

/// The policy for one volume, with its state.
#[derive(Clone, Debug, PartialEq)]
pub struct Law {
    rules: Rules,
    state: Option<State>,
    quiet: Duration,
    /// Another process waited for something during the present pause.
    pressed: bool,
    /// The last time of refusals that is over.
    refused: Option<Refusal>,
    /// The refusal that was counted as a pause last, by its beginning.
    counted: Option<Duration>,
    looked: Duration,
    paused: Duration,
    pauses: u64,
}

/// A time in which the account of harm refused.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Refusal {
    since: Duration,
    last: Duration,
}

impl Refusal {
    /// Whether a refusal now belongs to it: the little that was permitted meanwhile does not end a pause.
    fn goes_on_at(&self, now: Duration) -> bool {
        now.saturating_sub(self.last) * 10 < self.last.saturating_sub(self.since)
    }
}

impl Law {
    /// Nothing seen yet.
    #[must_use]
    pub fn new(rules: Rules) -> Self {
        let (quiet, zero) = (rules.quiet_first, Duration::ZERO);
        Self {
            rules,
            state: None,
            quiet,
            pressed: false,
            refused: None,
            counted: None,
            looked: zero,
            paused: zero,
            pauses: 0,
        }
    }

    /// Other rules from now on; what was learned stays, as far as it fits them.
    pub fn set_rules(&mut self, rules: Rules) {
        self.rules = rules;
        self.quiet = self.quiet.clamp(rules.quiet_first, rules.quiet_most.max(rules.quiet_first));
    }

    /// Why work is paused now, if it is.
    #[must_use]
    pub fn pause(&self) -> Option<Pause> {
        match self.state {
            Some(State::Paused { why, .. }) => Some(why),
            Some(State::Refused(Refusal { since, .. })) if self.looked.saturating_sub(since) >= SHORTEST_PAUSE => {
                Some(Pause::Foreign)
            }
            _ => None,
        }
    }

    /// The same, for whichever caller asks `now` without wanting to work: no one waits any more when no one has asked
    /// for a while.
    #[must_use]
    pub fn pause_at(&self, now: Duration) -> Option<Pause> {
        self.pause().filter(|_| now.saturating_sub(self.looked) <= LONGEST_LOOK * 5)
    }

    /// How long work has been paused in all.
    #[must_use]
    pub fn time_paused(&self) -> Duration {
        self.paused
    }

    /// How often it was.
    #[must_use]
    pub fn pauses(&self) -> u64 {
        self.pauses
    }

    /// How long the device must be quiet at present before work goes on.
    #[must_use]
    pub fn quiet(&self) -> Duration {
        self.quiet
    }

    /// Whether the next chunk may be moved, `now` after some beginning of time.
    pub fn judge(&mut self, now: Duration, signs: &Signs) -> Permission {
        if self.pause().is_some() {
            // No one waits while no one asks.
            self.paused += now.saturating_sub(self.looked).min(LONGEST_LOOK);
        }
        self.looked = now;
        if let (Some(time), None) = (signs.refused, signs.hold) {
            let since = match self.state {
                Some(State::Refused(refusal)) => refusal.since,
                _ => self.refused.filter(|before| before.goes_on_at(now)).map_or(now, |before| before.since),
            };
            self.state = Some(State::Refused(Refusal { since, last: now }));
            if self.pause().is_some() && self.counted.replace(since) != Some(since) {
                self.pauses += 1;
            }
            return Permission::Wait(time);
        }
        if let Some(State::Refused(refusal)) = self.state {
            self.refused = Some(refusal);
        }
        let disturbed = signs.hold.or((signs.foreign > self.rules.tolerated).then_some(Pause::Foreign));
        match self.state {
            Some(State::Paused { last_sign, why }) => {
                self.pressed |= signs.pressed;
                // What is in flight when work has been paused for some time is not ours.
                let seen = disturbed.or((signs.in_flight > 0).then_some(why));
                self.go_on_when_quiet(now, last_sign, why, seen)
            }
            None | Some(State::Refused(_)) => self.pause_or_go(now, disturbed, now, now),
            Some(State::Working { since, rested }) => {
                let rest = self.rules.duty.rest_after(now.saturating_sub(rested).min(LONGEST_WORK));
                if disturbed.is_none() && rest > self.rules.poll {
                    self.state = Some(State::Resting { until: now + rest, since });
                    return Permission::Wait(rest.min(LONGEST_LOOK));
                }
                self.pause_or_go(now, disturbed, since, rested)
            }
            Some(State::Resting { until, since }) if disturbed.is_none() && now < until => {
                self.state = Some(State::Resting { until, since });
                Permission::Wait((until - now).min(LONGEST_LOOK))
            }
            Some(State::Resting { since, .. }) => self.pause_or_go(now, disturbed, since, now),
        }
    }

    fn pause_or_go(
        &mut self,
        now: Duration,
        disturbed: Option<Pause>,
        since: Duration,
        rested: Duration,
    ) -> Permission {
        let worked = now.saturating_sub(since);
        let Some(why) = disturbed else {
            let calm = worked >= self.quiet * CALM_FACTOR && self.quiet > self.rules.quiet_first;
            if calm {
                self.quiet = (self.quiet / 2).max(self.rules.quiet_first);
            }
            self.state = Some(State::Working { since: if calm { now } else { since }, rested });
            return Permission::Go;
        };
        // Not at the very first look: no one was interrupted then.
        if self.state.is_some() && worked < self.quiet * CALM_FACTOR {
            self.quiet = (self.quiet * 2).min(self.rules.quiet_most);
        }
        self.pauses += 1;
        self.state = Some(State::Paused { last_sign: now, why });
        Permission::Wait(self.rules.poll)
    }

    fn go_on_when_quiet(&mut self, now: Duration, last_sign: Duration, why: Pause, seen: Option<Pause>) -> Permission {
        // A device that must be quiet for long is observed less often.
        let poll = self.rules.poll.max(self.quiet / 10);
        if let Some(why) = seen {
            self.state = Some(State::Paused { last_sign: now, why });
            return Permission::Wait(poll);
        }
        let quiet_for = now.saturating_sub(last_sign);
        // A second opinion, which knows no device and comes late: it has a say in how long, and none in whether.
        let wanted = if self.pressed { self.quiet * 2 } else { self.quiet };
        if quiet_for >= wanted {
            self.pressed = false;
            self.state = Some(State::Working { since: now, rested: now });
            return Permission::Go;
        }
        self.state = Some(State::Paused { last_sign, why });
        Permission::Wait(poll.min(wanted - quiet_for))
    }
}

#[cfg(test)]
mod tests;
