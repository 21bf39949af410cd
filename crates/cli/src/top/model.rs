//! The state of `top`: the last answer, the rates since the one before, and the user's choices. No I/O.

use longrun_api::model::{Status, Volume};
use ratatui::crossterm::event::{KeyCode, KeyModifiers};
use std::cmp::Reverse;
use std::time::Duration;

/// What a key leads to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// Continue.
    Stay,
    /// Quit.
    End,
}

/// The sort order of the volumes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sort {
    /// By mount point.
    Mount,
    /// Most prevented first.
    Prevented,
    /// Most runway first.
    Held,
    /// Least free space first.
    Free,
}

impl Sort {
    /// In words.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Mount => "mount point",
            Self::Prevented => "prevented",
            Self::Held => "runways",
            Self::Free => "free space",
        }
    }

    const fn next(self) -> Self {
        match self {
            Self::Mount => Self::Prevented,
            Self::Prevented => Self::Held,
            Self::Held => Self::Free,
            Self::Free => Self::Mount,
        }
    }
}

/// Rates per second.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Rates {
    /// Signals from the kernel.
    pub signals: f64,
    /// Excess fragments prevented.
    pub prevented: f64,
    /// Processor time of the service, in per cent of one core.
    pub cpu_percent: f64,
    /// Bytes of our own I/O on the disks, while there was work.
    pub own_bytes: f64,
    /// Bytes of the I/O of other processes on this machine, in the same time.
    pub foreign_bytes: f64,
}

/// The state of the view.
pub struct App {
    status: Status,
    /// Rates, from the second answer on.
    pub rates: Option<Rates>,
    /// The sort order of the volumes.
    pub sort: Sort,
    /// Whether the help is shown.
    pub help: bool,
    /// Whether colours may be used.
    pub colors: bool,
    /// Why the figures are not current.
    pub trouble: Option<String>,
}

impl App {
    /// With a first answer.
    pub fn new(status: Status, colors: bool) -> Self {
        Self { status, rates: None, sort: Sort::Mount, help: false, colors, trouble: None }
    }

    /// The last answer.
    pub fn status(&self) -> &Status {
        &self.status
    }

    /// A new answer, `after` the one before.
    pub fn update(&mut self, status: Status, after: Duration) {
        let seconds = after.as_secs_f64().max(0.001);
        let prevented = |status: &Status| status.volumes.iter().map(|v| v.prevented.fragments).sum::<u64>();
        let signals = |status: &Status| status.sensor.as_ref().map_or(0, |sensor| sensor.signals);
        let rate = |of: &dyn Fn(&Status) -> u64| of(&status).saturating_sub(of(&self.status)) as f64 / seconds;
        let cpu = (status.own.cpu_seconds - self.status.own.cpu_seconds).max(0.0);
        // A restarted service counts from 0 again.
        let same = status.uptime_seconds >= self.status.uptime_seconds;
        self.rates = same.then(|| Rates {
            signals: rate(&signals),
            prevented: rate(&prevented),
            cpu_percent: cpu / seconds * 100.0,
            own_bytes: rate(&|status| status.volumes.iter().map(|v| v.governor.own_bytes).sum()),
            foreign_bytes: rate(&|status| status.volumes.iter().map(|v| v.governor.foreign_bytes).sum()),
        });
        self.status = status;
        self.trouble = None;
    }

    /// There is no new answer.
    pub fn lost(&mut self, why: String) {
        self.rates = None;
        self.trouble = Some(why);
    }

    /// The volumes in the order that the user chose.
    pub fn volumes(&self) -> Vec<&Volume> {
        let mut volumes: Vec<&Volume> = self.status.volumes.iter().collect();
        match self.sort {
            Sort::Mount => volumes.sort_by(|a, b| a.mount.cmp(&b.mount)),
            Sort::Prevented => volumes.sort_by_key(|volume| Reverse(volume.prevented.fragments)),
            Sort::Held => volumes.sort_by_key(|volume| Reverse(volume.prevented.held_bytes)),
            Sort::Free => volumes.sort_by_key(|volume| volume.space.free_bytes),
        }
        volumes
    }

    /// A key was pressed.
    pub fn press(&mut self, key: KeyCode, modifiers: KeyModifiers) -> Action {
        match key {
            KeyCode::Char('c') if modifiers.contains(KeyModifiers::CONTROL) => return Action::End,
            KeyCode::Char('q') => return Action::End,
            KeyCode::Esc if self.help => self.help = false,
            KeyCode::Esc => return Action::End,
            KeyCode::Char('s') => self.sort = self.sort.next(),
            KeyCode::Char('h' | '?') => self.help = !self.help,
            _ => {}
        }
        Action::Stay
    }
}
