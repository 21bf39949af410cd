//! What block devices are asked for: counted inside the kernel by BPF programs, shown as histograms.
//!
//! `histogram`, `recording` and `figures` are the pure model: what was found, stored, added up and compared. `tracer` is all that
//! touches the kernel. No event crosses for a request, only counters now and then: the cost stays the same however long it
//! takes.

mod figures;
mod histogram;
mod recording;
mod tracer;

pub use figures::{Change, Comparison, Figure, Pair, Unit};
pub use histogram::{Histogram, Scale};
pub use recording::{
    Asked, AskedClass, Bios, Class, Cost, Device, Layer, Missed, Process, Recording, Requests, VERSION,
};
pub use tracer::{Options, TraceError, Tracer};
