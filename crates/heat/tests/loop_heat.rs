//! Reads of files on real volumes are counted for these files, and for no others.
#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "tests may fail loudly, and tell their figures")]

use longrun_heat::{Counted, Harvested, HeatTable, Minute, Recorder};
use longrun_lab::{FileSystemKind, LoopVolume, VolumeSpec};
use longrun_layout::{FileId, InodeNumber};
use longrun_sys::{ByteRange, DeviceNumber, FileSystem, OFlags, drop_cache, expect_random_reads};
use std::collections::BTreeMap;
use std::fs::{self, File};
use std::os::unix::fs::{FileExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::path::Path;
use std::process::Command;

const BLOCK: u64 = 4096;

/// The file system's own number: on btrfs another one than `stat` shows.
fn number(volume: &LoopVolume) -> DeviceNumber {
    longrun_sys::mount_at(&volume.mount_point())
        .map(|id| longrun_sys::Mount::numbered(id).unwrap().unwrap().device)
        .unwrap()
}

/// The block device.
fn on(volume: &LoopVolume) -> DeviceNumber {
    DeviceNumber::from_stat(fs::metadata(volume.device()).unwrap().rdev())
}

fn id(path: &Path, kind: FileSystemKind) -> FileId {
    let file = File::open(path).unwrap();
    match kind {
        FileSystemKind::Btrfs => FileId {
            inode: InodeNumber(file.metadata().unwrap().ino()),
            generation: u32::try_from(longrun_sys::subvolume_of_file(&file).unwrap().0).unwrap(),
        },
        _ => longrun_sys::id_of_file(&file).unwrap(),
    }
}

fn filesystem(kind: FileSystemKind) -> FileSystem {
    FileSystem::from_name(kind.name()).unwrap()
}

fn whole(file: &File) -> ByteRange {
    ByteRange { start: longrun_layout::Bytes(0), length: longrun_layout::Bytes(file.metadata().unwrap().len()) }
}

/// Reads a block in place `at`, from the device and nothing around it.
fn read_block(file: &File, at: u64) {
    drop_cache(file, whole(file)).unwrap();
    file.read_exact_at(&mut [0; BLOCK as usize], at * BLOCK).unwrap();
}

fn harvest(recorder: &mut Recorder, of: DeviceNumber) -> Harvested {
    recorder.harvest().unwrap().remove(&of).unwrap_or_default()
}

fn reads(harvested: &Harvested, of: FileId) -> Counted {
    harvested.files.iter().find(|(file, _)| *file == of).map(|(_, counted)| *counted).unwrap_or_default()
}

#[test]
fn loop_reads_of_the_device_are_counted_for_their_file_on_each_file_system() {
    for kind in FileSystemKind::ALL {
        let volume = LoopVolume::create(&VolumeSpec::of(kind, 512)).unwrap();
        let point = volume.mount_point();
        let mut names = vec!["hot".to_owned(), "cold".to_owned(), "mapped".to_owned(), "direct".to_owned()];
        if kind == FileSystemKind::Btrfs {
            let made = Command::new("btrfs").args(["-q", "subvolume", "create"]).arg(point.join("sub")).status();
            assert!(made.unwrap().success());
            names.push("sub/hot".to_owned());
        }
        for name in &names {
            fs::write(point.join(name), vec![7; 64 * BLOCK as usize]).unwrap();
        }
        volume.remount().unwrap();
        let (device, mut recorder) = (number(&volume), Recorder::start().unwrap());
        recorder.watch(device, filesystem(kind), on(&volume)).unwrap();
        recorder.watch(device, filesystem(kind), on(&volume)).unwrap();
        let ids: BTreeMap<String, FileId> =
            names.iter().map(|name| (name.clone(), id(&point.join(name), kind))).collect();
        assert_eq!(ids.values().collect::<std::collections::BTreeSet<_>>().len(), names.len(), "{kind:?}");

        for (name, times) in names.iter().zip([20, 1, 0, 0, 5]) {
            let file = File::open(point.join(name)).unwrap();
            expect_random_reads(&file).unwrap();
            (0..times).for_each(|nth| read_block(&file, nth * 3));
        }
        let direct = OFlags::DIRECT.bits().cast_signed();
        let file = File::options().read(true).custom_flags(direct).open(point.join("direct")).unwrap();
        let mut buffer = longrun_sys::AlignedBuffer::new(BLOCK as usize);
        (0..3).for_each(|nth| file.read_exact_at(buffer.prefix(BLOCK as usize), nth * 7 * BLOCK).unwrap());

        let found = harvest(&mut recorder, device);
        let of = |name: &str| reads(&found, ids[name]);
        assert_eq!((of("hot").reads, of("hot").read_bytes), (20, 20 * BLOCK), "{kind:?} {found:?}");
        assert_eq!(of("cold").reads, 1, "{kind:?}");
        if recorder.tells_direct() {
            assert_eq!((of("direct").reads, of("direct").read_bytes), (3, 3 * BLOCK), "{kind:?} {found:?}");
        }
        if kind == FileSystemKind::Btrfs {
            assert_eq!(of("sub/hot").reads, 5, "inodes are numbered anew in each subvolume");
        }
        assert!(found.reads >= 24 && found.read_bytes >= 24 * BLOCK, "{kind:?} {found:?}");
        assert_eq!(harvest(&mut recorder, device).files, [], "taken once");

        // What is written shows as written.
        let file = File::options().write(true).open(point.join("cold")).unwrap();
        file.write_all_at(&[1; BLOCK as usize], 0).unwrap();
        file.sync_all().unwrap();
        let counted = reads(&harvest(&mut recorder, device), ids["cold"]);
        assert!(counted.writes >= 1 && counted.reads == 0, "{kind:?} {counted:?}");

        recorder.unwatch(device);
        let file = File::open(point.join("hot")).unwrap();
        read_block(&file, 9);
        assert_eq!(recorder.harvest().unwrap(), BTreeMap::new(), "{kind:?}: no longer watched");
    }
}

#[test]
fn loop_what_longrun_reads_itself_is_not_in_demand() {
    let volume = LoopVolume::create(&VolumeSpec::of(FileSystemKind::Ext4, 256)).unwrap();
    let path = volume.mount_point().join("file");
    fs::write(&path, vec![7; 64 * BLOCK as usize]).unwrap();
    volume.remount().unwrap();
    let (device, mut recorder) = (number(&volume), Recorder::start().unwrap());
    recorder.watch(device, FileSystem::Ext4, on(&volume)).unwrap();
    // A program of this name, whatever it is.
    let own = volume.mount_point().join("longrun");
    fs::copy("/bin/cat", &own).unwrap();
    assert!(Command::new(&own).arg(&path).output().unwrap().status.success());
    let found = harvest(&mut recorder, device);
    assert_eq!(reads(&found, id(&path, FileSystemKind::Ext4)).reads, 0, "{found:?}");
    assert!(found.own_reads > 0, "{found:?}");
}

/// The rank of a file that is read, by Zipf's law with this exponent.
fn ranks(files: usize, exponent: f64) -> impl Fn(f64) -> usize {
    let mut sums = Vec::with_capacity(files);
    let mut sum = 0.0;
    for rank in 1..=files {
        sum += (rank as f64).powf(-exponent);
        sums.push(sum);
    }
    move |at| sums.partition_point(|reached| *reached < at * sum)
}

/// 20,000 files, read by Zipf's law: the table of the kernel keeps 16,384, and nearly all of the hottest are among them.
#[test]
fn loop_the_hottest_files_are_found_among_more_than_the_kernel_keeps() {
    const FILES: usize = 20_000;
    const READS: u64 = 80_000;
    let volume = LoopVolume::create(&VolumeSpec::of(FileSystemKind::Ext4, 512)).unwrap();
    let point = volume.mount_point();
    for nth in 0..FILES {
        if nth % 1000 == 0 {
            fs::create_dir(point.join(format!("{}", nth / 1000))).unwrap();
        }
        fs::write(point.join(format!("{}/{nth}", nth / 1000)), [1; BLOCK as usize]).unwrap();
    }
    volume.remount().unwrap();
    // A file of every rank, anywhere on the volume.
    let mut numbers: Vec<usize> = (0..FILES).collect();
    fastrand::Rng::with_seed(18).shuffle(&mut numbers);
    let open = |rank: usize| {
        let nth = numbers[rank];
        File::open(point.join(format!("{}/{nth}", nth / 1000))).unwrap()
    };
    let ids: Vec<FileId> = (0..FILES).map(|rank| longrun_sys::id_of_file(open(rank)).unwrap()).collect();
    let _measured = longrun_sys::measure_bpf().unwrap();
    let (device, mut recorder) = (number(&volume), Recorder::start().unwrap());
    recorder.watch(device, FileSystem::Ext4, on(&volume)).unwrap();
    let (rank, mut random) = (ranks(FILES, 0.9), fastrand::Rng::with_seed(7));
    let mut true_reads = vec![0u64; FILES];
    for _ in 0..READS {
        let nth = rank(random.f64()).min(FILES - 1);
        read_block(&open(nth), 0);
        true_reads[nth] += 1;
    }
    let found = harvest(&mut recorder, device);
    let mut table = HeatTable::beginning(Minute(1));
    table.add(&found, Minute(1), 262_144);
    let hottest: std::collections::BTreeSet<FileId> =
        table.hottest(500, Minute(1)).into_iter().map(|(file, _)| file).collect();
    let mut order: Vec<usize> = (0..FILES).collect();
    order.sort_by_key(|nth| std::cmp::Reverse(true_reads[*nth]));
    let recalled = order[..500].iter().filter(|nth| hottest.contains(&ids[**nth])).count();
    let cost = recorder.cost().unwrap();
    println!(
        "recall of the 500 hottest: {recalled}; {} of {FILES} files counted; {} ns a request ({} runs)",
        found.files.len(),
        cost.nanos / cost.runs,
        cost.runs
    );
    assert!(recalled >= 480, "{recalled}");
    assert!(found.reads >= READS, "{}", found.reads);
}
