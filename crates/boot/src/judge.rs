//! Whether reading ahead pays, judged by what the last boots were like. Pure.

use longrun_layout::Bytes;
use serde::{Deserialize, Serialize};

/// Every so manieth boot goes without, so that what is needed is known, and whether it is faster with.
pub const ROUND: u32 = 8;
/// Less than this share of what was read ahead used is too little.
const LEAST_USED: f64 = 0.6;
/// A boot that takes longer than this many times the one without is slower.
const SLOWER: f64 = 1.05;
/// So many are remembered.
const REMEMBERED: usize = 16;

/// What one boot (or start of an application) was like.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Run {
    /// What was read ahead; `None`: nothing, by intention.
    pub preloaded: Option<Preloaded>,
    /// How long it took, in seconds; `None` where that is not known.
    pub seconds: Option<f64>,
    /// What was read from the device all the same, in bytes.
    pub read: Bytes,
}

/// What was read ahead.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Preloaded {
    /// Bytes of files.
    pub data: Bytes,
    /// Bytes of metadata.
    pub metadata: Bytes,
    /// How long that took, in seconds.
    pub seconds: f64,
    /// Which share of the data was used; `None` where the kernel does not tell.
    pub used: Option<f64>,
}

/// What is remembered of the boots so far.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct History {
    /// The last ones, the latest at the end.
    pub runs: Vec<Run>,
    /// Why nothing is read ahead any more, until it is enabled again.
    pub off: Option<String>,
}

/// What the next boot will do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// Read ahead.
    Preload,
    /// Go without this time.
    Without,
    /// Not any more.
    Off,
}

impl History {
    /// Remembers one more, and switches it off when it does not pay.
    pub fn add(&mut self, run: Run) {
        self.runs.push(run);
        let many = self.runs.len().saturating_sub(REMEMBERED);
        // What is compared with stays.
        let last_without = self.runs.iter().rposition(|run| run.preloaded.is_none());
        self.runs.drain(..many.min(last_without.unwrap_or(many)));
        if self.off.is_none() {
            self.off = self.verdict();
        }
    }

    /// What the next boot does.
    #[must_use]
    pub fn next(&self) -> Next {
        let with = self.runs.iter().rev().take_while(|run| run.preloaded.is_some()).count();
        match (&self.off, u32::try_from(with)) {
            (Some(_), _) => Next::Off,
            (None, Ok(with)) if with + 1 < ROUND => Next::Preload,
            _ => Next::Without,
        }
    }

    /// The reason not to go on, if there is one: twice in a row.
    fn verdict(&self) -> Option<String> {
        let without: Vec<f64> =
            self.runs.iter().filter(|run| run.preloaded.is_none()).filter_map(|run| run.seconds).collect();
        let without = median(without);
        let last: Vec<(&Run, &Preloaded)> =
            self.runs.iter().rev().map_while(|run| Some((run, run.preloaded.as_ref()?))).take(2).collect();
        let [(late, late_preloaded), (early, early_preloaded)] = last.as_slice() else { return None };
        let used = [early_preloaded.used, late_preloaded.used];
        if let [Some(a), Some(b)] = used
            && a.max(b) < LEAST_USED
        {
            return Some(format!(
                "of what was read ahead only {:.0} % and {:.0} % were used in two boots; the least is {:.0} %",
                a * 100.0,
                b * 100.0,
                LEAST_USED * 100.0
            ));
        }
        match (early.seconds, late.seconds, without) {
            (Some(a), Some(b), Some(without)) if a.min(b) > without * SLOWER => Some(format!(
                "two boots with reading ahead took {a:.1} and {b:.1} s, without it {without:.1} s (median)"
            )),
            _ => None,
        }
    }

    /// The medians of the seconds with and without.
    #[must_use]
    pub fn medians(&self) -> (Option<f64>, Option<f64>) {
        let of = |with: bool| {
            let runs = self.runs.iter().filter(|run| run.preloaded.is_some() == with);
            median(runs.filter_map(|run| run.seconds).collect())
        };
        (of(true), of(false))
    }
}

fn median(mut seconds: Vec<f64>) -> Option<f64> {
    seconds.sort_by(f64::total_cmp);
    let middle = seconds.get(seconds.len() / 2).copied()?;
    match seconds.len().checked_sub(1).and_then(|last| seconds.get(last / 2)) {
        Some(other) => Some(f64::midpoint(middle, *other)),
        None => Some(middle),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(seconds: f64, used: Option<f64>) -> Run {
        let preloaded = Preloaded { data: Bytes(1 << 20), metadata: Bytes(4096), seconds: 1.0, used };
        Run { preloaded: Some(preloaded), seconds: Some(seconds), read: Bytes(0) }
    }

    fn without(seconds: f64) -> Run {
        Run { preloaded: None, seconds: Some(seconds), read: Bytes(1 << 20) }
    }

    fn after(runs: &[Run]) -> History {
        let mut history = History::default();
        runs.iter().for_each(|run| history.add(*run));
        history
    }

    #[test]
    fn every_eighth_boot_goes_without() {
        let mut history = after(&[without(10.0)]);
        let mut turns = Vec::new();
        for _ in 0..24 {
            let next = history.next();
            turns.push(next == Next::Preload);
            history.add(if next == Next::Preload { run(5.0, Some(0.9)) } else { without(10.0) });
        }
        let gone: Vec<usize> = (0..24).filter(|nth| !turns[*nth]).collect();
        assert_eq!(gone, [7, 15, 23], "{turns:?}");
        assert!(history.runs.len() <= REMEMBERED);
    }

    #[test]
    fn it_is_switched_off_when_twice_too_little_was_used_or_it_was_slower() {
        assert_eq!(after(&[without(10.0), run(5.0, Some(0.5)), run(5.0, Some(0.7))]).off, None, "once");
        let unused = after(&[without(10.0), run(5.0, Some(0.5)), run(5.0, Some(0.59))]);
        assert!(unused.off.as_deref().unwrap().contains("50 % and 59 %"), "{:?}", unused.off);
        assert_eq!(unused.next(), Next::Off);
        assert_eq!(after(&[without(10.0), run(10.4, None), run(12.0, None)]).off, None, "hardly slower");
        let slower = after(&[without(10.0), without(10.4), run(11.0, None), run(12.0, None)]);
        assert!(slower.off.as_deref().unwrap().contains("11.0 and 12.0 s, without it 10.2 s"), "{:?}", slower.off);
        assert_eq!(after(&[run(11.0, None), run(12.0, None)]).off, None, "with nothing to compare with");
        assert_eq!(after(&[without(10.0), run(20.0, None), without(10.0), run(20.0, None)]).off, None, "in a row");
    }

    #[test]
    fn what_is_off_stays_off() {
        let mut history = after(&[without(10.0), run(5.0, Some(0.1)), run(5.0, Some(0.1))]);
        history.add(run(1.0, Some(1.0)));
        history.add(run(1.0, Some(1.0)));
        assert_eq!(history.next(), Next::Off);
    }
}
