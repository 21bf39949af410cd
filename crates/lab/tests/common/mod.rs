//! The optimizer under test: the binary of the same build, or the one that LONGRUN_BIN names. `cargo nextest run --workspace` builds it.
#![allow(clippy::unwrap_used, reason = "helpers of tests may fail loudly")]

use longrun_lab::Optimizer;

/// Longrun in a mode.
#[allow(dead_code, reason = "not every test needs it")]
pub fn longrun(mode: &str) -> Optimizer {
    Optimizer::longrun(mode).unwrap()
}

/// Longrun in a mode, with files placed by heat at the end.
#[allow(dead_code, reason = "not every test needs it")]
pub fn placing(mode: &str) -> Optimizer {
    Optimizer::longrun_placing(mode).unwrap()
}
