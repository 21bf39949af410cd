//! The run time of BPF programs: the cost that they add to the observed processes.

use rustix::io::Errno;
use std::fs;
use std::os::fd::{FromRawFd, OwnedFd};
use std::time::Duration;

/// The kernel measures how long BPF programs run, from now until the descriptor is closed. That itself costs each
/// run some 20 ns. Needs CAP_SYS_ADMIN.
///
/// # Errors
/// The kernel's: `EPERM` without that, `EINVAL` before Linux 5.8.
pub fn measure_bpf() -> Result<OwnedFd, Errno> {
    const ENABLE_STATISTICS: libc::c_long = 32;
    const RUN_TIME: u32 = 0;
    let kind = RUN_TIME;
    // SAFETY: the kernel reads the four bytes that it is told of, during the call.
    let fd = unsafe { libc::syscall(libc::SYS_bpf, ENABLE_STATISTICS, &raw const kind, size_of_val(&kind)) };
    let fd = crate::raw::checked(fd)?;
    let fd = i32::try_from(fd).map_err(|_| Errno::BADF)?;
    // SAFETY: the call made it for us, and no other process knows it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// How long the BPF programs of a process have run while that was measured; `None` when it has none, or is gone.
#[must_use]
pub fn time_in_bpf(process: u32) -> Option<Duration> {
    let entries = fs::read_dir(format!("/proc/{process}/fdinfo")).ok()?;
    let time =
        |text: String| text.lines().find_map(|line| line.strip_prefix("run_time_ns:")?.trim().parse::<u64>().ok());
    let times = entries.flatten().filter_map(|entry| fs::read_to_string(entry.path()).ok().and_then(time));
    times.reduce(|a, b| a.saturating_add(b)).map(Duration::from_nanos)
}
