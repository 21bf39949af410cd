//! Story: databases, logs, editors and programs use their files while these are being moved. The gate runs each kind of writer for
//! seconds on a small ext4 and XFS; campaigns run them for longer on larger volumes, and on btrfs, which needs these: a small one has no room for
//! the metadata of so many changes. The long form is `longrun-lab torture --seconds 600`.

#![allow(clippy::unwrap_used, reason = "helpers of tests may fail loudly")]

mod common;

use longrun_ageing::Recipe;
use longrun_lab::{
    FileSystemKind, LoopVolume, Optimizer, TortureReport, TortureSettings, VolumeSpec, on_hard_disk, torture,
};
use std::time::Duration;

const SHORT: TortureSettings =
    TortureSettings { seed: 7, alone: Duration::from_millis(300), beside: Duration::from_secs(1) };
const LONG: TortureSettings =
    TortureSettings { seed: 7, alone: Duration::from_secs(2), beside: Duration::from_secs(10) };

#[test]
fn loop_every_kind_of_writer_keeps_every_byte_beside_an_optimizer() {
    beside(&spec(FileSystemKind::Ext4, 512), &common::longrun("full"), &SHORT);
}

#[test]
fn loop_every_kind_of_writer_keeps_every_byte_beside_an_optimizer_on_xfs() {
    beside(&spec(FileSystemKind::Xfs, 512), &common::longrun("full"), &SHORT);
}

#[test]
fn campaign_every_kind_of_writer_keeps_every_byte_beside_an_optimizer() {
    for (kind, mebibytes) in [(FileSystemKind::Ext4, 768), (FileSystemKind::Xfs, 768), (FileSystemKind::Btrfs, 1024)] {
        few_executions_are_refused(&beside(&spec(kind, mebibytes), &common::longrun("full"), &LONG));
    }
}

#[test]
fn campaign_every_kind_of_writer_keeps_every_byte_while_files_are_placed_by_heat() {
    for kind in [FileSystemKind::Ext4, FileSystemKind::Xfs] {
        let report = beside(&spec(kind, 768), &common::placing("files"), &LONG);
        few_executions_are_refused(&report);
        assert!(report.placed > 0, "{}: no file was placed, so that this proves nothing", kind.name());
    }
}

fn spec(kind: FileSystemKind, mebibytes: u64) -> VolumeSpec {
    let blocks: &[&str] = if kind == FileSystemKind::Ext4 { &["-b", "4096", "-m", "0"] } else { &[] };
    VolumeSpec::of(kind, mebibytes).mkfs(blocks)
}

/// Every byte is right, and users see no error but that of a program that is being moved.
fn beside(spec: &VolumeSpec, optimizer: &Optimizer, settings: &TortureSettings) -> TortureReport {
    // An aged volume has too little room for the writers where it is small, and for files that change places.
    let roomy = optimizer.places() || spec.bytes < 768 << 20;
    let recipe = if roomy { Recipe::Server } else { Recipe::Aged };
    let (volume, _) = LoopVolume::aged(spec, recipe, settings.seed).unwrap();
    let volume = if optimizer.places() { on_hard_disk(&volume).unwrap() } else { volume };
    let report = torture(&volume, optimizer, settings).unwrap();
    eprintln!("{report:#?}");
    let others: Vec<_> = report.unexpected_errors.keys().filter(|what| !is_busy(what)).collect();
    assert!(others.is_empty(), "users saw errors: {others:#?}");
    report
}

fn is_busy(error: &str) -> bool {
    error.contains("Text file busy")
}

/// The kernel refuses to execute a file in the fraction of a millisecond in which we hold it open for writing: these programs are executed
/// hundreds of times a second so that it happens at all (docs/hazards.md).
fn few_executions_are_refused(report: &TortureReport) {
    let refused: u64 = report.unexpected_errors.iter().filter(|(what, _)| is_busy(what)).map(|(_, count)| count).sum();
    assert!(refused <= 5, "{refused} executions were refused");
}
