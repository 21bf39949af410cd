//! Which version of the policy is for which host: the record that hosts read. Pure.

use crate::names::Name;
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;

/// How far a roll-out is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Stage {
    /// A share of the hosts tries the new version.
    Canary,
    /// It is for all.
    All,
    /// It was stopped or taken back: all have the previous version.
    Stopped,
}

/// Key `rollout` of the policy bucket.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Rollout {
    /// The version that is rolled out.
    pub version: u64,
    /// The version before; none: no policy.
    pub previous: Option<u64>,
    /// How far it is.
    pub stage: Stage,
    /// The share of hosts that try it first, in per cent.
    pub share: u8,
    /// Hosts that try it first in any case.
    #[serde(default)]
    pub canaries: BTreeSet<Name>,
    /// Why it was stopped.
    #[serde(default)]
    pub reason: Option<String>,
}

impl Rollout {
    /// The version for a host; none: no policy.
    #[must_use]
    pub fn version_for(&self, host: &Name) -> Option<u64> {
        match self.stage {
            Stage::All => Some(self.version),
            Stage::Canary if self.is_canary(host) => Some(self.version),
            Stage::Canary | Stage::Stopped => self.previous,
        }
    }

    /// Whether a host tries the version first. The choice is another one for each version.
    #[must_use]
    pub fn is_canary(&self, host: &Name) -> bool {
        self.canaries.contains(host) || mix(host, self.version) % 100 < u64::from(self.share)
    }

    /// The version that all hosts have that are no canaries.
    #[must_use]
    pub const fn settled(&self) -> Option<u64> {
        match self.stage {
            Stage::All => Some(self.version),
            Stage::Canary | Stage::Stopped => self.previous,
        }
    }

    /// Makes sure that at least one of `hosts` tries it first.
    pub fn choose(&mut self, hosts: &BTreeSet<Name>) {
        if !hosts.iter().any(|host| self.is_canary(host)) {
            self.canaries.extend(hosts.iter().min_by_key(|host| mix(host, self.version)).cloned());
        }
    }
}

/// FNV-1a of both, the same on all hosts and in all versions of this program; then mixed, so that the last bits are even.
fn mix(host: &Name, version: u64) -> u64 {
    let bytes = host.as_str().bytes().chain(version.to_be_bytes());
    let hash =
        bytes.fold(0xcbf2_9ce4_8422_2325, |hash: u64, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3));
    let hash = (hash ^ (hash >> 33)).wrapping_mul(0xff51_afd7_ed55_8ccd);
    hash ^ (hash >> 33)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(count: usize) -> BTreeSet<Name> {
        (0..count).map(|host| format!("host-{host}").parse().unwrap()).collect()
    }

    fn rollout(version: u64, share: u8, stage: Stage) -> Rollout {
        Rollout { version, previous: Some(3), stage, share, canaries: BTreeSet::new(), reason: None }
    }

    #[test]
    fn about_the_share_of_the_hosts_try_it_first_and_other_hosts_each_time() {
        let hosts = names(10_000);
        for share in [0, 1, 10, 50, 100] {
            let rollout = rollout(4, share, Stage::Canary);
            let canaries = hosts.iter().filter(|host| rollout.is_canary(host)).count();
            let wanted = usize::from(share) * 100;
            assert!(canaries.abs_diff(wanted) <= 200 && (share != 100 || canaries == 10_000), "{share} %: {canaries}");
        }
        let (one, other) = (rollout(4, 10, Stage::Canary), rollout(5, 10, Stage::Canary));
        let both = hosts.iter().filter(|host| one.is_canary(host) && other.is_canary(host)).count();
        assert!(both < 250, "{both} of 10,000 twice, where 100 are expected");
    }

    #[test]
    fn each_stage_has_its_version_and_few_hosts_have_a_canary_too() {
        let hosts = names(5);
        let mut rollout = rollout(4, 0, Stage::Canary);
        rollout.choose(&hosts);
        rollout.choose(&hosts);
        assert_eq!(rollout.canaries.len(), 1);
        let versions = |rollout: &Rollout| hosts.iter().filter(|host| rollout.version_for(host) == Some(4)).count();
        assert_eq!((versions(&rollout), rollout.settled()), (1, Some(3)));
        rollout.stage = Stage::All;
        assert_eq!((versions(&rollout), rollout.settled()), (5, Some(4)));
        rollout.stage = Stage::Stopped;
        assert_eq!((versions(&rollout), rollout.settled()), (0, Some(3)));
        rollout.choose(&BTreeSet::new());
    }
}
