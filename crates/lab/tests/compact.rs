//! Story: a virtual disk in a format that keeps its space is rewritten and replaced. At each moment a complete image has its name;
//! what is not its content stays as it was. QEMU judges.
#![allow(clippy::unwrap_used, reason = "tests may fail loudly")]

#[path = "images/tools.rs"]
#[allow(dead_code, reason = "other tests need the rest")]
mod tools;

use longrun_lab::ntfs::{Census, Fixture, Inventory, Spec};
use longrun_lab::oracle::ntfs as oracle;
use longrun_lab::{Finished, LoopVolume, Running, VolumeSpec, longrun_binary};
use rustix::fs::XattrFlags;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use std::ffi::OsStr;
use std::fs;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;
use tempfile::TempDir;
use tools::{check, create, output, run, scratch, virtual_machine, wait_for};

const LIMIT: Duration = Duration::from_secs(300);
/// Named by QEMU. Of these the first four keep their space whatever is discarded.
const FORMATS: [&str; 6] = ["vmdk", "vhdx", "vpc", "vdi", "qcow2", "raw"];
const LEFT: &str = ".disk.longrun-compact";

/// A volume whose free space is full of what was deleted.
struct Stage {
    fixture: Fixture,
    scratch: TempDir,
    used: u64,
}

impl Stage {
    fn new() -> Self {
        let (fixture, scratch) = (Fixture::make(Spec::small()).unwrap(), scratch());
        let census = Census::of(&fixture.image()).unwrap();
        let mut content = fixture.read().unwrap();
        for (first, count) in &census.free {
            content[(first * 4096) as usize..((first + count) * 4096) as usize].fill(0x77);
        }
        let free = census.free.iter().map(|(_, count)| count * 4096).sum::<u64>();
        fs::write(scratch.path().join("raw"), &content).unwrap();
        Self { fixture, scratch, used: content.len() as u64 - free }
    }

    /// An image of it, in a directory of its own.
    fn image(&self, format: &str, options: &str) -> PathBuf {
        let directory = self.scratch.path().join("images");
        _ = fs::remove_dir_all(&directory);
        fs::create_dir(&directory).unwrap();
        let image = directory.join("disk");
        let mut arguments: Vec<&OsStr> = ["convert", "-O", format].map(OsStr::new).to_vec();
        if !options.is_empty() {
            arguments.extend(["-o", options].map(OsStr::new));
        }
        let raw = self.scratch.path().join("raw");
        arguments.extend([raw.as_os_str(), image.as_os_str()]);
        run("qemu-img", arguments);
        image
    }

    fn has_every_file(&self, image: &Path, format: &str) {
        let plain = self.scratch.path().join("plain");
        let arguments = ["convert", "-f", format, "-O", "raw"].map(OsStr::new);
        run("qemu-img", arguments.into_iter().chain([image.as_os_str(), plain.as_os_str()]));
        let expected = Inventory::of(&self.fixture.image()).unwrap();
        assert_eq!(expected.difference(&Inventory::of(&plain).unwrap()), None, "{format}");
        // A VHD may be longer than what is on it, and the checker looks at the end for a copy of the boot sector.
        fs::File::options().write(true).open(&plain).unwrap().set_len(self.fixture.spec().bytes).unwrap();
        oracle::check(&plain).unwrap();
        fs::remove_file(plain).unwrap();
    }
}

fn command(image: &Path, more: &[&str]) -> Command {
    let mut command = Command::new(longrun_binary().unwrap());
    command.args(["reclaim", "--compact", "--pace", "fast"]).args(more).arg(image);
    command
}

fn ended(image: &Path, more: &[&str]) -> Finished {
    Running::start(&mut command(image, more)).unwrap().wait(LIMIT).unwrap()
}

fn compacted(image: &Path) -> Value {
    let ended = ended(image, &["--json"]);
    assert!(ended.status.success(), "{ended:?}");
    let told: Value = serde_json::from_str(&ended.stdout).unwrap();
    told["compaction"].clone()
}

fn allocated(path: &Path) -> u64 {
    fs::metadata(path).unwrap().blocks() * 512
}

fn names_beside(image: &Path) -> Vec<String> {
    let entries = fs::read_dir(image.parent().unwrap()).unwrap().flatten();
    entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect()
}

/// What tells an image from others, by format.
fn identity(image: &Path, format: &str) -> Vec<u8> {
    let content = fs::read(image).unwrap();
    let metadata = || content.windows(8).position(|part| part == b"metadata").unwrap();
    match format {
        "vpc" => content[24..512].iter().chain(&content[content.len() - 488..]).copied().collect(),
        "vdi" => [&content[..72], &content[348..360], &content[392..512]].concat(),
        // But for the number by which QEMU notes each time that the content was changed: it has eight digits, or fewer, and as many
        // zeros more follow the text.
        "vmdk" => {
            let text = content[512..512 + 20 * 512].split(|byte| *byte == 0).next().unwrap();
            let lines = text.split(|byte| *byte == b'\n');
            lines.filter(|line| !line.starts_with(b"CID=")).flatten().copied().collect()
        }
        // The identifier of the disk is the item whose entry begins so.
        "vhdx" => {
            let guid = b"\xab\x12\xca\xbe\xe6\xb2\x23\x45\x93\xef\xc3\x09\xe0\x00\xc7\x46";
            let table = metadata();
            let entry = content[table..].windows(16).position(|part| part == guid).unwrap() + table;
            let offset = u32::from_le_bytes(content[entry + 16..entry + 20].try_into().unwrap()) as usize;
            content[table + offset..table + offset + 16].to_vec()
        }
        "qcow2" => content[20..24].iter().chain(&content[72..112]).copied().collect(),
        _ => Vec::new(),
    }
}

#[test]
fn loop_an_image_of_any_format_becomes_small_and_keeps_content_owner_permissions_attributes_and_identity() {
    let stage = Stage::new();
    let qcow2 = "cluster_size=32k,refcount_bits=64,lazy_refcounts=on,compression_type=zstd";
    for (format, options) in
        FORMATS.into_iter().map(|format| (format, "")).chain([("qcow2", qcow2), ("qcow2", "compat=0.10")])
    {
        let image = stage.image(format, options);
        std::os::unix::fs::chown(&image, Some(65534), Some(12)).unwrap();
        fs::set_permissions(&image, fs::Permissions::from_mode(0o640)).unwrap();
        let opened = fs::File::open(&image).unwrap();
        rustix::fs::fsetxattr(&opened, "user.note", b"mine", XattrFlags::empty()).unwrap();
        // A user of the name "bin" may read it.
        run("setfacl", [OsStr::new("-m"), OsStr::new("u:2:r"), image.as_os_str()]);
        let acl = run("getfacl", [OsStr::new("-pn"), image.as_os_str()]);
        let (was, identity_before) = (allocated(&image), identity(&image, format));
        // Formats have blocks of 64 KiB and more: what is free has to lie together.
        let finished = ended(&image, &["--json", "--consolidate"]);
        assert!(finished.status.success(), "{format}: {finished:?}");
        let told = serde_json::from_str::<Value>(&finished.stdout).unwrap()["compaction"].clone();
        let is = allocated(&image);
        eprintln!("{format} {options}: {was} -> {is}, used {}", stage.used);
        // Discarding alone may have done all of it.
        assert!(told["replaced"] == true || matches!(format, "raw" | "qcow2"), "{format}: {told}");
        assert_eq!(told["allocated_after_bytes"], is, "{format}: {told}");
        // Blocks of 1 and 2 MiB are free only as wholes.
        assert!(
            is < was * 9 / 10 && (is < stage.used * 104 / 100 + (1 << 20) || matches!(format, "vhdx" | "vpc" | "vdi")),
            "{format}: {is}"
        );
        assert_eq!(identity(&image, format), identity_before, "{format} {options}");
        let meta = fs::metadata(&image).unwrap();
        assert_eq!((meta.uid(), meta.gid(), meta.nlink()), (65534, 12, 1), "{format}");
        assert_eq!(run("getfacl", [OsStr::new("-pn"), image.as_os_str()]), acl, "{format}");
        let mut note = [0; 4];
        assert_eq!(rustix::fs::getxattr(&image, "user.note", &mut note[..]).unwrap(), 4, "{format}");
        assert_eq!(&note, b"mine");
        assert_eq!(names_beside(&image), ["disk"], "{format}");
        if !matches!(format, "raw" | "vpc") {
            check(&image, format);
        }
        stage.has_every_file(&image, format);
        // There is nothing more to gain, but perhaps a block in which the file system notes where the file is.
        let again = compacted(&image);
        let (was, is) = (is, allocated(&image));
        assert!(is <= was && was - is <= 64 << 10, "{format}: {was} -> {is}: {again}");
        assert_eq!(names_beside(&image), ["disk"], "{format}");
    }
}

/// The program that writes the new image, once it does.
fn writer_of(running: &Running, image: &Path) -> Pid {
    let of = |entry: fs::DirEntry| {
        let stat = fs::read_to_string(entry.path().join("stat")).ok()?;
        let parent = stat.rsplit_once(')')?.1.split_ascii_whitespace().nth(1)?.parse::<u32>().ok()?;
        let line = fs::read(entry.path().join("cmdline")).ok()?;
        let is_it = parent == running.id() && line.split(|byte| *byte == 0).any(|argument| argument == b"convert");
        is_it.then(|| Pid::from_raw(entry.file_name().to_str()?.parse().ok()?)).flatten()
    };
    let mut found = None;
    wait_for("the writing of a new image", || {
        found = fs::read_dir("/proc").unwrap().flatten().find_map(of);
        found.is_some()
    });
    let new = image.with_file_name(LEFT);
    wait_for("content of the new image", || fs::metadata(&new).is_ok_and(|meta| meta.blocks() > 0));
    found.unwrap()
}

fn runs(id: Pid) -> bool {
    fs::read(format!("/proc/{}/cmdline", id.as_raw_nonzero())).is_ok_and(|line| !line.is_empty())
}

#[test]
fn loop_compacting_that_is_killed_or_stopped_leaves_the_original_and_the_next_run_removes_what_is_left() {
    let stage = Stage::new();
    for (format, signal) in
        [("vmdk", Signal::KILL), ("vhdx", Signal::INT), ("qcow2", Signal::KILL), ("vdi", Signal::TERM)]
    {
        let image = stage.image(format, "");
        std::os::unix::fs::chown(&image, Some(65534), None).unwrap();
        let inode = fs::metadata(&image).unwrap().ino();
        // So slow that it is still at work whenever this test goes on.
        let running = Running::start(&mut command(&image, &["--rate", "16k"])).unwrap();
        let writer = writer_of(&running, &image);
        // The owner of the image cannot write to what will be compared with it.
        let new = fs::metadata(image.with_file_name(LEFT)).unwrap();
        assert_eq!((new.uid(), new.permissions().mode() & 0o777), (0, 0o600), "{format}");
        // Nobody else can open the image meanwhile.
        let arguments = ["-f", format, "-c", "write 0 512"].map(OsStr::new).into_iter().chain([image.as_os_str()]);
        let opened = output("qemu-io", arguments);
        assert!(String::from_utf8_lossy(&opened.stderr).contains("lock"), "{format}: {opened:?}");
        kill_process(Pid::from_raw(running.id().cast_signed()).unwrap(), signal).unwrap();
        let ended = running.wait(LIMIT).unwrap();
        wait_for("the end of qemu-img", || !runs(writer));
        let is_killed = signal == Signal::KILL;
        assert_eq!(ended.status.code(), (!is_killed).then_some(130), "{format}: {ended:?}");
        assert_eq!(image.with_file_name(LEFT).exists(), is_killed, "{format}");
        assert_eq!(fs::metadata(&image).unwrap().ino(), inode, "{format}: it was replaced");
        stage.has_every_file(&image, format);
        let told = compacted(&image);
        assert_eq!(told["removed_leftovers"].is_string(), is_killed, "{format}: {told}");
        assert_eq!(names_beside(&image), ["disk"], "{format}");
        stage.has_every_file(&image, format);
    }
}

#[test]
fn loop_what_a_run_left_that_was_killed_behind_the_exchange_is_removed_and_the_new_image_stays() {
    let stage = Stage::new();
    let image = stage.image("vmdk", "");
    let left = image.with_file_name(LEFT);
    // The original, which has its owner.
    fs::copy(&image, &left).unwrap();
    for file in [&image, &left] {
        std::os::unix::fs::chown(file, Some(65534), None).unwrap();
    }
    let told = compacted(&image);
    assert!(told["removed_leftovers"].as_str().unwrap().ends_with(LEFT), "{told}");
    assert_eq!(names_beside(&image), ["disk"]);
    stage.has_every_file(&image, "vmdk");
    // What is not ours is not removed.
    fs::write(&left, "content").unwrap();
    std::os::unix::fs::chown(&left, Some(65533), None).unwrap();
    let refused = ended(&image, &[]);
    assert!(refused.stderr.contains("is not a file of ours") && left.exists(), "{refused:?}");
    fs::remove_file(&left).unwrap();
    fs::create_dir(&left).unwrap();
    let refused = ended(&image, &[]);
    assert!(refused.status.code() == Some(1) && left.exists(), "{refused:?}");
}

/// It is refused with this reason, and no byte of it changes.
fn refused(image: &Path, reason: &str) {
    let (before, names) = (fs::read(image).unwrap(), names_beside(image));
    let ended = ended(image, &[]);
    assert_eq!(ended.status.code(), Some(3), "{reason}: {ended:?}");
    assert!(ended.stderr.contains(reason), "{reason}: {ended:?}");
    assert!(fs::read(image).unwrap() == before, "{reason}: it was changed");
    assert_eq!(names_beside(image), names, "{reason}");
}

#[test]
fn loop_what_a_copy_could_not_keep_is_refused_before_anything_is_changed() {
    let stage = Stage::new();
    let image = stage.image("qcow2", "");
    run("qemu-img", ["snapshot", "-c", "first"].map(OsStr::new).into_iter().chain([image.as_os_str()]));
    refused(&image, "snapshots inside");
    let image = stage.image("qcow2", "");
    run("qemu-img", [OsStr::new("bitmap"), OsStr::new("--add"), image.as_os_str(), OsStr::new("backup")]);
    refused(&image, "bitmaps for incremental backups");
    let image = stage.image("qcow2", "");
    fs::hard_link(&image, image.with_file_name("other-name")).unwrap();
    refused(&image, "hard links");
    let image = stage.image("vhdx", "subformat=fixed");
    refused(&image, "of fixed size");
    let image = stage.image("vpc", "subformat=fixed,force_size=on");
    refused(&image, "of fixed size");
    let image = stage.image("vdi", "static=on");
    refused(&image, "of fixed size");
    let image = stage.image("vmdk", "subformat=streamOptimized");
    refused(&image, "it is compressed");
    let image = stage.image("vmdk", "subformat=monolithicFlat");
    refused(&image, "VMDK");
    let overlay = image.with_file_name("overlay");
    let base = stage.image("raw", "");
    run(
        "qemu-img",
        ["create", "-q", "-f", "qcow2", "-F", "raw", "-b"]
            .map(OsStr::new)
            .into_iter()
            .chain([base.as_os_str(), overlay.as_os_str()]),
    );
    refused(&overlay, "differs from another image");
    // A link is followed, and stays one.
    let image = stage.image("vmdk", "");
    let link = image.with_file_name("link");
    std::os::unix::fs::symlink("disk", &link).unwrap();
    assert_eq!(compacted(&link)["replaced"], true);
    assert!(fs::symlink_metadata(&link).unwrap().is_symlink() && !fs::symlink_metadata(&image).unwrap().is_symlink());
    let machine = virtual_machine(&image, "vmdk", true, &stage.scratch);
    let ended = ended(&image, &[]);
    assert_eq!(ended.status.code(), Some(3), "{ended:?}");
    drop(machine);
}

#[test]
fn loop_compressed_blocks_are_refused_before_a_copy_is_made() {
    let stage = Stage::new();
    let image = stage.image("qcow2", "");
    let packed = image.with_file_name("packed");
    let arguments = ["convert", "-c", "-O", "qcow2"].map(OsStr::new);
    run("qemu-img", arguments.into_iter().chain([image.as_os_str(), packed.as_os_str()]));
    let ended = ended(&packed, &[]);
    assert_eq!(ended.status.code(), Some(3), "{ended:?}");
    assert!(ended.stderr.contains("compressed blocks"), "{ended:?}");
    stage.has_every_file(&packed, "qcow2");
}

#[test]
fn loop_without_room_beside_the_image_nothing_is_written() {
    let stage = Stage::new();
    let volume = LoopVolume::create(&VolumeSpec::ext4(64)).unwrap();
    let image = volume.mount_point().join("disk");
    let made = stage.image("vmdk", "");
    fs::copy(&made, &image).unwrap();
    let ended = ended(&image, &[]);
    assert_eq!(ended.status.code(), Some(3), "{ended:?}");
    assert!(ended.stderr.contains("are free; free some space"), "{ended:?}");
    assert!(!image.with_file_name(LEFT).exists());
    stage.has_every_file(&image, "vmdk");
}

#[test]
fn loop_only_images_are_compacted() {
    let scratch = scratch();
    let ended = ended(scratch.path(), &[]);
    assert_eq!(ended.status.code(), Some(2), "{ended:?}");
    assert!(ended.stderr.contains("--compact is for disk images"), "{ended:?}");
    let image = scratch.path().join("disk");
    create(&image, "vmdk", 8);
    let nothing_on_it = self::ended(&image, &[]);
    assert_eq!(nothing_on_it.status.code(), Some(3), "{nothing_on_it:?}");
}
