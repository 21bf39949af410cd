//! Story: directories of an ext4 that is not mounted have lost most of their names, and keep their blocks for ever. They are rewritten in
//! fewer blocks. The kernel and e2fsck find in them afterwards what they found before. Power can be lost at any moment.
#![allow(clippy::unwrap_used, clippy::panic, reason = "helpers of tests may fail loudly")]

use anyhow::{Result, ensure};
use longrun_engine::{CompactedDirectories, NoProgress, Volume, WhyLeft};
use longrun_image::{Disk, FileDisk, MemoryDisk};
use longrun_lab::ntfs::{Cuts, Stage, Watched};
use longrun_lab::oracle::{Dump, compare, dump};
use longrun_lab::{LoopVolume, VolumeSpec, longrun_binary, tool};
use longrun_layout::Bytes;
use longrun_volume::ext4::OfflineExt4;
use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirEntryExt, FileExt, MetadataExt};
use std::path::Path;
use std::process::Command;
use std::sync::Arc;

/// Names with bytes of every kind, so that signed and unsigned hashes differ.
fn name(directory: usize, number: usize) -> String {
    format!("{number}{}", ["-", "ü", " \u{1f40c} ", "_long_"][number % 4].repeat(1 + (number + directory) % 9))
}

/// Directories with many names, of which most are deleted again. All name one file, so that it takes little time.
fn crowd(root: &Path, directories: usize, names: usize) -> Result<()> {
    let file = root.join("file");
    fs::write(&file, "content")?;
    for directory in 0..directories {
        let path = root.join(format!("directory {directory}"));
        fs::create_dir(&path)?;
        (0..names).try_for_each(|number| fs::hard_link(&file, path.join(name(directory, number))))?;
        fs::create_dir(path.join("below"))?;
        std::os::unix::fs::symlink("target", path.join("link"))?;
        // From none to a half stays.
        let kept = [usize::MAX, 40, 9, 2][directory % 4];
        for number in (0..names).filter(|number| number % kept != 0 || kept == usize::MAX) {
            fs::remove_file(path.join(name(directory, number)))?;
        }
    }
    Ok(())
}

/// A volume with such directories, unmounted, and what was on it.
fn crowded(mebibytes: u64, mkfs: &[&str], directories: usize, names: usize) -> Result<(LoopVolume, Dump)> {
    let volume = LoopVolume::create(&VolumeSpec::ext4(mebibytes).mkfs(mkfs))?;
    crowd(&volume.mount_point(), directories, names)?;
    volume.remount()?;
    let dump = dump(&volume.mount_point())?;
    volume.unmount()?;
    Ok((volume, dump))
}

fn compacted(disk: Arc<dyn Disk>, journal: &Path) -> Result<CompactedDirectories> {
    let mut offline = OfflineExt4::open(Path::new("volume"), disk, journal)?;
    let scan = offline.scan(&NoProgress)?;
    Ok(offline.compact_directories(&scan, &NoProgress)?)
}

fn compacted_device(volume: &LoopVolume) -> CompactedDirectories {
    let directory = tempfile::tempdir().unwrap();
    let disk = FileDisk::open(volume.device(), longrun_image::Access::Write).unwrap();
    compacted(Arc::new(disk), &directory.path().join("journal")).unwrap()
}

/// The names, inodes and types of a directory, as the kernel lists them; each name is looked up, too.
fn listed(path: &Path) -> BTreeMap<Vec<u8>, (u64, bool)> {
    let entries = fs::read_dir(path).unwrap().map(|entry| {
        let entry = entry.unwrap();
        let found = fs::symlink_metadata(entry.path()).unwrap();
        assert_eq!(found.ino(), entry.ino(), "{}", entry.path().display());
        (entry.file_name().as_bytes().to_vec(), (entry.ino(), entry.file_type().unwrap().is_dir()))
    });
    entries.collect()
}

fn listings(volume: &LoopVolume, directories: usize) -> Vec<BTreeMap<Vec<u8>, (u64, bool)>> {
    (0..directories).map(|number| listed(&volume.mount_point().join(format!("directory {number}")))).collect()
}

/// The blocks of a directory of a volume that is not mounted.
fn blocks_of(volume: &LoopVolume, name: &str) -> Vec<u64> {
    let request = format!("blocks \"/{name}\"");
    let arguments = ["-R", &request].map(AsRef::as_ref);
    let told = tool::run("debugfs", arguments.into_iter().chain([volume.device().as_os_str()])).unwrap();
    told.split_whitespace().map(|block| block.parse().unwrap()).collect()
}

/// Bytes and 512-byte sectors of each directory.
fn sizes(volume: &LoopVolume, directories: usize) -> Vec<(u64, u64)> {
    let of = |number| fs::metadata(volume.mount_point().join(format!("directory {number}"))).unwrap();
    (0..directories).map(|number| (of(number).len(), of(number).blocks())).collect()
}

/// Compacts the directories of one make of ext4, and has the kernel and e2fsck judge.
fn judge_make(make: &[&str], request: Option<&str>) {
    const DIRECTORIES: usize = 4;
    let volume = LoopVolume::create(&VolumeSpec::ext4(64).mkfs(make)).unwrap();
    if let Some(request) = request {
        volume.unmount().unwrap();
        let arguments = ["-w", "-R", request].map(AsRef::as_ref);
        tool::run("debugfs", arguments.into_iter().chain([volume.device().as_os_str()])).unwrap();
        volume.mount().unwrap();
    }
    crowd(&volume.mount_point(), DIRECTORIES, 4000).unwrap();
    volume.remount().unwrap();
    let (before, names, was) =
        (dump(&volume.mount_point()).unwrap(), listings(&volume, DIRECTORIES), sizes(&volume, DIRECTORIES));
    let kept = fs::metadata(volume.mount_point().join("lost+found")).unwrap().len();
    volume.unmount().unwrap();
    let done = compacted_device(&volume);
    volume.check().unwrap();
    volume.mount().unwrap();
    let is = sizes(&volume, DIRECTORIES);
    eprintln!("{make:?} {request:?}: {} directories, {} freed; {was:?} -> {is:?}", done.directories, done.freed.0);
    // "lost+found" keeps its empty blocks.
    assert_eq!(fs::metadata(volume.mount_point().join("lost+found")).unwrap().len(), kept);
    assert!(done.directories == DIRECTORIES as u64 && done.left.is_empty(), "{done:?}");
    let freed: u64 = was.iter().zip(&is).map(|(was, is)| was.0 - is.0).sum();
    assert!(done.freed.0 == freed && freed > 0 && is.iter().zip(&was).all(|(is, was)| is.1 < was.1 && is.0 < was.0));
    assert!(is[0].0 <= 4096, "a directory without names has one block");
    compare(&before, &dump(&volume.mount_point()).unwrap()).unwrap();
    assert_eq!(listings(&volume, DIRECTORIES), names);
    // The kernel works on with it: names come, and go.
    for (directory, names) in names.iter().enumerate() {
        let path = volume.mount_point().join(format!("directory {directory}"));
        for number in 0..1500 {
            fs::hard_link(volume.mount_point().join("file"), path.join(format!("new {number}"))).unwrap();
        }
        for name in names.keys().filter(|name| name.len() % 3 == 0) {
            fs::remove_file(path.join(std::ffi::OsStr::from_bytes(name))).unwrap();
        }
        assert!((0..1500).all(|number| path.join(format!("new {number}")).exists()));
    }
    volume.check().unwrap();
    volume.unmount().unwrap();
    // And what is full is left as it is.
    compacted_device(&volume);
    let again = compacted_device(&volume);
    assert_eq!((again.directories, again.freed), (0, Bytes(0)), "{again:?}");
    volume.check().unwrap();
}

#[test]
fn loop_directories_of_every_make_of_ext4_are_compacted_and_say_the_same() {
    judge_make(&["-b", "4096"], None);
    judge_make(
        &["-b", "1024", "-O", "metadata_csum_seed", "-E", "hash_seed=01234567-89ab-cdef-8421-fedcba987654"],
        None,
    );
    judge_make(&["-b", "2048", "-O", "^metadata_csum,^64bit"], Some("ssv def_hash_version tea"));
    judge_make(&["-b", "1024", "-O", "^dir_index"], None);
    judge_make(&["-b", "1024", "-O", "^metadata_csum,^filetype", "-I", "128"], Some("ssv def_hash_version legacy"));
}

#[test]
fn loop_directories_whose_hashes_count_bytes_as_unsigned_are_compacted() {
    for version in ["half_md4", "tea", "legacy"] {
        let flags = format!("ssv def_hash_version {version}");
        let volume = LoopVolume::create(&VolumeSpec::ext4(32).mkfs(&["-b", "1024"])).unwrap();
        volume.unmount().unwrap();
        for request in [flags.as_str(), "ssv flags 2"] {
            let arguments = ["-w", "-R", request].map(AsRef::as_ref);
            tool::run("debugfs", arguments.into_iter().chain([volume.device().as_os_str()])).unwrap();
        }
        volume.mount().unwrap();
        crowd(&volume.mount_point(), 4, 1500).unwrap();
        let names = listings(&volume, 4);
        volume.unmount().unwrap();
        let done = compacted_device(&volume);
        assert!(done.directories >= 4 && done.left.is_empty(), "{version}: {done:?}");
        volume.check().unwrap();
        volume.mount().unwrap();
        assert_eq!(listings(&volume, 4), names, "{version}");
    }
}

#[test]
fn loop_large_directories_without_an_index_get_one_where_the_volume_has_the_feature() {
    let volume = LoopVolume::create(&VolumeSpec::ext4(32).mkfs(&["-b", "1024", "-O", "^dir_index"])).unwrap();
    crowd(&volume.mount_point(), 4, 1500).unwrap();
    let names = listings(&volume, 4);
    volume.unmount().unwrap();
    tool::run("tune2fs", ["-O", "dir_index"].map(AsRef::as_ref).into_iter().chain([volume.device().as_os_str()]))
        .unwrap();
    let done = compacted_device(&volume);
    assert!(done.directories == 4 && done.left.is_empty(), "{done:?}");
    volume.check().unwrap();
    let arguments = ["-R", "htree_dump \"/directory 3\""].map(AsRef::as_ref);
    let told = tool::run("debugfs", arguments.into_iter().chain([volume.device().as_os_str()])).unwrap();
    assert!(told.contains("Indirect levels: 0"), "{told:.400}");
    volume.mount().unwrap();
    assert_eq!(listings(&volume, 4), names);
}

#[test]
fn loop_a_directory_with_three_levels_of_index_is_compacted() {
    let volume = LoopVolume::create(&VolumeSpec::ext4(128).mkfs(&["-b", "1024", "-O", "large_dir"])).unwrap();
    let root = volume.mount_point();
    let (file, large) = (root.join("file"), root.join("directory 0"));
    fs::write(&file, "content").unwrap();
    fs::create_dir(&large).unwrap();
    // Three names fill a block; the kernel leaves most with two, or one.
    (0..60_000).for_each(|number| fs::hard_link(&file, large.join(format!("{number:0>250}"))).unwrap());
    let (names, was) = (listings(&volume, 1), sizes(&volume, 1));
    volume.unmount().unwrap();
    let done = compacted_device(&volume);
    volume.check().unwrap();
    let arguments = ["-R", "htree_dump \"/directory 0\""].map(AsRef::as_ref);
    let told = tool::run("debugfs", arguments.into_iter().chain([volume.device().as_os_str()])).unwrap();
    assert!(told.contains("Indirect levels: 2"), "{:.400}", told);
    volume.mount().unwrap();
    let is = sizes(&volume, 1);
    eprintln!("{was:?} -> {is:?}");
    assert!(done.directories == 1 && is[0].0 < was[0].0 / 4 * 3, "{done:?}: {was:?} -> {is:?}");
    assert_eq!(listings(&volume, 1), names);
    fs::remove_file(large.join(format!("{:0>250}", 7))).unwrap();
    (0..3000).for_each(|number| fs::hard_link(&file, large.join(format!("new {number}"))).unwrap());
    volume.check().unwrap();
}

/// States of one run that power losses leave, judged after the next opening, or as they are found when there is no journal.
fn cut(mkfs: &[&str], with_journal: bool, cuts: Cuts) -> Result<usize> {
    let (volume, expected) = crowded(24, mkfs, 5, 900)?;
    let directory = tempfile::tempdir()?;
    let journal = directory.path().join("journal");
    let disk = Arc::new(MemoryDisk::new(fs::read(volume.device())?));
    let watched = Arc::new(Watched::new(Arc::clone(&disk), &journal));
    let done = compacted(Arc::clone(&watched) as Arc<dyn Disk>, &journal)?;
    ensure!(done.directories >= 4, "{done:?}");
    watched.note();
    let mut stage = Stage::new()?;
    let reopen =
        |disk, journal: &Path| OfflineExt4::open(Path::new("cut"), disk, journal).map(drop).map_err(Into::into);
    watched.judge(&cuts, with_journal, reopen, |recovered, _| {
        let image = stage.show(recovered)?;
        tool::run("e2fsck", ["-f".as_ref(), "-n".as_ref(), image.as_os_str()])?;
        let device = OpenOptions::new().write(true).open(volume.device())?;
        device.write_all_at(&recovered.content(), 0)?;
        device.sync_all()?;
        drop(device);
        volume.mount()?;
        let found = dump(&volume.mount_point());
        volume.unmount()?;
        compare(&expected, &found?)
    })
}

#[test]
fn loop_power_lost_while_directories_are_compacted_loses_no_name() {
    let states = cut(&[], true, Cuts::sample(20, 3)).unwrap();
    assert!(states >= 30, "{states}");
    cut(&["-b", "1024", "-O", "^metadata_csum"], true, Cuts::sample(10, 3)).unwrap();
}

#[test]
fn loop_without_the_journal_a_power_loss_damages_an_ext4_whose_directories_are_compacted() {
    let error = cut(&[], false, Cuts::sample(40, 4)).unwrap_err();
    assert!(format!("{error:#}").contains("e2fsck"), "{error:#}");
}

#[test]
fn loop_directories_that_are_not_understood_are_left_alone_with_the_reason() {
    let make = ["-b", "1024", "-O", "inline_data,^metadata_csum"];
    let volume = LoopVolume::create(&VolumeSpec::ext4(32).mkfs(&make)).unwrap();
    let root = volume.mount_point();
    let file = root.join("file");
    fs::write(&file, "content").unwrap();
    for directory in ["immutable", "casefold", "encrypted", "damaged", "small"] {
        let path = root.join(directory);
        fs::create_dir(&path).unwrap();
        let names = if directory == "small" { 3 } else { 2000 };
        (0..names).for_each(|number| fs::hard_link(&file, path.join(format!("a name {number}"))).unwrap());
        (0..names).filter(|number| number % 20 != 0).for_each(|number| {
            fs::remove_file(path.join(format!("a name {number}"))).unwrap();
        });
    }
    volume.unmount().unwrap();
    // Not every kernel can make such directories: these are only marked as such.
    let mark = |flags: [u32; 3]| {
        for (directory, flag) in ["immutable", "casefold", "encrypted"].into_iter().zip(flags) {
            // With an extent tree and an index.
            let request = format!("set_inode_field {directory} flags {:#x}", 0x8_1000 | flag);
            let arguments = ["-w", "-R", &request].map(AsRef::as_ref);
            tool::run("debugfs", arguments.into_iter().chain([volume.device().as_os_str()])).unwrap();
        }
    };
    mark([0x10, 0x4000_0000, 0x800]);
    // Other names where the hashes of these lead to, without checksums: only who computes the hashes notices.
    let blocks = blocks_of(&volume, "damaged");
    let device = OpenOptions::new().read(true).write(true).open(volume.device()).unwrap();
    for block in blocks {
        let mut data = vec![0; 1024];
        device.read_exact_at(&mut data, block * 1024).unwrap();
        for at in (0..1000).filter(|at| data[*at..].starts_with(b"a name ")) {
            device.write_all_at(b"x", block * 1024 + at as u64).unwrap();
        }
    }
    device.sync_all().unwrap();
    drop(device);
    let done = compacted_device(&volume);
    let left: Vec<WhyLeft> = done.left.iter().filter(|(_, count)| **count == 1).map(|(why, _)| *why).collect();
    assert_eq!(left, [WhyLeft::Encrypted, WhyLeft::Casefold, WhyLeft::Immutable, WhyLeft::Damaged], "{done:?}");
    assert_eq!(done.directories, 0, "{done:?}");
    mark([0; 3]);
    volume.mount().unwrap();
    assert_eq!(listed(&root.join("small")).len(), 1);
    assert!(["immutable", "casefold", "encrypted"].iter().all(|name| listed(&root.join(name)).len() == 100));
    volume.unmount().unwrap();
    assert_eq!(compacted_device(&volume).directories, 3);
}

#[test]
fn loop_damaged_directories_are_left_alone_and_make_nobody_panic() {
    let (volume, _) = crowded(24, &["-b", "1024"], 4, 700).unwrap();
    let sound = MemoryDisk::new(fs::read(volume.device()).unwrap());
    let blocks: Vec<u64> = (0..4).flat_map(|number| blocks_of(&volume, &format!("directory {number}"))).collect();
    let directory = tempfile::tempdir().unwrap();
    let seed = longrun_lab::seed();
    let (mut random, mut left) = (fastrand::Rng::with_seed(seed), 0);
    for _ in 0..200 {
        let disk = MemoryDisk::from_image(sound.image());
        let at = Bytes(blocks[random.usize(..blocks.len())] * 1024 + random.u64(..1024));
        let mut byte = [0];
        disk.read(at, &mut byte).unwrap();
        disk.write(at, &[byte[0] ^ 1 << random.u8(..8)]).unwrap();
        left += match compacted(Arc::new(disk), &directory.path().join("journal")) {
            Ok(done) => done.left.get(&WhyLeft::Damaged).copied().unwrap_or_default(),
            // A bit of an extent tree.
            Err(_) => 1,
        };
    }
    // A bit in the unused rest of an index means nothing.
    assert!((150..=200).contains(&left), "{left}");
}

#[test]
fn loop_optimize_tells_which_directories_it_has_compacted() {
    let (volume, expected) = crowded(48, &[], 4, 2000).unwrap();
    let run = |arguments: &[&str]| {
        let output = Command::new(longrun_binary().unwrap()).args(arguments).arg(volume.device()).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    };
    let json = |arguments: &[&str]| serde_json::from_str::<serde_json::Value>(&run(arguments)).unwrap();
    let before = File::open(volume.device()).unwrap().metadata().unwrap().len();
    let foreseen = json(&["analyze", "--json"])["compactable_directories"].clone();
    assert!(run(&["optimize", "--dry-run"]).contains("optimize compacts them"), "{foreseen}");
    let done = json(&["optimize", "--mode", "full", "--json"]);
    assert_eq!(done["compacted_directories"], foreseen);
    assert!(foreseen["directories"].as_u64().unwrap() >= 4, "{foreseen}");
    assert!(json(&["analyze", "--json"])["compactable_directories"].is_null());
    volume.check().unwrap();
    assert_eq!(before, File::open(volume.device()).unwrap().metadata().unwrap().len());
    volume.mount().unwrap();
    compare(&expected, &dump(&volume.mount_point()).unwrap()).unwrap();
}
