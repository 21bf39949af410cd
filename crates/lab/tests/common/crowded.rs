//! ext4 volumes whose files, directories and free space are fragmented, and what is on them.

use anyhow::Result;
use longrun_lab::oracle::{Dump, dump};
use longrun_lab::{LoopVolume, VolumeSpec, tool};
use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::FileExt;
use std::path::Path;

/// Fills a volume so that files, directories and the free space are fragmented: files that grow in turn, and every second small file
/// deleted.
pub fn crowd(root: &Path, files: u64) -> Result<()> {
    let mut random = fastrand::Rng::with_seed(files);
    let bytes = |random: &mut fastrand::Rng, length: usize| (0..length).map(|_| random.u8(..)).collect::<Vec<u8>>();
    let directories: Vec<_> = (0..6).map(|number| root.join(format!("directory {number}"))).collect();
    directories.iter().try_for_each(fs::create_dir)?;
    let mut growing = (0..3).map(|n| File::create(root.join(format!("grows {n}")))).collect::<Result<Vec<_>, _>>()?;
    let sparse = File::create(root.join("sparse"))?;
    let name = |number: u64| directories[number as usize % 6].join(format!("{:0>90}", number));
    for number in 0..files {
        let length = random.usize(100..16_000);
        fs::write(name(number), bytes(&mut random, length))?;
        let length = random.usize(1000..6000);
        let at_turn = &mut growing[number as usize % 3];
        at_turn.write_all(&bytes(&mut random, length))?;
        sparse.write_all_at(&bytes(&mut random, 900), number * 9000)?;
        if number % 4 == 0 {
            at_turn.sync_all()?;
            sparse.sync_all()?;
        }
    }
    for number in (0..files).step_by(2) {
        fs::remove_file(name(number))?;
    }
    // Allocated and only written in part, also behind the end.
    let preallocated = root.join("preallocated");
    let file = File::create(&preallocated)?;
    tool::run(
        "fallocate",
        ["--keep-size", "--length", "3M"].map(AsRef::as_ref).into_iter().chain([preallocated.as_os_str()]),
    )?;
    for part in 0..20 {
        file.write_all_at(&bytes(&mut random, 3000), part * 70_000)?;
    }
    file.sync_all()?;
    std::os::unix::fs::symlink("target ".repeat(30), root.join("long link"))?;
    fs::hard_link(name(1), root.join("another name"))?;
    tool::run(
        "setfattr",
        ["-n", "user.longrun", "-v"]
            .map(AsRef::as_ref)
            .into_iter()
            .chain(["value ".repeat(100).as_ref(), preallocated.as_os_str()]),
    )?;
    fs::write(root.join("immutable"), bytes(&mut random, 20_000))?;
    tool::run("chattr", ["+i".as_ref(), root.join("immutable").as_os_str()])?;
    Ok(())
}

/// A crowded volume, unmounted, and what was on it.
pub fn crowded(mebibytes: u64, mkfs: &[&str], files: u64) -> Result<(LoopVolume, Dump)> {
    let volume = LoopVolume::create(&VolumeSpec::ext4(mebibytes).mkfs(mkfs))?;
    crowd(&volume.mount_point(), files)?;
    volume.remount()?;
    let dump = dump(&volume.mount_point())?;
    volume.unmount()?;
    Ok((volume, dump))
}

/// The content of a device, whose volume is not mounted.
pub fn content(volume: &LoopVolume) -> Vec<u8> {
    fs::read(volume.device()).unwrap()
}

/// What is on the volume, when its device has another content.
pub fn dump_with(volume: &LoopVolume, content: &[u8]) -> Result<Dump> {
    let device = OpenOptions::new().write(true).open(volume.device())?;
    device.write_all_at(content, 0)?;
    device.sync_all()?;
    drop(device);
    volume.mount()?;
    let found = dump(&volume.mount_point());
    volume.unmount()?;
    found
}
