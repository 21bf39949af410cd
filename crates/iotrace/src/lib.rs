//! The I/O trace: BPF programs in the kernel count the requests to block devices, as histograms.
//!
//! `histogram`, `recording` and `figures` are the pure model of the results. Only `tracer` talks to the kernel. It reads
//! counters periodically, never an event per request, so that the cost does not grow with the duration.

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
