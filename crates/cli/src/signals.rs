//! Signals: those that end work safely, and those that must not suspend it.
//!
//! Owns which signals are caught. Never ends anything, and never catches a signal that the parent process has set to be
//! ignored (nohup).

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM, SIGTSTP};
use signal_hook::iterator::Signals;
use std::ffi::c_int;
use std::{fs, io, thread};

/// The answer to Ctrl-Z.
const NO_STOP: &str = "cannot be suspended while it holds free space; Ctrl-C ends it safely";

/// Calls `act`, on its own thread, at each signal that asks the process to end.
pub fn on_end(act: impl FnMut() + Send + 'static) -> io::Result<()> {
    listen(&[SIGINT, SIGTERM, SIGHUP], act)
}

/// Makes Ctrl-Z print why it does nothing, and lets a background job use its terminal. A suspended process could not give
/// back the space that it holds.
pub fn refuse_stops(say: impl Fn(&str) + Send + 'static) -> io::Result<()> {
    longrun_sys::ignore_terminal_stops()?;
    listen(&[SIGTSTP], move || say(NO_STOP))
}

fn listen(wanted: &[c_int], mut act: impl FnMut() + Send + 'static) -> io::Result<()> {
    let ignored = ignored(&fs::read_to_string("/proc/self/status")?);
    let mut signals = Signals::new(wanted.iter().filter(|signal| !contains(ignored, **signal)))?;
    thread::spawn(move || signals.forever().for_each(|_| act()));
    Ok(())
}

/// The set of ignored signals, from the text of /proc/self/status; empty if it is not listed there.
fn ignored(status: &str) -> u64 {
    let set = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    set.and_then(|digits| u64::from_str_radix(digits.trim(), 16).ok()).unwrap_or(0)
}

fn contains(set: u64, signal: c_int) -> bool {
    u32::try_from(signal - 1).is_ok_and(|bit| set.checked_shr(bit).unwrap_or(0) & 1 == 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_inherited_as_ignored_is_found_in_the_status() {
        let set = ignored("Name:\tlongrun\nSigBlk:\tffffffffffffffff\nSigIgn:\t0000000000001001\nSigCgt:\t0\n");
        assert!(contains(set, SIGHUP) && contains(set, signal_hook::consts::SIGPIPE));
        assert!(!contains(set, SIGINT) && !contains(set, SIGTERM) && !contains(set, SIGTSTP));
        assert_eq!(ignored("Name:\tlongrun\n"), 0);
    }
}
