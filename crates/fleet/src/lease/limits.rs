//! The limits of a storage group: slots, bytes a day, latency; and when a host keeps away although a slot is free.

use super::{Moment, Term};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// A record with more slots than this is wrong.
const MOST_SLOTS: u16 = 64;
/// So many looks in succession with a latency above the limit end a lease.
const SLOW_LOOKS: u32 = 3;
/// A host that found the storage slow, or had its turn, keeps away for so many terms.
const AWAY_WHEN_SLOW: u32 = 5;
/// After so many terms it is another host's turn, even if work is left.
const TURN: u32 = 30;

/// Key `groups` of the policy bucket: what the administrator set for each storage group, by its name.
pub type GroupsRecord = BTreeMap<String, GroupLimits>;

/// What the administrator set for a storage group; what is not set has a default.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct GroupLimits {
    /// At most so many hosts work at a time. Default: 1 where the disks rotate, else 2.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub slots: Option<u16>,
    /// At most so many bytes are moved on a day (UTC). Default: no limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bytes_per_day: Option<u64>,
    /// Above this latency of the storage, as the host sees it, the host gives way. Default: no limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub latency_limit_us: Option<f64>,
}

impl GroupLimits {
    /// How many slots there are.
    #[must_use]
    pub fn slots(&self, rotational: bool) -> u16 {
        self.slots.unwrap_or(if rotational { 1 } else { 2 }).min(MOST_SLOTS)
    }
}

/// Key `GROUP.budget`: what the group has moved on a day.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Spent {
    /// Days since 1970-01-01 (UTC).
    pub day: u64,
    /// Bytes.
    pub bytes: u64,
}

impl Spent {
    /// With `bytes` more, moved on `day`. A host whose clock is a day behind counts for the day that others are in; one that
    /// is farther behind does not stop the rest until it catches up.
    #[must_use]
    pub const fn plus(self, day: u64, bytes: u64) -> Self {
        if self.day == day || self.day == day.saturating_add(1) {
            Self { day: self.day, bytes: self.bytes.saturating_add(bytes) }
        } else {
            Self { day, bytes }
        }
    }
}

/// What one host has to add to the group's sum, and what it knows of the sum.
#[derive(Clone, Debug, Default)]
pub struct Allowance {
    before: Option<u64>,
    unaccounted: u64,
    known: Spent,
}

impl Allowance {
    /// The service says that it has moved so much since it started.
    pub fn moved(&mut self, total: u64) {
        if let Some(before) = self.before.replace(total) {
            // Less than before: it was started anew.
            self.unaccounted = self.unaccounted.saturating_add(total.checked_sub(before).unwrap_or(total));
        }
    }

    /// The bytes that the group's sum lacks.
    #[must_use]
    pub const fn unaccounted(&self) -> u64 {
        self.unaccounted
    }

    /// The sum is this, with `added` of ours in it now.
    pub const fn accounted(&mut self, sum: Spent, added: u64) {
        self.unaccounted = self.unaccounted.saturating_sub(added);
        self.known = sum;
    }

    /// Whether `limit` is used up on `day`, as far as is known.
    #[must_use]
    pub const fn is_used_up(&self, limit: u64, day: u64) -> bool {
        self.known.plus(day, self.unaccounted).bytes >= limit
    }
}

/// Whether a host may work on a group for other reasons than leases: its latency, and its turn.
#[derive(Clone, Debug, Default)]
pub struct Governed {
    slow_looks: u32,
    held_since: Option<Moment>,
    away_until: Option<Moment>,
}

impl Governed {
    /// One look, each [`Term::pause`]: whether to seek, or to keep, a lease.
    pub fn look(
        &mut self,
        now: Moment,
        term: Term,
        holds: bool,
        latency_us: Option<f64>,
        limits: &GroupLimits,
    ) -> bool {
        let slow = matches!((latency_us, limits.latency_limit_us), (Some(is), Some(limit)) if is > limit);
        self.slow_looks = if slow { self.slow_looks.saturating_add(1) } else { 0 };
        if !holds {
            self.held_since = None;
            return !slow && self.away_until.is_none_or(|until| now >= until);
        }
        let since = *self.held_since.get_or_insert(now);
        let away = if self.slow_looks >= SLOW_LOOKS {
            term.full() * AWAY_WHEN_SLOW
        } else if now.since(since) >= term.full() * TURN {
            // Two looks of the others.
            term.pause() * 2
        } else {
            return true;
        };
        self.away_until = Some(now.plus(away));
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn bytes_are_counted_once_across_days_and_starts_of_the_service() {
        let mut allowance = Allowance::default();
        allowance.moved(1000);
        assert_eq!(allowance.unaccounted(), 0, "what was moved before this agent was there is not ours to count");
        allowance.moved(1500);
        allowance.moved(200);
        assert_eq!(allowance.unaccounted(), 700);
        let sum = Spent { day: 10, bytes: 50 }.plus(10, 700);
        allowance.accounted(sum, 700);
        assert_eq!((allowance.unaccounted(), sum), (0, Spent { day: 10, bytes: 750 }));
        assert!(allowance.is_used_up(750, 10));
        assert!(!allowance.is_used_up(751, 10));
        assert!(!allowance.is_used_up(750, 11), "a new day");
        assert_eq!(Spent { day: 11, bytes: 5 }.plus(10, 1), Spent { day: 11, bytes: 6 }, "a clock that is behind");
        assert_eq!(Spent { day: 400, bytes: 5 }.plus(10, 1), Spent { day: 10, bytes: 1 }, "a clock that was far ahead");
    }

    #[test]
    fn a_host_gives_way_when_the_storage_is_slow_or_its_turn_is_over() {
        let term = Term::of(Duration::from_secs(60));
        let at = |seconds| Moment::after_boot(Duration::from_secs(seconds));
        let limits = GroupLimits { latency_limit_us: Some(5000.0), ..GroupLimits::default() };
        let mut governed = Governed::default();
        assert!(governed.look(at(0), term, false, Some(1000.0), &limits));
        assert!(!governed.look(at(5), term, false, Some(9000.0), &limits), "nothing is taken while it is slow");
        let mut governed = Governed::default();
        let looks: Vec<_> = (0..4).map(|n| governed.look(at(n * 15), term, true, Some(9000.0), &limits)).collect();
        assert_eq!(looks, [true, true, false, false]);
        assert!(!governed.look(at(200), term, false, Some(10.0), &limits), "away for some terms");
        assert!(governed.look(at(45 + 300), term, false, None, &limits));
        assert!(governed.look(at(400), term, true, None, &limits));
        assert!(!governed.look(at(400 + 1800), term, true, None, &limits), "its turn is over");
        assert!(governed.look(at(400 + 1830), term, false, None, &limits));
    }
}
