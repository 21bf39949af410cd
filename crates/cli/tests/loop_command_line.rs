//! The command line on real volumes, which needs root: what it does, what it refuses, and what it leaves behind.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails loudly, in its helpers too")]

mod common;

use common::{LONGRUN, check, longrun};
use longrun_lab::oracle::{compare, dump, filefrag};
use longrun_lab::{LoopVolume, VolumeSpec};
use serde_json::Value;
use std::ffi::OsStr;
use std::fs;
use std::io::{BufRead, BufReader};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

/// The user who owns nothing.
const NOBODY: u32 = 65534;

fn run(command: &str, target: &Path, more: &[&str]) -> Output {
    // Other tests use the same disk: nothing is waited for.
    let haste: &[&str] = if command == "optimize" { &["--pace", "fast"] } else { &[] };
    longrun([OsStr::new(command), target.as_os_str()].into_iter().chain(haste.iter().chain(more).map(OsStr::new)))
}

fn json(output: &Output) -> Value {
    serde_json::from_str(&check(output, 0, "")).unwrap()
}

/// A volume with the blocks that all but tiny volumes have.
fn volume(mebibytes: u64) -> LoopVolume {
    LoopVolume::create(&VolumeSpec::ext4(mebibytes).mkfs(&["-b", "4096"])).unwrap()
}

/// A volume with an aged tree on it.
fn aged(mebibytes: u64) -> LoopVolume {
    let volume = volume(mebibytes);
    let directory = volume.mount_point();
    check(&longrun([OsStr::new("fragment"), "--volume".as_ref(), directory.as_os_str()]), 0, "");
    volume
}

/// A file of `mebibytes` MiB in `fragments` fragments.
fn fragmented(path: &Path, mebibytes: u64, fragments: u64) {
    let (size, number) = (format!("{mebibytes}M"), fragments.to_string());
    check(&run("fragment", path, &["--size", &size, "--fragments", &number]), 0, "");
}

fn fragments_of(path: &Path) -> u64 {
    let found = json(&run("analyze", path, &["--json"]));
    found["excess_fragments"].as_u64().unwrap() + 1
}

fn signal(name: &str, process: u32) {
    assert!(Command::new("kill").args([&format!("-{name}"), &process.to_string()]).status().unwrap().success());
}

#[test]
fn loop_optimizing_does_what_the_dry_run_said_and_changes_no_file() {
    let volume = aged(256);
    let mount = volume.mount_point();
    let before = dump(&mount).unwrap();

    let dry = json(&run("optimize", &mount, &["--dry-run", "--json"]));
    compare(&before, &dump(&mount).unwrap()).unwrap();
    let real = json(&run("optimize", &mount, &["--json"]));
    assert_eq!(dry["plan"], real["plan"], "dry and real run have the same plan");
    assert!(dry["plan"]["moves"].as_u64().unwrap() > 0 && !dry["plan"]["files"].as_array().unwrap().is_empty());

    let excess = |report: &Value| report["excess_fragments"].as_u64().unwrap();
    assert!(excess(&real["after"]) < excess(&real["before"]), "{real}");
    for field in ["moves", "bytes_moved", "barriers", "rounds"] {
        assert!(real[field].is_u64(), "{field}: {real}");
    }
    assert!(real["seconds"].is_f64() && real["stopped"].is_null());
    for skipped in real["skipped"].as_array().unwrap() {
        assert!(skipped["reason"].is_string() && skipped["files"].is_u64(), "{skipped}");
    }
    assert_eq!(filefrag(&mount).unwrap().excess, excess(&real["after"]), "filefrag sees what the report says");
    compare(&before, &dump(&mount).unwrap()).unwrap();
    volume.check().unwrap();
}

#[test]
fn loop_a_signal_stops_it_in_good_order_and_a_second_optimizer_is_refused() {
    let volume = aged(512);
    let mount = volume.mount_point();
    let before = dump(&mount).unwrap();
    let free = || fs_free(&mount);
    let free_before = free();
    // As nohup starts it: what was ignored then stays ignored.
    let mut shell = Command::new("sh");
    shell.args(["-c", "trap '' HUP; exec \"$0\" \"$@\"", LONGRUN]);
    let (error, rest) = stopped(&mut shell, &mount, &["TSTP", "TTIN", "TTOU", "HUP", "INT"]);
    assert!(error.contains("cannot be suspended while it holds free space"), "{error}");
    assert!(!error.contains("still giving back"), "SIGHUP was not ignored: {error}");
    assert!(rest.contains("Result:"), "what was done is told all the same: {rest}");
    stopped(&mut Command::new(LONGRUN), &mount, &["HUP", "TERM"]);
    assert!(free() >= free_before, "free space was not given back: {free_before} before, {} now", free());
    compare(&before, &dump(&mount).unwrap()).unwrap();
    volume.check().unwrap();
}

/// Starts an optimizer by `command`, checks that a second one is refused, and sends it signals, the last of which ends it
/// in good order. What it said: errors, and output after its plan.
fn stopped(command: &mut Command, mount: &Path, signals: &[&str]) -> (String, String) {
    let piped = command.args(["optimize", "--pace", "fast"]).arg(mount).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut first = piped.spawn().unwrap();
    // The plan is printed when the volume is held.
    let mut output = BufReader::new(first.stdout.take().unwrap());
    let mut line = String::new();
    while !line.starts_with("Expected") {
        line.clear();
        assert!(output.read_line(&mut line).unwrap() > 0, "it ended before it printed its plan");
    }
    check(&run("optimize", mount, &[]), 3, "is working on this volume");
    for name in signals {
        signal(name, first.id());
    }
    let mut rest = String::new();
    std::io::Read::read_to_string(&mut output, &mut rest).unwrap();
    let ended = first.wait_with_output().unwrap();
    let error = String::from_utf8_lossy(&ended.stderr).into_owned();
    assert_eq!(ended.status.code(), Some(130), "{error}\n{rest}");
    assert!(
        error.contains("stopping; the current move is completed") && error.contains("stopped by a signal"),
        "{error}"
    );
    (error, rest)
}

/// Free bytes once everything is committed.
fn fs_free(mount: &Path) -> u64 {
    let directory = fs::File::open(mount).unwrap();
    longrun_sys::sync_volume(&directory).unwrap();
    let capacity = longrun_sys::capacity(&directory).unwrap();
    capacity.block_size.to_bytes(capacity.free).0
}

#[test]
fn loop_everybody_may_analyze_their_own_files_but_only_root_the_volume() {
    let volume = volume(64);
    let mount = volume.mount_point();
    let (mine, secret) = (mount.join("mine"), mount.join("secret"));
    fragmented(&mine, 2, 9);
    fs::write(&secret, "x").unwrap();
    fs::set_permissions(&secret, fs::Permissions::from_mode(0o600)).unwrap();
    // The way to the volume and to the program must be open to others.
    let open = |path: &Path| fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
    open(mount.parent().unwrap());
    open(&mount);
    let programs = tempfile::tempdir().unwrap();
    open(programs.path());
    let program = programs.path().join("longrun");
    longrun_lab::tool::install(LONGRUN.as_ref(), &program).unwrap();
    let as_nobody = |arguments: &[&OsStr]| {
        Command::new(&program).args(arguments).uid(NOBODY).gid(NOBODY).current_dir("/").output().unwrap()
    };

    let found = json(&as_nobody(&["analyze".as_ref(), mount.as_os_str(), "--json".as_ref()]));
    assert_eq!((&found["method"], &found["excess_fragments"]), (&"walk".into(), &8.into()));
    assert!(found["unreadable"].as_u64().unwrap() >= 1, "{found}");
    assert!(found["free_space"]["pieces"].is_null() && found["free_space"]["bytes"].as_u64().unwrap() > 0);
    check(&as_nobody(&["analyze".as_ref(), secret.as_os_str()]), 1, "secret: opening failed: Permission denied");
    for command in ["map", "optimize"] {
        check(&as_nobody(&[command.as_ref(), mount.as_os_str()]), 3, "needs root");
        check(&as_nobody(&[command.as_ref(), volume.device().as_os_str()]), 3, "needs root");
    }
    assert_eq!(fragments_of(&mine), 9);
}

/// What is moved is held in memory: without the permission nothing is moved, and the message says what to do.
#[test]
fn loop_a_limit_for_locked_memory_is_named() {
    let volume = volume(64);
    let mount = volume.mount_point();
    fragmented(&mount.join("file"), 4, 20);
    let before = dump(&mount).unwrap();
    let mut limited = Command::new("prlimit");
    limited.args(["--memlock=65536", "setpriv", "--bounding-set=-ipc_lock,-sys_resource", LONGRUN, "optimize"]);
    let output = limited.args(["--pace", "fast"]).arg(&mount).output().unwrap();
    check(&output, 3, "LimitMEMLOCK=infinity");
    compare(&before, &dump(&mount).unwrap()).unwrap();
}

#[test]
fn loop_a_read_only_volume_is_refused_and_an_unmounted_ext4_is_not() {
    let volume = volume(64);
    let mount = volume.mount_point();
    longrun_lab::tool::run("mount", ["-o".as_ref(), "remount,ro".as_ref(), mount.as_os_str()]).unwrap();
    check(&run("optimize", &mount, &[]), 3, "mounted read-only");
    check(&run("analyze", &mount, &[]), 0, "");
    // The image of a mounted loop device means what is mounted.
    check(&run("optimize", &volume.image(), &[]), 3, "mounted read-only");
    assert_eq!(json(&run("analyze", &volume.image(), &["--json"]))["device"], volume.device().to_str().unwrap());
    volume.unmount().unwrap();
    check(&run("optimize", volume.device(), &[]), 0, "");
    check(&run("analyze", volume.device(), &[]), 0, "");
}

#[test]
fn loop_hostile_names_reach_no_terminal_and_stay_exact_in_json() {
    let volume = volume(64);
    let mount = volume.mount_point();
    let name = OsStr::from_bytes(b"\x1b]0;owned\x07\n\xff.db");
    fragmented(&mount.join(name), 2, 9);
    for output in [
        run("analyze", &mount, &[]),
        run("optimize", &mount, &["--dry-run"]),
        run("analyze", &mount.join(name), &[]),
        run("optimize", &mount.join(name), &[]),
    ] {
        let text = check(&output, 0, "");
        assert!(!text.contains(['\x1b', '\x07']), "{text:?}");
        assert!(text.contains("\\x1b]0;owned\\x07\\n"), "{text}");
    }
    fragmented(&mount.join("second\x1b"), 2, 12);
    fs::rename(mount.join("second\x1b"), mount.join(OsStr::from_bytes(b"\xfe\x1b"))).unwrap();
    let worst = json(&run("analyze", &mount, &["--json"]))["most_fragmented"][0].clone();
    assert!(worst["path"].as_str().unwrap().ends_with("/\u{fffd}\u{1b}"), "{worst}");
    assert!(worst["path_hex"].as_str().unwrap().ends_with("2ffe1b"), "{worst}");
    check(&run("analyze", &mount.join("none\x1b[31m"), &[]), 2, "none\\x1b[31m");
}

#[test]
fn loop_a_file_or_a_directory_is_put_together_alone() {
    let volume = volume(128);
    let mount = volume.mount_point();
    let file = |name: &str| -> PathBuf { mount.join(name) };
    for directory in ["one", "two"] {
        fs::create_dir(file(directory)).unwrap();
    }
    for name in ["one/a", "one/b", "two/c", "two/d"] {
        fragmented(&file(name), 2, 9);
    }
    let before = dump(&mount).unwrap();
    check(&run("optimize", &file("one/a"), &[]), 0, "");
    assert_eq!(["one/a", "one/b", "two/c", "two/d"].map(|name| fragments_of(&file(name))), [1, 9, 9, 9]);
    check(&run("optimize", &file("two"), &[]), 0, "");
    assert_eq!(["one/a", "one/b", "two/c", "two/d"].map(|name| fragments_of(&file(name))), [1, 9, 1, 1]);
    check(&run("optimize", &file("one"), &["--mode", "full"]), 2, "works on whole volumes only");
    compare(&before, &dump(&mount).unwrap()).unwrap();
}

#[test]
fn loop_map_names_the_owner_of_a_block() {
    let volume = volume(64);
    let path = volume.mount_point().join("data");
    fragmented(&path, 2, 4);
    let all = longrun_sys::ByteRange::ALL;
    let extents = longrun_sys::map_file(fs::File::open(&path).unwrap(), all, longrun_sys::Mapping::Synced).unwrap();
    let capacity = longrun_sys::capacity(fs::File::open(&path).unwrap()).unwrap();
    let run_two = extents[1].run(capacity.block_size).unwrap();
    let at = |block: u64| check(&run("map", volume.device(), &["--at", &block.to_string()]), 0, "");
    let named = at(run_two.physical.0 + 1);
    assert!(named.contains(&format!("file {}", path.display())), "{named}");
    assert!(named.contains(&format!("its block {}", run_two.logical.0 + 1)), "{named}");
    assert!(at(0).contains("metadata: superblock"), "{}", at(0));
}

#[test]
fn loop_fragmenting_is_refused_where_it_could_cost_somebody_something() {
    let writeback = LoopVolume::create(&VolumeSpec::ext4(64).mkfs(&["-b", "4096"]).mount("data=writeback")).unwrap();
    let path = writeback.mount_point().join("file");
    fs::write(&path, vec![1; 1 << 20]).unwrap();
    check(&run("fragment", &path, &["--fragments", "4"]), 3, "data=ordered");

    let volume = volume(64);
    let (mount, path) = (volume.mount_point(), volume.mount_point().join("file"));
    fs::write(&path, vec![1; 20 << 20]).unwrap();
    fs::write(mount.join("another"), vec![1; 16 << 20]).unwrap();
    let before = dump(&mount).unwrap();
    check(&run("fragment", &path, &["--fragments", "4"]), 3, "too little free space");
    let whole = |more: &[&str]| {
        let arguments = ["fragment".as_ref(), "--volume".as_ref(), mount.as_os_str()];
        longrun(arguments.into_iter().chain(more.iter().map(OsStr::new)))
    };
    check(&whole(&[]), 3, "the volume is in use");
    compare(&before, &dump(&mount).unwrap()).unwrap();

    fs::remove_file(mount.join("another")).unwrap();
    let accessed = fs::metadata(&path).unwrap().accessed().unwrap();
    check(&run("fragment", &path, &["--fragments", "4"]), 0, "");
    assert_eq!(fs::metadata(&path).unwrap().accessed().unwrap(), accessed);
    check(&whole(&["--recipe", "media"]), 3, "the volume is in use");
    fs::create_dir(mount.join("aged-before")).unwrap();
    fs::rename(&path, mount.join("aged-before/file")).unwrap();
    check(&whole(&["--recipe", "media"]), 0, "");
    check(&whole(&["--recipe", "media"]), 3, "already exists");
}
