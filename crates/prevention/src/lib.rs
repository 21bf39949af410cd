//! Prevention: growing files get a runway before they fragment, and what they did not need is taken back without
//! risking a byte.
//!
//! Owns the way from a kernel event to a preallocation and back:
//! [`sensor`] (what is being written, from BPF or fanotify) → [`policy`] (pure: how much runway, if any) → [`runway`]
//! (the preallocation itself, its journal, and giving it back). Never moves data, never writes to a file, never shortens
//! one: blocks behind the end of a file come and go, and nothing else.

pub mod model;
pub mod policy;
mod prevention;
pub mod runway;
pub mod sensor;
mod text;
mod watched;

pub use model::{
    FileKey, FileSystem, Happening, LeaveReason, Nanos, ProcessName, SensorKind, Signal, SignalKind, Sink,
};
pub use prevention::{
    GivenBack, HintsUndone, Options, Prevention, PreventionError, Reaction, SensorSnapshot, Snapshot, Swept, Totals,
    VolumeSnapshot,
};
pub use watched::Watched;
