//! A volume with some files, opened for moving: what the tests of the primitives share.

use longrun_engine::{NoProgress, Placed, Volume};
use longrun_lab::{LoopVolume, VolumeSpec};
use longrun_layout::{Blocks, Extent, ExtentSet, FileId, PhysicalBlock, Run};
use longrun_volume::Target;
use longrun_volume::ext4::Ext4Volume;
use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};

/// A fresh volume, with blocks of 4 KiB unless `mkfs` says otherwise.
pub fn fresh(mebibytes: u64, mkfs: &[&str]) -> LoopVolume {
    let mkfs = if mkfs.contains(&"-b") { mkfs.to_vec() } else { [mkfs, &["-b", "4096"]].concat() };
    let mkfs = &mkfs;
    LoopVolume::create(&VolumeSpec::ext4(mebibytes).mkfs(mkfs).mount("noatime,commit=600")).unwrap()
}

/// The volume, opened for moving.
pub fn open(volume: &LoopVolume) -> Ext4Volume {
    Ext4Volume::open(&Target::resolve(&volume.mount_point()).unwrap()).unwrap()
}

/// Writes a durable file with content of its own.
pub fn write(volume: &LoopVolume, name: &str, bytes: usize) -> PathBuf {
    let path = volume.mount_point().join(name);
    let mut rng = fastrand::Rng::with_seed(name.bytes().map(u64::from).sum());
    let content: Vec<u8> = (0..bytes).map(|_| rng.u8(..)).collect();
    let mut file = File::create(&path).unwrap();
    file.write_all(&content).unwrap();
    file.sync_all().unwrap();
    path
}

pub fn id(path: &Path) -> FileId {
    longrun_sys::id_of_file(File::open(path).unwrap()).unwrap()
}

pub fn free(moved: &mut Ext4Volume) -> ExtentSet {
    moved.scan(&NoProgress).unwrap().free().iter().copied().collect()
}

/// Owns `length` blocks in the middle of the largest free piece.
pub fn capture_run(moved: &mut Ext4Volume, length: u64) -> Extent {
    let largest = free(moved).largest().unwrap();
    assert!(largest.length.0 > 3 * length, "{largest:?}");
    let wanted = Extent::new(largest.start.0 + length, length);
    let got = moved.capture(&[wanted].into_iter().collect()).unwrap();
    assert_eq!(got.iter().collect::<Vec<_>>(), [wanted]);
    wanted
}

/// Moves a whole file to `target`.
pub fn move_file(moved: &mut Ext4Volume, file: FileId, target: PhysicalBlock) -> Vec<Extent> {
    let mut at = target;
    let mut vacated = Vec::new();
    for run in moved.map(file).unwrap() {
        let done = moved.exchange(file, run.logical, at, run.length).unwrap();
        assert_eq!(done.blocks, run.length);
        vacated.extend(done.vacated);
        at = at + run.length;
    }
    vacated
}

pub fn size(runs: &[Run]) -> Blocks {
    runs.iter().map(|run| run.length).sum()
}

/// The allocator setting that a capture changes for a moment.
pub fn allocator_setting(volume: &LoopVolume) -> String {
    let name = volume.device().file_name().unwrap();
    fs::read_to_string(Path::new("/sys/fs/ext4").join(name).join("mb_stream_req")).unwrap().trim().to_owned()
}
