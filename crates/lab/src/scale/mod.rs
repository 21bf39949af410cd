//! The cost of a volume with many files: what analyzing, planning and optimizing take, against the number of files.
//!
//! Owns the measurements and their report. Simulated files are planned in a process of their own each, so that its memory is that
//! of the plan; real ones lie on sparse images.

mod real;
mod report;
mod simulated;

pub use real::{RealCost, real};
pub use report::scale_report;
pub use simulated::{PLAN_COMMAND, SimulatedCost, plan_many_files, simulated};
