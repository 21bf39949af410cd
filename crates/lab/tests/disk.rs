//! Modelled disks as block devices: what a tool that we did not write asks of one is what the model is asked, its answers
//! come no sooner than the model says, and volumes on one are volumes.
#![allow(clippy::unwrap_used, reason = "helpers of tests may fail loudly")]

use longrun_lab::disk::model::{Cloud, Hdd, San};
use longrun_lab::disk::{DiskModel, ModelledDisk, Statistics};
use longrun_lab::oracle::{compare, dump};
use longrun_lab::{FileSystemKind, LoopVolume, VolumeSpec, tool};
use longrun_layout::Bytes;
use std::fs;
use std::sync::Arc;
use std::time::{Duration, Instant};

const SIZE: Bytes = Bytes(512 << 20);

/// So many reads of 4 KiB at random places, one after the other; what the disk says of them, and what they took.
fn random_reads(disk: &ModelledDisk, client: usize, count: u32) -> (Statistics, Duration) {
    random_reads_at_a_time(disk, client, count, 1)
}

/// As many of them at a time as `depth` says.
fn random_reads_at_a_time(disk: &ModelledDisk, client: usize, count: u32, depth: u32) -> (Statistics, Duration) {
    let before = disk.statistics().unwrap();
    let start = Instant::now();
    let file = format!("--filename={}", disk.device(client).unwrap().display());
    let (count, depth) = (format!("--number_ios={count}"), format!("--iodepth={depth}"));
    let fixed = ["--name=test", "--rw=randread", "--bs=4k", "--direct=1", "--readonly", "--randseed=7"];
    let given = ["--invalidate=0", "--ioengine=libaio", &file, &count, &depth];
    tool::run("fio", fixed.into_iter().chain(given)).unwrap();
    (disk.statistics().unwrap().since(before), start.elapsed())
}

#[test]
fn loop_what_fio_asks_is_what_the_model_is_asked_and_takes_what_the_model_says() {
    let (cloud, hdd, san) = (Cloud::default(), Hdd::default(), San::default());
    let hdd_mean = hdd.average_seek.0 * 95 / 100 + hdd.turn().0 / 2 + hdd.command.0;
    let san_each = 1_000_000_000 / san.requests_per_second + san.latency.0;
    // A request each, and how long one takes by the model: at least, on average at most.
    let cases = [
        (DiskModel::Cloud(cloud), 200, cloud.latency.0 * 97 / 100, cloud.latency.0 * 103 / 100),
        (DiskModel::Hdd(hdd), 150, hdd_mean * 85 / 100, hdd_mean * 115 / 100),
        (DiskModel::San(san), 100, san_each, san_each),
    ];
    for (model, count, least, most) in cases {
        let disk = ModelledDisk::start(model, 1, &[SIZE]).unwrap();
        // Whoever looks at new devices has looked.
        tool::run("udevadm", ["settle"]).ok();
        let (done, took) = random_reads(&disk, 0, count);
        let count = u64::from(count);
        assert_eq!((done.reads.requests, done.reads.bytes), (count, count * 4096), "{}", model.name());
        assert_eq!(done.reads.modelled, count);
        let mean = done.reads.modelled_nanos / count;
        assert!((least..=most).contains(&mean), "{}: {mean} ns, not {least} to {most}", model.name());
        assert!(took >= Duration::from_nanos(done.reads.modelled_nanos), "{}: answered too soon", model.name());
    }
}

#[test]
fn loop_a_request_of_a_mebibyte_arrives_whole_and_several_are_under_way_at_once() {
    let disk = ModelledDisk::start(DiskModel::Cloud(Cloud::default()), 1, &[SIZE]).unwrap();
    let before = disk.statistics().unwrap();
    let file = format!("--filename={}", disk.device(0).unwrap().display());
    let depth = ["--ioengine=libaio", "--iodepth=8", "--iomem=mmaphuge", "--number_ios=64", "--invalidate=0"];
    let fixed = ["--name=test", "--rw=write", "--bs=1M", "--direct=1", "--randseed=7", file.as_str()];
    let huge = tool::run("fio", fixed.into_iter().chain(depth));
    // Without huge pages a request has more parts than the device takes, and is cut for that.
    let whole = huge.is_ok();
    if !whole {
        let depth = ["--ioengine=libaio", "--iodepth=8", "--number_ios=64", "--invalidate=0"];
        tool::run("fio", fixed.into_iter().chain(depth)).unwrap();
    }
    let done = disk.statistics().unwrap().since(before);
    assert_eq!(done.writes.bytes, 64 << 20);
    assert!(if whole { done.writes.requests == 64 } else { done.writes.requests <= 192 }, "{done:?}");
    // Eight at a time wait for each other: all together longer than one after the other would.
    let alone = (64 << 20) * 8;
    assert!(done.writes.modelled_nanos > alone * 3, "{done:?}");
}

#[test]
fn loop_two_clients_of_a_shared_array_wait_for_each_other() {
    let disk = ModelledDisk::start(DiskModel::San(San::default()), 1, &[SIZE, SIZE]).unwrap();
    assert_ne!(disk.device(0).unwrap(), disk.device(1).unwrap());
    let (alone, _) = random_reads(&disk, 0, 50);
    let (both, _) = std::thread::scope(|scope| {
        let other = scope.spawn(|| random_reads_at_a_time(&disk, 1, 300, 8));
        let own = random_reads(&disk, 0, 50);
        other.join().unwrap();
        own
    });
    let mean = |done: &Statistics| done.reads.modelled_nanos / done.reads.modelled.max(1);
    assert!(mean(&both) > mean(&alone) * 2, "{both:?} against {alone:?}");
}

#[test]
fn loop_without_the_model_everything_is_counted_and_nothing_takes_time() {
    let disk = ModelledDisk::start(DiskModel::Hdd(Hdd::default()), 1, &[SIZE]).unwrap();
    let (done, _) = disk.without_model(|| Ok(random_reads(&disk, 0, 100))).unwrap();
    assert_eq!((done.reads.requests, done.reads.modelled), (100, 0));
    let (done, _) = random_reads(&disk, 0, 3);
    assert_eq!((done.reads.requests, done.reads.modelled), (3, 3));
}

#[test]
fn loop_a_volume_on_a_modelled_disk_is_a_volume_and_its_copy_is_the_same() {
    for kind in FileSystemKind::ALL {
        let disk = ModelledDisk::start(DiskModel::Cloud(Cloud::default()), 1, &[SIZE]).unwrap();
        let disk = Arc::new(disk);
        let volume = LoopVolume::create_on(&disk, 0, &VolumeSpec::of(kind, SIZE.0 >> 20)).unwrap();
        let content: Vec<u8> = (0..3_000_000_u32).map(|n| (n / 7) as u8).collect();
        fs::write(volume.mount_point().join("file"), &content).unwrap();
        volume.remount().unwrap();
        let before = disk.statistics().unwrap();
        assert!(fs::read(volume.mount_point().join("file")).unwrap() == content, "{kind:?}");
        let read = disk.statistics().unwrap().since(before).reads;
        assert!(read.bytes >= 3_000_000 && read.modelled > 0, "{kind:?}: it was not read from the disk: {read:?}");
        let tree = dump(&volume.mount_point()).unwrap();
        volume.check().unwrap();
        let copy = volume.copy_to_disk(DiskModel::by_name("ssd").unwrap(), 1).unwrap();
        compare(&tree, &dump(&copy.mount_point()).unwrap()).unwrap();
        assert_eq!(copy.disk().unwrap().model().name(), "ssd");
        copy.check().unwrap();
    }
}
