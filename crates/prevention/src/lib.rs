//! Prevention: growing files get a runway before they fragment, and unused space is given back without risk to the
//! data.
//!
//! Owns the way from a kernel event to a preallocation and back: [`sensor`] (what is being written, by BPF or fanotify)
//! → [`policy`] (pure: how much runway, if any) → [`runway`] (the preallocation, its journal, and giving it back).
//! Never moves data, never writes to a file, never shortens one: it only adds and removes allocated blocks beyond the
//! end of a file.

pub mod model;
pub mod policy;
mod prevention;
pub mod runway;
pub mod sensor;
mod state;
mod text;
mod watched;

pub use model::{FileKey, Happening, Nanos, NoRunway, ProcessName, SensorKind, Signal, SignalKind, Sink};
pub use prevention::Prevention;
pub use runway::HintsUndone;
pub use state::{
    GivenBack, Options, PreventionError, Reaction, SensorSnapshot, Snapshot, Swept, Totals, VolumeSnapshot,
};
pub use watched::Watched;
