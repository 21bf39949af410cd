//! The optimizer under test, freshly built.
#![allow(clippy::unwrap_used, reason = "helpers of tests may fail loudly")]

use longrun_lab::Optimizer;
use std::process::Command;
use std::sync::Once;

/// Longrun in a mode.
#[allow(dead_code, reason = "not every test needs it")]
pub fn longrun(mode: &str) -> Optimizer {
    build();
    Optimizer::longrun(mode).unwrap()
}

/// Longrun in a mode, with files placed by heat at the end.
#[allow(dead_code, reason = "not every test needs it")]
pub fn placing(mode: &str) -> Optimizer {
    build();
    Optimizer::longrun_placing(mode).unwrap()
}

/// Builds the binary first: a test of another crate does not, and a stale one would prove nothing.
pub fn build() {
    static BUILD: Once = Once::new();
    BUILD.call_once(|| {
        if std::env::var_os("LONGRUN_BIN").is_none() {
            let profile = if cfg!(debug_assertions) { "dev" } else { "release" };
            let status = Command::new(env!("CARGO"))
                .args(["build", "--quiet", "--locked", "--package", "longrun-cli", "--profile", profile])
                .current_dir(env!("CARGO_MANIFEST_DIR"))
                .status()
                .unwrap();
            assert!(status.success(), "longrun cannot be built");
        }
    });
}
