//! Who knows when which host worked on which group, and nothing else; and the judgement of that.

use anyhow::{Context, Result};
use std::collections::BTreeMap;
use std::fs::File;
use std::io::Write as _;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Writes down the times in which hosts worked, by CLOCK_BOOTTIME: a line `GROUP HOST FROM UNTIL` each, in nanoseconds.
#[derive(Debug)]
pub struct Observer {
    file: File,
    count: AtomicU64,
}

impl Observer {
    /// Who writes to this file.
    #[must_use]
    pub const fn new(file: File) -> Self {
        Self { file, count: AtomicU64::new(0) }
    }

    /// How many times were noted.
    pub fn count(&self) -> u64 {
        self.count.load(Ordering::Relaxed)
    }

    pub(super) fn note(&self, group: &str, host: &str, from: Duration, until: Duration) {
        self.count.fetch_add(1, Ordering::Relaxed);
        let line = format!("{group} {host} {} {}\n", from.as_nanos(), until.as_nanos());
        // One write, so that lines of several threads stay whole.
        if let Err(error) = (&self.file).write_all(line.as_bytes()) {
            eprintln!("the observer cannot write: {error}");
        }
    }
}

/// The killing of an agent whose host worked.
#[derive(Clone, Debug)]
pub(super) struct Killed {
    pub(super) at: Duration,
    pub(super) group: String,
    /// The group has one slot only: nobody else could have been granted it.
    pub(super) alone: bool,
}

/// A time in which something else was disturbed: in one group, or in all.
#[derive(Clone, Debug)]
pub(super) struct Disturbed {
    pub(super) from: Duration,
    pub(super) until: Duration,
    pub(super) group: Option<String>,
}

/// What the observer's file says.
pub(super) struct Judgement {
    pub(super) grants: u64,
    pub(super) most: BTreeMap<String, usize>,
    /// From the kill of the only holder of a group to the next holder, where nothing else was disturbed.
    pub(super) waits: Vec<Duration>,
}

/// Judges a file of the observer.
pub(super) fn judge(text: &str, kills: &[Killed], disturbed: &[Disturbed], term: Duration) -> Result<Judgement> {
    let mut times: BTreeMap<String, Vec<(Duration, Duration)>> = BTreeMap::new();
    let mut grants = 0;
    for line in text.lines() {
        let mut words = line.split(' ');
        let group = words.next().context("an empty line")?;
        let mut time = || words.next_back().and_then(|digits| digits.parse().ok()).map(Duration::from_nanos);
        let (until, from) = (time().context("no end")?, time().context("no beginning")?);
        times.entry(group.to_owned()).or_default().push((from, until));
        grants += 1;
    }
    let most = times.iter().map(|(group, times)| (group.clone(), most_at_a_time(times))).collect();
    let waits = kills.iter().filter(|kill| kill.alone).filter_map(|kill| {
        let next = times.get(&kill.group)?.iter().map(|(from, _)| *from).filter(|&from| from > kill.at).min()?;
        let other = |time: &&Disturbed| time.group.as_ref().is_none_or(|group| *group == kill.group);
        // Candidates count from when they saw it themselves: what hindered them a term before counts too.
        let is_clean = |time: &Disturbed| time.from > next || time.until + term < kill.at;
        disturbed.iter().filter(other).all(is_clean).then(|| next - kill.at)
    });
    let waits = waits.collect();
    Ok(Judgement { grants, most, waits })
}

fn most_at_a_time(times: &[(Duration, Duration)]) -> usize {
    let begins = times.iter().map(|&(from, _)| (from, true));
    // `false` before `true`: who begins when another ends is not with it.
    let mut events: Vec<_> = begins.chain(times.iter().map(|&(_, until)| (until, false))).collect();
    events.sort_unstable();
    let (mut now, mut most) = (0_usize, 0);
    for (_, begins) in events {
        now = if begins { now + 1 } else { now.saturating_sub(1) };
        most = most.max(now);
    }
    most
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_observer_sees_too_many_at_a_time_and_how_long_others_waited() {
        let text = "a h1 1 10\na h2 10 20\nb h3 1 10\nb h4 9 20\na h1 50 60\n";
        let second = Duration::from_nanos(1);
        let kill = |at: u64| Killed { at: Duration::from_nanos(at), group: "a".to_owned(), alone: true };
        let judged = judge(text, &[kill(15), kill(5)], &[], second).unwrap();
        assert_eq!(judged.grants, 5);
        assert_eq!(judged.most.into_iter().collect::<Vec<_>>(), [("a".to_owned(), 1), ("b".to_owned(), 2)]);
        assert_eq!(judged.waits, [Duration::from_nanos(35), Duration::from_nanos(5)]);
        let stop = Disturbed { from: Duration::from_nanos(30), until: Duration::from_nanos(31), group: None };
        assert_eq!(judge(text, &[kill(15), kill(5)], &[stop], second).unwrap().waits, [Duration::from_nanos(5)]);
    }
}
