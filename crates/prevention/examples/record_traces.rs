//! Records what the sensor tells about typical writers, on volumes made for it: the traces that the policy is tested with.
//! As root: `cargo run -p longrun-prevention --example record_traces [DIRECTORY]`.
#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "a tool for developers")]

#[path = "../tests/common/mod.rs"]
mod common;

use common::{Mode, grow_together, scatter, signals_during, volume};
use longrun_lab::FileSystemKind::{self, Btrfs, Ext4, Xfs};
use longrun_prevention::sensor::{Choice, Settings, open_with};
use std::path::{Path, PathBuf};

const MIB: u64 = 1 << 20;

fn direct(directory: &Path) {
    grow_together(directory, 8, 64 * MIB, 64 << 10, Mode::Direct);
}

fn dsync(directory: &Path) {
    grow_together(directory, 8, 16 * MIB, 64 << 10, Mode::Synced);
}

fn single(directory: &Path) {
    grow_together(directory, 1, 64 * MIB, 64 << 10, Mode::Direct);
}

fn buffered(directory: &Path) {
    grow_together(directory, 8, 64 * MIB, 64 << 10, Mode::Buffered);
    std::fs::File::open(directory).and_then(|file| longrun_sys::sync_volume(&file).map_err(Into::into)).unwrap();
}

fn sparse(directory: &Path) {
    scatter(&directory.join("sparse"), 32 * MIB, 64 << 10, Mode::Direct);
}

type Workload = (&'static str, fn(&Path));
const WORKLOADS: &[Workload] =
    &[("direct", direct), ("dsync", dsync), ("single", single), ("buffered", buffered), ("sparse", sparse)];

fn main() {
    let directory = std::env::args_os()
        .nth(1)
        .map_or_else(|| Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/traces"), PathBuf::from);
    for kind in [Ext4, Xfs, Btrfs] as [FileSystemKind; 3] {
        for (name, work) in WORKLOADS {
            let (volume, watched) = volume(kind, 2048);
            let settings = Settings { own_writes: true, ..Settings::default() };
            let sensor = open_with(Choice::Bpf, settings).unwrap().sensor;
            sensor.watch(&watched).unwrap();
            let signals = signals_during(&*sensor, || work(&volume.mount_point()));
            let text: String = signals.iter().map(|signal| serde_json::to_string(signal).unwrap() + "\n").collect();
            let path = directory.join(format!("{}-{name}.jsonl", kind.name()));
            std::fs::write(&path, text).unwrap();
            println!("{}: {} signals, {} lost", path.display(), signals.len(), sensor.lost());
        }
    }
}
