//! The laboratory: loop volumes, oracles that we did not write, crash and torture harnesses, benchmarks. Not shipped.
//!
//! Owns everything that needs root and a scratch file system. Never touches a volume that it did not make, and leaves no
//! mount, loop device, process or file behind: not on success, error, panic or signal; and what a killed run left is
//! swept at the next start.

mod ageing;
mod bench;
pub mod cleanup;
mod crash;
pub mod disk;
mod full;
mod furnish;
mod installing;
mod invisibility;
mod layouts;
mod optimizer;
pub mod oracle;
mod pieces;
mod plug;
mod pressure;
mod prevention;
mod save;
mod service;
mod soak;
mod spec;
pub mod tool;
mod torture;
mod trimming;
mod volume;

pub use ageing::{AgeingSettings, Care, Course, Curve, Evening, ageing, ageing_report, curves};
pub use bench::{BenchSettings, Phase, bench, scan};
pub use crash::{CrashRun, CrashSettings, Cut, crash};
pub use full::{FullReport, Got, Pace, fill_beside};
pub use furnish::{furnish, snapshots};
pub use invisibility::{InvisibilityCampaign, invisibility};
pub use layouts::{LayoutBench, LayoutCampaign, layouts};
pub use optimizer::{Finished, Optimizer, Running, longrun_binary};
pub use pieces::write_in_pieces;
pub use pressure::{Pressure, PressureReport, pressure};
pub use prevention::{
    FreeSpaceKind, Measured, PreventionResults, PreventionSettings, Watching, prevention, replace_section,
    report as prevention_report,
};
pub use save::save_json;
pub use soak::{Sample, SoakReport, SoakSettings, soak};
pub use spec::{FileSystemKind, VolumeSpec};
pub use torture::{TortureReport, TortureSettings, torture};
pub use trimming::{Told, TrimTortureReport, TrimTortureSettings, bytes_beyond_the_end, trim_torture, watched};
pub use volume::{DeviceTraffic, LoopVolume, aged_directory, drop_caches};
