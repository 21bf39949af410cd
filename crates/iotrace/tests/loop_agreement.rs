//! The trace agrees with judges that we did not write: bpftrace, and the kernel's own counters of the device.
#![allow(clippy::unwrap_used, reason = "helpers of tests may fail loudly")]

mod common;

use common::{KIB, direct, read, trace, write};
use longrun_iotrace::{Histogram, Options, Scale};
use longrun_lab::{LoopVolume, VolumeSpec};
use longrun_sys::DeviceNumber;
use std::collections::BTreeMap;
use std::io::{BufRead as _, BufReader, Read as _};
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::Duration;

/// bpftrace at work. It needs tracefs, which need not be mounted: it gets one in a mount namespace of its own.
struct Judge {
    child: Child,
    output: BufReader<ChildStdout>,
}

impl Judge {
    fn start(device: DeviceNumber) -> Self {
        let number = device.major << 20 | device.minor;
        let program = format!(
            "BEGIN {{ printf(\"ready\\n\"); }} \
             tracepoint:block:block_rq_issue /args->dev == {number}/ {{ \
               @sizes[args->rwbs, args->bytes] = count(); \
               if (@end != 0 && @end == args->sector) {{ @sequential = count(); }} \
               @end = args->sector + args->nr_sector; }} \
             tracepoint:block:block_rq_complete /args->dev == {number}/ {{ @completed[args->rwbs] = count(); }} \
             tracepoint:block:block_bio_queue /args->dev == {number}/ {{ @queued = count(); }} \
             tracepoint:block:block_bio_backmerge /args->dev == {number}/ {{ @merged = count(); }}"
        );
        let script = "mountpoint -q /sys/kernel/tracing || mount -t tracefs tracefs /sys/kernel/tracing; exec bpftrace -f json -e \"$0\"";
        let mut child = Command::new("unshare")
            // What others unmount meanwhile is not in use by bpftrace.
            .args(["--mount", "--propagation", "slave", "sh", "-c", script, &program])
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let mut output = BufReader::new(child.stdout.take().unwrap());
        let mut line = String::new();
        while !line.contains("ready") {
            line.clear();
            assert!(
                output.read_line(&mut line).unwrap() > 0,
                "bpftrace ended: install it with scripts/prepare.sh test"
            );
        }
        Self { child, output }
    }

    /// What it counted: by the name of the table and the key in it.
    fn end(mut self) -> BTreeMap<String, u64> {
        let id = rustix::process::Pid::from_child(&self.child);
        let (child, output) = (&mut self.child, &mut self.output);
        let text = std::thread::scope(|scope| {
            let reader = scope.spawn(|| {
                let mut text = String::new();
                output.read_to_string(&mut text).map(|_| text)
            });
            // A signal that comes just before it sleeps does not wake it: one was lost once, and the test waited for ever.
            while child.try_wait().unwrap().is_none() {
                rustix::process::kill_process(id, rustix::process::Signal::INT).unwrap();
                std::thread::sleep(Duration::from_secs(1));
            }
            reader.join().unwrap().unwrap()
        });
        let mut found = BTreeMap::new();
        for line in text.lines().filter_map(|line| serde_json::from_str::<serde_json::Value>(line).ok()) {
            let Some(tables) = line["data"].as_object().filter(|_| line["type"] == "map") else { continue };
            for (table, value) in tables {
                match value.as_object() {
                    Some(keys) => {
                        found.extend(keys.iter().filter_map(|(key, n)| Some((format!("{table} {key}"), n.as_u64()?))));
                    }
                    None => found.extend(value.as_u64().map(|n| (table.clone(), n))),
                }
            }
        }
        found
    }
}

impl Drop for Judge {
    fn drop(&mut self) {
        _ = self.child.kill();
        _ = self.child.wait();
    }
}

/// The kernel's counters: requests, merges, bytes of reads and of writes.
fn counters(device: &Path) -> [u64; 6] {
    let path = Path::new("/sys/block").join(device.file_name().unwrap()).join("stat");
    let text = std::fs::read_to_string(path).unwrap();
    let fields: Vec<u64> = text.split_whitespace().map(|field| field.parse().unwrap()).collect();
    [fields[0], fields[1], fields[2] * 512, fields[4], fields[5], fields[6] * 512]
}

/// Some of everything: several at once, of several sizes, in order and not, and through the page cache.
fn mixture(device: &Path) {
    std::thread::scope(|scope| {
        for worker in 0..4u64 {
            scope.spawn(move || {
                let file = direct(device);
                for nth in 0..100u64 {
                    let at = ((nth * 7919 + worker * 104_729) % 3000) * 64 * KIB;
                    let length = [4, 8, 12, 64, 128][(nth % 5) as usize] * KIB;
                    if nth % 3 == worker % 3 { write(&file, at, length) } else { read(&file, at, length) }
                }
            });
        }
    });
    let cached = std::fs::File::options().read(true).write(true).open(device).unwrap();
    std::os::unix::fs::FileExt::write_all_at(&cached, &vec![3; 3 << 20], 1 << 20).unwrap();
    cached.sync_all().unwrap();
}

/// As many, but for the few that bpftrace misses: its programs leave out what interrupts one of them on the same processor.
fn close(theirs: u64, ours: u64, found: &BTreeMap<String, u64>) {
    assert!(theirs.abs_diff(ours) <= 2 + ours / 100, "bpftrace {theirs}, trace {ours}: {found:?}");
}

#[test]
fn loop_a_mixture_is_counted_as_bpftrace_and_the_kernel_count_it() {
    let volume = LoopVolume::create(&VolumeSpec::ext4(256)).unwrap();
    volume.unmount().unwrap();
    let number = DeviceNumber::from_stat(std::fs::metadata(volume.device()).unwrap().rdev());
    // What mkfs and the mount left behind goes first.
    direct(volume.device()).sync_all().unwrap();
    let judge = Judge::start(number);
    let before = counters(volume.device());
    let recording = trace(volume.device(), Options::default(), || mixture(volume.device()));
    let found = judge.end();
    let after = counters(volume.device());
    let traced = recording.devices.first().unwrap();
    let (reads, writes) = (&traced.all.reads, &traced.all.writes);

    let of = |table: &str, is: &dyn Fn(&str) -> bool| -> u64 {
        let prefix = format!("{table} ");
        found.iter().filter_map(|(key, n)| is(key.strip_prefix(&prefix)?.split(',').next()?).then_some(n)).sum()
    };
    let is_read = |kind: &str| kind.starts_with('R');
    let is_write = |kind: &str| kind.contains('W') && !kind.starts_with("FF");
    assert_eq!(recording.missed, longrun_iotrace::Missed::default());
    close(of("@sizes", &is_read), reads.requests, &found);
    close(of("@sizes", &is_write), writes.requests, &found);
    close(of("@completed", &is_read), reads.completed, &found);
    // The sizes, put into the same buckets.
    for (kind, class) in [("@sizes R", reads), ("@sizes W", writes)] {
        let mut sizes = Histogram::new(Scale::Bytes);
        for (key, count) in found.iter().filter_map(|(key, count)| Some((key.strip_prefix(kind)?, count))) {
            let bytes = key.split(',').nth(1).unwrap().parse().unwrap();
            (0..*count).for_each(|_| sizes.count(bytes));
        }
        for ((_, theirs), (_, ours)) in sizes.buckets().zip(class.sizes.buckets()) {
            close(theirs, ours, &found);
        }
    }
    close(found.get("@queued").copied().unwrap_or(0), traced.bios.queued, &found);
    close(found.get("@merged").copied().unwrap_or(0), traced.bios.back_merges, &found);
    close(found.get("@sequential").copied().unwrap_or(0), reads.sequential_any + writes.sequential_any, &found);

    let delta: Vec<u64> = after.iter().zip(before).map(|(after, before)| after - before).collect();
    assert_eq!(delta[..1], [reads.requests]);
    assert_eq!((delta[2], delta[5]), (reads.bytes, writes.bytes));
    // The kernel's counters take a flush without data for a write.
    assert_eq!(delta[3], writes.requests + traced.all.flushes.requests);
    let merges = traced.bios.back_merges + traced.bios.front_merges + traced.bios.request_merges;
    assert_eq!(delta[1] + delta[4], merges, "{:?}", traced.bios);
}
