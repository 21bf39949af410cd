//! Waits for discards of a volume that is mounted with `discard`.
//!
//! There the kernel discards freed blocks after the commit, in the background. As long as the device works on a free run, the
//! allocator does not have it, and neither does the map of the free space: not only the blocks that were freed, but all free
//! blocks from there to the next used one. `syncfs` does not wait for that, and no other call does.
//!
//! Owns this waiting. Never waits where the volume does not discard, where the device has nothing in flight, or for long.

use longrun_sys::{DeviceNumber, Mount};
use std::fs::{self, File};
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// How often it is looked.
const PERIOD: Duration = Duration::from_millis(1);
/// So many looks in a row at an idle device mean that nothing is being discarded.
const IDLE_LOOKS: u32 = 4;
/// A device that discards slowly is not waited for longer: what is missing then is taken for used.
const LONGEST: Duration = Duration::from_millis(500);

/// The discards of one volume.
#[derive(Debug)]
pub(super) struct Discards {
    statistics: PathBuf,
}

/// What the device has done and does.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Seen {
    in_flight: u64,
    discarded: u64,
}

impl Seen {
    /// From the kernel's statistics of a block device; none before Linux 4.18.
    fn parse(text: &str) -> Option<Self> {
        let numbers: Vec<u64> = text.split_whitespace().filter_map(|number| number.parse().ok()).collect();
        Some(Self { in_flight: *numbers.get(8)?, discarded: *numbers.get(11)? })
    }
}

impl Discards {
    /// Of the volume of `root`; none when it is not mounted with `discard`.
    pub(super) fn of(root: &File) -> Option<Self> {
        let mount = Mount::of(root).ok().flatten()?;
        let DeviceNumber { major, minor } = mount.device;
        let statistics = PathBuf::from(format!("/sys/dev/block/{major}:{minor}/stat"));
        mount.options.iter().any(|option| option == "discard").then_some(Self { statistics })
    }

    /// Returns when `is_done` says so, or when there is nothing to wait for.
    pub(super) fn wait<E>(&self, mut is_done: impl FnMut() -> Result<bool, E>) -> Result<(), E> {
        let until = Instant::now() + LONGEST;
        let (mut idle, mut last) = (0, None);
        while !is_done()? && idle < IDLE_LOOKS && Instant::now() < until {
            let seen = fs::read_to_string(&self.statistics).ok().and_then(|text| Seen::parse(&text));
            let Some(seen) = seen else { break };
            let moves = seen.in_flight > 0 || last.is_some_and(|last: Seen| last.discarded != seen.discarded);
            idle = if moves { 0 } else { idle + 1 };
            last = Some(seen);
            std::thread::sleep(PERIOD);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const IDLE: &str = "  10 0 80 1  20 3 160 4  0 5 6  7 0 56 2  1 1";
    const BUSY: &str = "  10 0 80 1  20 3 160 4  1 5 6  7 0 56 2  1 1";

    fn looks(text: &str, done_at: u32) -> u32 {
        let file = tempfile::NamedTempFile::new().unwrap();
        fs::write(file.path(), text).unwrap();
        let discards = Discards { statistics: file.path().to_owned() };
        let mut looks = 0;
        discards
            .wait(|| {
                looks += 1;
                Ok::<bool, ()>(looks >= done_at)
            })
            .unwrap();
        looks
    }

    #[test]
    fn it_waits_while_the_device_works_and_not_where_nothing_is_in_flight() {
        assert_eq!(Seen::parse(BUSY), Some(Seen { in_flight: 1, discarded: 7 }));
        assert_eq!(Seen::parse("1 2 3 4 5 6 7 8 9 10 11"), None, "an old kernel");
        assert_eq!(looks(BUSY, 20), 20);
        assert_eq!(looks(IDLE, 20), IDLE_LOOKS + 1);
        assert_eq!(looks("", 20), 1);
        assert_eq!(looks(BUSY, 1), 1);
    }
}
