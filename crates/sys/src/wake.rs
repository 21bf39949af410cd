//! A regular signal for children that would miss the one that is to end them.
//!
//! Owns its setting up. Never sends a signal itself.

use crate::raw::checked;
use std::os::unix::process::CommandExt as _;
use std::process::Command;

/// Has the kernel send SIGALRM to a child every second, from its beginning on, with that signal blocked.
///
/// Only for a program that reads this signal from a file descriptor, or leaves it blocked; another one would be ended
/// by it.
pub fn wake_every_second(command: &mut Command) {
    let second = libc::timeval { tv_sec: 1, tv_usec: 0 };
    let timer = libc::itimerval { it_interval: second, it_value: second };
    let wake = move || {
        // SAFETY: plain integers; all zero is a valid value.
        let mut alarm: libc::sigset_t = unsafe { std::mem::zeroed() };
        // SAFETY: the set is exclusively borrowed and lives during the calls, which read and write nothing else.
        let rc = unsafe {
            libc::sigemptyset(&raw mut alarm);
            libc::sigaddset(&raw mut alarm, libc::SIGALRM);
            libc::sigprocmask(libc::SIG_BLOCK, &raw const alarm, std::ptr::null_mut())
        };
        checked(libc::c_long::from(rc))?;
        // SAFETY: the timer is read during the call; nothing is written.
        let rc = unsafe { libc::setitimer(libc::ITIMER_REAL, &raw const timer, std::ptr::null_mut()) };
        checked(libc::c_long::from(rc))?;
        Ok(())
    };
    // SAFETY: between fork and exec only calls that are safe in signal handlers are made; nothing is allocated. The
    // timer and the mask stay when the program begins.
    unsafe { command.pre_exec(wake) };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_child_gets_the_signal_and_is_not_ended_by_it() {
        let mut command = Command::new("sleep");
        command.arg("1000");
        wake_every_second(&mut command);
        let mut child = command.spawn().unwrap();
        // What is pending for the process, as bits: the signal is number 14.
        let is_woken = || {
            let status = std::fs::read_to_string(format!("/proc/{}/status", child.id())).unwrap();
            let pending = status.lines().find_map(|line| line.strip_prefix("ShdPnd:")).unwrap();
            u64::from_str_radix(pending.trim(), 16).unwrap() == 1 << 13
        };
        let deadline = std::time::Instant::now() + std::time::Duration::from_secs(60);
        while !is_woken() && std::time::Instant::now() < deadline {
            std::thread::sleep(std::time::Duration::from_millis(20));
        }
        let woken = is_woken();
        let ended = child.try_wait().unwrap();
        child.kill().unwrap();
        child.wait().unwrap();
        assert_eq!((woken, ended), (true, None));
    }
}
