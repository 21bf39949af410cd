//! Signals: those that end work in good order, and those that must not stop it.
//!
//! Owns which signals are listened to. Never ends anything, and never touches a signal that whoever started us wanted
//! ignored (nohup).

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM, SIGTSTP};
use signal_hook::iterator::Signals;
use std::ffi::c_int;
use std::{fs, io, thread};

/// The answer to Ctrl-Z.
const NO_STOP: &str = "cannot be stopped while it holds free space; Ctrl-C ends it in good order";

/// Calls `act`, on a thread of its own, at each signal that asks us to end.
pub fn on_end(act: impl FnMut() + Send + 'static) -> io::Result<()> {
    listen(&[SIGINT, SIGTERM, SIGHUP], act)
}

/// Makes Ctrl-Z say why it does nothing, and lets a background job use its terminal: a stopped process would hold its
/// space, and could not give it back to others.
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

/// The set of signals that are ignored, from the text of /proc/self/status; none where it does not tell.
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
