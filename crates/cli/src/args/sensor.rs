//! The sensors by name: `prevent` and `daemon` take the same.

use clap::ValueEnum;
use longrun_prevention::sensor::Choice;

/// The sensors, by the names that the user types.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum SensorName {
    /// The best that works here
    Auto,
    /// Programs in the kernel, which cost nearly nothing
    Bpf,
    /// Notifications of writes, for kernels that refuse BPF
    Fanotify,
}

impl From<SensorName> for Choice {
    fn from(name: SensorName) -> Self {
        match name {
            SensorName::Auto => Self::Auto,
            SensorName::Bpf => Self::Bpf,
            SensorName::Fanotify => Self::Fanotify,
        }
    }
}
