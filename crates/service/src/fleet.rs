//! Whether this machine may work on storage that it shares with others.
//!
//! Owns the permissions that the agent of the fleet has given, and which volumes they are about. A permission ends by the machine's
//! clock, whatever became of the agent. Never keeps prevention from its work: that moves no data.

use crate::config::FleetMode;
use crate::threads::lock;
use longrun_api::fleet::Permission;
use longrun_sys::{DeviceNumber, StorageGroupSource, storage_groups};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Mutex;

/// No permission reaches further, in ns: the longest term of a lease is an hour.
const FURTHEST: u64 = 3_600_000_000_000;

/// Storage groups with what told them: `configured`, `fc`, `iscsi` or `nvme`.
pub type Groups = BTreeMap<String, &'static str>;

/// What the fleet permits.
#[derive(Debug, Default)]
pub struct Permissions {
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    mode: FleetMode,
    /// By mount point.
    volumes: BTreeMap<PathBuf, Groups>,
    permission: Permission,
    /// What was permitted when it was looked last.
    known: BTreeMap<PathBuf, bool>,
}

impl Permissions {
    /// What holds from now on: how far the fleet is obeyed, and the storage groups of each volume, by mount point.
    pub fn set(&self, mode: FleetMode, volumes: BTreeMap<PathBuf, Groups>) {
        let mut state = lock(&self.state);
        (state.mode, state.volumes) = (mode, volumes);
    }

    /// What the agent says replaces what it said before.
    pub fn permit(&self, mut permission: Permission) {
        // Whatever becomes of the agent, or is wrong with it: what it permits ends.
        let furthest = now().saturating_add(FURTHEST);
        let moments = permission.groups.values_mut().chain([&mut permission.in_touch_until]);
        moments.for_each(|until| *until = furthest.min(*until));
        lock(&self.state).permission = permission;
    }

    /// Whether work on the volume at `point` is permitted now.
    #[must_use]
    pub fn permits(&self, point: &Path) -> bool {
        lock(&self.state).permits(point, now())
    }

    /// Whether work on the storage group is permitted now.
    #[must_use]
    pub fn permits_group(&self, group: &str) -> bool {
        lock(&self.state).permits_all([group], now())
    }

    /// Whether the agent keeps in touch.
    #[must_use]
    pub fn is_in_touch(&self) -> bool {
        lock(&self.state).permission.in_touch_until > now()
    }

    /// Whether it has changed since this was asked last what is permitted.
    #[must_use]
    pub fn has_changed(&self) -> bool {
        let mut state = lock(&self.state);
        let now = now();
        let permitted = |point: &PathBuf| (point.clone(), state.permits(point, now));
        let known = state.volumes.keys().map(permitted).collect();
        std::mem::replace(&mut state.known, known) != state.known
    }
}

impl State {
    fn permits(&self, point: &Path, now: u64) -> bool {
        // Of a volume that has just come it is not known yet whether others use its storage.
        self.mode == FleetMode::Off
            || self.volumes.get(point).is_some_and(|groups| self.permits_all(groups.keys().map(String::as_str), now))
    }

    /// A volume on several arrays needs permission for each.
    fn permits_all<'a>(&self, groups: impl IntoIterator<Item = &'a str>, now: u64) -> bool {
        let is_silent = self.permission.in_touch_until <= now;
        match self.mode {
            FleetMode::Off => true,
            FleetMode::GoOn if is_silent => true,
            FleetMode::Rest | FleetMode::GoOn => {
                groups.into_iter().all(|group| self.permission.groups.get(group).is_some_and(|until| *until > now))
            }
        }
    }
}

/// The clock that permissions are meant by, in ns.
fn now() -> u64 {
    u64::try_from(longrun_sys::since_boot().as_nanos()).unwrap_or(u64::MAX)
}

/// The storage groups of a volume on `disks`: the one that is configured, or those that are found.
#[must_use]
pub fn groups(configured: &str, disks: impl IntoIterator<Item = DeviceNumber>) -> Groups {
    if !configured.is_empty() {
        return Groups::from([(configured.to_owned(), "configured")]);
    }
    let found = storage_groups(disks);
    found.into_iter().map(|(name, source): (String, StorageGroupSource)| (name, source.word())).collect()
}

/// By how many minutes the windows of a machine are shifted, of `spread` at most: a hash of `machine` and the storage groups (FNV-1a),
/// which stays the same over restarts and releases.
#[must_use]
pub fn shift(machine: &str, groups: &Groups, spread: std::time::Duration) -> u16 {
    let minutes = spread.as_secs() / 60;
    let bytes = groups.keys().flat_map(|group| group.bytes().chain([0])).chain(machine.trim().bytes());
    let hash =
        bytes.fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3));
    // What differs only at the end differs little in the high bits, which are taken: mixed once more (Fibonacci hashing).
    let mixed = (hash ^ (hash >> 32)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let part = (u128::from(mixed) * u128::from(minutes + 1)) >> 64;
    u16::try_from(part).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn state(mode: FleetMode, in_touch_until: u64, until: &[(&str, u64)]) -> State {
        let groups = until.iter().map(|(group, until)| ((*group).to_owned(), *until)).collect();
        let volume = Groups::from([("san".to_owned(), "fc")]);
        let both = Groups::from([("san".to_owned(), "fc"), ("nas".to_owned(), "iscsi")]);
        State {
            mode,
            volumes: BTreeMap::from([("/san".into(), volume), ("/both".into(), both), ("/own".into(), Groups::new())]),
            permission: Permission { in_touch_until, groups },
            ..State::default()
        }
    }

    #[test]
    fn shared_storage_needs_permission_and_silence_means_what_is_configured() {
        let permits = |state: &State, now| ["/san", "/both", "/own"].map(|point| state.permits(Path::new(point), now));
        let is_unknown_permitted = |state: &State| state.permits(Path::new("/new"), 5);
        let off = state(FleetMode::Off, 0, &[]);
        assert_eq!(permits(&off, 5), [true, true, true]);
        let rest = state(FleetMode::Rest, 10, &[("san", 8)]);
        assert!(is_unknown_permitted(&off) && !is_unknown_permitted(&rest));
        assert_eq!(permits(&rest, 7), [true, false, true], "a volume on two arrays needs both");
        assert_eq!(permits(&rest, 8), [false, false, true], "a permission ends when it says so");
        assert_eq!(permits(&rest, 99), [false, false, true], "silence");
        let go_on = state(FleetMode::GoOn, 10, &[("san", 8), ("nas", 3)]);
        assert_eq!(permits(&go_on, 2), [true, true, true]);
        assert_eq!(permits(&go_on, 9), [false, false, true], "in touch, and not permitted");
        assert_eq!(permits(&go_on, 10), [true, true, true], "silence");
    }

    proptest! {
        #[test]
        fn nothing_is_permitted_after_its_time_while_the_agent_keeps_in_touch_or_silence_means_rest(
            until in 0u64..100, in_touch in 0u64..100, now in 0u64..100, goes_on in any::<bool>(),
        ) {
            let mode = if goes_on { FleetMode::GoOn } else { FleetMode::Rest };
            let permits = state(mode, in_touch, &[("san", until)]).permits(Path::new("/san"), now);
            let as_alone = goes_on && now >= in_touch;
            prop_assert_eq!(permits, now < until || as_alone);
        }
    }

    #[test]
    fn a_change_is_told_once() {
        let permissions = Permissions::default();
        let volumes = BTreeMap::from([("/san".into(), Groups::from([("san".to_owned(), "fc")]))]);
        permissions.set(FleetMode::Rest, volumes);
        assert!(permissions.has_changed(), "nothing was known");
        assert!(!permissions.has_changed());
        permissions.permit(Permission { in_touch_until: u64::MAX, groups: BTreeMap::from([("san".into(), u64::MAX)]) });
        assert!(permissions.permits(Path::new("/san")) && permissions.is_in_touch());
        assert!(permissions.has_changed() && !permissions.has_changed());
        let state = lock(&permissions.state);
        assert!(!state.permits(Path::new("/san"), now() + FURTHEST), "an agent that permits for ever is not believed");
    }

    #[test]
    fn the_hosts_of_an_array_begin_at_different_times_and_each_always_at_the_same() {
        let groups = Groups::from([("san".to_owned(), "fc")]);
        let hour = std::time::Duration::from_secs(3600);
        let machine = |number: u32| format!("{number:032x}\n");
        let shifts: Vec<u16> = (0..600).map(|number| shift(&machine(number), &groups, hour)).collect();
        assert!(shifts.iter().all(|shift| *shift <= 60));
        let most = (0..=60).map(|minute| shifts.iter().filter(|shift| **shift == minute).count()).max();
        assert!(most.is_some_and(|most| most < 30), "{most:?} of 600 begin together");
        assert_eq!(shift(&machine(7), &groups, hour), shifts[7]);
        assert_eq!(shift(&machine(7), &groups, std::time::Duration::ZERO), 0);
    }
}
