//! Story: an NTFS volume has clusters and file records that are marked as in use although nothing has them, as every crash of
//! Windows leaves them. They were obstacles. A run frees them first, unless something on the volume is not known.
#![allow(clippy::unwrap_used, clippy::panic, reason = "helpers of tests may fail loudly")]

use longrun_lab::longrun_binary;
use longrun_lab::ntfs::{Census, Fixture, Inventory, Spec, leak};
use longrun_lab::oracle::ntfs as oracle;
use std::fs::{self, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::Command;

/// Leaks half of the longest piece of the free space, the shortest one, and a record; returns how many clusters.
fn plant(image: &Path) -> u64 {
    let census = Census::of(image).unwrap();
    let mut free = census.free.clone();
    free.sort_by_key(|(_, count)| *count);
    let (start, longest) = free.pop().unwrap();
    let mut leaked = vec![(start, longest / 2)];
    leaked.extend(free.first());
    leak(image, &leaked, &[]).unwrap();
    let last = census.records.keys().next_back().unwrap();
    let unused =
        (64..*last).find(|record| !census.records.contains_key(record) && leak(image, &[], &[*record]).is_ok());
    assert!(unused.is_some(), "no file was deleted");
    leaked.iter().map(|(_, count)| count).sum()
}

/// Where the attribute with the content of a small file stands in the image, whatever kind it is said to be of.
fn content_of_a_file(image: &Path) -> u64 {
    let census = Census::of(image).unwrap();
    let mut at = census.paths()["tiny/tiny-3"] * census.record_bytes as u64;
    let runs = oracle::runs(image, oracle::Place::Record(0)).unwrap();
    let mut runs = runs[&longrun_lab::ntfs::AttributeName::content()].iter();
    let place = loop {
        let (first, count) = runs.next().unwrap();
        if at < count * census.cluster_bytes {
            break first * census.cluster_bytes + at;
        }
        at -= count * census.cluster_bytes;
    };
    let mut record = vec![0; 512];
    fs::File::open(image).unwrap().read_exact_at(&mut record, place).unwrap();
    let mut attribute = usize::from(record[0x14]);
    while ![[0x80, 0], UNKNOWN].contains(&[record[attribute], record[attribute + 1]]) {
        attribute += usize::from(record[attribute + 4]);
    }
    place + attribute as u64
}

/// The kind of attributes that nobody knows.
const UNKNOWN: [u8; 2] = [0, 0x10];

fn free(image: &Path) -> u64 {
    Census::of(image).unwrap().free.iter().map(|(_, count)| count).sum()
}

fn run(image: &Path, arguments: &[&str]) -> serde_json::Value {
    let output = Command::new(longrun_binary().unwrap()).args(arguments).args(["--json"]).arg(image).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).unwrap()
}

#[test]
fn loop_leaked_clusters_and_records_are_freed_and_nothing_else_changes() {
    for spec in [Spec::small(), Spec::small().clusters(512), Spec::small().sectors(4096)] {
        let fixture = Fixture::make(spec).unwrap();
        let image = fixture.image();
        let (before, was_free) = (Inventory::of(&image).unwrap(), free(&image));
        let leaked = plant(&image);
        assert_eq!(free(&image), was_free - leaked);
        oracle::check(&image).unwrap_err();
        // Nothing is written by a dry run, whose plan reckons with what a run frees.
        let bytes = fs::read(&image).unwrap();
        let dry = run(&image, &["optimize", "--mode", "full", "--dry-run"]);
        assert!(fs::read(&image).unwrap() == bytes, "{spec:?}: a dry run wrote to the image");
        let report = run(&image, &["optimize", "--mode", "full"]);
        assert_eq!(dry["plan"]["expected"], report["plan"]["expected"], "{spec:?}");
        let told = &report["leaked"];
        let expected = leaked * spec.cluster_bytes;
        assert_eq!((told["freed_bytes"].as_u64(), told["freed_records"].as_u64()), (Some(expected), Some(1)), "{told}");
        oracle::check(&image).unwrap();
        assert!(!oracle::is_dirty(&image).unwrap());
        assert!(free(&image) >= was_free, "{spec:?}: extension records and lists may give space back, too");
        assert_eq!(before.difference(&Inventory::of(&image).unwrap()), None, "{spec:?}");
        oracle::then_usable(&image).unwrap();
    }
}

#[test]
fn loop_leaks_stay_when_something_on_the_volume_is_not_known() {
    let fixture = Fixture::make(Spec::small()).unwrap();
    let image = fixture.image();
    let leaked = plant(&image);
    // Opened each time: who has it open for writing uses the image.
    let write = |kind: [u8; 2]| {
        let file = OpenOptions::new().write(true).open(&image).unwrap();
        file.write_all_at(&kind, content_of_a_file(&image)).unwrap();
    };
    write(UNKNOWN);
    let report = run(&image, &["optimize", "--mode", "full"]);
    let told = &report["leaked"];
    assert_eq!((told["freed_bytes"].as_u64(), told["kept_bytes"].as_u64()), (Some(0), Some(leaked * 4096)), "{told}");
    assert_eq!(told["kept_because"], "a file has an attribute of an unknown kind");
    write([0x80, 0]);
    let report = run(&image, &["optimize", "--mode", "full"]);
    assert_eq!(report["leaked"]["freed_bytes"].as_u64(), Some(leaked * 4096), "{}", report["leaked"]);
    oracle::check(&image).unwrap();
}

#[test]
fn loop_a_volume_without_leaks_says_nothing_of_them_and_one_with_leaks_alone_gets_them_freed() {
    let fixture = Fixture::make(Spec::small()).unwrap();
    let image = fixture.image();
    let report = run(&image, &["optimize", "--mode", "full"]);
    assert!(report["leaked"].is_null(), "{}", report["leaked"]);
    let leaked = plant(&image);
    // There is nothing left to move.
    let report = run(&image, &["optimize"]);
    assert_eq!(report["leaked"]["freed_bytes"].as_u64(), Some(leaked * 4096), "{report}");
    oracle::check(&image).unwrap();
}
