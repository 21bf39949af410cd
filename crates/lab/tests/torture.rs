//! Story: databases, logs, editors and programs use their files while these are being moved. The long form is
//! `longrun-lab torture --seconds 600`.

mod common;

use longrun_ageing::Recipe;
use longrun_lab::{LoopVolume, TortureSettings, VolumeSpec, torture};
use std::time::Duration;

#[test]
fn loop_every_kind_of_writer_keeps_every_byte_beside_an_optimizer() {
    let spec = VolumeSpec::ext4(512).mkfs(&["-b", "4096"]);
    let (volume, _) = LoopVolume::aged(&spec, Recipe::Aged, 7).unwrap();
    let settings = TortureSettings { seed: 7, alone: Duration::from_secs(5), beside: Duration::from_secs(25) };
    let report = torture(&volume, &common::longrun("full"), &settings).unwrap();
    eprintln!("{report:#?}");
    assert!(report.unexpected_errors.is_empty(), "users saw errors: {:#?}", report.unexpected_errors);
    let worst = report.worst_beside_ms.values().copied().fold(0.0, f64::max);
    assert!(worst < 2000.0, "an operation took {worst} ms beside the optimizer: {report:#?}");
}
