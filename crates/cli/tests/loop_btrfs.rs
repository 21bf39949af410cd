//! Reports about btrfs, which needs root: whatever part of it is mounted, the volume is meant, with all its snapshots.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails loudly, in its helpers too")]

mod common;

use common::{check, longrun};
use longrun_engine::NoProgress;
use longrun_lab::{LoopVolume, VolumeSpec, tool};
use longrun_layout::{FileIndex, InodeNumber};
use longrun_volume::btrfs::{BtrfsScan, scan};
use serde_json::Value;
use std::ffi::OsStr;
use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// A subvolume with two logs that grew side by side, a snapshot of it, and a file that is compressed.
fn volume() -> LoopVolume {
    let volume = LoopVolume::create(&VolumeSpec::btrfs(512)).unwrap();
    let top = volume.mount_point();
    let sub = top.join("sub");
    btrfs(&["subvolume".as_ref(), "create".as_ref(), sub.as_os_str()]);
    let append = |name: &str| OpenOptions::new().create(true).append(true).open(sub.join(name)).unwrap();
    let logs = [append("log"), append("other")];
    for round in 0..30u8 {
        for mut log in &logs {
            log.write_all(&[round; 16 << 10]).unwrap();
            log.sync_data().unwrap();
        }
    }
    btrfs(&["subvolume", "snapshot", "-r", sub.to_str().unwrap(), top.join("snap").to_str().unwrap()].map(OsStr::new));
    let text = top.join("text");
    File::create(&text).unwrap();
    tool::run("chattr", ["+c".as_ref(), text.as_os_str()]).unwrap();
    fs::write(&text, "text ".repeat(100_000)).unwrap();
    volume
}

fn btrfs(words: &[&OsStr]) {
    tool::run("btrfs", words).unwrap();
}

fn analyzed(target: &Path) -> Value {
    let output = longrun([OsStr::new("analyze"), target.as_os_str(), "--json".as_ref()]);
    serde_json::from_str(&check(&output, 0, "")).unwrap()
}

fn at(target: &Path, block: u64) -> String {
    let block = block.to_string();
    check(&longrun([OsStr::new("map"), target.as_os_str(), "--at".as_ref(), block.as_ref()]), 0, "")
}

fn index_of(scan: &BtrfsScan, path: &Path) -> FileIndex {
    let who = longrun_sys::subvolume_of_file(File::open(path).unwrap()).unwrap().0;
    let inode = InodeNumber(fs::metadata(path).unwrap().ino());
    let at = scan.owners.iter().position(|owner| owner.subvolume.0 == who && owner.inode == inode);
    FileIndex(at.unwrap() as u32)
}

#[test]
fn loop_btrfs_is_analyzed_as_a_whole_whichever_part_is_named() {
    let volume = volume();
    let top = volume.mount_point();
    for target in [&top, volume.device(), &volume.image()] {
        let found = analyzed(target);
        assert_eq!(found["method"], "scan", "{found:#}");
        assert_eq!((&found["files"], &found["fragmented_files"]), (&5.into(), &4.into()), "{found:#}");
        assert_eq!(found["excess_fragments"], 4 * 29, "{found:#}");
        let worst: Vec<&str> =
            found["most_fragmented"].as_array().unwrap().iter().map(|file| file["path"].as_str().unwrap()).collect();
        assert!(worst.contains(&top.join("sub/log").to_str().unwrap()), "{worst:?}");
        assert!(worst.contains(&top.join("snap/other").to_str().unwrap()), "{worst:?}");
    }
    let found = analyzed(&top.join("sub"));
    assert_eq!((&found["method"], &found["files"]), (&"walk".into(), &2.into()), "a part by its files: {found:#}");
    // Only the subvolume is mounted: what lies beside it has no path, but a name.
    tool::run("btrfs", ["subvolume".as_ref(), "set-default".as_ref(), top.join("sub").as_os_str()]).unwrap();
    volume.remount().unwrap();
    let found = analyzed(&top);
    assert_eq!((&found["method"], &found["excess_fragments"]), (&"scan".into(), &(4 * 29).into()), "{found:#}");
    let text = found.to_string();
    assert!(text.contains(top.join("log").to_str().unwrap()) && text.contains("<subvolume snap>/log"), "{text}");
    volume.check().unwrap();
}

#[test]
fn loop_btrfs_names_all_owners_of_a_block() {
    let volume = volume();
    let top = volume.mount_point();
    let scan = scan::scan(&File::open(&top).unwrap(), &top, &NoProgress).unwrap();
    let log = scan.layout.file(index_of(&scan, &top.join("sub/log"))).unwrap();
    let run = log.runs().nth(3).unwrap();
    let named = at(volume.device(), run.physical.0 + 1);
    assert!(named.contains(&format!("file {}", top.join("sub/log").display())), "{named}");
    assert!(named.contains("its byte 53248") && named.contains("shared with 1 other file"), "{named}");
    let text = scan.layout.file(index_of(&scan, &top.join("text"))).unwrap().runs().next().unwrap();
    let named = at(&top, text.physical.0);
    assert!(named.contains("its bytes 0 to 131071") && named.contains("stored compressed in 4.00 KiB"), "{named}");
    assert!(at(&top, 0).contains("metadata: reserved by btrfs"), "{}", at(&top, 0));
    let metadata = scan.chunks.iter().find(|chunk| !chunk.copies.is_empty()).unwrap();
    assert!(at(&top, metadata.copies[0].0).contains("second copy"), "{}", at(&top, metadata.copies[0].0));
    let free = scan.unallocated[0];
    assert!(at(&top, free.start.0).contains("not allocated to a chunk"), "{}", at(&top, free.start.0));
    let drawn = check(&longrun([OsStr::new("map"), top.as_os_str()]), 0, "");
    assert!(drawn.contains("F fragmented files"), "{drawn}");
}
