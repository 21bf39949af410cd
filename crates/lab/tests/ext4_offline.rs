//! Story: ext4 volumes that are not mounted: a logical volume before it goes into service, the disk of a machine that is shut down. Files,
//! directories and extent trees are put together; what the kernel and e2fsck see afterwards is what they saw before, but for places.
//! Power can be lost at any moment.
#![allow(clippy::unwrap_used, clippy::panic, reason = "helpers of tests may fail loudly")]

mod common;
#[path = "common/crowded.rs"]
mod crowded;

use anyhow::Result;
use crowded::{content, crowd, crowded, dump_with};
use longrun_engine::{Settings, Unobserved};
use longrun_image::{Disk, MemoryDisk};
use longrun_lab::ntfs::{Cuts, Fixture, Inventory, Spec, Stage, Watched};
use longrun_lab::oracle::{compare, dump, e2freefrag, filefrag};
use longrun_lab::{LoopVolume, longrun_binary, tool};
use longrun_planner::Mode;
use longrun_volume::ext4::OfflineExt4;
use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

const LIMIT: Duration = Duration::from_secs(600);

#[test]
fn loop_ext4_of_every_make_is_optimized_unmounted_and_only_places_change() {
    let makes: [&[&str]; 8] = [
        &[],
        &["-b", "1024"],
        &["-b", "2048", "-O", "^metadata_csum"],
        &["-O", "^metadata_csum,^64bit,^flex_bg", "-I", "128"],
        &["-O", "^metadata_csum,^uninit_bg"],
        &["-b", "1024", "-O", "meta_bg,^resize_inode"],
        &["-O", "inline_data,ea_inode,large_dir,metadata_csum_seed"],
        &["-O", "^has_journal", "-g", "4096"],
    ];
    for make in makes {
        let (volume, before) = crowded(96, make, 1200).unwrap();
        let pieces = e2freefrag(volume.device()).unwrap().pieces;
        let finished = common::longrun("full").run(volume.device(), LIMIT).unwrap();
        let left = e2freefrag(volume.device()).unwrap().pieces;
        volume.check().unwrap();
        volume.mount().unwrap();
        compare(&before, &dump(&volume.mount_point()).unwrap()).unwrap();
        // Directories, too; filefrag counts holes, so that the sparse file is left out.
        let mut after = filefrag(&volume.mount_point()).unwrap();
        after.worst.retain(|path, _| !path.ends_with("sparse") && !path.ends_with("immutable"));
        assert!(after.worst.is_empty(), "{make:?}: {:?}\n{}", after.worst, finished.stdout);
        assert!(pieces > 500 && left <= 40, "{make:?}: {pieces} -> {left}");
        eprintln!("{make:?}: pieces {pieces} -> {left}");
        // And the kernel works on with it.
        fs::remove_dir_all(volume.mount_point().join("directory 1")).unwrap();
        crowd(&volume.mount_point().join("directory 2"), 60).unwrap();
        volume.check().unwrap();
    }
}

/// States of one run that power losses leave, judged after the next opening, or as they are found when there is no journal.
fn cut(mkfs: &[&str], with_journal: bool, cuts: Cuts) -> Result<usize> {
    let (volume, expected) = crowded(24, mkfs, 250)?;
    let directory = tempfile::tempdir()?;
    let journal = directory.path().join("journal");
    let disk = Arc::new(MemoryDisk::new(content(&volume)));
    let watched = Arc::new(Watched::new(Arc::clone(&disk), &journal));
    let mut offline = OfflineExt4::open(Path::new("cut"), Arc::clone(&watched) as Arc<dyn Disk>, &journal)?;
    let settings = Settings { mode: Mode::Full, ..Settings::default() };
    longrun_engine::placed::optimize(&mut offline, &settings, &mut Unobserved)?;
    drop(offline);
    watched.note();
    let mut stage = Stage::new()?;
    let reopen =
        |disk, journal: &Path| OfflineExt4::open(Path::new("cut"), disk, journal).map(drop).map_err(Into::into);
    watched.judge(&cuts, with_journal, reopen, |recovered, number| {
        let image = stage.show(recovered)?;
        tool::run("e2fsck", ["-f".as_ref(), "-n".as_ref(), image.as_os_str()])?;
        // Reading all of it takes longest.
        if number % 8 == 0 {
            compare(&expected, &dump_with(&volume, &recovered.content())?)?;
        }
        Ok(())
    })
}

#[test]
fn loop_power_lost_at_any_moment_of_an_offline_run_leaves_a_clean_ext4_with_every_byte() {
    let states = cut(&[], true, Cuts::sample(30, 3)).unwrap();
    assert!(states >= 60, "{states}");
    cut(&["-b", "1024"], true, Cuts::sample(15, 3)).unwrap();
    cut(&["-O", "^metadata_csum,^uninit_bg"], true, Cuts::sample(10, 3)).unwrap();
}

#[test]
fn loop_without_the_journal_a_power_loss_damages_an_ext4_that_is_worked_on_unmounted() {
    let error = cut(&[], false, Cuts::sample(60, 4)).unwrap_err();
    eprintln!("{error:#}");
    assert!(format!("{error:#}").contains("e2fsck"), "{error:#}");
}

/// A disk with a GPT: ext4 with the content of `volume` on its second partition, and NTFS on its third.
fn disk_with(volume: &LoopVolume, ntfs: &Fixture, to: &Path) {
    let ext4 = content(volume);
    let ntfs = ntfs.read().unwrap();
    let (first, second) = (5u64 << 20, (6u64 << 20) + ext4.len() as u64);
    let disk = File::options().read(true).write(true).create(true).truncate(true).open(to).unwrap();
    disk.set_len(second + ntfs.len() as u64 + (2 << 20)).unwrap();
    disk.write_all_at(&ext4, first).unwrap();
    disk.write_all_at(&ntfs, second).unwrap();
    let partition = |number: u32, start: u64, length: usize| {
        format!("--new={number}:{}:{}", start / 512, (start + length as u64) / 512 - 1)
    };
    let partitions =
        ["--new=1:2048:4095".to_owned(), partition(2, first, ext4.len()), partition(3, second, ntfs.len())];
    let arguments = ["--clear".to_owned()].into_iter().chain(partitions).chain([to.display().to_string()]);
    tool::run("sgdisk", arguments).unwrap();
}

#[test]
fn campaign_ext4_and_ntfs_on_one_disk_are_optimized_in_place_in_images_of_every_format() {
    let (volume, expected) = crowded(48, &[], 600).unwrap();
    let ntfs = Fixture::make(Spec::small()).unwrap();
    let on_ntfs = Inventory::of(&ntfs.image()).unwrap();
    let directory = tempfile::tempdir().unwrap();
    let raw = directory.path().join("raw");
    disk_with(&volume, &ntfs, &raw);
    let length = content(&volume).len();
    for format in ["qcow2", "vmdk", "vhdx", "vdi", "vpc"] {
        let (image, back) = (directory.path().join(format), directory.path().join("back"));
        let convert = |from: (&str, &Path), to: (&str, &Path)| {
            let arguments = ["convert", "-f", from.0, "-O", to.0].map(AsRef::as_ref);
            tool::run("qemu-img", arguments.into_iter().chain([from.1.as_os_str(), to.1.as_os_str()])).unwrap();
        };
        convert(("raw", &raw), (format, &image));
        let (status, said) = told(&image);
        assert_eq!(status, Some(0), "{format}: {said}");
        if format != "vpc" {
            tool::run("qemu-img", ["check".as_ref(), image.as_os_str()]).unwrap();
        }
        convert((format, &image), ("raw", &back));
        let disk = File::open(&back).unwrap();
        let mut found = vec![0; length];
        disk.read_exact_at(&mut found, 5 << 20).unwrap();
        compare(&expected, &dump_with(&volume, &found).unwrap()).unwrap();
        volume.check().unwrap();
        let pieces = e2freefrag(volume.device()).unwrap().pieces;
        assert!(pieces <= 40, "{format}: {pieces}");
        let mut found = vec![0; ntfs.read().unwrap().len()];
        disk.read_exact_at(&mut found, (6 << 20) + length as u64).unwrap();
        let image_of_ntfs = directory.path().join("ntfs");
        fs::write(&image_of_ntfs, found).unwrap();
        longrun_lab::oracle::ntfs::check(&image_of_ntfs).unwrap();
        assert_eq!(on_ntfs.difference(&Inventory::of(&image_of_ntfs).unwrap()), None, "{format}");
    }
}

#[test]
fn loop_the_free_space_of_ext4_in_a_qcow2_goes_back_to_the_host() {
    let (volume, expected) = crowded(96, &[], 600).unwrap();
    let directory = tempfile::tempdir().unwrap();
    let (raw, image) = (directory.path().join("raw"), directory.path().join("image.qcow2"));
    fs::write(&raw, content(&volume)).unwrap();
    // As if everything had been written once.
    let arguments = ["convert", "-f", "raw", "-O", "qcow2", "-S", "0"].map(AsRef::as_ref);
    tool::run("qemu-img", arguments.into_iter().chain([raw.as_os_str(), image.as_os_str()])).unwrap();
    let allocated = || std::os::unix::fs::MetadataExt::blocks(&fs::metadata(&image).unwrap()) * 512;
    let before = allocated();
    let output =
        Command::new(longrun_binary().unwrap()).args(["reclaim", "--consolidate"]).arg(&image).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let after = allocated();
    eprintln!("{before} -> {after}");
    assert!(after < before / 2, "{before} -> {after}");
    let arguments = ["convert", "-f", "qcow2", "-O", "raw"].map(AsRef::as_ref);
    tool::run("qemu-img", arguments.into_iter().chain([image.as_os_str(), raw.as_os_str()])).unwrap();
    compare(&expected, &dump_with(&volume, &fs::read(&raw).unwrap()).unwrap()).unwrap();
    volume.check().unwrap();
}

/// What `longrun optimize` says of it, with its status.
fn told(image: &Path) -> (Option<i32>, String) {
    let output =
        Command::new(longrun_binary().unwrap()).args(["optimize", "--mode", "full"]).arg(image).output().unwrap();
    (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned())
}

#[test]
fn loop_an_unmounted_ext4_that_must_not_be_changed_is_refused_with_its_reason() {
    let (volume, _) = crowded(24, &[], 100).unwrap();
    let directory = tempfile::tempdir().unwrap();
    let image = directory.path().join("image");
    let sound = content(&volume);
    fs::write(&image, &sound).unwrap();
    let blocks =
        tool::run("debugfs", ["-R", "blocks \"/grows 0\""].map(AsRef::as_ref).into_iter().chain([image.as_os_str()]));
    let freeing = format!("freeb {}", blocks.unwrap().split_whitespace().next().unwrap());
    let with = |request: &str| {
        fs::write(&image, &sound).unwrap();
        tool::run("debugfs", ["-w", "-R", request].map(AsRef::as_ref).into_iter().chain([image.as_os_str()])).unwrap();
    };
    let cases = [
        ("ssv state 0", "not unmounted in order"),
        ("ssv state 3", "recorded errors"),
        ("ssv last_orphan 20", "deleted while they were open"),
        ("feature needs_recovery", "not replayed"),
        ("feature mmp", "multiple mount protection"),
        ("feature shared_blocks", "shared blocks"),
        // A block of a file is marked as free.
        (freeing.as_str(), "marked as free"),
    ];
    for (request, reason) in cases {
        with(request);
        let before = fs::read(&image).unwrap();
        let (status, said) = told(&image);
        assert!(status == Some(3) || said.contains("damaged"), "{reason}: {status:?}: {said}");
        assert!(said.contains(reason), "{reason}: {said}");
        assert!(fs::read(&image).unwrap() == before, "{reason}: the image was written to");
        assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 1, "{reason}: something was left beside it");
    }
    // While it is mounted, the mounted volume is meant; and its device is not opened beside the mount.
    volume.mount().unwrap();
    let disk = longrun_image::FileDisk::open(volume.device(), longrun_image::Access::Write);
    assert!(disk.is_err(), "a mounted device was opened for writing");
}

#[test]
fn loop_a_killed_offline_run_on_ext4_is_completed_by_the_next_one() {
    let (volume, expected) = crowded(48, &[], 900).unwrap();
    let directory = tempfile::tempdir().unwrap();
    let (image, journal) = (directory.path().join("image"), directory.path().join(".image.longrun-journal"));
    let sound = content(&volume);
    let optimize = || {
        let mut command = Command::new(longrun_binary().unwrap());
        command.args(["optimize", "--mode", "full", "--pace", "fast"]).arg(&image);
        command
    };
    let (mut unfinished, mut delay) = (0, Duration::from_millis(2));
    for attempt in 0..12 {
        fs::write(&image, &sound).unwrap();
        let mut child = optimize().stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        std::thread::sleep(delay);
        // By its handle; it may have ended by itself.
        let _ = child.kill();
        let ended = child.wait().unwrap();
        // From run to run later, until a run is complete.
        delay = if ended.success() { Duration::from_millis(3) } else { delay * 3 / 2 };
        let had_journal = journal.exists();
        unfinished += u32::from(had_journal);
        let output = optimize().output().unwrap();
        assert!(output.status.success(), "attempt {attempt}: {}", String::from_utf8_lossy(&output.stderr));
        let said = String::from_utf8_lossy(&output.stdout).contains("An earlier run was interrupted");
        assert_eq!(said, had_journal, "attempt {attempt}");
        assert!(!journal.exists());
        tool::run("e2fsck", ["-f".as_ref(), "-n".as_ref(), image.as_os_str()]).unwrap();
        compare(&expected, &dump_with(&volume, &fs::read(&image).unwrap()).unwrap()).unwrap();
    }
    assert!(unfinished > 0, "no run was interrupted while it had a journal");
}

#[test]
fn loop_a_journal_of_ours_does_not_excuse_an_ext4_that_somebody_else_has_used_since() {
    let (volume, _) = crowded(24, &[], 150).unwrap();
    let directory = tempfile::tempdir().unwrap();
    let image = directory.path().join("image");
    let journal = directory.path().join(".image.longrun-journal");
    fs::write(&image, content(&volume)).unwrap();
    let disk = longrun_image::FileDisk::open(&image, longrun_image::Access::Write).unwrap();
    let mut offline = OfflineExt4::open(&image, Arc::new(disk), &journal).unwrap();
    let settings = Settings { mode: Mode::Full, ..Settings::default() };
    longrun_engine::placed::optimize(&mut offline, &settings, &mut Unobserved).unwrap();
    // As if the run had ended here: marked, and with a journal that has nothing to complete.
    let (kept, held) = (fs::read(&image).unwrap(), fs::read(&journal).unwrap());
    drop(offline);
    fs::write(&image, &kept).unwrap();
    fs::write(&journal, &held).unwrap();
    let state = |image: &Path| tool::run("dumpe2fs", ["-h".as_ref(), image.as_os_str()]).unwrap();
    assert!(state(&image).contains("not clean"), "the run has not marked the volume");
    assert_eq!(told(&image).0, Some(0));
    assert!(!state(&image).contains("not clean") && !journal.exists());
    // The kernel has mounted it since, and was cut off.
    fs::write(&image, &kept).unwrap();
    fs::write(&journal, &held).unwrap();
    tool::run("debugfs", ["-w", "-R", "ssv mnt_count 7"].map(AsRef::as_ref).into_iter().chain([image.as_os_str()]))
        .unwrap();
    let (status, said) = told(&image);
    assert!(status == Some(3) && said.contains("not unmounted in order"), "{status:?}: {said}");
}
