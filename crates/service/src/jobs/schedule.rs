//! When a scheduled pass is due. Pure: the time and everything else are arguments.

use crate::config::{Moment, PassMode, VolumeSettings, Window};
use std::time::Duration;

/// A pass that has ended is followed by another one of the same volume after this time at the earliest, so that one window has one.
const BETWEEN: Duration = Duration::from_secs(12 * 3600);
const MINUTES_A_WEEK: u16 = 7 * 24 * 60;

/// What is known of how fragmented a volume is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Known {
    /// It was scanned since the last pass, and a pass pays or does not.
    Scanned {
        /// Whether it pays.
        pays: bool,
    },
    /// It was not scanned yet, but will be.
    Nothing,
    /// It could not be scanned.
    Trouble(String),
    /// The service does not scan it by itself.
    NeverScanned,
}

/// Everything that the decision depends on.
#[derive(Clone, Debug)]
pub struct Situation<'a> {
    /// The settings of the volume.
    pub settings: &'a VolumeSettings,
    /// The time.
    pub now: Moment,
    /// Whether a pass of it has begun and not ended.
    pub under_way: bool,
    /// How long ago the last one ended.
    pub since_last: Option<Duration>,
    /// What is known of the volume.
    pub known: Known,
}

/// What to do now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Decision {
    /// Begin a pass. The pass reads the volume, and moves nothing if nothing pays.
    Begin,
    /// Scan the volume first.
    Scan,
    /// One is under way.
    UnderWay,
    /// Nothing; why, in a sentence.
    Wait(String),
}

/// What to do with a volume now.
#[must_use]
pub fn decide(situation: &Situation<'_>) -> Decision {
    let Situation { settings, now, under_way, since_last, known } = situation;
    let wait = |why: &str| Decision::Wait(why.to_owned());
    if *under_way {
        return Decision::UnderWay;
    }
    if settings.pass == PassMode::Off {
        return wait("the configuration asks for no pass");
    }
    if !is_open(&settings.pass_windows, *now) {
        return wait("no window (pass_windows) is in effect");
    }
    if since_last.is_some_and(|since| since < BETWEEN) {
        return wait("the last pass ended less than 12 hours ago");
    }
    match known {
        Known::Scanned { pays: true } | Known::NeverScanned => Decision::Begin,
        Known::Scanned { pays: false } => wait("the last scan found nothing that pays"),
        Known::Nothing => Decision::Scan,
        Known::Trouble(trouble) => Decision::Wait(trouble.clone()),
    }
}

/// Whether one of `windows` is in effect.
#[must_use]
pub fn is_open(windows: &[Window], now: Moment) -> bool {
    windows.iter().any(|window| window.contains(now))
}

/// In how many minutes the next of `windows` is in effect: 0 if one is now, `None` without windows.
#[must_use]
pub fn minutes_to(windows: &[Window], now: Moment) -> Option<u16> {
    let of_week = u16::from(now.day) * 1440 + now.minute;
    (0..=MINUTES_A_WEEK).find(|minutes| {
        let then = (of_week + minutes) % MINUTES_A_WEEK;
        let day = u8::try_from(then / 1440).unwrap_or(0);
        is_open(windows, Moment { day, minute: then % 1440 })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(day: u8, hour: u16) -> Moment {
        Moment { day, minute: hour * 60 }
    }

    fn settings(pass: PassMode) -> VolumeSettings {
        VolumeSettings { pass, pass_windows: vec!["sat 01:00-05:00".parse().unwrap()], ..VolumeSettings::default() }
    }

    fn decided(pass: PassMode, now: Moment, since_last: Option<u64>, known: Known) -> Decision {
        let settings = settings(pass);
        let since_last = since_last.map(|hours| Duration::from_secs(hours * 3600));
        decide(&Situation { settings: &settings, now, under_way: false, since_last, known })
    }

    #[test]
    fn a_pass_begins_in_its_window_and_only_if_the_last_scan_says_that_it_pays() {
        let (inside, outside) = (at(5, 2), at(5, 5));
        let pays = |pays| Known::Scanned { pays };
        assert_eq!(decided(PassMode::Full, inside, None, pays(true)), Decision::Begin);
        assert_eq!(decided(PassMode::Efficient, inside, Some(13), pays(true)), Decision::Begin);
        assert_eq!(decided(PassMode::Full, inside, None, Known::Nothing), Decision::Scan);
        assert_eq!(decided(PassMode::Full, inside, None, Known::NeverScanned), Decision::Begin);
        let waits = |decision: &Decision, word: &str| matches!(decision, Decision::Wait(why) if why.contains(word));
        assert!(waits(&decided(PassMode::Full, outside, None, pays(true)), "pass_windows"));
        assert!(waits(&decided(PassMode::Full, inside, None, pays(false)), "nothing that pays"));
        assert!(waits(&decided(PassMode::Full, inside, Some(3), pays(true)), "12 hours"));
        assert!(waits(&decided(PassMode::Off, inside, None, pays(true)), "no pass"));
        assert!(waits(&decided(PassMode::Full, inside, None, Known::Trouble("no memory".into())), "no memory"));
        let settings = settings(PassMode::Full);
        let known = pays(true);
        let under_way = Situation { settings: &settings, now: inside, under_way: true, since_last: None, known };
        assert_eq!(decide(&under_way), Decision::UnderWay);
    }

    #[test]
    fn the_next_window_is_found_over_the_end_of_the_week() {
        let windows = ["sat 01:00-05:00".parse().unwrap()];
        assert_eq!(minutes_to(&windows, at(5, 2)), Some(0));
        assert_eq!(minutes_to(&windows, at(5, 0)), Some(60));
        assert_eq!(minutes_to(&windows, at(5, 5)), Some(7 * 1440 - 4 * 60));
        assert_eq!(minutes_to(&windows, at(6, 1)), Some(6 * 1440));
        assert_eq!(minutes_to(&[], at(0, 0)), None);
    }
}
