//! Watches the canaries of a roll-out: whether it goes on, stops, or waits. Pure: time is what the caller says.

use crate::names::Name;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// What a canary tells of itself.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Look {
    /// How often its state was written: that it lives.
    pub revision: u64,
    /// The version in force.
    pub version: Option<u64>,
    /// Why it does not take the policy.
    pub refused: Option<String>,
    /// The keys of its alerts.
    pub alerts: BTreeSet<String>,
}

/// What is to be done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Look again later.
    Wait,
    /// Take it back, and why.
    Stop(String),
    /// It is for all.
    Spread,
}

/// What there was before: an alert is raised only if it was not there. Key `watch` of the policy bucket, so that another
/// command can go on with it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Before(pub BTreeMap<Name, BTreeSet<String>>);

/// A watch.
#[derive(Clone, Debug)]
pub struct Watch {
    version: u64,
    before: Before,
    /// How long all must have it without an alert.
    time: Duration,
    /// Within which each must confirm it, and in which none may be silent.
    patience: Duration,
    all_have_it_since: Option<Duration>,
    heard: BTreeMap<Name, (u64, Duration)>,
}

impl Watch {
    /// Of the hosts in `before`.
    #[must_use]
    pub const fn new(version: u64, before: Before, time: Duration, patience: Duration) -> Self {
        Self { version, before, time, patience, all_have_it_since: None, heard: BTreeMap::new() }
    }

    /// What follows from what the canaries tell, so long after the beginning.
    pub fn look(&mut self, now: Duration, looks: &BTreeMap<Name, Look>) -> Verdict {
        let mut all_have_it = true;
        for (host, before) in &self.before.0 {
            let none = Look::default();
            let look = looks.get(host).unwrap_or(&none);
            if let Some(alert) = look.alerts.difference(before).next() {
                return Verdict::Stop(format!("{host} has a new alert: {alert}"));
            }
            if let Some(why) = &look.refused {
                return Verdict::Stop(format!("{host} does not take it: {why}"));
            }
            let heard = self.heard.entry(host.clone()).or_insert((look.revision, now));
            if heard.0 != look.revision {
                *heard = (look.revision, now);
            }
            if now.saturating_sub(heard.1) > self.patience {
                return Verdict::Stop(format!("{host} has told nothing for {} s", self.patience.as_secs()));
            }
            all_have_it &= look.version == Some(self.version);
            if look.version != Some(self.version) && now > self.patience {
                return Verdict::Stop(format!("{host} does not have it after {} s", self.patience.as_secs()));
            }
        }
        if !all_have_it {
            self.all_have_it_since = None;
            return Verdict::Wait;
        }
        let since = *self.all_have_it_since.get_or_insert(now);
        if now.saturating_sub(since) >= self.time { Verdict::Spread } else { Verdict::Wait }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn s(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    fn name(text: &str) -> Name {
        text.parse().unwrap()
    }

    fn look(revision: u64, version: u64, alerts: &[&str]) -> Look {
        let alerts = alerts.iter().map(|alert| (*alert).to_owned()).collect();
        Look { revision, version: Some(version), refused: None, alerts }
    }

    fn watch() -> Watch {
        let before = Before([(name("a"), ["old".to_owned()].into()), (name("b"), BTreeSet::new())].into());
        Watch::new(7, before, s(100), s(60))
    }

    #[test]
    fn it_goes_to_all_when_all_canaries_had_it_long_enough() {
        let mut watch = watch();
        let both = |revision, second| {
            [(name("a"), look(revision, 7, &["old"])), (name("b"), look(revision, second, &[]))].into()
        };
        assert_eq!(watch.look(s(0), &both(1, 6)), Verdict::Wait);
        assert_eq!(watch.look(s(30), &both(2, 7)), Verdict::Wait, "the time begins here");
        assert_eq!(watch.look(s(80), &both(3, 7)), Verdict::Wait);
        assert_eq!(watch.look(s(129), &both(4, 7)), Verdict::Wait);
        assert_eq!(watch.look(s(130), &both(5, 7)), Verdict::Spread);
    }

    #[test]
    fn a_new_alert_a_refusal_silence_and_a_missing_confirmation_stop_it() {
        let at = |now, looks: BTreeMap<Name, Look>| match watch().look(s(now), &looks) {
            Verdict::Stop(why) => why,
            other => panic!("{other:?}"),
        };
        let good = || look(1, 7, &[]);
        assert_eq!(at(1, [(name("a"), look(1, 7, &["new"])), (name("b"), good())].into()), "a has a new alert: new");
        let refused = Look { refused: Some("line 3".to_owned()), ..good() };
        assert_eq!(at(1, [(name("a"), good()), (name("b"), refused)].into()), "b does not take it: line 3");
        assert_eq!(at(61, [(name("a"), look(1, 6, &[])), (name("b"), good())].into()), "a does not have it after 60 s");
        assert_eq!(at(61, BTreeMap::new()), "a does not have it after 60 s");
        let mut silent = watch();
        let looks = [(name("a"), good()), (name("b"), good())].into();
        assert_eq!(silent.look(s(0), &looks), Verdict::Wait);
        assert_eq!(silent.look(s(61), &looks), Verdict::Stop("a has told nothing for 60 s".to_owned()));
    }
}
