//! The signals of the machine that pause background work regardless of the device: memory and the battery. Also pressure
//! stall information (PSI) about waits for devices and processors, as a second opinion where no account of harm is kept; the
//! kernel gives it late, and not per device.
//!
//! Owns the reading of these signals. Busy processors alone do not pause the work, because the scheduler already
//! prefers processes with a better nice value.

use crate::Pause;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Names the directory whose `proc` and `sys` show these signs in place of the machine's own. For tests: the pressure of
/// the machine that they run on must decide nothing, and what is wanted can be put there.
const ELSEWHERE: &str = "LONGRUN_MACHINE";
/// Between two looks.
const INTERVAL: Duration = Duration::from_secs(1);
/// The same at who waits, while work is paused.
const PRESSURE_INTERVAL: Duration = Duration::from_millis(100);
/// Processes count as waiting if they waited for more than one in so many microseconds: for a device, and for a processor.
const WAITS_FOR_DEVICE: u128 = 10;
const WAITS_FOR_PROCESSOR: u128 = 2;
/// When all processes have waited for memory for more than this share of the last ten seconds, in per cent, writing more
/// into the cache would make it worse.
const MOST_STALLED: f64 = 10.0;

/// Where the signs are read.
#[derive(Clone, Debug)]
struct Root(PathBuf);

impl Default for Root {
    fn default() -> Self {
        Self(std::env::var_os(ELSEWHERE).map_or_else(|| PathBuf::from("/"), PathBuf::from))
    }
}

impl Root {
    fn text(&self, path: &str) -> Option<String> {
        fs::read_to_string(self.0.join(path)).ok()
    }
}

/// The signs, as they were seen last.
#[derive(Clone, Debug, Default)]
pub(crate) struct Machine {
    root: Root,
    looked: Option<Duration>,
    hold: Option<Pause>,
    waits: Option<(Duration, Waits)>,
}

impl Machine {
    /// Whether a process on this machine has waited for a device or a processor since the last look.
    pub(crate) fn is_pressed(&mut self, now: Duration) -> bool {
        if self.waits.is_some_and(|(looked, _)| now.saturating_sub(looked) < PRESSURE_INTERVAL) {
            return false;
        }
        let total = |path: &str| self.root.text(path).and_then(|text| some_total(&text));
        let waits = Waits { device: total("proc/pressure/io"), processor: total("proc/pressure/cpu") };
        let before = self.waits.replace((now, waits));
        // What lies longer back may have been our own waiting.
        before.is_some_and(|(looked, before)| {
            let time = now.saturating_sub(looked);
            time < INTERVAL && waits.are_long(&before, time)
        })
    }

    /// Why work should pause, if it should.
    pub(crate) fn hold(&mut self, now: Duration) -> Option<Pause> {
        if self.looked.is_none_or(|looked| now.saturating_sub(looked) >= INTERVAL) {
            self.looked = Some(now);
            self.hold = self.look();
        }
        self.hold
    }

    fn look(&mut self) -> Option<Pause> {
        let pressure = self.root.text("proc/pressure/memory").unwrap_or_default();
        if is_discharging(&self.root.0.join("sys/class/power_supply")) {
            Some(Pause::Battery)
        } else if full_average(&pressure).is_some_and(|share| share > MOST_STALLED) {
            Some(Pause::Memory)
        } else {
            None
        }
    }
}

/// How long processes have waited so far, in microseconds; none if the kernel does not report it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Waits {
    device: Option<u64>,
    processor: Option<u64>,
}

impl Waits {
    fn are_long(&self, before: &Self, time: Duration) -> bool {
        let more_than = |now: Option<u64>, before: Option<u64>, part: u128| {
            now.zip(before)
                .is_some_and(|(now, before)| u128::from(now.saturating_sub(before)) * part > time.as_micros())
        };
        more_than(self.device, before.device, WAITS_FOR_DEVICE)
            || more_than(self.processor, before.processor, WAITS_FOR_PROCESSOR)
    }
}

/// For how long anybody has waited, in microseconds, from a file of /proc/pressure.
fn some_total(text: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix("some "))?;
    line.split_whitespace().find_map(|field| field.strip_prefix("total="))?.parse().ok()
}

/// The share of the last ten seconds, in per cent, in which all processes were stalled, from a file of /proc/pressure.
fn full_average(text: &str) -> Option<f64> {
    let line = text.lines().find_map(|line| line.strip_prefix("full "))?;
    line.split_whitespace().find_map(|field| field.strip_prefix("avg10="))?.parse().ok()
}

/// Whether the machine itself, not a mouse, lives on a battery.
fn is_discharging(supplies: &Path) -> bool {
    let text = |directory: &Path, file: &str| fs::read_to_string(directory.join(file)).unwrap_or_default();
    fs::read_dir(supplies).into_iter().flatten().flatten().any(|entry| {
        let supply = entry.path();
        text(&supply, "type").trim() == "Battery"
            && text(&supply, "status").trim() == "Discharging"
            && text(&supply, "scope").trim() != "Device"
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pressure_is_read_from_the_line_of_all() {
        let text =
            "some avg10=50.00 avg60=2.06 avg300=5.49 total=79\nfull avg10=12.25 avg60=0.02 avg300=1.13 total=19\n";
        assert_eq!(full_average(text), Some(12.25));
        assert_eq!(full_average(""), None);
    }

    #[test]
    fn somebody_waits_when_it_is_for_a_good_part_of_the_time() {
        let text =
            "some avg10=50.00 avg60=2.06 avg300=5.49 total=7900\nfull avg10=12.25 avg60=0.02 avg300=1.13 total=19\n";
        assert_eq!((some_total(text), some_total("full total=3\n")), (Some(7900), None));
        let waits = |device, processor| Waits { device, processor };
        let long = |device, processor| {
            waits(device, processor).are_long(&waits(Some(1000), Some(1000)), Duration::from_millis(100))
        };
        assert!(!long(Some(11_000), Some(51_000)));
        assert!(long(Some(11_001), Some(1000)) && long(Some(1000), Some(51_001)));
        assert!(!long(None, None), "a kernel that does not tell");
    }

    #[test]
    fn only_a_battery_of_the_machine_itself_counts() {
        let supply = |files: &[(&str, &str)]| {
            let root = tempfile::tempdir().unwrap();
            fs::create_dir(root.path().join("BAT0")).unwrap();
            files.iter().for_each(|(file, text)| fs::write(root.path().join("BAT0").join(file), text).unwrap());
            is_discharging(root.path())
        };
        assert!(supply(&[("type", "Battery\n"), ("status", "Discharging\n")]));
        assert!(!supply(&[("type", "Battery\n"), ("status", "Charging\n")]));
        assert!(!supply(&[("type", "Battery\n"), ("status", "Discharging\n"), ("scope", "Device\n")]));
        assert!(!supply(&[("type", "Mains\n"), ("online", "0\n")]));
        assert!(!is_discharging(Path::new("/nonexistent")));
    }
}
