//! A directory of XFS whose files fragment is given an extent-size hint, when that is wanted; and it is taken back.
#![allow(clippy::unwrap_used, clippy::panic, reason = "helpers of tests may fail loudly")]

mod common;

use common::case::{Notes, eventually};
use common::{fragments, volume};
use longrun_lab::FileSystemKind;
use longrun_prevention::policy::Settings;
use longrun_prevention::{Happening, Options, Prevention};
use std::fs::{self, File};
use std::path::Path;
use std::process::Command;
use std::sync::Arc;

/// Direct writers, beside each other. Not of this process, whose writes are not told of.
fn grow(directory: &Path) {
    let script =
        "for n in 1 2 3 4 5 6; do dd if=/dev/zero of=$0/$n bs=64k count=400 oflag=direct status=none & done; wait";
    assert!(Command::new("sh").args(["-c", script]).arg(directory).status().unwrap().success());
}

#[test]
fn loop_files_of_a_directory_that_was_given_a_hint_come_in_few_pieces() {
    let (volume, watched) = volume(FileSystemKind::Xfs, 2048);
    let state = tempfile::tempdir().unwrap();
    let notes = Arc::new(Notes::default());
    let prevention = Prevention::start(Options::new(state.path().to_owned()), Arc::clone(&notes) as _).unwrap();
    let settings = Settings { xfs_hint: true, xfs_hint_files: 2, ..Settings::default() };
    prevention.watch(&watched, settings).unwrap();
    let directory = volume.mount_point().join("video");
    fs::create_dir(&directory).unwrap();
    grow(&directory);
    let hint = || longrun_sys::inherited_size_hint(File::open(&directory).unwrap()).unwrap();
    eventually(hint);
    let told = |happening: &Happening| matches!(happening, Happening::Hinted { directory: d, .. } if *d == directory);
    eventually(|| notes.0.lock().unwrap().iter().any(told).then_some(()));
    for name in 1..=6 {
        fs::remove_file(directory.join(name.to_string())).unwrap();
    }
    grow(&directory);
    for name in 1..=6 {
        let pieces = fragments(&directory.join(name.to_string()));
        assert!(pieces <= 4, "{pieces} pieces");
    }
    let undone = prevention.undo_hints(watched.device).unwrap();
    assert_eq!((undone.restored, undone.left, hint()), (1, 0, None));
}
