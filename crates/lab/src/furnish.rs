//! The content of volumes besides plain files that an optimizer could break: files that share blocks, snapshots,
//! capabilities, set-user-ID programs, holes, preallocated space.

use crate::{FileSystemKind, LoopVolume, tool};
use anyhow::Result;
use rustix::fs::{FallocateFlags, fallocate};
use std::fs::{self, File};
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

/// One in so many files goes, since a recipe may have filled the volume.
const GOES: usize = 16;
/// Files that get a copy which shares their blocks.
const COPIES: usize = 12;
/// Parts of 64 KiB that are rewritten between two snapshots, each in another file.
const CHANGES: usize = 24;
const PART: usize = 64 << 10;

/// Deletes some files of `directory` of a mounted volume, puts such things in their place, and takes two snapshots
/// where there are any.
///
/// # Errors
/// When the volume has no space for them all the same.
pub fn furnish(volume: &LoopVolume, directory: &Path, seed: u64) -> Result<()> {
    make_room(directory, seed)?;
    let odd = directory.join("odd");
    fs::create_dir(&odd)?;
    let capable = odd.join("capable");
    fs::copy("/bin/true", &capable)?;
    tool::run("setcap", ["cap_net_raw+ep".as_ref(), capable.as_path()])?;
    let other_user = odd.join("set-user-id");
    fs::copy("/bin/true", &other_user)?;
    std::os::unix::fs::chown(&other_user, Some(1234), Some(1234))?;
    fs::set_permissions(&other_user, fs::Permissions::from_mode(0o4755))?;
    let sparse = File::create_new(odd.join("sparse"))?;
    for part in 0..6_u64 {
        sparse.write_all_at(&vec![part as u8 + 1; PART], part * 5 * PART as u64)?;
        sparse.sync_data()?;
    }
    let prepared = File::create_new(odd.join("prepared"))?;
    fallocate(&prepared, FallocateFlags::empty(), 0, 256 << 10)?;
    prepared.write_all_at(&[7; PART], 100_000)?;

    if volume.kind() != FileSystemKind::Ext4 {
        let shared = directory.join("shared");
        fs::create_dir(&shared)?;
        for (number, path) in largest(directory, COPIES)?.iter().enumerate() {
            let copy = shared.join(number.to_string());
            tool::run(
                "cp",
                ["--reflink=always".as_ref(), "--preserve=all".as_ref(), path.as_os_str(), copy.as_os_str()],
            )?;
            if number % 3 == 0 {
                // Shared but for a part in the middle.
                let file = File::options().write(true).open(&copy)?;
                file.write_all_at(&[9; PART], file.metadata()?.size() / 2)?;
            }
        }
    }
    if volume.kind() == FileSystemKind::Btrfs {
        snapshots(volume, 2, seed)?;
    }
    rustix::fs::syncfs(&sparse)?;
    Ok(())
}

/// Deletes some of the files below a directory.
fn make_room(directory: &Path, seed: u64) -> Result<()> {
    let mut files = Vec::new();
    collect(directory, fs::metadata(directory)?.dev(), &mut files)?;
    fastrand::Rng::with_seed(seed).shuffle(&mut files);
    files.iter().step_by(GOES).try_for_each(|(_, path)| fs::remove_file(path))?;
    // Freed by now, on every file system.
    rustix::fs::syncfs(File::open(directory)?)?;
    Ok(())
}

/// Takes `count` snapshots of a btrfs volume, the last of them writable, and changes some files after each.
///
/// # Errors
/// When the tool fails or the space does not suffice.
pub fn snapshots(volume: &LoopVolume, count: u64, seed: u64) -> Result<()> {
    let (mount, mut rng) = (volume.mount_point(), fastrand::Rng::with_seed(seed));
    for number in 1..=count {
        let place = mount.join(format!("snapshot-{number}"));
        let read_only = (number < count).then_some(Path::new("-r"));
        let arguments = ["subvolume", "snapshot"].map(Path::new).into_iter().chain(read_only);
        tool::run("btrfs", arguments.chain([mount.as_path(), place.as_path()]))?;
        let mut files = Vec::new();
        collect(&mount, fs::metadata(&mount)?.dev(), &mut files)?;
        rng.shuffle(&mut files);
        for (bytes, path) in files.iter().filter(|(bytes, _)| *bytes > PART as u64).take(CHANGES) {
            let file = File::options().write(true).open(path)?;
            file.write_all_at(&[number as u8; PART], rng.u64(..bytes - PART as u64))?;
            file.sync_data()?;
        }
    }
    Ok(())
}

/// The largest regular files below a directory, of those that can be shared as a whole.
fn largest(directory: &Path, count: usize) -> Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    collect(directory, fs::metadata(directory)?.dev(), &mut files)?;
    files.sort();
    Ok(files.into_iter().rev().map(|(_, path)| path).take(count).collect())
}

fn collect(directory: &Path, device: u64, files: &mut Vec<(u64, PathBuf)>) -> Result<()> {
    let mut entries = fs::read_dir(directory)?.collect::<std::io::Result<Vec<_>>>()?;
    entries.sort_by_key(fs::DirEntry::file_name);
    for entry in entries {
        let meta = entry.metadata()?;
        if meta.dev() == device && meta.is_dir() {
            collect(&entry.path(), device, files)?;
        } else if meta.dev() == device && meta.is_file() {
            files.push((meta.len(), entry.path()));
        }
    }
    Ok(())
}
