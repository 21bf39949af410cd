//! Story: files have owners, access rights, times, flags and attributes of all kinds. Longrun moves their content, and changes nothing else.
#![allow(clippy::unwrap_used, clippy::panic, reason = "helpers of tests fail loudly, as tests do")]

#[allow(dead_code, reason = "other tests use the rest")]
#[path = "mend/bench.rs"]
mod bench;

use bench::{Bench, blocks};
use longrun_lab::FileSystemKind::{self, Btrfs, Ext4, Xfs};
use longrun_lab::oracle::{Dump, compare, dump, excess_of};
use longrun_lab::{Running, VolumeSpec, bytes_beyond_the_end, longrun_binary, tool};
use longrun_sys::{ByteRange, Mapping};
use longrun_volume::mend::MendError;
use rustix::fs::OFlags;
use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::Write as _;
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

/// What a file is.
struct Row {
    name: &'static str,
    on: &'static [FileSystemKind],
    still: Still,
    /// Makes the file `$0` so.
    script: &'static str,
}

/// Where a file stays where it lies.
#[derive(PartialEq, Eq)]
enum Still {
    Never,
    Always,
    /// Only mending puts it together.
    InPassesOn(FileSystemKind),
}

const ALL: &[FileSystemKind] = &[Ext4, Xfs, Btrfs];

const fn row(name: &'static str, on: &'static [FileSystemKind], still: Still, script: &'static str) -> Row {
    Row { name, on, still, script }
}

const ROWS: &[Row] = &[
    row("plain", ALL, Still::Never, ":"),
    row("owner", ALL, Still::Never, r#"chown 1234:5678 "$0""#),
    row("set-user-id", ALL, Still::Never, r#"chown 1234:5678 "$0"; chmod 6751 "$0""#),
    row("read-only", ALL, Still::Never, r#"chmod 0400 "$0""#),
    row("capability", ALL, Still::Never, r#"setcap cap_net_raw+ep "$0""#),
    row("access list", ALL, Still::Never, r#"setfacl -m u:1234:rwx,g:5678:r "$0""#),
    row("small attribute", ALL, Still::Never, r#"setfattr -n user.mark -v kept "$0""#),
    row(
        "long attribute",
        ALL,
        Still::Never,
        r#"setfattr -n user.mark -v "$(head -c 2000 /dev/zero | tr '\0' x)" "$0""#,
    ),
    row("trusted attribute", ALL, Still::Never, r#"setfattr -n trusted.mark -v kept "$0""#),
    row("label", ALL, Still::Never, r#"setfattr -n security.selinux -v system_u:object_r:etc_t:s0 "$0""#),
    row("no access times", ALL, Still::Never, r#"chattr +A "$0""#),
    row("no dump", ALL, Still::Never, r#"chattr +d "$0""#),
    row("synchronous", ALL, Still::Never, r#"chattr +S "$0""#),
    row("project", &[Xfs], Still::Never, r#"chattr -p 77 "$0""#),
    row("two names", ALL, Still::Never, r#"ln "$0" "$0, the other""#),
    row("hole", ALL, Still::Never, r#"fallocate --punch-hole --offset 65536 --length 16384 "$0""#),
    row("preallocated", ALL, Still::InPassesOn(Btrfs), r#"fallocate --keep-size --length 1M "$0""#),
    row("past", ALL, Still::Never, r#"touch -m -d 1935-01-02T03:04:05.123456789Z "$0""#),
    row("future", ALL, Still::Never, r#"touch -m -d 2190-01-02T03:04:05.123456789Z "$0""#),
    row("append only", ALL, Still::Always, r#"chattr +a "$0""#),
    row("immutable", ALL, Still::Always, r#"chattr +i "$0""#),
];

/// Files that may be executed or may not be written anywhere get no runway, nor do those whose owner has preallocated space.
const WITHOUT_RUNWAY: &[&str] = &["set-user-id", "access list", "append only", "immutable", "preallocated"];

/// What a directory is, and what is neither.
const OTHERS: &str = r#"
    mkdir -p "$0/default list" "$0/set-group-id"
    setfacl -d -m u:1234:rwx "$0/default list"
    chown 1234:5678 "$0/set-group-id"; chmod 3771 "$0/set-group-id"
    setfattr -n user.mark -v kept "$0/set-group-id"
    chattr +dS "$0/set-group-id"
    ln -s nowhere "$0/link"; chown -h 1234 "$0/link"
    mkfifo -m 0640 "$0/fifo"
    mknod -m 0604 "$0/device" c 1 7
"#;

fn shell(script: &str, path: &Path) {
    tool::run("sh", ["-ec".as_ref(), script.as_ref(), path.as_os_str()]).unwrap();
}

/// When each file was read last.
fn read_times(files: &Dump, root: &Path) -> BTreeMap<PathBuf, (i64, i64)> {
    let time = |path: &PathBuf| {
        let meta = fs::symlink_metadata(root.join(path)).unwrap();
        (path.clone(), (meta.atime(), meta.atime_nsec()))
    };
    files.keys().map(time).collect()
}

fn places(path: &Path) -> Vec<(u64, u64)> {
    let file = File::open(path).unwrap();
    let extents = longrun_sys::map_file(file, ByteRange::ALL, Mapping::Synced).unwrap();
    extents.iter().map(|extent| (extent.logical.0, extent.physical.0)).collect()
}

fn longrun(arguments: &[&str], path: &Path) {
    let arguments = arguments.iter().map(AsRef::as_ref).chain([path.as_os_str()]);
    tool::run(longrun_binary().unwrap().to_str().unwrap(), arguments).unwrap();
}

/// The files of both halves, each with its row: one is mended file by file, the other one put together by passes over the volume.
fn files(kind: FileSystemKind, half: &str) -> impl Iterator<Item = (&'static Row, String)> {
    ROWS.iter().filter(move |row| row.on.contains(&kind)).map(move |row| (row, format!("{half}/{}", row.name)))
}

fn gallery(kind: FileSystemKind) -> Bench {
    let bench = Bench::of(&VolumeSpec::of(kind, 4096).mkfs(blocks(kind)));
    for half in ["mended", "moved"] {
        fs::create_dir(bench.path(half)).unwrap();
        for (row, name) in files(kind, half) {
            bench.fragmented(&name, 256 << 10, 32);
            shell(r#"touch -d 2001-01-01 "$0""#, &bench.path(&name));
            shell(row.script, &bench.path(&name));
        }
        shell(OTHERS, &bench.path(half));
    }
    bench.volume.remount().unwrap();
    bench
}

/// Puts the files of one half together, each by itself.
fn mend(bench: &Bench) {
    for (row, name) in files(bench.volume.kind(), "mended") {
        let mended = bench.mend(&name);
        match &mended {
            Ok(mended) => assert!(row.still != Still::Always && mended.after <= 1, "{name}: {mended:?}"),
            Err(MendError::Left { .. }) => assert!(row.still == Still::Always, "{name}: {mended:?}"),
            Err(error) => panic!("{name}: {error}"),
        }
    }
}

fn optimize(bench: &Bench) {
    let kind = bench.volume.kind();
    let places = || files(kind, "moved").map(|(_, name)| places(&bench.path(&name))).collect::<Vec<_>>();
    let before = places();
    longrun(&["optimize", "--mode", "full", "--pace", "fast"], &bench.volume.mount_point());
    for (((row, name), before), after) in files(kind, "moved").zip(before).zip(places()) {
        let stays = row.still == Still::Always || row.still == Still::InPassesOn(kind);
        assert_eq!(before == after, stays, "{kind:?} {name}: {before:?}, {after:?}");
        // What is preallocated behind the end is a fragment.
        assert!(stays || excess_of(&bench.path(&name)).unwrap() <= 1, "{kind:?} {name}: {after:?}");
    }
}

#[test]
fn loop_every_act_keeps_the_attributes_of_files() {
    for kind in ALL {
        let bench = gallery(*kind);
        let root = bench.volume.mount_point();
        let before = dump(&root).unwrap();
        let unchanged = |act: &str, work: &dyn Fn()| {
            let were_read = read_times(&before, &root);
            work();
            assert_eq!(read_times(&before, &root), were_read, "{kind:?}, {act}: access times");
            bench.volume.remount().unwrap();
            if let Err(error) = compare(&before, &dump(&root).unwrap()) {
                panic!("{kind:?}, {act}: {error:#}");
            }
        };
        unchanged("reading", &|| {
            longrun(&["analyze"], &root);
            longrun(&["analyze"], &bench.path("moved"));
            longrun(&["analyze"], &bench.path("moved/plain"));
            longrun(&["map"], &root);
        });
        unchanged("mending", &|| mend(&bench));
        unchanged("optimizing", &|| optimize(&bench));
        unchanged("reclaiming", &|| longrun(&["reclaim"], &root));
        prevent(&bench);
        if *kind == Ext4 {
            optimize_unmounted(&bench);
        }
        bench.volume.check().unwrap();
    }
}

/// What has grown file by file is put together while nothing is mounted.
fn optimize_unmounted(bench: &Bench) {
    let (kind, root, volume) = (bench.volume.kind(), bench.volume.mount_point(), &bench.volume);
    let excess = || files(kind, "moved").map(|(_, name)| excess_of(&bench.path(&name)).unwrap()).sum::<u64>();
    let (before, fragmented) = (dump(&root).unwrap(), excess());
    volume.unmount().unwrap();
    longrun(&["optimize", "--pace", "fast"], volume.device());
    volume.mount().unwrap();
    assert!(excess() < fragmented, "{kind:?}: {} of {fragmented}", excess());
    if let Err(error) = compare(&before, &dump(&root).unwrap()) {
        panic!("{kind:?}, unmounted: {error:#}");
    }
}

/// Files grow, get runways, and lose them again.
fn prevent(bench: &Bench) {
    let (kind, root, state) = (bench.volume.kind(), bench.volume.mount_point(), tempfile::tempdir().unwrap());
    let mut command = Command::new(longrun_binary().unwrap());
    let mut running = Running::start(command.arg("prevent").arg(&root).arg("--state").arg(state.path())).unwrap();
    let all = files(kind, "moved").filter(|(row, _)| row.name != "immutable").map(|(_, name)| bench.path(&name));
    // XFS allocates ahead of what is written through its cache.
    let mut direct = File::options();
    direct.append(true).custom_flags(OFlags::DIRECT.bits().cast_signed());
    let mut open: Vec<_> = all.map(|path| direct.open(path).unwrap()).collect();
    let buffer = vec![7; 68 << 10];
    let part = &buffer[buffer.as_ptr().align_offset(4096)..][..64 << 10];
    let expected = files(kind, "moved").filter(|(row, _)| !WITHOUT_RUNWAY.contains(&row.name));
    for (_, name) in expected {
        let mut rounds = 0;
        while !has_runway(kind, &bench.path(&name)) {
            open.iter_mut().for_each(|file| file.write_all(part).unwrap());
            std::thread::sleep(Duration::from_millis(5));
            rounds += 1;
            assert!(rounds < 1500, "{kind:?} {name}: no runway");
        }
    }
    drop(open);
    let closed = dump(&root).unwrap();
    running.terminate().unwrap();
    let ended = running.wait(Duration::from_secs(60)).unwrap();
    assert!(ended.status.success(), "{kind:?}: {}", ended.stderr);
    let ended = dump(&root).unwrap();
    let kept = |mut dump: Dump| {
        for entry in dump.values_mut() {
            // The runway itself.
            entry.forget("unwritten");
            if kind != Xfs {
                // docs/limits.md: a preallocation changes them as a write does.
                entry.forget("mtime");
                entry.forget("ctime");
            }
        }
        dump
    };
    compare(&kept(closed), &kept(ended)).unwrap();
}

/// On XFS, which itself allocates ahead of what is written, a call has allocated some.
fn has_runway(kind: FileSystemKind, path: &Path) -> bool {
    let file = File::open(path).unwrap();
    match kind {
        Xfs => longrun_sys::extended_attributes(file).unwrap().is_preallocated(),
        _ => bytes_beyond_the_end(path).unwrap() > 0,
    }
}
