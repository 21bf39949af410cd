//! The laboratory itself, on real loop volumes: what the other tests build on.

use longrun_ageing::{Recipe, age, fragment_file};
use longrun_lab::oracle::{compare, dump, e2freefrag, filefrag};
use longrun_lab::{LoopVolume, VolumeSpec};
use std::fs;
use std::ops::ControlFlow;
use std::path::Path;

#[test]
fn loop_an_aged_volume_is_fragmented_and_sound_and_its_copy_is_the_same() {
    let (volume, summary) = LoopVolume::aged(&VolumeSpec::ext4(256), Recipe::Aged, 42).unwrap();
    assert!(summary.files > 50, "{summary:?}");
    let before = dump(&volume.mount_point()).unwrap();
    let fragments = filefrag(&volume.mount_point()).unwrap();
    assert!(fragments.excess > 20, "{fragments:?}");
    volume.check().unwrap();
    let free = e2freefrag(volume.device()).unwrap();
    assert!(free.pieces > 20, "{free:?}");

    let copy = volume.copy("").unwrap();
    compare(&before, &dump(&copy.mount_point()).unwrap()).unwrap();
    assert_eq!(e2freefrag(copy.device()).unwrap(), free);
    assert_eq!(filefrag(&copy.mount_point()).unwrap().excess, fragments.excess);
}

#[test]
fn loop_nothing_stays_behind() {
    let volume = LoopVolume::create(&VolumeSpec::ext4(64)).unwrap();
    let (device, image) = (volume.device().to_owned(), volume.image());
    assert!(volume.traffic().unwrap().written > 0);
    drop(volume);
    assert!(!image.exists());
    let name = device.file_name().unwrap();
    assert!(!Path::new("/sys/block").join(name).join("loop/backing_file").exists());
}

#[test]
fn loop_a_file_lies_in_exactly_the_fragments_asked_for_and_keeps_its_content() {
    // With blocks smaller than a page, every exchange that cuts a page costs a commit: fewer fragments there.
    for (block_size, many) in [("1024", 40), ("4096", 1000)] {
        let volume = LoopVolume::create(&VolumeSpec::ext4(256).mkfs(&["-b", block_size])).unwrap();
        let path = volume.mount_point().join("file");
        let mut content = vec![0; (4 << 20) + 17];
        longrun_ageing::fill_block(&mut content, 1, 2, 3);
        fs::write(&path, &content).unwrap();
        let before = dump(&volume.mount_point()).unwrap();
        for fragments in [many, 1, 7, many / 2] {
            let made = fragment_file(&path, fragments).unwrap();
            assert_eq!(made.fragments_after, fragments, "block size {block_size}");
            let seen = filefrag(&volume.mount_point()).unwrap();
            assert_eq!(seen.excess + 1, fragments, "block size {block_size}");
        }
        let error = fragment_file(&path, 30_000).unwrap_err().to_string();
        assert!(error.contains("cannot lie in 30000 fragments"), "{error}");
        volume.remount().unwrap();
        compare(&before, &dump(&volume.mount_point()).unwrap()).unwrap();
        volume.check().unwrap();
    }
}

#[test]
fn loop_ageing_refuses_what_it_cannot_do_and_stops_when_asked() {
    let volume = LoopVolume::create(&VolumeSpec::ext4(64)).unwrap();
    let mount = volume.mount_point();
    let error = age(&mount, Recipe::Office, 1, &mut |_| ControlFlow::Break(())).unwrap_err();
    assert!(error.to_string().starts_with("interrupted"), "{error}");
    let error = age(&mount, Recipe::Office, 1, &mut |_| ControlFlow::Continue(())).unwrap_err();
    assert!(error.to_string().contains("exists already"), "{error}");
    fs::write(mount.join("full"), vec![1; 40 << 20]).unwrap();
    let error = age(&mount, Recipe::Office, 2, &mut |_| ControlFlow::Continue(())).unwrap_err();
    assert!(error.to_string().contains("choose a larger or emptier volume"), "{error}");
}
