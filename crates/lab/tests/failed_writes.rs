//! Story: a write, a flush or a discard fails while a volume that is not mounted is optimized. Linux tells that once. Nothing is changed
//! afterwards, the run says that it has failed, and the next one completes what was begun; every file has its content then.
#![allow(clippy::unwrap_used, clippy::panic, reason = "helpers of tests may fail loudly")]

#[path = "common/crowded.rs"]
mod crowded;

use anyhow::ensure;
use crowded::{content, crowded, dump_with};
use longrun_engine::{NoProgress, Placed, Settings, Unobserved, Volume, VolumeError};
use longrun_image::{Disk, FailStop, MemoryDisk};
use longrun_lab::ntfs::{Failing, Failure, Failures, Fixture, Inventory, Spec, Stage};
use longrun_lab::oracle::{compare, ntfs as oracle};
use longrun_lab::{longrun_binary, tool};
use longrun_planner::Mode;
use longrun_volume::ext4::OfflineExt4;
use longrun_volume::ntfs::NtfsVolume;
use longrun_volume::thin::Thinned;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;

/// A whole run, directories included, on thin storage, of a volume as `open` opens it.
fn optimize<V: Placed + 'static>(
    disk: Arc<dyn Disk>,
    open: impl FnOnce(Arc<dyn Disk>) -> Result<V, VolumeError>,
) -> Result<(), VolumeError> {
    // What is discarded and what is committed fail together.
    let disk = FailStop::over(disk);
    let mut volume = Thinned::new(Box::new(open(Arc::clone(&disk) as _)?), disk);
    let scan = volume.scan(&NoProgress)?;
    volume.compact_directories(&scan, &NoProgress)?;
    let settings = Settings { mode: Mode::Full, ..Settings::default() };
    longrun_engine::placed::optimize(&mut volume, &settings, &mut Unobserved).map_err(|error| error.cause)?;
    volume.close()
}

fn optimize_ext4(disk: Arc<dyn Disk>, journal: &Path) -> Result<(), VolumeError> {
    optimize(disk, |disk| OfflineExt4::open(Path::new("volume"), disk, journal))
}

/// Completes what an interrupted run has left.
fn complete_ext4(disk: Arc<dyn Disk>, journal: &Path) -> Result<(), VolumeError> {
    OfflineExt4::open(Path::new("volume"), disk, journal)?.close()
}

#[test]
fn loop_a_failed_change_of_an_unmounted_ext4_is_the_last_one() {
    for (mkfs, most) in [(&[][..], 36), (&["-b", "1024", "-O", "^metadata_csum"][..], 12)] {
        let (volume, expected) = crowded(24, mkfs, 250).unwrap();
        let (directory, mut stage) = (tempfile::tempdir().unwrap(), Stage::new().unwrap());
        let content = MemoryDisk::new(content(&volume)).image();
        let mut number = 0;
        let judge = |found: &MemoryDisk| {
            let image = stage.show(found)?;
            tool::run("e2fsck", ["-f".as_ref(), "-n".as_ref(), image.as_os_str()])?;
            number += 1;
            // Reading all of it takes longest.
            if number % 5 == 0 { compare(&expected, &dump_with(&volume, &found.content())?) } else { Ok(()) }
        };
        let failures = Failures { content: &content, journal: None, most };
        let tally = failures.judge(directory.path(), optimize_ext4, complete_ext4, judge).unwrap();
        assert!(tally.failures >= most / 2 && tally.states == tally.failures * 3, "{tally:?}");
    }
}

#[test]
fn loop_a_failure_while_a_run_on_ext4_is_completed_leaves_it_to_be_completed() {
    let (volume, expected) = crowded(24, &[], 250).unwrap();
    let (directory, mut stage) = (tempfile::tempdir().unwrap(), Stage::new().unwrap());
    let content = MemoryDisk::new(content(&volume)).image();
    let journal = directory.path().join("interrupted");
    // Where a transaction is on the volume in part.
    let interrupted = (0..).find_map(|at| {
        let _ = fs::remove_file(&journal);
        let disk = Arc::new(Failing::new(&content, Some((at, Failure::Half))));
        optimize_ext4(Arc::clone(&disk) as _, &journal).unwrap_err();
        let held = fs::read(&journal).unwrap();
        let body = u64::from_le_bytes(held[24..32].try_into().unwrap());
        (body > 20_000).then_some((disk.stored(), held))
    });
    let (content, held) = interrupted.unwrap();
    let judge = |found: &MemoryDisk| {
        let image = stage.show(found)?;
        tool::run("e2fsck", ["-f".as_ref(), "-n".as_ref(), image.as_os_str()])?;
        compare(&expected, &dump_with(&volume, &found.content())?)
    };
    let failures = Failures { content: &content, journal: Some(&held), most: 8 };
    let tally = failures.judge(directory.path(), complete_ext4, complete_ext4, judge).unwrap();
    assert!(tally.failures > 4, "{tally:?}");
}

#[test]
fn loop_a_failed_change_of_an_unmounted_ntfs_is_the_last_one() {
    let run = |disk: Arc<dyn Disk>, journal: &Path| {
        optimize(disk, |disk| NtfsVolume::open(Path::new("volume"), disk, journal))
    };
    let complete = |disk: Arc<dyn Disk>, journal: &Path| NtfsVolume::open(Path::new("volume"), disk, journal)?.close();
    for (spec, most) in [(Spec::small(), 12), (Spec::fragmented_mft(), 4)] {
        let fixture = Fixture::make(spec).unwrap();
        let expected = Inventory::of(&fixture.image()).unwrap();
        let (directory, mut stage) = (tempfile::tempdir().unwrap(), Stage::new().unwrap());
        let content = MemoryDisk::new(fixture.read().unwrap()).image();
        let mut number = 0;
        let judge = |found: &MemoryDisk| {
            let image = stage.show(found)?;
            oracle::check(image)?;
            ensure!(!oracle::is_dirty(image)?, "the volume is left dirty");
            number += 1;
            // Reading all of it takes longest.
            if number % 10 == 0 {
                let difference = expected.difference(&Inventory::of(stage.give_away(found)?)?);
                ensure!(difference.is_none(), "{}", difference.unwrap_or_default());
            }
            Ok(())
        };
        let failures = Failures { content: &content, journal: None, most };
        let tally = failures.judge(directory.path(), run, complete, judge).unwrap();
        assert!(tally.failures >= most / 2 && tally.states == tally.failures * 3, "{tally:?}");
    }
}

#[test]
fn loop_a_full_file_system_below_an_image_ends_a_run_that_can_be_completed() {
    let (volume, expected) = crowded(48, &[], 900).unwrap();
    let directory = tempfile::tempdir().unwrap();
    let host = directory.path();
    let mount = |options: &str| {
        let arguments = ["-t", "tmpfs", "-o", options, "longrun-test"].map(AsRef::as_ref);
        tool::run("mount", arguments.into_iter().chain([host.as_os_str()])).unwrap();
    };
    mount("size=100M,mode=700");
    let (image, journal) = (host.join("image"), host.join(".image.longrun-journal"));
    let copy = ["--sparse=always".as_ref(), volume.device().as_os_str(), image.as_os_str()];
    tool::run("cp", copy).unwrap();
    let run = || {
        let output =
            Command::new(longrun_binary().unwrap()).args(["optimize", "--mode", "full"]).arg(&image).output().unwrap();
        (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned())
    };
    // Less and less of the run has room; at last not even the journal.
    let (allocated, mut failed) = (fs::metadata(&image).unwrap().blocks() * 512, 0);
    for spare in [1 << 20, 256 << 10, 64 << 10, 4 << 10] {
        tool::run("cp", copy).unwrap();
        mount(&format!("remount,size={}", allocated + spare));
        let (status, said) = run();
        let is_told = said.contains("No space left on device") && said.contains("run longrun optimize");
        assert!(status == Some(0) || status == Some(1) && is_told && journal.exists(), "{spare}: {status:?}: {said}");
        failed += i32::from(status == Some(1));
        mount("remount,size=100M");
        let (status, said) = run();
        assert!(status == Some(0) && !journal.exists(), "{spare}: {status:?}: {said}");
        tool::run("e2fsck", ["-f".as_ref(), "-n".as_ref(), image.as_os_str()]).unwrap();
        compare(&expected, &dump_with(&volume, &fs::read(&image).unwrap()).unwrap()).unwrap();
    }
    eprintln!("{failed} of 4 runs had no room");
    assert!(failed > 0, "every run had room");
    tool::run("umount", [host.as_os_str()]).unwrap();
}
