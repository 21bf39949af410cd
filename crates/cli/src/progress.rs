//! Progress on standard error: a bar on a terminal, a line now and then elsewhere; and the wish to end work early.
//!
//! Owns what is shown while work goes on and the wish to stop. Never stops anything itself: the worker asks.

use crate::exit::Failure;
use crate::signals;
use crate::text::{duration, size};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use longrun_governor::{Governor, Loads};
use longrun_layout::Bytes;
use longrun_service::governed;
use longrun_volume::Progress;
use longrun_volume::engine::{Observer, Permission, Phase, Status, Turn};
use std::io::{self, IsTerminal, Write};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Where standard error is no terminal, a line is written at most this often.
const LINE_INTERVAL: Duration = Duration::from_secs(10);

/// What the numbers of the present phase count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    /// Bytes: shown with a rate and the time left.
    Bytes,
    /// Steps of the work; shown as a share only.
    Steps,
}

struct Shown {
    name: String,
    unit: Unit,
    round: u32,
    started: Instant,
    last_line: Instant,
}

/// Shows the progress of one command, and knows whether the user wants it to stop.
pub struct Watch {
    bar: ProgressBar,
    on_terminal: bool,
    stop: Arc<AtomicBool>,
    shown: Mutex<Shown>,
    governor: Option<Governor>,
}

impl Watch {
    /// Starts to listen to the signals that end work, and shows nothing until there is a phase.
    pub fn start() -> Result<Self, Failure> {
        let on_terminal = io::stderr().is_terminal();
        let bar = ProgressBar::with_draw_target(Some(0), ProgressDrawTarget::hidden());
        let stop = Arc::new(AtomicBool::new(false));
        let (flag, shown) = (Arc::clone(&stop), bar.clone());
        signals::on_end(move || shown.suspend(|| say(answer(&flag)))).map_err(Failure::signals)?;
        let now = Instant::now();
        let shown = Shown { name: String::new(), unit: Unit::Steps, round: 0, started: now, last_line: now };
        Ok(Self { bar, on_terminal, stop, shown: Mutex::new(shown), governor: None })
    }

    /// From now on space is held that others need: Ctrl-Z does not stop the process with it.
    pub fn refuse_stops(&self) -> Result<(), Failure> {
        let shown = self.bar.clone();
        signals::refuse_stops(move |text| shown.suspend(|| say(text))).map_err(Failure::signals)
    }

    /// Enters a phase of the work.
    pub fn phase(&self, name: &str, unit: Unit) {
        let now = Instant::now();
        *self.lock() = Shown { name: name.to_owned(), unit, round: 0, started: now, last_line: now };
        self.bar.reset();
        self.bar.set_length(0);
        if let Ok(style) = ProgressStyle::with_template(template(unit)) {
            self.bar.set_style(style.progress_chars("=> "));
        }
        self.bar.set_message(name.to_owned());
        if self.on_terminal {
            self.bar.set_draw_target(ProgressDrawTarget::stderr_with_hz(8));
        }
    }

    /// From now on the work, done by this thread, gives way to others as `governor` says.
    pub fn govern(&mut self, governor: Governor) {
        governor.prepare_thread();
        self.governor = Some(governor);
    }

    /// What the governor saw and did.
    pub fn loads(&self) -> Option<Loads> {
        self.governor.as_ref().map(Governor::loads)
    }

    /// Set when the user wants the work to stop, for workers that look at a flag.
    pub fn stop(&self) -> &AtomicBool {
        &self.stop
    }

    /// Takes the bar away while something else is printed.
    pub fn suspend<T>(&self, print: impl FnOnce() -> T) -> T {
        self.bar.suspend(print)
    }

    /// Says what is being done now without starting the phase anew.
    pub fn rename(&self, name: &str) {
        let mut shown = self.lock();
        if shown.name != name {
            name.clone_into(&mut shown.name);
            self.bar.set_message(name.to_owned());
        }
    }

    /// Takes the bar away, so that the report stands alone.
    pub fn finish(&self) {
        self.bar.finish_and_clear();
        self.bar.set_draw_target(ProgressDrawTarget::hidden());
    }

    fn lock(&self) -> MutexGuard<'_, Shown> {
        self.shown.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Progress for Watch {
    fn at(&self, done: u64, total: u64) {
        self.bar.set_length(total);
        self.bar.set_position(done.min(total));
        if self.on_terminal {
            return;
        }
        let mut shown = self.lock();
        let now = Instant::now();
        if now.duration_since(shown.last_line) >= LINE_INTERVAL {
            shown.last_line = now;
            let line = line(&shown.name, shown.unit, done, total, now.duration_since(shown.started));
            // Progress that nobody can read any more is no reason to end the work.
            _ = writeln!(io::stderr(), "{line}");
        }
    }

    fn cancelled(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }
}

impl Observer for Watch {
    fn status(&mut self, status: Status) {
        let (name, unit) = match status.phase {
            Phase::Scan => ("reading the volume", Unit::Steps),
            Phase::Plan => ("planning", Unit::Bytes),
            Phase::Capture => ("taking free space", Unit::Bytes),
            Phase::Move => ("moving", Unit::Bytes),
            Phase::Wait => ("waiting for free space", Unit::Bytes),
        };
        let is_new = {
            let shown = self.lock();
            shown.unit != unit || shown.round != status.round
        };
        // Planning, capturing and moving alternate: one bar for all of them, else rate and time left would start anew.
        if is_new {
            self.phase(name, unit);
            self.lock().round = status.round;
        } else {
            self.rename(name);
        }
        self.at(status.done, status.total);
    }

    fn permission(&mut self, next: Bytes) -> Permission {
        let Some(governor) = &mut self.governor else { return Permission::Go };
        let permission = governed::permission(governor.permission(next));
        // Rests are not worth a word.
        if let Some(why) = governor.pausing() {
            self.rename(&format!("paused: {why}"));
        }
        permission
    }

    fn turn(&self) -> Turn {
        governed::turn(self.governor.as_ref())
    }

    fn cancelled(&self) -> bool {
        Progress::cancelled(self)
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.finish();
    }
}

const fn template(unit: Unit) -> &'static str {
    match unit {
        Unit::Bytes => {
            "{msg} [{bar:32}] {percent:>3} %  {binary_bytes} of {binary_total_bytes}  {binary_bytes_per_sec}  {eta} left"
        }
        Unit::Steps => "{msg} [{bar:32}] {percent:>3} %  {elapsed}",
    }
}

/// The line for logs.
fn line(name: &str, unit: Unit, done: u64, total: u64, spent: Duration) -> String {
    let share = done as f64 / total.max(1) as f64;
    let mut text = format!("{name}: {:.0} %", share * 100.0);
    if unit == Unit::Bytes && done > 0 {
        let rate = done as f64 / spent.as_secs_f64().max(0.001);
        let left = Duration::from_secs_f64((total.saturating_sub(done) as f64 / rate).min(1e9));
        let (done, total, rate) = (size(Bytes(done)), size(Bytes(total)), size(Bytes(rate as u64)));
        text += &format!(", {done} of {total}, {rate}/s, about {} left", duration(left));
    }
    text
}

/// The first signal asks the work to stop; later ones tell the user that it is on its way.
fn answer(stop: &AtomicBool) -> &'static str {
    if stop.swap(true, Ordering::Relaxed) {
        "still giving back what is held; please wait"
    } else {
        "stopping; the present move is completed and everything is given back"
    }
}

/// A line about the work. When nobody can read it any more, that is no reason to end the work.
pub fn say(text: &str) {
    _ = writeln!(io::stderr(), "longrun: {text}");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_for_logs_has_share_rate_and_time_left() {
        let spent = Duration::from_secs(10);
        let text = line("moving", Unit::Bytes, 256 << 20, 1 << 30, spent);
        assert_eq!(text, "moving: 25 %, 256 MiB of 1.00 GiB, 25.6 MiB/s, about 30.0 s left");
        assert_eq!(line("reading", Unit::Steps, 1, 2, spent), "reading: 50 %");
        assert_eq!(line("moving", Unit::Bytes, 0, 0, Duration::ZERO), "moving: 0 %");
    }
}
