//! Which volumes' reads are counted by file.

use super::{Entry, Hub};
use crate::heats::Wanted;
use crate::threads::lock;
use longrun_volume::target::node_number;

impl Hub {
    /// Has the reads of the volumes counted that are there, as they are configured.
    pub(super) fn set_heat(&self) {
        let wanted = lock(&self.volumes).values().filter_map(wanted).collect();
        self.heats.set(wanted);
    }

    /// Whether there is a volume with this id.
    #[must_use]
    pub fn has_volume(&self, id: &str) -> bool {
        lock(&self.volumes).values().any(|entry| entry.id == id)
    }
}

fn wanted(entry: &Entry) -> Option<Wanted> {
    let watched = &entry.found.watched;
    let uuid = entry.superblock.uuid.filter(|_| entry.settings.enabled && entry.settings.heat)?;
    // Only btrfs has a number that is no device's. The name is one of /dev: nothing waits for a disk.
    let on = node_number(&entry.found.source).unwrap_or(watched.device);
    Some(Wanted { volume: watched.device, filesystem: watched.filesystem, on, id: entry.id.clone(), uuid })
}
