//! The benchmarks by the command line on a real volume, which needs root: what they tell, the page they write, and that
//! nothing of what they made stays.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails loudly, in its helpers too")]

mod common;

use common::{check, longrun};
use longrun_lab::{LoopVolume, VolumeSpec};
use serde_json::Value;
use std::ffi::OsStr;
use std::fs;
use std::path::Path;

fn volume() -> LoopVolume {
    LoopVolume::create(&VolumeSpec::ext4(1024).mkfs(&["-b", "4096"])).unwrap()
}

/// Runs a benchmark; its object and its page.
fn bench(name: &str, target: &Path, page: &Path, more: &[&OsStr]) -> (Value, String) {
    let always = [OsStr::new("--iterations"), "1".as_ref(), "--json".as_ref(), "--html".as_ref(), page.as_os_str()];
    let output = longrun(
        [OsStr::new("bench"), name.as_ref(), target.as_os_str()].into_iter().chain(always).chain(more.iter().copied()),
    );
    // How far it is goes to standard error, when that takes long.
    assert!(output.status.success(), "bench {name}: {}", String::from_utf8_lossy(&output.stderr));
    let found = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(entries(target), 1, "bench {name}: only lost+found is left");
    (found, fs::read_to_string(page).unwrap())
}

fn entries(directory: &Path) -> usize {
    fs::read_dir(directory).unwrap().count()
}

#[track_caller]
fn has(found: &Value, pointers: &[&str]) {
    for pointer in pointers {
        assert!(found.pointer(pointer).is_some_and(|value| !value.is_null()), "{pointer}: {found}");
    }
}

#[test]
fn campaign_every_benchmark_tells_what_it_found_as_json_and_as_a_page_and_leaves_nothing() {
    let (volume, pages, tree) = (volume(), tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let (target, page) = (volume.mount_point(), pages.path().join("page.html"));
    for number in 0..20 {
        fs::write(tree.path().join(number.to_string()), vec![number; 200_000]).unwrap();
    }
    let small: [&OsStr; 2] = ["--bytes".as_ref(), "1M".as_ref()];

    let (found, reads) = bench("reads", &target, &page, &small);
    has(&found, &["/filesystem", "/lines/5/seconds", "/verdict"]);
    assert!(reads.matches("<svg").count() == 2 && reads.contains("shuffled, optimized"), "{reads}");

    let (found, copies) = bench("copy", &target, &page, &small);
    has(&found, &["/lines/2/copy_seconds", "/copy/verdict"]);
    assert!(copies.contains("read and copied cold"), "the page before is replaced: {copies}");

    let one = ["--bytes", "1M", "--time", "1s", "--profile", "random-read-64k"].map(OsStr::new);
    let (found, oltp) = bench("oltp", &target, &page, &one);
    has(&found, &["/lines/0/before/requests_per_second"]);
    assert!(oltp.contains("random-read-64k"), "{oltp}");

    let quick =
        ["--bytes", "8M", "--reads", "3", "--rate", "100", "--mode", "alone", "--mode", "invisible"].map(OsStr::new);
    let (found, beside) = bench("invisibility", &target, &page, &quick);
    has(&found, &["/lines/0/copy_seconds", "/lines/1/read_p95"]);
    assert!(beside.matches("<svg").count() == 3 && beside.contains("(invisible)"), "{beside}");

    let once = ["--bytes", "1M", "--profile", "dsync"].map(OsStr::new);
    let (found, prevention) = bench("prevention", &target, &page, &once);
    has(&found, &["/comparisons/0/verdict"]);
    assert!(prevention.matches("<svg").count() == 2 && prevention.contains("dsync"), "{prevention}");

    let here = [OsStr::new("--optimize"), "--tree".as_ref(), tree.path().as_os_str()];
    let (found, install) = bench("install", &target, &page, &here);
    has(&found, &["/entries", "/aged/runs/0/traced/requests", "/optimized/seconds", "/requests/verdict"]);
    assert!(install.matches("<svg").count() >= 2 && install.contains("wasted seeks"), "{install}");
}

#[test]
fn campaign_bench_ageing_lives_the_same_days_with_each_care_and_leaves_nothing() {
    let (volume, pages) = (LoopVolume::create(&VolumeSpec::xfs(1024)).unwrap(), tempfile::tempdir().unwrap());
    let (target, page) = (volume.mount_point(), pages.path().join("page.html"));
    let how = ["--days", "1", "--bytes", "256M", "--json", "--html"].map(OsStr::new).into_iter();
    let output = longrun(
        ["bench".as_ref(), "ageing".as_ref(), target.as_os_str()].into_iter().chain(how).chain([page.as_os_str()]),
    );
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let found: Value = serde_json::from_slice(&output.stdout).unwrap();
    let courses = found["courses"].as_array().unwrap();
    let of = |care: &str| &courses.iter().find(|course| course["care"] == care).unwrap()["evenings"][1];
    let (nobody, service) = (of("nobody"), of("service"));
    assert_eq!(nobody["files"], service["files"], "the same days");
    assert!(nobody["excess_fragments"].as_u64() > Some(100), "{found}");
    assert!(service["excess_fragments"].as_u64() < Some(20) && service["moved"].as_u64() > Some(0), "{found}");
    let (page, left) = (fs::read_to_string(&page).unwrap(), entries(&target));
    assert!(page.matches("<svg").count() == 3 && page.contains("the service"), "{page}");
    assert_eq!(left, 0);
    let small = ["bench".as_ref(), "ageing".as_ref(), target.as_os_str(), "--bytes".as_ref(), "64M".as_ref()];
    check(&longrun(small), 2, "at least 256M");
    volume.check().unwrap();
}

#[test]
fn loop_bench_install_takes_turns_on_two_volumes_and_wants_to_know_of_the_second() {
    let (aged, optimized, tree) = (volume(), volume(), tempfile::tempdir().unwrap());
    fs::write(tree.path().join("program"), vec![7; 3 << 20]).unwrap();
    let (first, second) = (aged.mount_point(), optimized.mount_point());
    let of = [OsStr::new("bench"), "install".as_ref(), first.as_os_str()];
    let output = longrun(of.into_iter().chain([second.as_os_str(), "--tree".as_ref(), tree.path().as_os_str()]));
    let told = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert!(told.contains("1 files, directories and links of 3 MiB unpacked, 3 times on each"), "{told}");
    assert!(told.contains("requests of the device") && told.contains("Wasted seeks are"), "{told}");
    assert_eq!((entries(&first), entries(&second)), (1, 1));

    check(&longrun(of), 2, "--optimize");
    let twice = of.into_iter().chain([first.as_os_str(), "--tree".as_ref(), tree.path().as_os_str()]);
    check(&longrun(twice), 3, "on the same volume");
    let no_archive = ["--optimize", "--archive", "/etc/passwd"].map(OsStr::new);
    check(&longrun(of.into_iter().chain(no_archive)), 3, "not an archive that GNU tar can read");
}
