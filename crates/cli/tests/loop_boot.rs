//! `longrun boot` on real volumes: what is recorded is read ahead, what has changed drops out, and whatever is wrong, reading ahead ends
//! with status 0 and changes nothing.
#![allow(clippy::unwrap_used, reason = "helpers of tests may fail loudly")]

mod common;

use common::{LONGRUN, check, longrun};
use longrun_lab::{FileSystemKind, LoopVolume, VolumeSpec};
use serde_json::Value;
use std::fs::{self, File, Permissions};
use std::io::{BufRead as _, BufReader, Read as _};
use std::os::unix::fs::{FileExt as _, PermissionsExt as _};
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant, SystemTime};

/// A volume that is a system of its own, with files of 200 KiB.
struct System {
    volume: LoopVolume,
    /// Other than in other tests: the notes of all are in one directory.
    list: &'static str,
}

const FILE: u64 = 200 << 10;

impl System {
    fn new(kind: FileSystemKind, list: &'static str) -> Self {
        let volume = LoopVolume::create(&VolumeSpec::of(kind, 400)).unwrap();
        let system = Self { volume, list };
        fs::create_dir_all(system.at("var/lib/longrun")).unwrap();
        fs::create_dir_all(system.at("usr/bin")).unwrap();
        (0..40).for_each(|nth| system.write(nth));
        system
    }

    fn at(&self, path: &str) -> PathBuf {
        self.volume.mount_point().join(path)
    }

    fn file(&self, nth: u64) -> PathBuf {
        self.at(&format!("usr/bin/{nth}"))
    }

    fn boot(&self, kind: &str) -> PathBuf {
        self.at(&format!("var/lib/longrun/boot/{}.{kind}", self.list))
    }

    /// A file that was not changed since the machine was started.
    fn write(&self, nth: u64) {
        let file = File::create(self.file(nth)).unwrap();
        file.write_all_at(&vec![nth as u8; FILE as usize], 0).unwrap();
        file.set_modified(SystemTime::now() - Duration::from_secs(86_400)).unwrap();
    }

    fn read(&self, files: impl IntoIterator<Item = u64>) {
        files.into_iter().for_each(|nth| assert_eq!(fs::read(self.file(nth)).unwrap().len() as u64, FILE));
    }

    fn command(&self, what: &str) -> Command {
        let mut command = Command::new(LONGRUN);
        command.args(["boot", what]).arg("--root").arg(self.volume.mount_point()).stdin(Stdio::null());
        command
    }

    fn listed(&self, what: &str) -> Command {
        let mut command = self.command(what);
        command.args(["--list", self.list]);
        command
    }

    /// A boot that is recorded: nothing is in memory, `ahead` says whether it is read ahead.
    fn start(&self, ahead: bool, files: impl IntoIterator<Item = u64>) -> Value {
        self.volume.remount().unwrap();
        let mut command = self.listed("record");
        command.args(["--json", "--for", "1h"]);
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let mut said = String::new();
        BufReader::new(child.stderr.take().unwrap()).read_line(&mut said).unwrap();
        assert!(said.contains("recording what is read from the volume"), "{said}");
        if ahead {
            self.preload();
        }
        self.read(files);
        assert!(Command::new("kill").args(["-INT", &child.id().to_string()]).status().unwrap().success());
        let mut text = String::new();
        child.stdout.take().unwrap().read_to_string(&mut text).unwrap();
        assert_eq!(child.wait().unwrap().code(), Some(0), "{text}");
        serde_json::from_str(&text).unwrap()
    }

    /// Reads ahead; what it says.
    fn preload(&self) -> String {
        let output = self.listed("preload").output().unwrap();
        assert_eq!(output.status.code(), Some(0));
        assert!(output.stdout.is_empty());
        let said = String::from_utf8(output.stderr).unwrap();
        assert_eq!(said.lines().count(), 1, "one line for the journal: {said}");
        said
    }

    /// Which of the files are in memory whole.
    fn in_memory(&self, files: impl IntoIterator<Item = u64>) -> Vec<u64> {
        let is_whole = |nth: &u64| {
            let output = Command::new("fincore")
                .args(["--bytes", "--noheadings", "--output", "RES"])
                .arg(self.file(*nth))
                .output();
            String::from_utf8(output.unwrap().stdout).unwrap().trim().parse::<u64>().unwrap() >= FILE
        };
        files.into_iter().filter(is_whole).collect()
    }
}

impl Drop for System {
    fn drop(&mut self) {
        let notes = fs::read_dir("/run/longrun-boot").into_iter().flatten().flatten();
        let own = |name: &str| name.strip_prefix(self.list).is_some_and(|rest| rest.starts_with('.'));
        notes
            .filter(|note| note.file_name().to_str().is_some_and(own))
            .for_each(|note| _ = fs::remove_file(note.path()));
    }
}

fn json(output: &Output) -> Value {
    serde_json::from_str(&check(output, 0, "")).unwrap()
}

#[test]
fn loop_what_one_boot_has_read_is_in_memory_before_the_next_one_reads_it() {
    for (kind, list) in [(FileSystemKind::Ext4, "read-ext4"), (FileSystemKind::Xfs, "read-xfs")] {
        let system = System::new(kind, list);
        let first = system.start(false, 0..20);
        assert_eq!((&first["was_preloaded"], &first["lost"]), (&false.into(), &0.into()));
        let state = &first["state"];
        assert_eq!((state["files"].as_u64(), &state["next"]), (Some(20), &"preload".into()), "{first}");
        let noted = state["data_bytes"].as_u64().unwrap();
        assert!((20 * FILE..20 * (FILE + 65536)).contains(&noted), "{kind:?}: what is in memory was noted: {noted}");
        assert_eq!(state["metadata_bytes"].as_u64().unwrap() > 0, kind == FileSystemKind::Ext4, "{first}");

        let second = system.start(true, 0..20);
        assert_eq!(second["was_preloaded"], true);
        let run = second["state"]["runs"].as_array().unwrap().last().unwrap().clone();
        assert!(run["preloaded"]["data"].as_u64().unwrap() >= 20 * FILE, "{run}");
        assert!(run["read"].as_u64().unwrap() < FILE, "{kind:?}: next to nothing is left to read: {run}");
        assert_eq!(second["state"]["files"].as_u64(), Some(20), "it was used, so it stays: {second}");
        let used = run["preloaded"]["used"].as_f64();
        assert!(used.is_none_or(|used| used > 0.95), "{run}");
    }
}

#[test]
fn loop_a_large_file_is_read_ahead_whole_although_the_kernel_cuts_calls_short() {
    let system = System::new(FileSystemKind::Ext4, "large");
    let path = system.file(0);
    let file = File::create(&path).unwrap();
    file.write_all_at(&vec![7; 9 << 20], 0).unwrap();
    file.set_modified(SystemTime::now() - Duration::from_secs(86_400)).unwrap();
    drop(file);
    system.volume.remount().unwrap();
    let output = system.listed("learn").args(["--json", "--", "cat"]).arg(&path).output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&output.stderr));
    system.volume.remount().unwrap();
    let said = system.preload();
    assert!(said.contains("9.00 MiB of files"), "{said}");
    // The last of them may be under way.
    let whole = || {
        let output =
            Command::new("fincore").args(["--bytes", "--noheadings", "--output", "RES"]).arg(&path).output().unwrap();
        String::from_utf8(output.stdout).unwrap().trim() == (9 << 20).to_string()
    };
    let begun = Instant::now();
    while !whole() {
        assert!(begun.elapsed() < Duration::from_secs(60), "not all of it is read");
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn loop_what_is_not_used_any_more_and_what_is_another_file_now_drops_out() {
    let system = System::new(FileSystemKind::Ext4, "changes");
    for _ in 0..3 {
        system.start(false, 0..20);
    }
    // An upgrade: five files are others now, with names as before.
    for nth in 0..5 {
        fs::remove_file(system.file(nth)).unwrap();
    }
    (100..200).for_each(|nth| system.write(nth));
    (0..5).for_each(|nth| system.write(nth));
    system.volume.remount().unwrap();
    let said = system.preload();
    assert!(said.contains("5 files are gone"), "{said}");
    assert_eq!(system.in_memory(0..5), [0u64; 0], "nothing of the new ones was read in their place");
    let one = system.start(false, 0..10);
    assert_eq!(one["state"]["next_data_bytes"].as_u64().unwrap() / FILE, 15, "fifteen are left of the twenty: {one}");
    let two = system.start(false, 0..10);
    // The five new ones were seen twice by now; those that two boots did not need are gone.
    assert_eq!(two["state"]["next_data_bytes"].as_u64().unwrap() / FILE, 10, "{two}");
}

#[test]
fn loop_a_start_is_learned_and_read_ahead_and_its_list_is_taken_to_a_copy_of_the_volume() {
    let system = System::new(FileSystemKind::Ext4, "application");
    system.volume.remount().unwrap();
    let files: Vec<PathBuf> = (0..10).map(|nth| system.file(nth)).collect();
    let output = system.listed("learn").args(["--json", "--", "cat"]).args(&files).output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&output.stderr));
    let failing = system.listed("learn").args(["--", "false"]).output().unwrap();
    assert_eq!(failing.status.code(), Some(1), "{}", String::from_utf8_lossy(&failing.stderr));
    assert!(String::from_utf8_lossy(&failing.stderr).contains("nothing of it is kept"));

    let directory = tempfile::tempdir().unwrap();
    let exported = directory.path().join("list");
    check(&system.listed("export").arg(&exported).output().unwrap(), 0, "");
    let status = json(&system.command("status").arg("--json").output().unwrap());
    assert_eq!((&status[0]["list"], status[0]["files"].as_u64()), (&"application".into(), Some(10)));

    // The same files in another volume, which has other inodes.
    let other = System::new(FileSystemKind::Ext4, "application-other");
    let refused = other.listed("import").arg(&exported).output().unwrap();
    check(&refused, 3, "it is of another system; nothing was changed");
    assert!(!other.boot("list").exists());
    // A copy with another UUID.
    system.volume.unmount().unwrap();
    let checked = Command::new("e2fsck").args(["-f", "-y"]).arg(system.volume.device()).output().unwrap();
    assert!(
        checked.status.success(),
        "tune2fs wants a volume that was checked: {}",
        String::from_utf8_lossy(&checked.stdout)
    );
    let new = Command::new("tune2fs").args(["-f", "-U", "random"]).arg(system.volume.device()).output().unwrap();
    assert!(new.status.success(), "{new:?}");
    system.volume.mount().unwrap();
    assert!(system.preload().contains("the list is of another volume"));
    let taken = check(&system.listed("import").arg(&exported).output().unwrap(), 0, "");
    assert!(taken.contains("0 files are not here"), "{taken}");
    system.volume.remount().unwrap();
    assert!(system.preload().contains("0 files are gone"));
    system.read(0..10);
    fs::set_permissions(&exported, Permissions::from_mode(0o666)).unwrap();
    check(&system.listed("import").arg(&exported).output().unwrap(), 3, "others than root can change it");
}

#[test]
fn loop_whatever_is_wrong_reading_ahead_ends_well_and_at_once() {
    let system = System::new(FileSystemKind::Ext4, "wrong");
    system.start(false, 0..20);
    let plan = fs::read(system.boot("plan")).unwrap();
    let path = system.boot("plan");
    let says = |wanted: &str| {
        let begun = Instant::now();
        let said = system.preload();
        assert!(said.contains(wanted), "expected '{wanted}' in {said}");
        assert!(begun.elapsed() < Duration::from_secs(20), "in bounded time");
    };
    says("0 files are gone");
    for end in [0, 1, plan.len() / 2, plan.len() - 1] {
        fs::write(&path, &plan[..end]).unwrap();
        says("it is not used");
    }
    let mut flipped = plan.clone();
    let middle = plan.len() - 3;
    flipped[middle] ^= 1;
    fs::write(&path, &flipped).unwrap();
    says("damaged (the checksum is");
    fs::write(&path, vec![b'D'; 9 << 20]).unwrap();
    says("too large");
    fs::write(&path, &plan).unwrap();
    fs::set_permissions(&path, Permissions::from_mode(0o622)).unwrap();
    says("others than root can change it");
    fs::remove_file(&path).unwrap();
    says("nothing to read ahead this time");
    fs::create_dir(&path).unwrap();
    says("others than root can change it");
    fs::remove_dir(&path).unwrap();
    assert!(Command::new("mkfifo").arg(&path).status().unwrap().success());
    says("others than root can change it");
    fs::remove_file(&path).unwrap();
    fs::write(&path, &plan).unwrap();
    says("0 files are gone");

    // No root, no volume, a root that is no directory.
    for root in ["/none", "/dev/null", "/proc"] {
        check(&longrun(["boot", "preload", "--root", root]), 0, "nothing is read ahead");
    }
    let output = system.listed("preload").arg("--root-on-stdin").output().unwrap();
    assert_eq!(output.status.code(), Some(2), "one root is enough: {}", String::from_utf8_lossy(&output.stderr));
}

#[test]
fn loop_from_an_initramfs_everything_is_found_from_the_directory_that_is_open() {
    let system = System::new(FileSystemKind::Ext4, "initramfs");
    system.start(false, 0..20);
    system.volume.remount().unwrap();
    let root = File::open(system.volume.mount_point()).unwrap();
    let output =
        Command::new(LONGRUN).args(["boot", "preload", "--root-on-stdin", "--list", system.list]).stdin(root).output();
    check(&output.unwrap(), 0, "0 files are gone");
    let output = Command::new(LONGRUN).args(["boot", "preload", "--root-on-stdin"]).stdin(Stdio::null()).output();
    check(&output.unwrap(), 0, "nothing is read ahead");
}

#[test]
fn loop_a_full_run_or_a_full_volume_fails_nothing_and_leaves_what_was_there() {
    let system = System::new(FileSystemKind::Ext4, "full");
    system.start(false, 0..20);
    // In a mount namespace of its own, where /run has no room.
    let script = "mount -t tmpfs -o size=4k,nr_inodes=1 none /run && exec \"$@\"";
    let mut command = Command::new("unshare");
    command.args([
        "--mount",
        "--propagation",
        "private",
        "sh",
        "-c",
        script,
        "sh",
        LONGRUN,
        "boot",
        "preload",
        "--list",
        system.list,
    ]);
    let output = command.arg("--root").arg(system.volume.mount_point()).output().unwrap();
    check(&output, 0, "0 files are gone");

    let list = fs::read(system.boot("list")).unwrap();
    let filler = system.at("filler");
    let mut size = 64u64 << 20;
    let file = File::create(&filler).unwrap();
    let mut end = 0;
    while size >= 4096 {
        match file.write_all_at(&vec![0; size as usize], end) {
            Ok(()) => end += size,
            Err(_) => size /= 2,
        }
    }
    file.sync_all().unwrap_or(());
    let output = system.listed("record").args(["--for", "1s"]).output().unwrap();
    if output.status.code() == Some(1) {
        assert_eq!(fs::read(system.boot("list")).unwrap(), list, "as before");
    }
    let left = fs::read_dir(system.at("var/lib/longrun/boot")).unwrap().flatten();
    assert!(
        left.map(|entry| entry.file_name()).all(|name| !name.to_string_lossy().starts_with('.')),
        "nothing half written"
    );
}

#[test]
fn loop_a_recorder_that_is_killed_leaves_the_list_and_nothing_in_the_kernel() {
    let system = System::new(FileSystemKind::Ext4, "killed");
    system.start(false, 0..20);
    let list = fs::read(system.boot("list")).unwrap();
    for wait in [0, 5, 20, 60, 150, 400] {
        let mut child = system
            .listed("record")
            .args(["--for", "200ms"])
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        std::thread::sleep(Duration::from_millis(wait));
        child.kill().unwrap();
        child.wait().unwrap();
        let now = fs::read(system.boot("list")).unwrap();
        assert!(now.starts_with(b"longrun-boot-list 1 ") && now.ends_with(b"\n"));
        let status = system.command("status").output().unwrap();
        let text = check(&status, 0, "");
        assert!(text.starts_with("killed: "), "{text}");
        system.preload();
    }
    assert!(!list.is_empty());
}

#[test]
fn what_is_enabled_is_disabled_again_and_files_of_others_stay() {
    let root = tempfile::tempdir().unwrap();
    let at = |path: &str| root.path().join(path);
    for directory in ["etc/initramfs-tools/hooks", "usr/lib/dracut/modules.d", "var/lib"] {
        fs::create_dir_all(at(directory)).unwrap();
    }
    let run = |words: &[&str]| {
        longrun(
            words.iter().map(|word| (*word).to_owned()).chain(["--root".into(), root.path().to_str().unwrap().into()]),
        )
    };
    let told = check(&run(&["boot", "enable"]), 0, "");
    assert!(told.contains("update-initramfs -u") && told.contains("dracut --force"), "{told}");
    for unit in ["longrun-boot-preload.service", "longrun-boot-record.service"] {
        let text = fs::read_to_string(at("etc/systemd/system/sysinit.target.wants").join(unit)).unwrap();
        assert!(text.contains(&format!("ExecStart=-{LONGRUN} boot ")), "{text}");
        assert!(text.contains("DefaultDependencies=no") && text.contains("RuntimeMaxSec="), "{text}");
    }
    for (script, says) in [
        ("etc/initramfs-tools/hooks/longrun", "copy_exec"),
        ("etc/initramfs-tools/scripts/init-bottom/longrun", "--root-on-stdin"),
        ("usr/lib/dracut/modules.d/95longrun/module-setup.sh", "inst_simple"),
        ("usr/lib/dracut/modules.d/95longrun/longrun.sh", "@longrun"),
    ] {
        assert!(fs::read_to_string(at(script)).unwrap().contains(says), "{script}");
        assert_eq!(fs::metadata(at(script)).unwrap().permissions().mode() & 0o777, 0o755);
    }
    check(&run(&["boot", "enable"]), 0, "");
    check(&run(&["boot", "enable", "--unit", "nginx.service", "--volume", "/srv"]), 0, "");
    let unit = fs::read_to_string(at("etc/systemd/system/longrun-preload@nginx.service.service")).unwrap();
    assert!(unit.contains("--list %i --volume /srv\n") && !unit.contains("@VOLUME@"), "{unit}");
    let drop_in = fs::read_to_string(at("etc/systemd/system/nginx.service.d/50-longrun-preload.conf")).unwrap();
    assert!(drop_in.contains("Wants=longrun-preload@nginx.service.service"), "{drop_in}");
    check(&run(&["boot", "enable", "--unit", "a b"]), 2, "no name of a list");
    check(&run(&["boot", "enable", "--unit", "x.service", "--volume", "/a b"]), 2, "name the volume by");

    check(&run(&["boot", "disable"]), 0, "");
    check(&run(&["boot", "disable", "--unit", "nginx.service"]), 0, "");
    let left = Command::new("find").arg(root.path()).args(["-type", "f", "-o", "-type", "l"]).output().unwrap();
    assert_eq!(String::from_utf8_lossy(&left.stdout), "", "nothing is left");

    let foreign = at("etc/initramfs-tools/hooks/longrun");
    fs::write(&foreign, "#!/bin/sh\n# mine\n").unwrap();
    check(&run(&["boot", "enable"]), 3, "it is there already and not of Longrun");
    check(&run(&["boot", "disable"]), 0, "");
    assert_eq!(fs::read_to_string(&foreign).unwrap(), "#!/bin/sh\n# mine\n");
}

#[test]
fn the_hook_of_the_initramfs_ends_at_once_whatever_is_missing() {
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/../../packaging/boot/initramfs-script");
    for (argument, root) in [("", "/none"), ("", "/dev/null"), ("", ""), ("prereqs", "/")] {
        for shell in ["dash", "bash"] {
            let begun = Instant::now();
            let output = Command::new(shell).arg(script).arg(argument).env("rootmnt", root).output().unwrap();
            assert_eq!(output.status.code(), Some(0), "{shell} {root}: {}", String::from_utf8_lossy(&output.stderr));
            assert!(begun.elapsed() < Duration::from_secs(20));
        }
    }
}
