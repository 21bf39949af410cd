//! `longrun optimize --placement` on real volumes on a modelled hard disk: hot files go to its fast end, nothing else changes, and no day
//! moves more than its allowance. Days are simulated: what was noted of the day before is removed.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::print_stdout,
    reason = "a test that cannot go on fails loudly, in its helpers too"
)]
#![allow(dead_code, reason = "the helpers serve other tests, too")]

mod common;

use common::longrun;
use longrun_heat::{Counted, Harvested, HeatTable, Kept, Minute};
use longrun_lab::disk::{DiskModel, ModelledDisk};
use longrun_lab::oracle::{compare, dump};
use longrun_lab::{FileSystemKind, LoopVolume, VolumeSpec, tool};
use longrun_layout::{Bytes, FileId};
use longrun_profile::{Kept as Profiles, Place, Profile, Verdict};
use longrun_sys::{BlockDevice, DeviceNumber, FileSystem, format_uuid, read_superblock};
use serde_json::Value;
use std::collections::BTreeMap;
use std::fs::{self, File};
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::process::Output;
use std::sync::Arc;

const SIZE: Bytes = Bytes(768 << 20);
const FILES: usize = 1500;

fn number(path: &Path) -> DeviceNumber {
    DeviceNumber::from_stat(fs::metadata(path).unwrap().rdev())
}

/// Keeps a profile of the device as that of a hard disk, or of one whose places are alike.
fn keep_profile(device: &Path, state: &Path, gradient: bool) {
    let speed = |nth: u32| if gradient { 160e6 - 5e6 * f64::from(nth) } else { 100e6 + f64::from(nth * 7 % 3) };
    let places: Vec<Place> = (0..16).map(|nth| Place { at: Bytes(0), speeds: vec![speed(nth); 3] }).collect();
    let verdict = Verdict::of(&places);
    assert_eq!(verdict.gradient.is_some(), gradient);
    let now = jiff::Timestamp::now();
    let profile = Profile { device: "d".into(), bytes: SIZE, measured: now, seconds: 1.0, places, verdict };
    let identity = BlockDevice::numbered(number(device)).unwrap().identity().unwrap();
    Profiles::within(state).keep(&identity, &profile).unwrap();
}

/// Where a file begins on the volume, in blocks.
fn place(path: &Path) -> u64 {
    let text = tool::run("filefrag", [Path::new("-v"), path]).unwrap();
    let line = text.lines().find(|line| line.trim_start().starts_with("0:")).unwrap();
    line.split(':').nth(2).unwrap().split("..").next().unwrap().trim().parse().unwrap()
}

struct Bench {
    volume: LoopVolume,
    state: tempfile::TempDir,
    id: String,
    hot: Vec<std::path::PathBuf>,
}

impl Bench {
    fn new(kind: FileSystemKind, model: &str) -> Self {
        let disk = Arc::new(ModelledDisk::start(DiskModel::by_name(model).unwrap(), 1, &[SIZE]).unwrap());
        let volume = LoopVolume::create_on(&disk, 0, &VolumeSpec::of(kind, 768)).unwrap();
        let point = volume.mount_point();
        let mut reads: BTreeMap<FileId, u64> = BTreeMap::new();
        let mut hot = Vec::new();
        disk.without_model(|| {
            for nth in 0..FILES {
                let directory = point.join(format!("d{}", nth / 100));
                fs::create_dir_all(&directory).unwrap();
                let path = directory.join(format!("f{nth}"));
                fs::write(&path, vec![nth as u8; 4096 * (1 + nth * 7 % 23)]).unwrap();
                File::open(&path).unwrap().sync_all().unwrap();
                if nth % 7 == 3 {
                    hot.push(path);
                }
            }
            volume.remount()
        })
        .unwrap();
        for nth in 0..FILES {
            let path = point.join(format!("d{}/f{nth}", nth / 100));
            let id = longrun_sys::id_of_file(File::open(path).unwrap()).unwrap();
            reads.insert(id, if nth % 7 == 3 { 3000 } else { 5 });
        }
        let filesystem = FileSystem::from_name(kind.name()).unwrap();
        let uuid = read_superblock(volume.device(), filesystem).unwrap().uuid.unwrap();
        let counted = |reads| Counted { reads, read_bytes: reads * 4096, ..Counted::default() };
        let files: Vec<_> = reads.into_iter().map(|(id, reads)| (id, counted(reads))).collect();
        let harvested = Harvested { reads: 1_000_000, read_bytes: 1 << 32, files, own_reads: 0 };
        let now = Minute(u32::try_from(jiff::Timestamp::now().as_second() / 60).unwrap());
        let mut table = HeatTable::beginning(now);
        table.add(&harvested, now, 100_000);
        let state = tempfile::tempdir().unwrap();
        Kept::within(state.path()).keep(&format_uuid(&uuid), uuid, &table).unwrap();
        Self { volume, state, id: format_uuid(&uuid), hot }
    }

    fn optimize(&self, more: &[&str]) -> Output {
        let (state, point) = (self.state.path().display().to_string(), self.volume.mount_point().display().to_string());
        let all = ["optimize", "--mode", "files", "--pace", "fast", "--json", "--state", &state, &point];
        longrun([&all, more].concat())
    }

    fn placement(&self, more: &[&str]) -> Value {
        let output = self.optimize(more);
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        serde_json::from_slice::<Value>(&output.stdout).unwrap()["placement"].clone()
    }

    fn mean_place(&self) -> f64 {
        self.hot.iter().map(|path| place(path) as f64).sum::<f64>() / self.hot.len() as f64
    }

    fn next_day(&self) {
        fs::remove_file(self.state.path().join(format!("heat/{}.moved", self.id))).unwrap();
    }
}

fn places_hot_files(kind: FileSystemKind) {
    let bench = Bench::new(kind, "hdd");
    keep_profile(bench.volume.device(), bench.state.path(), true);
    let disk = bench.volume.disk().unwrap();
    disk.without_model(|| {
        let (before, first) = (dump(&bench.volume.mount_point()).unwrap(), bench.mean_place());
        let planned = bench.placement(&["--placement", "plan"]);
        assert!(planned["files"].as_u64().unwrap() > 0 && planned["moved"].is_null(), "{planned:#}");
        assert_eq!(bench.mean_place(), first, "only planned");
        let dry = bench.placement(&["--dry-run"]);
        assert_eq!(dry["files"], planned["files"], "{dry:#}");
        for day in 0..12 {
            let placed = bench.placement(&["--placement", "auto"]);
            let (bytes, moved) = (placed["bytes"].as_u64().unwrap(), placed["moved"].as_u64().unwrap());
            assert!(bytes <= placed["allowed_today"].as_u64().unwrap() && moved <= bytes, "day {day}: {placed:#}");
            assert!(moved * 10 >= bytes * 9, "day {day}: {placed:#}");
            let expected = &placed["expected"];
            assert!(expected["after"].as_f64().unwrap() < expected["before"].as_f64().unwrap(), "{placed:#}");
            // What was planned is what the layout gives on ext4. XFS is aimed at: files can come to other places than planned.
            let figure = |name: &str| placed[name].as_f64().unwrap();
            println!("{kind:?}, day {day}: expected {:e}, reached {:e}", figure("expected_now"), figure("reached"));
            if moved == bytes && kind == FileSystemKind::Ext4 {
                assert!((figure("reached") - figure("expected_now")).abs() < 1e-6, "day {day}: {placed:#}");
            }
            let again = bench.placement(&["--placement", "auto"]);
            let all = again["bytes"].as_u64().unwrap() + bytes;
            assert!(all <= placed["allowed_today"].as_u64().unwrap(), "day {day}, once more: {again:#}");
            bench.next_day();
        }
        let last = bench.mean_place();
        println!("{kind:?}: hot files at block {first:.0} on average, {last:.0} after 12 days");
        assert!(last < first * 0.9, "{first} {last}");
        bench.volume.remount().unwrap();
        compare(&before, &dump(&bench.volume.mount_point()).unwrap()).unwrap();
        bench.volume.check()
    })
    .unwrap();
}

#[test]
fn loop_hot_files_of_ext4_go_to_the_fast_end_and_nothing_else_changes() {
    places_hot_files(FileSystemKind::Ext4);
}

#[test]
fn loop_hot_files_of_xfs_go_to_the_fast_end_and_nothing_else_changes() {
    places_hot_files(FileSystemKind::Xfs);
}

#[test]
fn loop_where_nothing_is_gained_nothing_is_moved_and_the_report_says_why() {
    for (model, profile, why) in [
        ("hdd", None, "longrun profile"),
        ("hdd", Some(false), "equally fast"),
        ("cloud", Some(true), "no fast and slow places"),
        ("ssd", Some(true), "no fast and slow places"),
        ("san", Some(true), "no fast and slow places"),
    ] {
        let bench = Bench::new(FileSystemKind::Ext4, model);
        if let Some(gradient) = profile {
            keep_profile(bench.volume.device(), bench.state.path(), gradient);
        }
        bench
            .volume
            .disk()
            .unwrap()
            .without_model(|| {
                let first = bench.mean_place();
                let placed = bench.placement(&["--placement", "auto"]);
                let refused = placed["refused"].as_str().unwrap_or_default();
                assert!(refused.contains(why) && placed["moved"].is_null(), "{model}: {placed:#}");
                assert!(bench.placement(&[]).is_null(), "{model}: nobody asked");
                assert_eq!(bench.mean_place(), first);
                Ok(())
            })
            .unwrap();
    }
}
