//! How much memory a scan may take.
//!
//! Owns the bound. A scan holds the layout of a volume, so that its memory grows with the number of files and extents; the
//! kernel would end the whole service where its memory ends.

use super::own::resident;
use longrun_layout::Bytes;
use longrun_sys::FileSystem;
use std::fs;
use std::path::Path;

/// The most that the service may hold during a scan where nothing limits its memory.
const MOST: Bytes = Bytes(256 << 20);

/// A scan's bound.
#[derive(Clone, Copy, Debug)]
pub struct Bound {
    /// The most that the process may hold.
    pub most: Bytes,
    /// What it held before the scan.
    before: Bytes,
    /// What the scan will take when it has read everything, as per cent of what it has taken then.
    growth: u64,
}

impl Bound {
    /// The bound of a scan that begins now: half of what the control group allows.
    #[must_use]
    pub fn now(filesystem: FileSystem) -> Self {
        Self::of(limit().map_or(MOST, |limit| Bytes(limit.0 / 2)), resident(), filesystem)
    }

    /// One of `most` bytes, of a process that holds `before`.
    #[must_use]
    pub fn of(most: Bytes, before: Bytes, filesystem: FileSystem) -> Self {
        // The layout is completed when everything was read, which takes a fifth more where free space is in many pieces, and half
        // more where it is not; on btrfs the layout itself is made only then.
        let growth = if filesystem == FileSystem::Btrfs { 250 } else { 160 };
        Self { most, before, growth }
    }

    /// Whether a scan would exceed the bound, since the process holds `now` while it reads.
    #[must_use]
    pub fn is_exceeded(&self, now: Bytes) -> bool {
        let taken = now.saturating_sub(self.before);
        self.before.0.saturating_add(taken.0.saturating_mul(self.growth) / 100) > self.most.0
    }
}

/// The most that the process of a job may hold: half of what the control group allows, which it shares with the service. Without
/// such a limit there is no bound.
#[must_use]
pub fn job_memory() -> Option<Bytes> {
    limit().map(|limit| Bytes(limit.0 / 2))
}

/// What the control groups of this process allow it.
fn limit() -> Option<Bytes> {
    let groups = fs::read_to_string("/proc/self/cgroup").ok()?;
    let path = groups.lines().find_map(|line| line.strip_prefix("0::/"))?;
    limit_in(Path::new("/sys/fs/cgroup"), path)
}

/// The least limit of the group `path` below `root`, and of the groups that it lies in.
fn limit_in(root: &Path, path: &str) -> Option<Bytes> {
    let of =
        |group: &Path| fs::read_to_string(root.join(group).join("memory.max")).ok()?.trim().parse().ok().map(Bytes);
    Path::new(path).ancestors().filter_map(of).min()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_scan_is_bounded_by_what_it_will_hold_in_the_end() {
        let mebibytes = |number: u64| Bytes(number << 20);
        let bound = Bound::of(mebibytes(256), mebibytes(56), FileSystem::Ext4);
        assert!(!bound.is_exceeded(mebibytes(30)) && !bound.is_exceeded(mebibytes(180)));
        assert!(bound.is_exceeded(mebibytes(182)), "126 MiB become 201");
        assert!(Bound::of(mebibytes(256), mebibytes(56), FileSystem::Btrfs).is_exceeded(mebibytes(137)));
        assert!(resident().0 > 0 && !Bound::now(FileSystem::Xfs).is_exceeded(Bytes(0)));
    }

    #[test]
    fn the_least_limit_above_a_control_group_holds() {
        let root = tempfile::tempdir().unwrap();
        fs::create_dir_all(root.path().join("system.slice/longrun.service")).unwrap();
        let limited = |group: &str, text: &str| fs::write(root.path().join(group).join("memory.max"), text).unwrap();
        let found = || limit_in(root.path(), "system.slice/longrun.service");
        assert_eq!(found(), None);
        limited("system.slice/longrun.service", "max\n");
        assert_eq!(found(), None);
        limited("system.slice/longrun.service", "536870912\n");
        assert_eq!(found(), Some(Bytes(512 << 20)));
        limited("system.slice", "1048576\n");
        assert_eq!(found(), Some(Bytes(1 << 20)));
    }
}
