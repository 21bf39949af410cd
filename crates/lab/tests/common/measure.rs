//! Writing with prevention and without it, measured on a new volume.

use longrun_bench::protocol::Comparison;
use longrun_bench::{Parameters, Profile};
use longrun_lab::{FileSystemKind, FreeSpaceKind, PreventionSettings, longrun_binary, prevention};
use longrun_layout::Bytes;
use std::time::Duration;

pub const SEED: u64 = 11;

/// One comparison of each profile on a new volume.
pub fn measure(kind: FileSystemKind, profiles: &[Profile], parameters: Parameters) -> Vec<Comparison> {
    let settings = PreventionSettings {
        program: longrun_binary().unwrap(),
        kinds: vec![kind],
        spaces: vec![FreeSpaceKind::Whole],
        profiles: profiles.to_vec(),
        iterations: 1,
        control_iterations: 1,
        parameters,
        mebibytes: 3072,
        reread: false,
        paced: Duration::ZERO,
    };
    let results = prevention(&settings, &mut |what| eprintln!("{what}")).unwrap();
    results.measured.into_iter().map(|measured| measured.comparison).collect()
}

/// So much work, begun with the same seed every time.
pub const fn work(writers: u32, mebibytes: u64, pause: Duration) -> Parameters {
    Parameters { writers, bytes: Bytes(mebibytes << 20), seed: SEED, pause }
}
