//! A btrfs on several loop devices.

use longrun_lab::{LoopVolume, VolumeSpec};

/// Mounted where the first device's volume is. The first goes first, so that nothing is mounted when the others go.
pub struct SeveralDevices {
    pub first: LoopVolume,
    others: Vec<LoopVolume>,
}

impl SeveralDevices {
    /// Data and trees with `profile` on `count` devices of `mebibytes` MiB.
    pub fn create(profile: &str, count: usize, mebibytes: u64) -> Self {
        let others: Vec<LoopVolume> = (1..count)
            .map(|_| {
                let other = LoopVolume::create(&VolumeSpec::btrfs(mebibytes)).unwrap();
                other.unmount().unwrap();
                other
            })
            .collect();
        let devices = others.iter().map(|other| other.device().to_str().unwrap());
        let words: Vec<&str> = ["-f", "-d", profile, "-m", profile].into_iter().chain(devices).collect();
        let first = LoopVolume::create(&VolumeSpec::btrfs(mebibytes).mkfs(&words)).unwrap();
        Self { first, others }
    }

    /// The volumes of the other devices.
    #[allow(dead_code, reason = "not every test needs it")]
    pub fn others(&self) -> impl Iterator<Item = &LoopVolume> {
        self.others.iter()
    }
}
