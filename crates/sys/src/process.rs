//! The privileges, priorities and limits of this process.

use rustix::process::{Resource, Rlimit, geteuid, getrlimit, setrlimit};
use std::os::unix::process::CommandExt;
use std::process::Command;

/// Whether the process runs as root.
#[must_use]
pub fn is_root() -> bool {
    geteuid().is_root()
}

/// Raises the number of files that the process may have open to the most that it may give itself.
///
/// # Errors
/// The kernel's.
pub fn raise_open_file_limit() -> Result<(), rustix::io::Errno> {
    let limit = getrlimit(Resource::Nofile);
    setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, maximum: limit.maximum })
}

/// Ignores SIGTTIN and SIGTTOU: as a background job that reads from its terminal or writes to it, the process is not
/// stopped. A handler would not do: the kernel repeats the call, and the signal, until it is ignored.
///
/// # Errors
/// The kernel's.
pub fn ignore_terminal_stops() -> Result<(), rustix::io::Errno> {
    for signal in [libc::SIGTTIN, libc::SIGTTOU] {
        // SAFETY: no handler of ours is installed; the kernel discards these signals from now on.
        if unsafe { libc::signal(signal, libc::SIG_IGN) } == libc::SIG_ERR {
            return Err(crate::raw::last_errno());
        }
    }
    Ok(())
}

/// Has a child asked to end (SIGTERM) when the thread that starts it ends, however that comes to be.
pub fn end_with_us(command: &mut Command) {
    let us = std::process::id().cast_signed();
    // SAFETY: between fork and exec only two system calls are made, which take plain integers and allocate nothing.
    unsafe {
        command.pre_exec(move || {
            let rc = libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGTERM);
            crate::raw::checked(libc::c_long::from(rc))?;
            // A process that ended before this call sends nothing any more.
            if libc::getppid() == us { Ok(()) } else { Err(rustix::io::Errno::CHILD.into()) }
        });
    }
}

/// Has all threads of this process share two pools of memory, where the C library gives each its own otherwise (eight for each
/// processor). Each keeps the most that its threads ever needed: where work goes from thread to thread, the process grows until
/// every pool has met the largest piece of it. To be called before there are other threads.
pub fn share_memory_pools() {
    #[cfg(target_env = "gnu")]
    // SAFETY: two plain integers; what the call does not know or cannot do it leaves as it is.
    unsafe {
        libc::mallopt(libc::M_ARENA_MAX, 2);
    }
}

/// Lets the calling thread run before all ordinary ones. For a thread that sleeps nearly always. Needs CAP_SYS_NICE.
///
/// # Errors
/// The kernel's.
pub fn run_before_others() -> Result<(), rustix::io::Errno> {
    // SAFETY: plain integers; all zero is a valid value.
    let mut parameters: libc::sched_param = unsafe { std::mem::zeroed() };
    parameters.sched_priority = 1;
    // SAFETY: the record is read during the call; 0 names the calling thread.
    let rc = unsafe { libc::sched_setscheduler(0, libc::SCHED_FIFO | libc::SCHED_RESET_ON_FORK, &parameters) };
    crate::raw::checked(libc::c_long::from(rc)).map(drop)
}

/// Gives the calling thread a place among the ordinary ones: 19 the last, -20 the first, which needs CAP_SYS_NICE.
///
/// # Errors
/// `EACCES` without that.
pub fn set_nice(nice: i32) -> Result<(), rustix::io::Errno> {
    // Of this call the kernel means the thread, not the process, whatever the manual of POSIX says.
    rustix::process::setpriority_process(None, nice)
}

/// Lets the I/O of the calling thread wait for everybody else's, as far as the device's scheduler heeds it.
///
/// # Errors
/// The kernel's.
pub fn yield_io_to_others() -> Result<(), rustix::io::Errno> {
    const WHO_THREAD: libc::c_int = 1;
    const CLASS_IDLE: libc::c_int = 3;
    const CLASS_SHIFT: libc::c_int = 13;
    // SAFETY: no memory is passed; 0 names the calling thread.
    let rc = unsafe { libc::syscall(libc::SYS_ioprio_set, WHO_THREAD, 0, CLASS_IDLE << CLASS_SHIFT) };
    crate::raw::checked(rc).map(drop)
}

/// The monotonic clock, in nanoseconds: the one that events from the kernel are stamped by.
#[must_use]
pub fn monotonic_nanoseconds() -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the kernel writes one record; this clock exists everywhere.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &raw mut time) };
    u64::try_from(time.tv_sec).unwrap_or(0) * 1_000_000_000 + u64::try_from(time.tv_nsec).unwrap_or(0)
}

/// The time since the machine was started, the time in which it slept included.
#[must_use]
pub fn since_boot() -> std::time::Duration {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the kernel writes one record; this clock exists everywhere.
    unsafe { libc::clock_gettime(libc::CLOCK_BOOTTIME, &raw mut time) };
    std::time::Duration::new(u64::try_from(time.tv_sec).unwrap_or(0), u32::try_from(time.tv_nsec).unwrap_or(0))
}

/// The processor time that this process has used so far.
#[must_use]
pub fn processor_time() -> std::time::Duration {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the kernel writes one record, which lives during the call.
    let rc = unsafe { libc::clock_gettime(libc::CLOCK_PROCESS_CPUTIME_ID, std::ptr::from_mut(&mut time)) };
    debug_assert_eq!(rc, 0, "the clock is there on every Linux");
    std::time::Duration::new(u64::try_from(time.tv_sec).unwrap_or(0), u32::try_from(time.tv_nsec).unwrap_or(0))
}

/// Has the kernel end this process after this time (in whole seconds, at least one), whatever it does then.
pub fn end_after(time: std::time::Duration) {
    let seconds = libc::c_uint::try_from(time.as_secs().max(1)).unwrap_or(libc::c_uint::MAX);
    // SAFETY: no memory is passed.
    unsafe { libc::alarm(seconds) };
}
