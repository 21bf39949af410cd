//! The probes of all disks below a volume that may have users outside this machine.
//!
//! Owns the combination of several disks. Each disk is probed by itself, because one disk says nothing about another.
//! If any disk is in use, all work pauses. All probes share one wait for the end of our own requests.

use super::{Finding, Prober};
use crate::{Device, DiskKind, Latency};
use std::time::Duration;

/// Of more disks only so many are probed: all work stands still meanwhile.
const MOST: usize = 8;

/// The probes; none where no disk is to be probed.
#[derive(Debug, Default)]
pub(crate) struct Probers {
    each: Vec<Prober>,
}

impl Probers {
    /// Of these devices those that may have users outside this machine. A disk inside it has none.
    pub(crate) fn of(devices: &[Device]) -> Self {
        let hidden = |device: &&Device| matches!(DiskKind::of(device), DiskKind::Virtual | DiskKind::Thin);
        let disks = devices.iter().filter(|device| device.is_lowest).filter(hidden).take(MOST);
        Self { each: disks.filter_map(prober_of).collect() }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.each.is_empty()
    }

    /// Whether it is time for a probe of any of them.
    pub(crate) fn are_due(&self, now: Duration) -> bool {
        self.each.iter().any(|prober| prober.is_due(now))
    }

    /// No moment was quiet enough.
    pub(crate) fn skip(&mut self, now: Duration, waited: Duration) {
        self.each.iter_mut().filter(|prober| prober.is_due(now)).for_each(|prober| prober.skip(now, waited));
    }

    /// Probes those whose time has come, one after the other, after our own work has `waited` for its requests to be done. A probe
    /// counts when `undisturbed` says so, being asked behind each; the others are left for the next time then. Disks that cannot
    /// be probed are forgotten.
    pub(crate) fn probe(&mut self, now: Duration, waited: Duration, undisturbed: &mut dyn FnMut() -> bool) {
        let mut disturbed = false;
        self.each.retain_mut(|prober| {
            if disturbed || !prober.is_due(now) {
                return true;
            }
            match prober.probe(now, waited) {
                Ok(took) => {
                    disturbed = !undisturbed();
                    if !disturbed {
                        prober.judge(took);
                    }
                    true
                }
                Err(error) => {
                    tracing::warn!(%error, "probing a disk failed; its use by other machines is not detected");
                    false
                }
            }
        });
    }

    /// Whether it is not known yet of one of them how long probes usually take.
    pub(crate) fn are_learning(&self) -> bool {
        self.each.iter().any(Prober::is_learning)
    }

    /// What the probes say: what those of one disk say that is in use.
    pub(crate) fn finding(&self) -> Finding {
        self.each.iter().map(Prober::finding).max().unwrap_or(Finding::Nobody)
    }

    /// How long probes take, of the disk where that is furthest from what is usual.
    pub(crate) fn latency(&self) -> Option<Latency> {
        let slowness = |latency: &Latency| latency.recent_us as f64 / latency.usual_us.max(1) as f64;
        self.each.iter().filter_map(Prober::latency).max_by(|a, b| slowness(a).total_cmp(&slowness(b)))
    }
}

fn prober_of(disk: &Device) -> Option<Prober> {
    let told = |error: &std::io::Error| {
        tracing::info!(disk = disk.name, %error, "the disk cannot be probed; its use by other machines is not detected");
    };
    Prober::open(&disk.name).inspect_err(told).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    /// Two disks that are known to take a millisecond each.
    fn two(node: &str) -> Probers {
        let mut probers = Probers { each: [node; 2].map(|node| Prober::at(node.into(), 1)).into() };
        assert!(probers.are_learning());
        for prober in &mut probers.each {
            (0..20).for_each(|_| prober.judge(MS));
        }
        probers
    }

    #[test]
    fn whoever_uses_one_of_several_disks_is_noticed_and_told() {
        let mut probers = two("/nonexistent");
        assert_eq!((probers.are_learning(), probers.finding()), (false, Finding::Nobody));
        probers.each[1].judge(MS * 9);
        assert_eq!(probers.finding(), Finding::Doubt);
        (0..5).for_each(|_| probers.each[1].judge(MS * 9));
        assert_eq!(probers.finding(), Finding::Somebody);
        assert_eq!(probers.latency(), Some(Latency { usual_us: 1000, recent_us: 9000 }));
        assert_eq!((Probers::default().finding(), Probers::default().latency()), (Finding::Nobody, None));
    }

    #[test]
    fn all_are_probed_in_one_quiet_moment_and_none_in_another() {
        // Where the system lets read past the cache.
        let directory = tempfile::tempdir_in("/var/tmp").unwrap();
        let node = directory.path().join("disk");
        std::fs::write(&node, vec![0; 8192]).unwrap();
        let mut probers = two(node.to_str().unwrap());
        let mut asked = 0;
        let now = Duration::from_secs(1);
        assert!(probers.are_due(now));
        probers.probe(now, Duration::ZERO, &mut || {
            asked += 1;
            true
        });
        assert_eq!((asked, probers.are_due(now)), (2, false));
        let later = now * 2;
        probers.probe(later, Duration::ZERO, &mut || false);
        assert_eq!(probers.each.iter().filter(|prober| prober.is_due(later)).count(), 1, "the second one waits");
        probers.skip(later, Duration::ZERO);
        assert!(!probers.are_due(later));
    }

    #[test]
    fn a_disk_that_cannot_be_probed_is_forgotten() {
        let mut probers = two("/nonexistent");
        probers.probe(Duration::from_secs(1), Duration::ZERO, &mut || true);
        assert!(probers.is_empty());
    }
}
