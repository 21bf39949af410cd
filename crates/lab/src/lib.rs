//! The laboratory: loop volumes, independent judges, crash and torture tests, benchmarks. It is not shipped.
//!
//! Owns everything that needs root and a scratch file system. Never touches a volume that it did not make. Leaves no
//! mount, loop device, process or file behind: not on success, error, panic or signal. The next start removes what a
//! killed run left.

mod ageing;
mod bench;
mod booting;
pub mod cleanup;
mod crash;
pub mod disk;
pub mod fleet;
mod frozen;
mod full;
mod furnish;
mod hostile;
mod hot;
mod installing;
mod invisibility;
mod kernels;
mod kills;
mod layouts;
pub mod ntfs;
mod optimizer;
pub mod oracle;
mod pieces;
mod plug;
mod pressure;
mod prevention;
mod quotas;
mod save;
mod scale;
mod seed;
mod service;
mod soak;
mod spec;
pub mod structure;
pub mod tool;
mod torture;
mod trimming;
mod unmounted;
mod volume;

pub use ageing::{AgeingSettings, Course, Curve, Maintenance, ageing, ageing_report, curves};
pub use bench::{BenchSettings, Phase, bench, scan};
pub use booting::{BootCampaign, boots};
pub use crash::{CrashRun, CrashSettings, Cut, crash};
pub use fleet::{FleetReport, FleetSettings, fleet};
pub use frozen::Frozen;
pub use full::{Filling, FullReport, Got, fill_beside};
pub use furnish::{furnish, snapshots};
pub use hostile::{HostileReport, HostileSettings, Judge, USER_COMMAND, hostile, run_user};
pub use hot::{HotState, on_hard_disk, places};
pub use invisibility::{InvisibilityCampaign, invisibility};
pub use kernels::{KernelSettings, kernel_checks};
pub use kills::{Kill, KillSettings, Victim, Work, kills};
pub use layouts::{LayoutBench, LayoutCampaign, layouts};
pub use optimizer::{Finished, Optimizer, Running, longrun_binary};
pub use pieces::write_in_pieces;
pub use pressure::{Pressure, PressureReport, pressure};
pub use prevention::{
    FreeSpaceKind, Measured, PreventionResults, PreventionSettings, Watching, prevention, replace_section,
    report as prevention_report,
};
pub use quotas::{QuotaReport, quotas, quotas_known};
pub use save::save_json;
pub use scale::{PLAN_COMMAND, RealCost, SimulatedCost, plan_many_files, real, scale_report, simulated};
pub use seed::seed;
pub use soak::{Sample, SoakReport, SoakSettings, soak};
pub use spec::{FileSystemKind, Medium, VolumeSpec};
pub use torture::{TortureReport, TortureSettings, torture};
pub use trimming::{Told, TrimTortureReport, TrimTortureSettings, bytes_beyond_the_end, trim_torture, watched};
pub use unmounted::{Placement, UnmountedReport, UnmountedSettings, unmounted};
pub use volume::{DeviceTraffic, LoopVolume, aged_directory, drop_caches};
