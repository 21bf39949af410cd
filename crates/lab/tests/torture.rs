//! Story: databases, logs, editors and programs use their files while these are being moved. The long form is
//! `longrun-lab torture --seconds 600`.

#![allow(clippy::unwrap_used, reason = "helpers of tests may fail loudly")]

mod common;

use longrun_ageing::Recipe;
use longrun_lab::{LoopVolume, Optimizer, TortureSettings, VolumeSpec, on_hard_disk, torture};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

/// One at a time: between fork and exec a child of one test has open for writing what another test's writer has, and whoever
/// executes just that is refused for a reason that is the test's own.
static ALONE: Mutex<()> = Mutex::new(());

#[test]
fn loop_every_kind_of_writer_keeps_every_byte_beside_an_optimizer() {
    check(&VolumeSpec::ext4(768).mkfs(&["-b", "4096", "-m", "0"]));
}

#[test]
fn loop_every_kind_of_writer_keeps_every_byte_beside_an_optimizer_on_xfs() {
    check(&VolumeSpec::xfs(768));
}

#[test]
fn loop_every_kind_of_writer_keeps_every_byte_beside_an_optimizer_on_btrfs() {
    check(&VolumeSpec::btrfs(1024));
}

#[test]
fn loop_every_kind_of_writer_keeps_every_byte_while_files_are_placed_by_heat() {
    for spec in [VolumeSpec::ext4(768).mkfs(&["-b", "4096", "-m", "0"]), VolumeSpec::xfs(768)] {
        let placed = beside(&spec, &common::placing("files"));
        assert!(placed > 0, "{}: no file was placed, so that this proves nothing", spec.kind.name());
    }
}

fn check(spec: &VolumeSpec) {
    beside(spec, &common::longrun("full"));
}

/// How many bytes were moved to place files by heat.
fn beside(spec: &VolumeSpec, optimizer: &Optimizer) -> u64 {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    // The aged one is so full that files hardly find others to change places with.
    let recipe = if optimizer.places() { Recipe::Server } else { Recipe::Aged };
    let (volume, _) = LoopVolume::aged(spec, recipe, 7).unwrap();
    let volume = if optimizer.places() { on_hard_disk(&volume).unwrap() } else { volume };
    let settings = TortureSettings { seed: 7, alone: Duration::from_secs(2), beside: Duration::from_secs(10) };
    let report = torture(&volume, optimizer, &settings).unwrap();
    eprintln!("{report:#?}");
    // The kernel refuses to execute a file in the fraction of a millisecond in which we hold it open for writing: these
    // programs are executed hundreds of times a second so that it happens at all (docs/hazards.md).
    let (refused, others): (Vec<_>, Vec<_>) =
        report.unexpected_errors.iter().partition(|(what, _)| what.contains("Text file busy"));
    assert!(others.is_empty(), "users saw errors: {others:#?}");
    let refused: u64 = refused.iter().map(|(_, count)| **count).sum();
    assert!(refused <= 5, "{refused} executions were refused");
    report.placed
}
