//! The names of the sensors, for `prevent` and `daemon`.

use clap::ValueEnum;
use longrun_prevention::sensor::Choice;

/// The sensors, by the names that the user types.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum SensorName {
    /// Use BPF, or fanotify where the kernel refuses BPF
    Auto,
    /// Use BPF programs in the kernel, which cost very little
    Bpf,
    /// Use the kernel's notifications of writes, which cost each write about a microsecond
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
