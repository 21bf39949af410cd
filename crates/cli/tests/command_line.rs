//! The contract of the command line that needs no root: exit statuses, refusals, JSON fields, pictures.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails loudly, in its helpers too")]

mod common;

use common::{LONGRUN, check, longrun};
use serde_json::Value;
use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// An ext4 file system of 16 MiB in a file, never mounted, with some files in it.
fn image(directory: &Path) -> PathBuf {
    let (image, files) = (directory.join("image"), directory.join("files"));
    fs::create_dir_all(files.join("sub")).unwrap();
    fs::write(files.join("sub/data"), vec![7; 100_000]).unwrap();
    File::create(&image).unwrap().set_len(16 << 20).unwrap();
    let search = format!("{}:/usr/sbin:/sbin", std::env::var("PATH").unwrap_or_default());
    let made = Command::new("mkfs.ext4").env("PATH", search).arg("-qF").arg("-d").arg(&files).arg(&image).status();
    assert!(made.unwrap().success(), "mkfs.ext4 failed");
    image
}

#[test]
fn help_and_version_are_no_errors_and_a_wrong_use_is() {
    for arguments in [vec!["--help"], vec!["-h"], vec!["--version"], vec!["optimize", "--help"]] {
        assert!(!check(&longrun(&arguments), 0, "").is_empty());
    }
    check(&longrun::<&str>([]), 2, "Usage: longrun");
    check(&longrun(["defragment", "/"]), 2, "unrecognized subcommand");
    check(&longrun(["analyze"]), 2, "required");
    check(&longrun(["optimize", "/", "--budget", "many"]), 2, "is not a unit");
    check(&longrun(["optimize", "/", "--deadline", "soon"]), 2, "is not a duration");
}

#[test]
fn a_recipe_for_an_image_file_is_refused_because_it_would_fill_the_volume_of_the_file() {
    let place = tempfile::tempdir().unwrap();
    let image = image(place.path());
    check(&longrun(["fragment".as_ref(), "--volume".as_ref(), image.as_os_str()]), 2, "is not a directory");
}

#[test]
fn the_fleet_is_a_program_of_its_own_and_the_package_is_named_where_it_is_missing() {
    let place = tempfile::tempdir().unwrap();
    let alone = place.path().join("longrun");
    // By programs of their own: what another thread has open for writing while a process begins cannot be executed.
    let shell = |script: &str| {
        let mut command = Command::new("sh");
        command.args(["-c", script, "sh", LONGRUN]).current_dir(place.path());
        assert!(command.status().unwrap().success(), "{script}");
    };
    shell("cp \"$1\" longrun");
    let run =
        |path: &Path| Command::new(&alone).args(["fleet", "status", "--json"]).env("PATH", path).output().unwrap();
    check(&run(Path::new("/nonexistent")), 1, "longrun-fleet is not installed; install the package");
    shell("printf '#!/bin/sh\\necho \"$@\"\\n' > longrun-fleet && chmod 755 longrun-fleet");
    assert_eq!(check(&run(Path::new("/nonexistent")), 0, ""), "status --json\n");
}

#[test]
fn what_is_no_volume_is_named() {
    for command in ["analyze", "map", "optimize", "reclaim"] {
        check(&longrun([command, "/nonexistent"]), 2, "/nonexistent: there is no such file or directory");
        check(&longrun([command, "/dev/null"]), 2, "/dev/null: neither a file, a directory nor a block device");
    }
}

#[test]
fn an_image_is_analyzed_with_all_fields_of_the_contract() {
    let directory = tempfile::tempdir().unwrap();
    let image = image(directory.path());
    let out = check(&longrun(["analyze".as_ref(), image.as_os_str(), "--json".as_ref()]), 0, "");
    let json: Value = serde_json::from_str(&out).unwrap();
    assert_eq!(json["target"], image.to_str().unwrap());
    assert_eq!((&json["filesystem"], &json["method"]), (&"ext4".into(), &"scan".into()));
    assert_eq!((&json["files"], &json["directories"]), (&1.into(), &3.into()), "one file; root, lost+found and sub");
    for field in ["fragmented_files", "excess_fragments", "used_bytes"] {
        assert!(json[field].is_u64(), "{field}: {json}");
    }
    for field in ["bytes", "pieces", "largest_bytes", "floor_pieces"] {
        assert!(json["free_space"][field].is_u64(), "{field}: {json}");
    }
    assert!(json["most_fragmented"].is_array() && json["seconds"].is_f64() && json["device"].is_string());
}

#[test]
fn broken_and_foreign_images_are_refused_and_nothing_is_written() {
    let directory = tempfile::tempdir().unwrap();
    let image = image(directory.path());
    let sound = fs::read(&image).unwrap();
    let refused = |offset: usize, bytes: &[u8], expected: &str| {
        let mut broken = sound.clone();
        broken[offset..offset + bytes.len()].copy_from_slice(bytes);
        fs::write(&image, &broken).unwrap();
        for command in ["analyze", "map"] {
            check(&longrun([command.as_ref(), image.as_os_str()]), 3, expected);
        }
        assert_eq!(fs::read(&image).unwrap(), broken, "the image was written to");
    };
    refused(1024 + 4, &[0xff; 4], "damaged");
    refused(1024 + 0x63, &[0xf0], "not supported");
    refused(0, b"XFSB", "XFS is not supported");
    File::options().write(true).open(&image).unwrap().write_all_at(&sound, 0).unwrap();
    File::options().write(true).open(&image).unwrap().set_len(1 << 20).unwrap();
    check(&longrun(["analyze".as_ref(), image.as_os_str()]), 3, "damaged");
}

#[test]
fn an_unmounted_volume_that_the_kernel_must_move_is_not_optimized() {
    let directory = tempfile::tempdir().unwrap();
    let image = image(directory.path());
    File::options().write(true).open(&image).unwrap().write_all_at(b"XFSB", 0).unwrap();
    let sound = fs::read(&image).unwrap();
    check(&longrun(["optimize".as_ref(), image.as_os_str()]), 3, "not mounted");
    assert_eq!(fs::read(&image).unwrap(), sound);
}

#[test]
fn pictures_are_written_and_a_bad_place_for_them_is_named() {
    let directory = tempfile::tempdir().unwrap();
    let image = image(directory.path());
    let (svg, png) = (directory.path().join("map.svg"), directory.path().join("map.png"));
    let map = |more: &[&Path]| {
        let arguments = [Path::new("map"), &image].into_iter().chain(more.iter().copied());
        longrun(arguments.map(Path::as_os_str))
    };
    check(&map(&["--svg".as_ref(), &svg, "--png".as_ref(), &png]), 0, "");
    assert!(fs::read_to_string(&svg).unwrap().ends_with("</svg>\n"));
    assert!(fs::read(&png).unwrap().starts_with(b"\x89PNG"));
    check(&map(&["--svg".as_ref(), "/nonexistent/map.svg".as_ref()]), 1, "/nonexistent/map.svg: writing the picture");
    let text = check(&map(&[]), 0, "");
    assert!(text.contains("One cell is") && !text.contains('\x1b'), "no colours where there is no terminal: {text}");
    assert!(check(&map(&["--at".as_ref(), "1".as_ref()]), 0, "").contains("block 1: metadata: "));
    check(&map(&["--at".as_ref(), "99999999".as_ref()]), 2, "is beyond the end of the volume");
}

#[test]
fn a_reader_that_goes_away_is_no_error() {
    let mut child = Command::new(LONGRUN)
        .args(["completions", "zsh"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    drop(child.stdout.take());
    check(&child.wait_with_output().unwrap(), 0, "");
}

#[test]
fn completions_exist_for_every_shell() {
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let script = check(&longrun(["completions", shell]), 0, "");
        assert!(script.contains("longrun") && script.contains("deadline"), "{shell}: {script}");
    }
}
