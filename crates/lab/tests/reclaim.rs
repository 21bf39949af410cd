//! Free space is given back to the image below: all of it, nothing else, and beside writers. The judge is what the image
//! has allocated (`st_blocks`), not our report.
#![allow(clippy::unwrap_used, reason = "helpers of tests may fail loudly")]

#[path = "common/several_devices.rs"]
mod several_devices;

use longrun_ageing::Recipe;
use longrun_lab::oracle::{compare, dump};
use longrun_lab::{
    FileSystemKind, Finished, LoopVolume, Optimizer, Running, TortureSettings, VolumeSpec, longrun_binary, tool,
    torture,
};
use longrun_layout::{Bytes, ExtentSet};
use longrun_volume::reclaim::{FreePieces, Granules};
use serde_json::Value;
use several_devices::SeveralDevices;
use std::ffi::OsStr;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

const LIMIT: Duration = Duration::from_secs(600);
const MIB: u64 = 1 << 20;

fn command(target: &Path, more: &[&str]) -> Command {
    let mut command = Command::new(longrun_binary().unwrap());
    command.arg("reclaim").arg(target).args(["--pace", "fast"]).args(more);
    command
}

fn ended(target: &Path, more: &[&str]) -> Finished {
    Running::start(&mut command(target, more)).unwrap().wait(LIMIT).unwrap()
}

/// Runs it to its end, which must be success; its report.
fn reclaim(target: &Path, more: &[&str]) -> Value {
    let more: Vec<&str> = more.iter().copied().chain(["--json"]).collect();
    let ended = ended(target, &more);
    assert!(ended.status.success(), "{ended:?}");
    serde_json::from_str(&ended.stdout).unwrap()
}

#[track_caller]
fn refused(target: &Path, more: &[&str], status: i32, reason: &str) {
    let ended = ended(target, more);
    assert_eq!(ended.status.code(), Some(status), "{ended:?}");
    assert!(ended.stderr.contains(reason), "{reason}: {ended:?}");
}

/// The kernel writes the inode tables of a new ext4 some seconds after it was mounted, 16 MiB of them on 1 GiB. What the image has
/// allocated must not depend on when that is.
fn quiet(kind: FileSystemKind, mebibytes: u64) -> VolumeSpec {
    let spec = VolumeSpec::of(kind, mebibytes);
    if kind == FileSystemKind::Ext4 { spec.mount("noinit_itable") } else { spec }
}

/// What the image has allocated once nothing changes any more.
fn allocated(volume: &LoopVolume) -> u64 {
    rustix::fs::sync();
    let blocks = || fs::metadata(volume.image()).unwrap().blocks() * 512;
    let mut last = blocks();
    loop {
        std::thread::sleep(Duration::from_millis(100));
        match blocks() {
            now if now == last => return now,
            now => last = now,
        }
    }
}

/// Everything of the volume that is not free, by statfs.
fn used(volume: &LoopVolume) -> u64 {
    rustix::fs::sync();
    let capacity = longrun_sys::capacity_at(&volume.mount_point()).unwrap();
    fs::metadata(volume.image()).unwrap().len() - capacity.block_size.to_bytes(capacity.free).0
}

/// Writes `count` files of `kibibytes` KiB each, and deletes all but each `keep`th.
fn write_and_delete(mount: &Path, count: u64, kibibytes: u64, keep: u64) {
    let path = |number: u64| mount.join(format!("file-{number}"));
    for number in 0..count {
        let content: Vec<u8> = (0..kibibytes << 10).map(|at| (at.wrapping_mul(number + 3) >> 3) as u8 | 1).collect();
        fs::write(path(number), content).unwrap();
    }
    sync(mount);
    (0..count).filter(|number| number % keep != 0).for_each(|number| fs::remove_file(path(number)).unwrap());
    settled(mount);
}

fn sync(mount: &Path) {
    rustix::fs::syncfs(fs::File::open(mount).unwrap()).unwrap();
}

/// Deleted files are freed a little later: waits until no more space becomes free.
fn settled(mount: &Path) {
    let free = || {
        sync(mount);
        longrun_sys::capacity_at(mount).unwrap().free
    };
    let mut last = free();
    loop {
        std::thread::sleep(Duration::from_millis(300));
        match free() {
            now if now == last => return,
            now => last = now,
        }
    }
}

/// The kernel's name of the device.
fn name(volume: &LoopVolume) -> String {
    volume.device().file_name().unwrap().to_str().unwrap().to_owned()
}

/// The image has what the volume uses, and 2 % more at most.
#[track_caller]
fn assert_shrunk(volume: &LoopVolume, report: &Value) {
    let (allocated, used) = (allocated(volume), used(volume));
    assert!(allocated <= used + used / 50, "{} MiB allocated, {} used: {report:#}", allocated / MIB, used / MIB);
}

#[test]
fn loop_all_free_space_goes_back_to_the_image_and_no_file_changes() {
    for kind in FileSystemKind::ALL {
        let volume = LoopVolume::create(&quiet(kind, 1024)).unwrap();
        let mount = volume.mount_point();
        write_and_delete(&mount, 150, 4096, 4);
        let (before, full) = (dump(&mount).unwrap(), allocated(&volume));
        assert!(full > used(&volume) + 300 * MIB, "nothing to give back: the test proves nothing");
        let report = reclaim(&mount, &[]);
        eprintln!("{}: {report:#}", kind.name());
        assert_shrunk(&volume, &report);
        let shrunk = full - allocated(&volume);
        let told = report["storage_reclaimed_bytes"].as_u64().unwrap();
        assert!(told.abs_diff(shrunk) < shrunk / 50, "{} MiB, told {}", shrunk / MIB, told / MIB);
        let counted = report["reclaimed_bytes"].as_u64();
        assert_eq!(counted.is_none(), kind == FileSystemKind::Xfs, "{report:#}");
        assert!(counted.is_none_or(|bytes| bytes >= shrunk), "{report:#}");
        assert!(report["next_bytes"].is_null() && report["stopped"].is_null(), "{report:#}");
        assert_eq!(report["covered_bytes"], report["total_bytes"]);
        // A peer finds nothing that was left.
        let shrunk = allocated(&volume);
        tool::run("fstrim", [&mount]).unwrap();
        assert!(shrunk - allocated(&volume).min(shrunk) < MIB, "fstrim gave back more");
        compare(&before, &dump(&mount).unwrap()).unwrap();
        volume.remount().unwrap();
        compare(&before, &dump(&mount).unwrap()).unwrap();
        volume.check().unwrap();
    }
}

/// Users see no error meanwhile.
fn writers_beside_reclaiming(spec: &VolumeSpec, recipe: Recipe, seconds: u64) {
    let (volume, _) = LoopVolume::aged(spec, recipe, 7).unwrap();
    let (alone, beside) = (Duration::from_millis(300), Duration::from_secs(seconds));
    let settings = TortureSettings { seed: 7, alone, beside };
    let report = torture(&volume, &Optimizer::longrun_reclaiming().unwrap(), &settings).unwrap();
    eprintln!("{report:#?}");
    assert!(report.unexpected_errors.is_empty(), "users saw errors: {:#?}", report.unexpected_errors);
}

#[test]
fn loop_every_kind_of_writer_keeps_every_byte_beside_reclaiming() {
    writers_beside_reclaiming(&VolumeSpec::xfs(512), Recipe::Server, 1);
}

#[test]
fn campaign_every_kind_of_writer_keeps_every_byte_beside_reclaiming() {
    [VolumeSpec::ext4(768), VolumeSpec::xfs(768), VolumeSpec::btrfs(1024)]
        .iter()
        .for_each(|spec| writers_beside_reclaiming(spec, Recipe::Aged, 15));
}

#[test]
fn loop_what_ext4_has_trimmed_before_is_called_so() {
    let volume = LoopVolume::create(&VolumeSpec::ext4(512)).unwrap();
    let mount = volume.mount_point();
    write_and_delete(&mount, 60, 4096, 4);
    assert_eq!(reclaim(&mount, &[])["skipped_bytes"], 0);
    let again = reclaim(&mount, &[]);
    let free = again["before"]["free_bytes"].as_u64().unwrap();
    assert!(again["reclaimed_bytes"].as_u64().unwrap() < free / 10, "{again:#}");
    assert!(again["skipped_bytes"].as_u64().unwrap() > free / 2, "{again:#}");
    let text = ended(&mount, &[]).stdout;
    assert!(text.contains("were not given back again: ext4 skips block groups"), "{text}");
    volume.remount().unwrap();
    assert!(reclaim(&mount, &[])["reclaimed_bytes"].as_u64().unwrap() > free / 2, "it has forgotten");
}

#[test]
fn loop_short_pieces_that_an_earlier_trim_left_are_not_forgotten_on_ext4() {
    let volume = LoopVolume::create(&quiet(FileSystemKind::Ext4, 1024)).unwrap();
    let mount = volume.mount_point();
    write_and_delete(&mount, 6000, 128, 2);
    let note = Path::new("/sys/fs/ext4").join(name(&volume)).join("last_trim_minblks");
    let told = || fs::read_to_string(&note).unwrap().trim().to_owned();
    let full = allocated(&volume);
    let before = reclaim(&mount, &["--min-extent", "1M"]);
    assert_eq!(told(), "256");
    let left = allocated(&volume);
    assert!(left > used(&volume) + 200 * MIB, "{} MiB of {} left: {before:#}", left / MIB, full / MIB);
    let after = reclaim(&mount, &[]);
    assert_eq!(told(), "1");
    assert_shrunk(&volume, &after);
}

#[test]
fn loop_a_stopped_run_goes_on_where_it_was_stopped() {
    let volume = LoopVolume::create(&quiet(FileSystemKind::Ext4, 1024)).unwrap();
    let mount = volume.mount_point();
    write_and_delete(&mount, 150, 4096, 4);
    let slow = ["--rate", "64M/s", "--json"];
    let mut running = Running::start(&mut command(&mount, &slow)).unwrap();
    let begun = Instant::now();
    // At 64 MiB a second the 600 MiB take longer than that.
    while begun.elapsed() < Duration::from_secs(3) {
        std::thread::sleep(Duration::from_millis(50));
        assert!(!running.has_ended().unwrap(), "it ended before it could be stopped");
    }
    refused(&mount, &[], 3, "is working on this volume");
    tool::run("kill", ["-INT", &running.id().to_string()]).unwrap();
    let ended = running.wait(LIMIT).unwrap();
    assert_eq!(ended.status.code(), Some(130), "{ended:?}");
    assert!(ended.stderr.contains("stopping after the current slice"), "{ended:?}");
    let report: Value = serde_json::from_str(&ended.stdout).unwrap();
    let next = report["next_bytes"].as_u64().unwrap();
    assert!(next > 0 && report["stopped"] == "cancelled", "{report:#}");
    assert_eq!(note(&volume), Some(next.to_string()));

    let late = reclaim(&mount, &["--deadline", "2s", "--rate", "64M"]);
    let further = late["next_bytes"].as_u64().unwrap();
    assert!(late["stopped"] == "deadline" && further != next, "{late:#}");
    assert_eq!(next + late["covered_bytes"].as_u64().unwrap(), further, "{late:#}");

    let rest = reclaim(&mount, &[]);
    assert_eq!((&rest["covered_bytes"], note(&volume)), (&rest["total_bytes"], Some(String::new())));
    assert_shrunk(&volume, &rest);
    volume.check().unwrap();
}

/// What the last run over an ext4 volume noted for the next.
fn note(volume: &LoopVolume) -> Option<String> {
    let device = fs::metadata(volume.mount_point()).unwrap().dev();
    let name = format!("{}.reclaim", longrun_sys::DeviceNumber::from_stat(device));
    fs::read_to_string(Path::new("/run/longrun-locks").join(name)).ok()
}

#[test]
fn loop_a_dry_run_tells_what_could_be_given_back_and_gives_nothing_back() {
    for kind in FileSystemKind::ALL {
        let volume = LoopVolume::create(&quiet(kind, 512)).unwrap();
        let mount = volume.mount_point();
        write_and_delete(&mount, 60, 4096, 4);
        let full = allocated(&volume);
        let dry = reclaim(&mount, &["--dry-run"]);
        assert!(allocated(&volume).abs_diff(full) < 2 * MIB, "{dry:#}");
        let before = &dry["before"];
        let figure = |name: &str| before[name].as_u64().unwrap();
        assert!(figure("reclaimable_bytes") > 200 * MIB && figure("free_pieces") > 0, "{dry:#}");
        assert_eq!(figure("used_bytes") + figure("free_bytes"), 512 * MIB, "{dry:#}");
        assert_eq!(figure("allocated_bytes") / MIB, full / MIB, "{dry:#}");
    }
}

/// How many whole MiB of the volume are free: what a storage with blocks of 1 MiB could take back.
fn in_mebibytes(mount: &Path) -> u64 {
    let root = fs::File::open(mount).unwrap();
    let block_size = longrun_sys::capacity(&root).unwrap().block_size;
    let pieces: ExtentSet = longrun_sys::all_free_extents(&root, block_size).unwrap().into_iter().collect();
    let free = FreePieces { block_size, pieces: pieces.iter().collect() };
    free.reclaimable(Granules::of(Bytes(MIB)), Bytes(0)).0 / MIB
}

#[test]
fn loop_consolidating_first_gets_back_what_lies_in_small_pieces() {
    for spec in [quiet(FileSystemKind::Ext4, 640).mkfs(&["-b", "4096", "-m", "0"]), VolumeSpec::xfs(640)] {
        let volume = LoopVolume::create(&spec).unwrap();
        let mount = volume.mount_point();
        write_and_delete(&mount, 4400, 120, 2);
        let before = dump(&mount).unwrap();
        let alone = reclaim(&mount, &["--dry-run", "--min-extent", "1M"]);
        let figures = |report: &Value, when: &str| {
            ["reclaimable_bytes", "free_bytes", "free_pieces"].map(|name| report[when][name].as_u64().unwrap())
        };
        let [reclaimable, free, pieces] = figures(&alone, "before");
        let whole = in_mebibytes(&mount);
        eprintln!(
            "{}: {} of {} MiB in {pieces} pieces, {whole} whole",
            spec.kind.name(),
            reclaimable / MIB,
            free / MIB
        );
        assert!(pieces > 2000 && whole * MIB < free / 2, "the free space is not scattered: {alone:#}");
        let done = reclaim(&mount, &["--consolidate", "--min-extent", "1M"]);
        let [reclaimable, free, pieces] = figures(&done, "after");
        let whole = in_mebibytes(&mount);
        eprintln!(
            "{}: {} of {} MiB in {pieces} pieces, {whole} whole",
            spec.kind.name(),
            reclaimable / MIB,
            free / MIB
        );
        assert!(reclaimable * 10 >= free * 9 && whole * MIB * 10 >= free * 9, "{whole} whole: {done:#}");
        assert!(done["consolidation"]["moves"].as_u64().unwrap() > 0);
        // Of what is free a tenth at most stays allocated.
        let (allocated, used) = (allocated(&volume), used(&volume));
        assert!(allocated <= used + free / 10, "{} MiB allocated, {} used: {done:#}", allocated / MIB, used / MIB);
        let needless = reclaim(&mount, &["--consolidate", "--min-extent", "1M"]);
        assert!(needless["consolidation"].is_null(), "{needless:#}");
        compare(&before, &dump(&mount).unwrap()).unwrap();
        volume.check().unwrap();
    }
}

#[test]
fn loop_a_btrfs_on_several_devices_gives_back_on_all_of_them() {
    for profile in ["raid1", "raid0", "single"] {
        let several = SeveralDevices::create(profile, 2, 768);
        let mount = several.first.mount_point();
        write_and_delete(&mount, 100, 4096, 4);
        let both = || std::iter::once(&several.first).chain(several.others()).map(allocated).collect::<Vec<_>>();
        let full: u64 = both().iter().sum();
        let report = reclaim(&mount, &[]);
        let (left, copies) = (both(), if profile == "raid1" { 2 } else { 1 });
        // A quarter of the data stays, and what the trees take.
        let most = copies * 110 * MIB;
        assert!(left.iter().sum::<u64>() <= most && full > copies * 350 * MIB, "{full}, then {left:?}: {report:#}");
        tool::run("fstrim", [&mount]).unwrap();
        assert!(both().iter().sum::<u64>() + MIB > left.iter().sum(), "fstrim gave back more: {left:?}");
        several.first.unmount().unwrap();
    }
}

#[test]
fn loop_a_device_of_several_that_accepts_no_discards_is_named() {
    let deaf = LoopVolume::create_without_discards(&VolumeSpec::btrfs(256)).unwrap();
    deaf.unmount().unwrap();
    let words = ["-d", "raid1", "-m", "raid1", deaf.device().to_str().unwrap()];
    let volume = LoopVolume::create(&VolumeSpec::btrfs(256).mkfs(&words)).unwrap();
    let mount = volume.mount_point();
    write_and_delete(&mount, 20, 4096, 4);
    let full = allocated(&volume);
    let report = reclaim(&mount, &[]);
    assert!(allocated(&volume) + 50 * MIB < full, "{report:#}");
    let text = ended(&mount, &["--dry-run"]).stdout;
    assert!(text.contains(&format!("{} accepts no discards: nothing on it is given back", name(&deaf))), "{text}");
    volume.unmount().unwrap();
}

#[test]
fn loop_what_cannot_be_given_back_is_refused_with_the_reason() {
    let volume = LoopVolume::create(&VolumeSpec::ext4(128)).unwrap();
    let mount = volume.mount_point();
    refused(&mount, &["--min-extent", "1G"], 3, "no free piece of this volume is longer than");
    fs::create_dir(mount.join("directory")).unwrap();
    refused(&mount.join("directory"), &[], 2, "name its mount point");
    refused(Path::new("/proc"), &[], 3, "proc is not supported");

    let deaf = LoopVolume::create_without_discards(&VolumeSpec::ext4(32)).unwrap();
    for more in [&[][..], &["--dry-run"], &["--consolidate"]] {
        refused(&deaf.mount_point(), more, 3, &format!("{} accepts no discards", name(&deaf)));
    }

    let again = |options: &str| {
        tool::run("mount", [OsStr::new("-o"), OsStr::new(options), mount.as_os_str()]).unwrap();
    };
    again("remount,ro");
    refused(&mount, &[], 3, "is mounted read-only");
    again("remount,rw");
    fs::write(Path::new("/sys/fs/ext4").join(name(&volume)).join("trigger_fs_error"), "a test").unwrap();
    refused(&mount, &[], 3, "the file system is damaged");
    volume.unmount().unwrap();
    refused(volume.device(), &[], 3, "recorded errors");
    // ext4 is worked on unmounted, too.
    let volume = LoopVolume::create(&VolumeSpec::xfs(320)).unwrap();
    volume.unmount().unwrap();
    refused(volume.device(), &[], 3, "is not mounted");
}

#[test]
fn loop_other_file_systems_and_other_users_are_refused() {
    let volume = LoopVolume::create(&VolumeSpec::ext4(64).mkfs(&["-t", "ext3"])).unwrap();
    let kind =
        tool::run("findmnt", [OsStr::new("-no"), OsStr::new("FSTYPE"), volume.mount_point().as_os_str()]).unwrap();
    assert_eq!(kind.trim(), "ext3");
    refused(&volume.mount_point(), &[], 3, "ext3 is not supported");
    let volume = LoopVolume::create(&VolumeSpec::ext4(64)).unwrap();
    // The way to the program must be open to others.
    let place = tempfile::tempdir().unwrap();
    let program = place.path().join("longrun");
    tool::install(&longrun_binary().unwrap(), &program).unwrap();
    tool::run("chmod", [OsStr::new("755"), place.path().as_os_str()]).unwrap();
    tool::run("chmod", [OsStr::new("755"), volume.mount_point().parent().unwrap().as_os_str()]).unwrap();
    let mut nobody = Command::new("setpriv");
    nobody.args(["--reuid=65534", "--regid=65534", "--clear-groups"]).arg(&program).arg("reclaim");
    let ended = Running::start(nobody.arg(volume.mount_point())).unwrap().wait(LIMIT).unwrap();
    assert_eq!(ended.status.code(), Some(3), "{ended:?}");
    assert!(ended.stderr.contains("giving free space back needs root"), "{ended:?}");
}
