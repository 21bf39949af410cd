//! Progress on standard error: a bar on a terminal, a line every ten seconds elsewhere; and the request to stop.
//!
//! Owns the progress display and the request to stop. Never stops the work itself: the worker asks.

use crate::exit::Failure;
use crate::signals;
use crate::text::{duration, printable, size};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use longrun_engine::Progress;
use longrun_engine::{Observer, Permission, Phase, Status, Turn};
use longrun_governor::{Governor, Loads, Pause};
use longrun_layout::Bytes;
use longrun_service::jobs::protocol;
use std::io::{self, IsTerminal, Write};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Where standard error is no terminal, a line is written at most this often.
const LINE_INTERVAL: Duration = Duration::from_secs(10);
/// A supervisor is told at most this often.
const TOLD_INTERVAL: Duration = Duration::from_millis(500);

/// What the numbers of the present phase count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    /// Bytes, shown with a rate and the time left.
    Bytes,
    /// Steps of the work, shown as a percentage only.
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
    supervisor: Option<Supervisor>,
}

/// The process that started this one, and follows it instead of a user.
pub struct Supervisor {
    /// Told how far the work is, but not at every step.
    pub tell: Box<dyn Fn(protocol::Progress) + Send + Sync>,
    /// Whether this process may go on, or has to stop: its memory, for example.
    pub may_go_on: Box<dyn Fn() -> bool + Send + Sync>,
}

impl Watch {
    /// Catches the signals that end work. Shows nothing until there is a phase.
    pub fn start() -> Result<Self, Failure> {
        Self::start_for(&MOVES)
    }

    /// The same for work that is not moving data: `answers` are what is said to the first such signal, and to later ones.
    pub fn start_for(answers: &'static [&'static str; 2]) -> Result<Self, Failure> {
        let on_terminal = io::stderr().is_terminal();
        let bar = ProgressBar::with_draw_target(Some(0), ProgressDrawTarget::hidden());
        let stop = Arc::new(AtomicBool::new(false));
        let (flag, shown) = (Arc::clone(&stop), bar.clone());
        signals::on_end(move || shown.suspend(|| say(answer(&flag, answers)))).map_err(Failure::signals)?;
        let now = Instant::now();
        let shown = Shown { name: String::new(), unit: Unit::Steps, round: 0, started: now, last_line: now };
        Ok(Self { bar, on_terminal, stop, shown: Mutex::new(shown), governor: None, supervisor: None })
    }

    /// The same for work that another process follows.
    pub fn start_supervised(supervisor: Supervisor) -> Result<Self, Failure> {
        let mut watch = Self::start()?;
        (watch.on_terminal, watch.supervisor) = (false, Some(supervisor));
        Ok(watch)
    }

    /// A flag that ends the work as a signal does.
    pub fn stopper(&self) -> Arc<AtomicBool> {
        Arc::clone(&self.stop)
    }

    /// From now on Ctrl-Z does not suspend the process, because it may hold space that other processes need.
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
        self.style(template(unit));
        self.bar.set_message(name.to_owned());
        if self.on_terminal {
            self.bar.set_draw_target(ProgressDrawTarget::stderr_with_hz(8));
        }
    }

    /// From now on this thread gives way to other I/O as `governor` decides.
    pub fn govern(&mut self, governor: Governor) {
        governor.prepare_thread();
        self.governor = Some(governor);
    }

    /// What the governor observed and did.
    pub fn loads(&self) -> Option<Loads> {
        self.governor.as_ref().map(Governor::loads)
    }

    /// The flag that is set when the user wants the work to stop.
    pub fn stop(&self) -> &AtomicBool {
        &self.stop
    }

    /// Hides the bar while something else is printed.
    pub fn suspend<T>(&self, print: impl FnOnce() -> T) -> T {
        self.bar.suspend(print)
    }

    /// Changes the name of the phase without restarting it.
    pub fn rename(&self, name: &str) {
        self.show(name, template);
    }

    /// Shows the bar under this name, drawn as `template` says for its unit.
    fn show(&self, name: &str, template: fn(Unit) -> &'static str) {
        let mut shown = self.lock();
        if shown.name != name {
            name.clone_into(&mut shown.name);
            self.style(template(shown.unit));
            self.bar.set_message(name.to_owned());
            if let Some(supervisor) = &self.supervisor {
                let (done, total) = (self.bar.position(), self.bar.length().unwrap_or(0));
                (supervisor.tell)(told(name, shown.unit, done, total));
            }
        }
    }

    fn style(&self, template: &str) {
        if let Ok(style) = ProgressStyle::with_template(template) {
            self.bar.set_style(style.progress_chars("=> "));
        }
    }

    /// Removes the bar before the report is printed.
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
        if let Some(supervisor) = &self.supervisor {
            if now.duration_since(shown.last_line) >= TOLD_INTERVAL {
                shown.last_line = now;
                (supervisor.tell)(told(&shown.name, shown.unit, done, total));
            }
            return;
        }
        if now.duration_since(shown.last_line) >= LINE_INTERVAL {
            shown.last_line = now;
            let line = line(&shown.name, shown.unit, done, total, now.duration_since(shown.started));
            // If the line cannot be written, the work continues all the same.
            _ = writeln!(io::stderr(), "{line}");
        }
    }

    fn cancelled(&self) -> bool {
        if self.supervisor.as_ref().is_some_and(|supervisor| !(supervisor.may_go_on)()) {
            self.stop.store(true, Ordering::Relaxed);
        }
        self.stop.load(Ordering::Relaxed)
    }
}

impl Observer for Watch {
    fn status(&mut self, status: Status) {
        let (name, unit) = match status.phase {
            Phase::Scan => ("reading the volume", Unit::Steps),
            Phase::Plan => ("planning", Unit::Bytes),
            Phase::Capture => ("obtaining free space", Unit::Bytes),
            Phase::Move => ("moving", Unit::Bytes),
            Phase::Wait => ("waiting for free space", Unit::Bytes),
            Phase::Reclaim => ("giving free space back", Unit::Bytes),
        };
        let is_new = {
            let shown = self.lock();
            shown.unit != unit || shown.round != status.round
        };
        // Planning, capturing and moving alternate. They share one bar, otherwise rate and time left would restart.
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
        let permission = governor.permission(next);
        // Short rests are not shown.
        if let Some(why) = governor.pausing() {
            // Rate and time left mean nothing meanwhile.
            let program = governor.other_program().filter(|_| why == Pause::Foreign);
            let last = program.map_or_else(String::new, |program| format!(" (last: {})", printable(&program)));
            self.show(&format!("paused: {why}{last}"), |_| PAUSED);
        }
        permission
    }

    fn turn(&self) -> Turn {
        self.governor.as_ref().map_or(Turn::UNLIMITED, Governor::turn)
    }

    fn cancelled(&self) -> bool {
        Progress::cancelled(self)
    }

    fn compute(&self, work: &mut (dyn FnMut() + Send)) {
        match &self.governor {
            Some(governor) => governor.compute(work),
            None => work(),
        }
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.finish();
    }
}

/// What a supervisor is told.
fn told(name: &str, unit: Unit, done: u64, total: u64) -> protocol::Progress {
    let waits = name.strip_prefix("paused: ").map(str::to_owned);
    protocol::Progress { phase: name.to_owned(), done: done.min(total), total, is_bytes: unit == Unit::Bytes, waits }
}

/// The bar while the work pauses.
const PAUSED: &str = "{msg} [{bar:32}] {percent:>3} %";

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

/// What is said to signals while data is moved.
const MOVES: [&str; 2] = [
    "stopping; the current move is completed, then all held space is given back",
    "still giving back the held space; please wait",
];

/// The first signal asks the work to stop. Later ones only tell the user to wait.
fn answer(stop: &AtomicBool, [first, later]: &[&'static str; 2]) -> &'static str {
    if stop.swap(true, Ordering::Relaxed) { later } else { first }
}

/// Writes a line about the work. If that fails, the work continues all the same.
pub fn say(text: &str) {
    // In one piece: the kernel's log makes a line of each.
    _ = io::stderr().write_all(format!("longrun: {text}\n").as_bytes());
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
