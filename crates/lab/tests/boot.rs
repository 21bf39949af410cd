//! Reading ahead on modelled disks: how long the disk is busy, by the model, until a start has read what it needs, with and without.
//!
//! No clock of this machine is compared with another: the model's time counts.
#![allow(clippy::unwrap_used, reason = "helpers of tests may fail loudly")]

use longrun_ageing::Recipe;
use longrun_lab::disk::DiskModel;
use longrun_lab::oracle::{Dump, compare, dump};
use longrun_lab::{LoopVolume, VolumeSpec, longrun_binary, tool};
use longrun_sys::{ByteRange, Mapping, map_file};
use serde_json::Value;
use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::{BufRead as _, BufReader, Read as _};
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, SystemTime};

/// The files that a start reads.
const FILES: usize = 400;
/// What a program reads of a file at a time, not in order: pages of programs and libraries are read as they are used.
const PIECE: u64 = 64 << 10;

/// A volume that has been in use for long, of which a start reads some hundred files.
struct System {
    volume: LoopVolume,
    needed: Vec<PathBuf>,
    others: Vec<PathBuf>,
    /// The name of the list, another one for each test.
    list: String,
}

/// The volume that is copied to each kind of disk.
fn aged() -> LoopVolume {
    // Without lazy initialisation, which would write for a while.
    let spec = VolumeSpec::ext4(768).mkfs(&["-b", "4096", "-E", "lazy_itable_init=0,lazy_journal_init=0"]);
    let (aged, _) = LoopVolume::aged(&spec, Recipe::Git, 18).unwrap();
    fs::create_dir_all(aged.mount_point().join("var/lib/longrun")).unwrap();
    aged
}

impl System {
    /// A copy of `aged` on a modelled disk.
    fn on(aged: &LoopVolume, model: &str, list: &str) -> Self {
        let volume = aged.copy_to_disk(DiskModel::by_name(model).unwrap(), 1).unwrap();
        let disk = volume.disk().unwrap();
        disk.set_modelled(false).unwrap();
        let mut files = Vec::new();
        collect(&volume.mount_point(), &mut files);
        let mut random = fastrand::Rng::with_seed(7);
        files.sort();
        random.shuffle(&mut files);
        let others = files.split_off(FILES);
        let long_ago = SystemTime::now() - Duration::from_secs(86_400);
        for file in files.iter().chain(&others) {
            File::options().append(true).open(file).unwrap().set_modified(long_ago).unwrap();
        }
        Self { volume, needed: files, others, list: format!("{list}-{model}") }
    }

    fn root(&self) -> PathBuf {
        self.volume.mount_point()
    }

    /// Nothing of it is in memory.
    fn restart(&self) {
        self.volume.remount().unwrap();
    }

    fn command(&self, words: &[&str]) -> Command {
        let mut command = Command::new(longrun_binary().unwrap());
        command.arg("boot").args(words).arg("--list").arg(&self.list).arg("--root").arg(self.root());
        command
    }

    fn run(&self, words: &[&str]) -> String {
        let output = self.command(words).output().unwrap();
        assert!(output.status.success(), "{words:?}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap() + &String::from_utf8_lossy(&output.stderr)
    }

    /// How long the disk is busy, in milliseconds of the model, while `act` is done with nothing in memory.
    fn busy(&self, act: impl FnOnce()) -> f64 {
        let disk = self.volume.disk().unwrap();
        disk.set_modelled(false).unwrap();
        self.restart();
        disk.set_modelled(true).unwrap();
        let before = disk.statistics().unwrap();
        act();
        self.settle();
        let done = disk.statistics().unwrap().since(before);
        disk.set_modelled(false).unwrap();
        eprintln!("    {} requests, {} MiB", done.reads.requests, done.reads.bytes >> 20);
        done.busy_nanos as f64 / 1e6
    }

    /// Waits until nothing is under way any more.
    fn settle(&self) {
        let disk = self.volume.disk().unwrap();
        loop {
            let counts = disk.statistics().unwrap().reads;
            std::thread::sleep(Duration::from_millis(20));
            let now = disk.statistics().unwrap().reads;
            if now == counts && counts.requests == counts.modelled {
                return;
            }
            if now == counts {
                // Requests that came while the model was off are never modelled.
                std::thread::sleep(Duration::from_millis(200));
                if disk.statistics().unwrap().reads == counts {
                    return;
                }
            }
        }
    }

    /// Records `starts` starts that read `files`.
    fn learn(&self, starts: u32, files: &[PathBuf]) -> Value {
        self.volume.disk().unwrap().set_modelled(false).unwrap();
        let mut last = Value::Null;
        for _ in 0..starts {
            self.restart();
            let mut child = Recording::start(self.command(&["record", "--json", "--for", "1h"]));
            read(files);
            last = child.end();
        }
        last
    }
}

/// A recording that runs.
struct Recording(Child);

impl Recording {
    fn start(mut command: Command) -> Self {
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let mut said = String::new();
        BufReader::new(child.stderr.take().unwrap()).read_line(&mut said).unwrap();
        assert!(said.contains("recording what is read"), "{said}");
        Self(child)
    }

    fn end(&mut self) -> Value {
        rustix::process::kill_process(
            rustix::process::Pid::from_raw(i32::try_from(self.0.id()).unwrap()).unwrap(),
            rustix::process::Signal::INT,
        )
        .unwrap();
        let mut text = String::new();
        self.0.stdout.take().unwrap().read_to_string(&mut text).unwrap();
        assert!(self.0.wait().unwrap().success());
        serde_json::from_str(&text).unwrap()
    }
}

fn collect(directory: &Path, files: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(directory).unwrap().flatten() {
        let kind = entry.file_type().unwrap();
        if kind.is_dir() {
            collect(&entry.path(), files);
        } else if kind.is_file() && (16384..2 << 20).contains(&entry.metadata().unwrap().len()) {
            files.push(entry.path());
        }
    }
}

/// What a start does: one file after the other; of each first the beginning and the end, then the rest, not in order.
fn read(files: &[PathBuf]) {
    let mut random = fastrand::Rng::with_seed(3);
    for path in files {
        let file = File::open(path).unwrap();
        let pieces = file.metadata().unwrap().len().div_ceil(PIECE);
        let mut rest: Vec<u64> = (1..pieces.saturating_sub(1)).collect();
        random.shuffle(&mut rest);
        for nth in [0, pieces.saturating_sub(1)].into_iter().chain(rest) {
            file.read_at(&mut [0; PIECE as usize], nth * PIECE).unwrap();
        }
    }
}

impl Drop for System {
    /// Its notes for the recorder.
    fn drop(&mut self) {
        let notes = fs::read_dir("/run/longrun-boot").into_iter().flatten().flatten();
        let own = |name: &str| name.strip_prefix(&self.list).is_some_and(|rest| rest.starts_with('.'));
        notes
            .filter(|note| note.file_name().to_str().is_some_and(own))
            .for_each(|note| _ = fs::remove_file(note.path()));
    }
}

#[test]
fn campaign_a_start_is_faster_when_it_is_read_ahead_and_never_much_slower() {
    let aged = aged();
    for (name, most) in [("hdd", 0.35), ("san", 0.65), ("cloud", 0.95), ("ssd", 1.05)] {
        let system = System::on(&aged, name, "start");
        let without = system.busy(|| read(&system.needed));
        let learned = system.learn(1, &system.needed);
        eprintln!("{learned}");
        let with = system.busy(|| {
            eprintln!("{}", system.run(&["preload"]));
            read(&system.needed);
        });
        eprintln!("{name}: {without:.0} -> {with:.0} ms: {:.2}", with / without);
        assert!(with <= most * without, "{name}: {with:.0} of {without:.0} ms");
    }
}

#[test]
fn campaign_a_list_of_which_half_is_not_needed_any_more_costs_little() {
    let aged = aged();
    // Where places cost little the time depends on how the start and the reading ahead meet: on a busy machine they overlap less.
    // The bound keeps what would grow without end; the figure is that of scripts/measure-boot.sh.
    for (name, most) in [("hdd", 1.1), ("san", 1.5), ("ssd", 2.0)] {
        let system = System::on(&aged, name, "stale");
        let without = system.busy(|| read(&system.needed));
        let unneeded = &system.others[..FILES];
        let both: Vec<PathBuf> = system.needed.iter().zip(unneeded).flat_map(|(a, b)| [a, b]).cloned().collect();
        system.learn(1, &both);
        let with = system.busy(|| {
            let mut preload = system.command(&["preload"]).spawn().unwrap();
            read(&system.needed);
            let busy = system.volume.disk().unwrap().statistics().unwrap().busy_nanos / 1_000_000;
            preload.wait().unwrap();
            let later = system.volume.disk().unwrap().statistics().unwrap().busy_nanos / 1_000_000;
            eprintln!("of which {} after the start", later - busy);
        });
        eprintln!("stale {name}: {without:.0} -> {with:.0} ms: {:.2}", with / without);
        assert!(with <= most * without, "{name}: {with:.0} of {without:.0} ms");
    }
}

/// Where files lie, one after the other: begin and end on the device, in bytes.
fn places(files: &[PathBuf]) -> Vec<(u64, u64)> {
    let of = |path: &PathBuf| map_file(File::open(path).unwrap(), ByteRange::ALL, Mapping::Synced).unwrap();
    let pieces = files.iter().flat_map(of);
    pieces.map(|piece| (piece.physical.0, piece.physical.0 + piece.length.0)).collect()
}

#[test]
fn loop_what_is_read_at_boot_lies_side_by_side_after_a_pass_and_stays_there() {
    let mut system = System::on(&aged(), "hdd", "boot");
    // Of another list nothing comes together.
    system.list = "boot".to_owned();
    // The largest free piece has to take them all. How large that is after a pass is up to ext4, and varies: once it was 42 MiB, which
    // was too small for all 400 files.
    let is_short = |file: &&PathBuf| fs::metadata(file).unwrap().len() <= 128 << 10;
    let (root, needed) = (system.root(), system.needed.iter().filter(is_short).cloned().collect::<Vec<_>>());
    let gathered = needed.len();
    let program = root.join("program");
    fs::copy("/bin/sleep", &program).unwrap();
    File::options()
        .append(true)
        .open(&program)
        .unwrap()
        .set_modified(SystemTime::now() - Duration::from_secs(86_400))
        .unwrap();
    system.learn(1, &[needed.as_slice(), std::slice::from_ref(&program)].concat());
    let start = || {
        system.busy(|| {
            system.run(&["preload"]);
            read(&needed);
        })
    };
    let scattered = start();
    let before = dump(&root).unwrap();
    let optimize = || -> Value {
        let state = root.join("var/lib/longrun");
        let words = ["optimize", "--alone", "--mode", "full", "--pace", "fast", "--json", "--state"].map(OsStr::new);
        let words = words.into_iter().chain([state.as_os_str(), root.as_os_str()]);
        let output = tool::run(longrun_binary().unwrap().to_str().unwrap(), words).unwrap();
        serde_json::from_str(&output).unwrap()
    };
    // A program that runs cannot be moved, and is not counted on.
    let mut running = Command::new(&program).arg("1000").spawn().unwrap();
    let done = optimize();
    running.kill().unwrap();
    running.wait().unwrap();
    assert_eq!(done["at_boot"]["files"], gathered, "{done}");
    let seconds = |what: &str| done["at_boot"][what].as_f64().unwrap();
    assert!(seconds("reached") <= 1.1 * seconds("expected") && seconds("expected") < seconds("before"), "{done}");
    // What they left are hundreds of holes; what may be moved to fill them is bounded, and a pass that is cut off there can leave a few files
    // in two pieces.
    assert!(done["after"]["excess_fragments"].as_u64() <= Some(20), "{done}");
    // Each leaves one hole at most, and those are not always filled.
    let pieces = |when: &str| done[when]["free_space"]["pieces"].as_u64().unwrap();
    eprintln!("{} free pieces, {}", pieces("after"), done["at_boot"]);
    assert!(pieces("after") * 10 <= pieces("before"), "{done}");
    let there = places(&needed);
    let apart = there.windows(2).filter(|pair| pair[0].1 != pair[1].0).count();
    assert!(apart <= gathered / 50, "{apart} of {gathered} files do not follow the one before");
    let together = start();
    eprintln!("{scattered:.0} -> {together:.0} ms: {:.2}", together / scattered);
    assert!(together <= 0.8 * scattered, "{together:.0} of {scattered:.0} ms");

    let again = optimize();
    assert!(again["at_boot"].is_null(), "{again}");
    assert_eq!(places(&needed), there);
    // Only what is read at boot, its list and its history, was written beside.
    let others = |mut dump: Dump| {
        dump.retain(|path, _| !path.starts_with("var/lib/longrun"));
        dump
    };
    compare(&others(before), &others(dump(&root).unwrap())).unwrap();
    system.volume.check().unwrap();
}
