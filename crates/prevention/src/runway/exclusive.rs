//! Exclusive access to a file by a lease, and the check immediately before each call that the lease still holds.
//!
//! Owns the lease. Never changes a file.

use longrun_sys::ExclusiveLease;
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::FileExt as _;
use std::time::Duration;

/// How long the kernel lets another process wait for a lease before it takes it away.
const BREAK_TIME: &str = "/proc/sys/fs/lease-break-time";
/// A lease is trusted for this part of that time, …
const TRUSTED_PART: u32 = 8;
/// … and for no longer than this.
const TRUSTED_MOST: Duration = Duration::from_secs(5);

/// No other process has the file open while this lives, as long as [`Exclusive::holds`].
pub(super) struct Exclusive<'file> {
    file: &'file File,
    /// None only where a test shows what happens without.
    lease: Option<ExclusiveLease<'file>>,
    taken: Duration,
    break_time: Duration,
}

impl<'file> Exclusive<'file> {
    /// `None` when another process has the file open, too.
    pub(super) fn take(file: &'file File) -> io::Result<Option<Self>> {
        // A frozen volume is waited for here, where no one waits for us.
        wait_while_frozen(file)?;
        let (taken, break_time) = (longrun_sys::since_boot(), break_time());
        #[cfg(test)]
        if faults::WITHOUT_LEASE.get() {
            return Ok(Some(Self { file, lease: None, taken, break_time }));
        }
        let Some(lease) = ExclusiveLease::take(file)? else { return Ok(None) };
        Ok(Some(Self { file, lease: Some(lease), taken, break_time }))
    }

    /// Whether no other process can have done anything with the file since the lease was taken, and no one waits for it. To be
    /// asked immediately before each call that changes the file, with nothing in between.
    ///
    /// A lease that another process waits for ends by force after the kernel's time for it, however long this process
    /// was stopped or the machine slept meanwhile. So one that has lasted long is not believed in, whatever the kernel
    /// says.
    pub(super) fn holds(&self) -> io::Result<bool> {
        wait_while_frozen(self.file)?;
        let held = self.lease.as_ref().is_none_or(ExclusiveLease::is_held);
        #[cfg(test)]
        if faults::WITHOUT_ASKING.get() {
            return Ok(true);
        }
        Ok(held && self.lasted() < trusted(self.break_time))
    }

    /// The same for a call that changes content or space of the file, with which the kernel takes privileges away that the file has by now.
    pub(super) fn permits_change(&self) -> io::Result<bool> {
        wait_while_frozen(self.file)?;
        Ok(!longrun_sys::gives_privileges(self.file)? && self.holds()?)
    }

    /// Whether the lease has lasted for so long that the kernel can have taken it away.
    pub(super) fn can_have_ended(&self) -> bool {
        self.break_time > Duration::ZERO && self.lasted() >= self.break_time
    }

    fn lasted(&self) -> Duration {
        longrun_sys::since_boot().saturating_sub(self.taken)
    }
}

/// Waits until the volume of `file` takes changes: what changes a file would wait, too, but inside the call, where nothing can be
/// checked any more. A write of nothing goes no further than that, and leaves no trace.
fn wait_while_frozen(file: &File) -> io::Result<()> {
    file.write_at(&[], 0).map(drop)
}

/// Zero when the kernel never takes a lease away.
fn break_time() -> Duration {
    let text = fs::read_to_string(BREAK_TIME).unwrap_or_default();
    // What cannot be read is taken for the shortest that there is.
    Duration::from_secs(text.trim().parse::<i64>().map_or(1, |seconds| u64::try_from(seconds).unwrap_or(0)))
}

fn trusted(break_time: Duration) -> Duration {
    if break_time.is_zero() { TRUSTED_MOST } else { (break_time / TRUSTED_PART).min(TRUSTED_MOST) }
}

/// Switches by which tests show that each rule is needed.
#[cfg(test)]
pub(super) mod faults {
    use std::cell::Cell;
    thread_local! {
        /// Give back without asking whether anybody has the file open.
        pub(crate) static WITHOUT_LEASE: Cell<bool> = const { Cell::new(false) };
        /// Go by a lease although it may have ended.
        pub(crate) static WITHOUT_ASKING: Cell<bool> = const { Cell::new(false) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lease_is_trusted_for_a_part_of_the_time_after_which_the_kernel_ends_it() {
        let seconds = Duration::from_secs;
        assert_eq!(trusted(seconds(45)), seconds(5));
        assert_eq!(trusted(seconds(8)), seconds(1));
        assert_eq!(trusted(seconds(1)), Duration::from_millis(125));
        // It never ends.
        assert_eq!(trusted(Duration::ZERO), seconds(5));
    }
}
