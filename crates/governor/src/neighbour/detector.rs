//! Decides whether a disk is slow because of users outside this machine. Pure: judges the times of small reads.
//!
//! All probes are alike (one small read while neither we nor other processes on this machine have requests under way),
//! so they share one baseline. One slow probe means nothing, because every disk is slow at times. If most of several
//! consecutive probes are slow, others are using the disk.

use std::collections::VecDeque;
use std::time::Duration;

/// So many probes are judged together; most of them must be slow.
const JUDGED: usize = 5;
/// Slow is what takes so many times as long as usual.
const SLOW: u32 = 2;
/// No longer slow is what takes less than so many quarters of the usual time: a little less than slow, so that the verdict
/// does not flicker.
const RECOVERED_QUARTERS: u32 = 6;
/// What is usual is the middle of so many probes.
const USUAL: usize = 61;
/// Before so many are known, nothing is judged.
const LEAST_KNOWN: usize = 9;
/// Differences below this are the machine's own.
const TRIFLE: Duration = Duration::from_micros(200);
/// Probes come at this distance as a rule, and at this one while the last was slow.
const INTERVAL: Duration = Duration::from_millis(250);
const SOON: Duration = Duration::from_millis(30);
/// If the disk stays slow for so many probes (ten minutes), the disk itself has changed, and this is its usual time now.
const GIVEN_UP: usize = 2400;

/// The result of the probes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Finding {
    /// The disk is as quick as ever, or that is not known.
    Nobody,
    /// The last probe was slow: better not to add to the load before more is known.
    Doubt,
    /// Another machine uses the disk.
    Somebody,
}

/// Judges the probes of one disk.
#[derive(Clone, Debug, Default)]
pub struct Detector {
    usual: VecDeque<Duration>,
    recent: VecDeque<Duration>,
    found: bool,
    found_for: usize,
}

impl Detector {
    /// What the probes so far say.
    #[must_use]
    pub fn finding(&self) -> Finding {
        if self.found {
            Finding::Somebody
        } else if self.baseline().is_some_and(|usual| self.recent.back().is_some_and(|last| is_slow(*last, usual))) {
            Finding::Doubt
        } else {
            Finding::Nobody
        }
    }

    /// How long after the last probe the next one should be.
    #[must_use]
    pub fn interval(&self) -> Duration {
        match self.finding() {
            Finding::Doubt => SOON,
            // Until it is known what is usual nothing else can be said.
            Finding::Nobody if self.usual.len() < LEAST_KNOWN => SOON,
            Finding::Nobody | Finding::Somebody => INTERVAL,
        }
    }

    /// How long a probe usually takes, as soon as that is known.
    #[must_use]
    pub fn baseline(&self) -> Option<Duration> {
        (self.usual.len() >= LEAST_KNOWN).then(|| middle(&self.usual)).flatten()
    }

    /// How long those took that are judged.
    #[must_use]
    pub fn recent(&self) -> Option<Duration> {
        middle(&self.recent)
    }

    /// Another probe has taken `time`.
    pub fn probed(&mut self, time: Duration) -> Finding {
        let Some(usual) = self.baseline() else {
            self.usual.push_back(time);
            return Finding::Nobody;
        };
        self.recent.push_back(time);
        if self.recent.len() > JUDGED {
            self.recent.pop_front();
        }
        let typical = middle(&self.recent).unwrap_or(time);
        let complete = self.recent.len() == JUDGED;
        self.found = if self.found {
            typical > (usual * RECOVERED_QUARTERS / 4).max(usual + TRIFLE / 2)
        } else {
            complete && is_slow(typical, usual)
        };
        self.learn(time);
        self.finding()
    }

    /// What is usual is learned while no one is about; slow probes among them belong to it.
    fn learn(&mut self, time: Duration) {
        self.found_for = if self.found { self.found_for + 1 } else { 0 };
        if self.found_for > GIVEN_UP {
            *self = Self::default();
        } else if !self.found {
            self.usual.push_back(time);
            if self.usual.len() > USUAL {
                self.usual.pop_front();
            }
        }
    }
}

fn is_slow(time: Duration, usual: Duration) -> bool {
    time > (usual * SLOW).max(usual + TRIFLE)
}

fn middle(times: &VecDeque<Duration>) -> Option<Duration> {
    let mut sorted: Vec<Duration> = times.iter().copied().collect();
    sorted.sort_unstable();
    sorted.get(sorted.len() / 2).copied()
}

#[cfg(test)]
mod tests;
