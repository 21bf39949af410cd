//! Story: NTFS volumes that are not mounted, as the disks of virtual machines are. Their files, directories and $MFT are put
//! together; what ntfs-3g and its tools see afterwards is what they saw before, but for places.
#![allow(clippy::unwrap_used, clippy::panic, reason = "helpers of tests may fail loudly")]

mod common;

use longrun_lab::ntfs::{Census, Fixture, Inventory, Spec};
use longrun_lab::oracle::ntfs as oracle;
use longrun_lab::{longrun_binary, tool};
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

const LIMIT: Duration = Duration::from_secs(600);

/// Excess fragments of all streams, and pieces of free space, by the laboratory's own reader.
fn figures(image: &Path) -> (usize, usize) {
    let census = Census::of(image).unwrap();
    let excess = census.fragments().map(|(_, _, fragments)| fragments.saturating_sub(1)).sum();
    (excess, census.free.len())
}

#[test]
fn loop_an_ntfs_image_is_optimized_and_only_places_change() {
    let specs =
        [Spec::small(), Spec::small().clusters(512), Spec::small().clusters(65536), Spec::small().sectors(4096)];
    for spec in specs.into_iter().chain([Spec::fragmented_mft()]) {
        let fixture = Fixture::make(spec).unwrap();
        let image = fixture.image();
        let before = Inventory::of(&image).unwrap();
        let (excess, pieces) = figures(&image);
        let finished = common::longrun("full").run(&image, LIMIT).unwrap();
        let report: serde_json::Value = serde_json::from_str(&finished.stdout).unwrap();
        let (after, left) = figures(&image);
        eprintln!("{spec:?}: excess {excess} -> {after}, pieces {pieces} -> {left}, {}", finished.stdout.len());
        assert_eq!(before.difference(&Inventory::of(&image).unwrap()), None, "{spec:?}");
        oracle::check(&image).unwrap();
        assert!(!oracle::is_dirty(&image).unwrap());
        assert!(excess > 100 && after == 0, "{spec:?}: {excess} -> {after}: {report}");
        assert!(left <= 22, "{spec:?}: {pieces} -> {left}: {report}");
        let names: Vec<_> =
            fs::read_dir(image.parent().unwrap()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        assert!(!names.iter().any(|name| name.to_string_lossy().contains("journal")), "{names:?}");
        oracle::then_usable(&image).unwrap();
    }
}

#[test]
fn campaign_an_ntfs_volume_with_13000_files_ends_with_everything_whole_and_mft_in_one_piece() {
    let fixture = Fixture::make(Spec::full()).unwrap();
    fixture.promises_kept().unwrap();
    let image = fixture.image();
    let before = Inventory::of(&image).unwrap();
    let was = figures(&image);
    let finished = common::longrun("full").run(&image, LIMIT).unwrap();
    let report: serde_json::Value = serde_json::from_str(&finished.stdout).unwrap();
    let (excess, pieces) = figures(&image);
    eprintln!("{was:?} -> {:?}, {} s, {} moved", (excess, pieces), report["seconds"], report["bytes_moved"]);
    assert_eq!(before.difference(&Inventory::of(&image).unwrap()), None);
    oracle::check(&image).unwrap();
    assert_eq!(excess, 0, "{report}");
    assert!(pieces <= 22, "{pieces}: {report}");
    let mft = oracle::fragments(&image, oracle::Place::Record(0)).unwrap();
    assert!(mft.values().all(|fragments| *fragments == 1), "{mft:?}");
}

#[test]
fn loop_optimizing_a_thin_image_leaves_it_as_large_as_it_was_and_a_full_one_keeps_its_space() {
    let fixture = Fixture::make(Spec::small()).unwrap();
    let before = Inventory::of(&fixture.image()).unwrap();
    let directory = tempfile::tempdir().unwrap();
    let used =
        fixture.spec().bytes - Census::of(&fixture.image()).unwrap().free.iter().map(|(_, n)| n * 4096).sum::<u64>();
    for format in ["raw", "qcow2"] {
        for mode in ["efficient", "full"] {
            let image = directory.path().join(format!("{mode}.{format}"));
            let source = fixture.image();
            let copy = ["convert".as_ref(), "-O".as_ref(), format.as_ref(), source.as_os_str(), image.as_os_str()];
            tool::run("qemu-img", copy).unwrap();
            let run = |arguments: &[&str]| {
                let output = Command::new(longrun_binary().unwrap()).args(arguments).arg(&image).output().unwrap();
                assert!(output.status.success(), "{format}: {}", String::from_utf8_lossy(&output.stderr));
                String::from_utf8_lossy(&output.stdout).into_owned()
            };
            run(&["reclaim"]);
            let was = allocated(&image);
            let told = run(&["optimize", "--pace", "fast", "--mode", mode]);
            let is = allocated(&image);
            eprintln!("{format} {mode}: {was} -> {is}, used {used}");
            assert!(told.contains("moved in"), "the test proves nothing: {told}");
            // On a disk as small as this, blocks of 64 KiB of which only parts were left count for something.
            let parts = if format == "qcow2" { 2 << 20 } else { 0 };
            assert!(is <= was + used * 3 / 100 + parts, "{format} {mode}: the image grew from {was} to {is}");
            let plain = directory.path().join("plain");
            let back = ["convert".as_ref(), "-O".as_ref(), "raw".as_ref(), image.as_os_str(), plain.as_os_str()];
            tool::run("qemu-img", back).unwrap();
            assert_eq!(before.difference(&Inventory::of(&plain).unwrap()), None, "{format} {mode}");
            oracle::check(&plain).unwrap();
        }
    }
    // Whoever has allocated all of an image wants it so.
    let plain = directory.path().join("full");
    fs::write(&plain, fixture.read().unwrap()).unwrap();
    fs::File::open(&plain).unwrap().sync_all().unwrap();
    assert!(allocated(&plain) >= fixture.spec().bytes, "the test proves nothing");
    let finished = common::longrun("full").run(&plain, LIMIT).unwrap();
    assert!(finished.status.success() && allocated(&plain) >= fixture.spec().bytes, "{}", finished.stderr);
}

/// What a file takes on its storage.
fn allocated(path: &Path) -> u64 {
    fs::metadata(path).unwrap().blocks() * 512
}

#[test]
fn loop_images_of_every_format_are_listed_with_what_is_on_them_and_other_files_are_not() {
    let fixture = Fixture::make(Spec::small()).unwrap();
    let directory = tempfile::tempdir().unwrap();
    let formats = ["raw", "qcow2", "vmdk", "vhdx", "vdi", "vpc"];
    for (format, options) in formats.into_iter().map(|format| (format, "")).chain([("vpc", "subformat=fixed")]) {
        let image = directory.path().join(format!("{format}{options}"));
        let arguments = ["convert", "-O", format, "-o", options].map(std::ffi::OsStr::new);
        let arguments = if options.is_empty() { &arguments[..3] } else { &arguments[..] };
        let paths = [fixture.image().into_os_string(), image.into_os_string()];
        tool::run("qemu-img", arguments.iter().map(|a| (*a).to_owned()).chain(paths)).unwrap();
    }
    fs::write(directory.path().join("text"), "no image").unwrap();
    fs::write(directory.path().join("empty"), "").unwrap();
    let output =
        Command::new(longrun_binary().unwrap()).args(["images", "--json"]).arg(directory.path()).output().unwrap();
    let images: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let (excess, pieces) = figures(&fixture.image());
    assert_eq!(images.as_array().unwrap().len(), 7, "{images:#}");
    for image in images.as_array().unwrap() {
        let figures = &image["volumes"][0]["figures"];
        assert_eq!(image["volumes"][0]["filesystem"], "ntfs", "{image:#}");
        assert_eq!(
            (figures["excess_fragments"].as_u64(), figures["free_pieces"].as_u64()),
            (Some(excess as u64), Some(pieces as u64))
        );
    }
}

#[test]
fn loop_the_free_space_of_a_virtual_disk_goes_back_and_no_file_changes() {
    let fixture = Fixture::make(Spec::small()).unwrap();
    let before = Inventory::of(&fixture.image()).unwrap();
    let directory = tempfile::tempdir().unwrap();
    let convert = |from: &Path, format: &str, to: &Path| {
        tool::run("qemu-img", ["convert".as_ref(), "-O".as_ref(), format.as_ref(), from.as_os_str(), to.as_os_str()])
            .unwrap();
    };
    for format in ["raw", "qcow2", "vmdk", "vhdx"] {
        // What was deleted is still there: the whole image has data.
        let full = directory.path().join("full");
        let census = Census::of(&fixture.image()).unwrap();
        let mut content = fixture.read().unwrap();
        for (first, count) in &census.free {
            content[(first * 4096) as usize..((first + count) * 4096) as usize].fill(0x77);
        }
        fs::write(&full, &content).unwrap();
        let used = content.len() as u64 - census.free.iter().map(|(_, count)| count * 4096).sum::<u64>();
        let image = directory.path().join(format!("disk.{format}"));
        convert(&full, format, &image);
        let was = allocated(&image);
        let output =
            Command::new(longrun_binary().unwrap()).args(["reclaim", "--consolidate"]).arg(&image).output().unwrap();
        assert!(output.status.success(), "{format}: {}", String::from_utf8_lossy(&output.stderr));
        let plain = directory.path().join("plain");
        convert(&image, "raw", &plain);
        assert_eq!(before.difference(&Inventory::of(&plain).unwrap()), None, "{format}");
        oracle::check(&plain).unwrap();
        // Of the formats that keep what they have, a conversion leaves the zeros out.
        let small = directory.path().join("small");
        convert(&image, format, &small);
        let end = if matches!(format, "raw" | "qcow2") { allocated(&image) } else { allocated(&small) };
        eprintln!("{format}: {was} -> {end}, used {used}");
        // Besides what is used, a format has tables of its own.
        assert!(
            end <= used * 102 / 100 + (1 << 20) + if format == "vhdx" { 8 << 20 } else { 0 },
            "{format}: {end} of {used}"
        );
        assert!(allocated(&image) <= was + (1 << 20), "{format}: the image grew from {was} to {}", allocated(&image));
    }
}
