//! Parts of larger devices: halves of mirrors look like volumes. blkid and the partition tools judge what the tests make.

use crate::tables::partition;
use crate::tools::{Loop, MIB, output, run, scratch};
use longrun_lab::longrun_binary;
use rustix::fs::{CWD, FileType, Mode, mknodat};
use std::ffi::OsStr;
use std::fs::{self, File};
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The length of a volume with a signature.
const LENGTH: u64 = 20 * MIB;
/// Where the first partition begins.
const FIRST: u64 = MIB;

/// What blkid calls a signature, where it begins before the end of the device, and what it is.
type Signature = (&'static str, u64, Vec<u8>);

fn signatures() -> Vec<Signature> {
    let mut ddf = vec![0; 512];
    ddf[..4].copy_from_slice(&[0xde, 0x11, 0xde, 0x11]);
    ddf[8..40].copy_from_slice(b"Linux-MD is sixteen long01.02.00");
    // Both headers are this one.
    let last = LENGTH / 512 - 1;
    ddf[96..104].copy_from_slice(&last.to_be_bytes());
    ddf[104..112].copy_from_slice(&last.to_be_bytes());
    let mut drbd = vec![0; 4096];
    drbd[8..48].fill(1);
    drbd[60..64].copy_from_slice(&0x8374_026b_u32.to_be_bytes());
    let mut md = vec![0; 64];
    md[..4].copy_from_slice(&0xa92b_4efc_u32.to_le_bytes());
    md[8] = 90;
    md[20..24].fill(0x11);
    vec![
        ("linux_raid_member", 1 << 16, md),
        ("isw_raid_member", 1024, b"Intel Raid ISM Cfg Sig. 1.0.00".to_vec()),
        ("ddf_raid_member", 512, ddf),
        ("drbd", 4096, drbd),
    ]
}

/// Writes a signature for a device that ends there.
fn put(path: &Path, end: u64, (_, before, bytes): &Signature) {
    File::options().write(true).open(path).unwrap().write_all_at(bytes, end - before).unwrap();
}

/// The same for a volume of [`LENGTH`], with blkid as the judge.
fn put_on_volume(path: &Path, end: u64, signature: &Signature) {
    put(path, end, signature);
    let start = (end - LENGTH).to_string();
    let arguments = ["-p", "-o", "value", "-s", "TYPE", "-O", &start, "-S", &LENGTH.to_string()];
    let found = run("blkid", arguments.map(OsStr::new).into_iter().chain([path.as_os_str()]));
    assert_eq!(found.trim(), signature.0, "blkid does not take it for what it is to be");
}

fn volume(path: &Path, maker: &[&str], length: u64) {
    File::create(path).unwrap().set_len(length).unwrap();
    run(maker[0], maker[1..].iter().map(OsStr::new).chain([path.as_os_str()]));
}

/// A disk with these partitions, each of a type of sfdisk's and with the content of a file.
fn disk(path: &Path, label: &str, partitions: &[(&str, &Path)]) {
    let mut script = String::new();
    let mut at = FIRST;
    let mut places = Vec::new();
    for (kind, content) in partitions {
        let content = fs::read(content).unwrap();
        script += &format!("start={}, size={}, type={kind}\n", at / 512, content.len() / 512);
        places.push((at, content));
        at = (at + places.last().unwrap().1.len() as u64).next_multiple_of(MIB);
    }
    let file = File::create(path).unwrap();
    file.set_len(at + MIB).unwrap();
    partition(path, label, &script);
    for (at, content) in places {
        file.write_all_at(&content, at).unwrap();
    }
}

/// What the commands say that open a volume, each with its status. None of them changes a byte of `image`.
fn said(target: impl AsRef<OsStr>, image: &Path) -> Vec<(Option<i32>, String)> {
    let before = fs::read(image).unwrap();
    let commands: [&[&str]; 5] =
        [&["analyze"], &["map"], &["optimize", "--dry-run"], &["optimize", "--machine-is-off"], &["reclaim"]];
    let run = |command: &[&str]| {
        let output = Command::new(longrun_binary().unwrap()).args(command).arg(target.as_ref()).output().unwrap();
        let text = [output.stdout, output.stderr].concat();
        (output.status.code(), format!("{command:?}: {}", String::from_utf8_lossy(&text)))
    };
    let said = commands.map(run).to_vec();
    assert!(fs::read(image).unwrap() == before, "{said:?} has changed it");
    said
}

fn assert_refused(target: impl AsRef<OsStr>, image: &Path, why: &str) {
    for (status, text) in said(target, image) {
        assert!(
            status == Some(3) && text.contains("a part of a larger device") && text.contains(why),
            "{status:?} {text}"
        );
    }
}

#[test]
fn loop_halves_of_mirrors_are_refused_by_every_command() {
    let scratch = scratch();
    let path = |name: &str| scratch.path().join(name);
    let image = path("image");
    for signature in signatures() {
        for maker in [&["mkfs.ext4", "-qF"][..], &["mkntfs", "-qFQ"]] {
            volume(&image, maker, LENGTH);
            put_on_volume(&image, LENGTH, &signature);
            assert_refused(&image, &image, signature.0);
        }
        let device = Loop::on(&image);
        assert_refused(&device.0, &image, signature.0);
        drop(device);
        // In a partition, and the whole disk.
        disk(&path("disk"), "gpt", &[("linux", &image)]);
        put_on_volume(&path("disk"), FIRST + LENGTH, &signature);
        assert_refused(path("disk"), &path("disk"), signature.0);
    }
    volume(&image, &["mkfs.ext4", "-qF"], LENGTH);
    assert!(said(&image, &image).iter().take(3).all(|(status, _)| *status == Some(0)), "{:?}", said(&image, &image));
}

#[test]
fn loop_partitions_of_a_member_and_of_its_types_are_refused() {
    let scratch = scratch();
    let path = |name: &str| scratch.path().join(name);
    volume(&path("volume"), &["mkfs.ext4", "-qF"], LENGTH);
    for (label, kind, name) in [
        ("gpt", "A19D880F-05FC-4D3B-A006-743F0F84911E", "Linux RAID"),
        ("gpt", "AF9B60A0-1431-4F62-BC68-3311714A69AD", "Windows dynamic disk"),
        ("gpt", "E75CAF8F-F680-4CEE-AFA3-B001E56EFC2D", "Windows Storage Spaces"),
        ("dos", "fd", "Linux RAID"),
        ("dos", "42", "Windows dynamic disk"),
    ] {
        disk(&path("disk"), label, &[(kind, &path("volume"))]);
        assert_refused(path("disk"), &path("disk"), name);
    }
    // Its other partitions are volumes.
    disk(&path("disk"), "dos", &[("fd", &path("volume")), ("83", &path("volume"))]);
    let said = Command::new(longrun_binary().unwrap()).args(["optimize", "--json"]).arg(path("disk")).output().unwrap();
    assert_eq!(said.status.code(), Some(0), "{said:?}");
    let found: serde_json::Value = serde_json::from_slice(&said.stdout).unwrap();
    let why = |number: usize| found["volumes"][number]["skipped"].as_str();
    assert!(why(0).is_some_and(|why| why.contains("Linux RAID")) && why(1).is_none(), "{found}");
    // A RAID of whole disks, whose partitions lie on the RAID.
    let size = fs::metadata(path("disk")).unwrap().len();
    put(&path("disk"), size, &signatures()[1]);
    assert_refused(path("disk"), &path("disk"), "isw_raid_member on its disk");
}

/// The node of the first partition of a loop device: without udev nobody makes one. It goes with the test.
struct FirstPartition {
    _whole: Loop,
    node: PathBuf,
}

impl FirstPartition {
    fn of(image: &Path) -> Self {
        let whole = Loop::with(image, &["--partscan"]);
        // It says so when they are there already.
        _ = output("partx", [OsStr::new("--add"), whole.0.as_os_str()]);
        let name = whole.0.file_name().unwrap().to_str().unwrap();
        let number = fs::read_to_string(format!("/sys/block/{name}/{name}p1/dev")).unwrap();
        let (major, minor) = number.trim().split_once(':').unwrap();
        let number = rustix::fs::makedev(major.parse().unwrap(), minor.parse().unwrap());
        // Directories for temporary files may be mounted with nodev.
        let node = PathBuf::from(format!("/dev/longrun-test-{}", std::process::id()));
        mknodat(CWD, &node, FileType::BlockDevice, Mode::RUSR | Mode::WUSR, number).unwrap();
        Self { _whole: whole, node }
    }
}

impl Drop for FirstPartition {
    fn drop(&mut self) {
        _ = fs::remove_file(&self.node);
    }
}

#[test]
fn loop_the_device_of_a_partition_is_judged_by_its_disk() {
    let scratch = scratch();
    let path = |name: &str| scratch.path().join(name);
    volume(&path("volume"), &["mkfs.ext4", "-qF"], LENGTH);
    let judged = |kind: &str, signature: Option<&Signature>| {
        let image = path("disk");
        disk(&image, "gpt", &[(kind, &path("volume"))]);
        if let Some(signature) = signature {
            put(&image, fs::metadata(&image).unwrap().len(), signature);
        }
        let partition = FirstPartition::of(&image);
        said(&partition.node, &image)
    };
    let raid = "A19D880F-05FC-4D3B-A006-743F0F84911E";
    for (kind, signature, why) in
        [(raid, None, "Linux RAID"), ("linux", Some(&signatures()[1]), "isw_raid_member on its disk")]
    {
        for (status, text) in judged(kind, signature) {
            assert!(status == Some(3) && text.contains(why), "{status:?} {text}");
        }
    }
    assert!(judged("linux", None).iter().take(3).all(|(status, _)| *status == Some(0)));
}

#[test]
fn loop_a_member_inside_of_an_image_is_not_mounted() {
    let scratch = scratch();
    let path = |name: &str| scratch.path().join(name);
    // What the makers need at least; the signature lies at the end.
    for (maker, length) in [(&["mkfs.xfs", "-qf"][..], 300 * MIB), (&["mkfs.btrfs", "-qf"], 128 * MIB)] {
        volume(&path("volume"), maker, length);
        let signature = signatures().swap_remove(1);
        put(&path("volume"), length, &signature);
        disk(&path("disk"), "gpt", &[("linux", &path("volume"))]);
        let arguments = ["optimize", "--machine-is-off"].map(OsStr::new).into_iter().chain([OsStr::new("disk")]);
        let output = Command::new(longrun_binary().unwrap()).args(arguments).current_dir(scratch.path()).output();
        let text = String::from_utf8_lossy(&output.unwrap().stdout).into_owned();
        assert!(text.contains(&format!("blkid finds {};", signature.0)), "{text}");
    }
}

#[test]
fn loop_a_member_inside_of_a_qcow2_is_refused() {
    let scratch = scratch();
    let path = |name: &str| scratch.path().join(name);
    volume(&path("volume"), &["mkntfs", "-qFQ"], LENGTH);
    let signature = signatures().swap_remove(1);
    put_on_volume(&path("volume"), LENGTH, &signature);
    disk(&path("disk"), "gpt", &[("linux", &path("volume"))]);
    for (from, to) in [("volume", "volume.qcow2"), ("disk", "disk.qcow2")] {
        let arguments = ["convert", "-f", "raw", "-O", "qcow2"].map(OsStr::new).into_iter();
        run("qemu-img", arguments.chain([path(from).as_os_str(), path(to).as_os_str()]));
        assert_refused(path(to), &path(to), signature.0);
    }
}
