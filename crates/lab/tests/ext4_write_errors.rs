//! A disk that cannot write at some of the places that files are moved to. An exchange changes the file's map first, and its
//! data is written to the new place later: when that fails, the only good copy lies in the blocks that the file has left, and
//! freeing those lost it. Every file must have its content after the run, read anew from the device.
// Helpers of tests fail loudly, as tests do.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

#[path = "mover/bench.rs"]
#[allow(dead_code, reason = "shared with other tests")]
mod bench;

use bench::{capture_run, id, move_file, open, size, write};
use longrun_engine::placed::optimize;
use longrun_engine::{Exchanged, MoveError, Placed, Rescued, Volume, VolumeError};
use longrun_engine::{Settings, Unobserved};
use longrun_lab::disk::{DiskModel, ModelledDisk};
use longrun_lab::oracle::{Dump, compare, dump, file_hash};
use longrun_lab::{LoopVolume, Medium, Running, VolumeSpec, tool};
use longrun_layout::{Blocks, Bytes, Extent, FileId, LogicalBlock};
use longrun_volume::ext4::Ext4Volume;
use std::fs::File;
use std::os::unix::fs::{FileExt, PermissionsExt};
use std::process::Command;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

/// A volume whose device can be told where writes fail. The commit interval is long, so that nothing is written but by us.
fn on_disk(mebibytes: u64) -> LoopVolume {
    let disk = ModelledDisk::start(DiskModel::by_name("ssd").unwrap(), 1, &[Bytes(mebibytes << 20)]).unwrap();
    disk.set_modelled(false).unwrap();
    let spec = VolumeSpec::ext4(mebibytes).mkfs(&["-b", "4096"]).mount("noatime,commit=600").on(Medium::SolidState);
    LoopVolume::create_on(&Arc::new(disk), 0, &spec).unwrap()
}

fn fail_writes(volume: &LoopVolume, extents: &[Extent]) {
    let ranges: Vec<_> = extents.iter().map(|e| (Bytes(e.start.0 * 4096), Bytes(e.length.0 * 4096))).collect();
    volume.disk().unwrap().fail_writes(0, &ranges).unwrap();
}

/// Everything is what it was when it is read from the device, and the checker is content.
fn is_unharmed(volume: &LoopVolume, before: &Dump) {
    volume.drop_caches().unwrap();
    compare(before, &dump(&volume.mount_point()).unwrap()).unwrap();
    fail_writes(volume, &[]);
    volume.remount().unwrap();
    volume.drop_caches().unwrap();
    compare(before, &dump(&volume.mount_point()).unwrap()).unwrap();
    volume.check().unwrap();
}

/// Moves the files one after the other until the volume refuses, then asks for the barrier; the first error. In between,
/// memory of the volume may run short: `forgetful`.
fn move_all(
    moved: &mut Ext4Volume,
    files: &[FileId],
    target: Extent,
    forgetful: Option<&LoopVolume>,
) -> Result<(), VolumeError> {
    let mut at = target.start;
    for file in files {
        for run in moved.map(*file).unwrap() {
            match moved.exchange(*file, run.logical, at, run.length) {
                Ok(done) => assert_eq!(done.blocks, run.length),
                Err(MoveError::Fatal(error)) => return Err(error),
                Err(MoveError::Skip(reason)) => panic!("{reason:?}"),
            }
            at = at + run.length;
        }
    }
    if let Some(volume) = forgetful {
        // Writes, in vain, and drops everything that is clean then.
        volume.drop_caches().unwrap();
    }
    moved.commit()
}

/// What fails: the first block of the target, one in the middle, the last one, and all.
fn bad_parts(target: Extent) -> [Extent; 4] {
    let block = |at| Extent { start: target.start + Blocks(at), length: Blocks(1) };
    [block(0), block(target.length.0 / 2), block(target.length.0 - 1), target]
}

#[test]
fn loop_a_file_whose_new_place_cannot_be_written_keeps_its_content() {
    // A file of one chunk is written when the barrier comes; of one that is longer than what may be under way, parts fail while
    // it is being moved; and programs are closed between chunks.
    let cases =
        [(300_000, 0o644, false), (300_000, 0o644, true), (20_000_000, 0o644, false), (20_000_000, 0o755, true)];
    for (bytes, mode, forgetful) in cases {
        for part in 0..4 {
            let volume = on_disk(256);
            let path = write(&volume, "file", bytes);
            std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
            volume.drop_caches().unwrap();
            let before = dump(&volume.mount_point()).unwrap();
            let mut moved = open(&volume);
            let file = id(&path);
            let blocks = size(&moved.map(file).unwrap()).0;
            let target = capture_run(&mut moved, blocks);
            fail_writes(&volume, &[bad_parts(target)[part]]);
            let error = move_all(&mut moved, &[file], target, forgetful.then_some(&volume)).unwrap_err().to_string();
            assert!(error.contains(&format!("inode {}", file.inode.0)), "the file is named: {error}");
            drop(moved);
            is_unharmed(&volume, &before);
        }
    }
}

/// Each opening of a file is told an error of writing once. Another one than ours is asked when the rest of the file is in memory and
/// must be written first: the error is of what was moved all the same.
#[test]
fn loop_an_error_that_another_request_is_told_first_is_of_the_file_that_was_moved() {
    let volume = on_disk(256);
    let path = write(&volume, "file", 4 << 20);
    volume.drop_caches().unwrap();
    let before = dump(&volume.mount_point()).unwrap();
    let mut moved = open(&volume);
    let file = id(&path);
    assert_eq!(moved.map(file).unwrap().len(), 1);
    let target = capture_run(&mut moved, 1024);
    fail_writes(&volume, &[Extent { start: target.start, length: Blocks(1) }]);
    let half = Blocks(512);
    moved.exchange(file, LogicalBlock(0), target.start, half).unwrap();
    // It is written, in vain, and the other half is read by another process.
    volume.drop_caches().unwrap();
    let mut bytes = vec![0; 2 << 20];
    File::open(&path).unwrap().read_exact_at(&mut bytes, 2 << 20).unwrap();
    let error = moved.exchange(file, LogicalBlock(512), target.start + half, half).unwrap_err();
    assert!(
        matches!(&error, MoveError::Fatal(VolumeError::Unwritten { inode, .. }) if *inode == file.inode.0),
        "{error:?}"
    );
    drop(moved);
    is_unharmed(&volume, &before);
}

#[test]
fn loop_many_small_files_on_their_way_keep_their_content_when_some_cannot_be_written() {
    for part in 0..4 {
        let volume = on_disk(256);
        let paths: Vec<_> = (0..120).map(|n| write(&volume, &format!("small{n}"), 5_000 + n * 200)).collect();
        volume.drop_caches().unwrap();
        let before = dump(&volume.mount_point()).unwrap();
        let mut moved = open(&volume);
        let files: Vec<FileId> = paths.iter().map(|path| id(path)).collect();
        let blocks: u64 = files.iter().map(|file| size(&moved.map(*file).unwrap()).0).sum();
        let target = capture_run(&mut moved, blocks);
        fail_writes(&volume, &[bad_parts(target)[part]]);
        move_all(&mut moved, &files, target, (part % 2 == 0).then_some(&volume)).unwrap_err();
        drop(moved);
        is_unharmed(&volume, &before);
    }
}

/// Space that others need goes back at once, but for what an exchange has left and not yet replaced.
#[test]
fn loop_what_is_given_back_at_once_is_not_what_a_failed_write_still_needs() {
    for by_others in [false, true] {
        let volume = on_disk(256);
        let path = write(&volume, "file", 2_000_000);
        volume.drop_caches().unwrap();
        let before = file_hash(File::open(&path).unwrap()).unwrap();
        let mut moved = open(&volume);
        let blocks = size(&moved.map(id(&path)).unwrap()).0;
        let target = capture_run(&mut moved, blocks);
        fail_writes(&volume, &[target]);
        let vacated = move_file(&mut moved, id(&path), target.start);
        let filler = volume.mount_point().join("filler");
        if by_others {
            let all = moved.unclaimed().unwrap().0 * 4096;
            let most = tool::run("fallocate", ["-l", &(all - (64 << 10)).to_string(), filler.to_str().unwrap()]);
            most.unwrap();
            let until = Instant::now() + Duration::from_secs(60);
            while !moved.owned().unwrap().is_empty() {
                assert!(Instant::now() < until, "nothing was given back");
                thread::sleep(Duration::from_millis(1));
            }
            moved.commit().unwrap_err();
        } else {
            moved.release(&vacated.into_iter().collect()).unwrap_err();
        }
        drop(moved);
        volume.drop_caches().unwrap();
        assert_eq!(file_hash(File::open(&path).unwrap()).unwrap(), before);
        volume.remount().unwrap();
        assert_eq!(file_hash(File::open(&path).unwrap()).unwrap(), before);
        volume.check().unwrap();
    }
}

/// A program that runs cannot be opened for writing, so it cannot be put back. What is said to be kept is read as the message
/// says: from the device, at the places that filefrag prints.
#[test]
fn loop_what_cannot_be_put_back_is_kept_under_a_name_and_can_be_read_from_the_device() {
    let volume = on_disk(256);
    let path = volume.mount_point().join("program");
    tool::install("/bin/sleep".as_ref(), &path).unwrap();
    File::open(&path).unwrap().sync_all().unwrap();
    let content = std::fs::read(&path).unwrap();
    // Of an earlier run, say.
    let earlier = volume.mount_point().join(format!("longrun-kept-{}-0", id(&path).inode.0));
    std::fs::write(&earlier, "of value").unwrap();
    let mut moved = open(&volume);
    let blocks = size(&moved.map(id(&path)).unwrap()).0;
    let target = capture_run(&mut moved, blocks);
    fail_writes(&volume, &[target]);
    move_file(&mut moved, id(&path), target.start);
    let running = Running::start(Command::new(&path).arg("600")).unwrap();
    let error = moved.commit().unwrap_err();
    drop((running, moved));
    let VolumeError::Unwritten { rescued, .. } = &error else { panic!("{error}") };
    let Rescued::Kept(kept) = &**rescued else { panic!("{error}") };
    let map = tool::run("filefrag", ["-v".as_ref(), kept.as_os_str()]).unwrap();
    let device = File::open(volume.device()).unwrap();
    let mut found = Vec::new();
    for line in map.lines().filter(|line| line.trim_start().starts_with(|c: char| c.is_ascii_digit())) {
        let numbers: Vec<u64> = line
            .split(|c: char| !c.is_ascii_digit())
            .filter(|word| !word.is_empty())
            .map(|word| word.parse().unwrap())
            .collect();
        let [_, _, _, first, last, ..] = numbers[..] else { panic!("{line}") };
        let mut extent = vec![0; usize::try_from((last + 1 - first) * 4096).unwrap()];
        device.read_exact_at(&mut extent, first * 4096).unwrap();
        found.extend(extent);
    }
    assert!(found.starts_with(&content), "{map}");
    assert_eq!(std::fs::read(&earlier).unwrap(), b"of value");
    fail_writes(&volume, &[]);
    volume.check().unwrap();
}

/// The volume with a device that cannot write the middle of what some exchanges aim at, once they are under way.
struct Failing<'a> {
    inner: Ext4Volume,
    volume: &'a LoopVolume,
    exchanges: u32,
    every: u32,
    bad: Vec<Extent>,
}

impl Volume for Failing<'_> {
    type Scan = longrun_layout::VolumeLayout;

    fn info(&self) -> longrun_engine::VolumeInfo {
        self.inner.info()
    }

    fn scan(&mut self, progress: &dyn longrun_engine::Progress) -> Result<longrun_layout::VolumeLayout, VolumeError> {
        self.inner.scan(progress)
    }

    fn unclaimed(&mut self) -> Result<Blocks, VolumeError> {
        self.inner.unclaimed()
    }

    fn commit(&mut self) -> Result<(), VolumeError> {
        self.inner.commit()
    }
}

impl Placed for Failing<'_> {
    fn capture(&mut self, wanted: &longrun_layout::ExtentSet) -> Result<longrun_layout::ExtentSet, VolumeError> {
        self.inner.capture(wanted)
    }

    fn release(&mut self, extents: &longrun_layout::ExtentSet) -> Result<(), VolumeError> {
        self.inner.release(extents)
    }

    fn owned(&mut self) -> Result<longrun_layout::ExtentSet, VolumeError> {
        self.inner.owned()
    }

    fn map(&mut self, file: FileId) -> Result<Vec<longrun_layout::Run>, MoveError> {
        self.inner.map(file)
    }

    fn exchange(
        &mut self,
        file: FileId,
        logical: longrun_layout::LogicalBlock,
        target: longrun_layout::PhysicalBlock,
        length: Blocks,
    ) -> Result<Exchanged, MoveError> {
        self.exchanges += 1;
        if self.exchanges.is_multiple_of(self.every) {
            self.bad.push(Extent { start: target + Blocks(length.0 / 2), length: Blocks(1) });
            fail_writes(self.volume, &self.bad);
        }
        self.inner.exchange(file, logical, target, length)
    }
}

#[test]
fn loop_a_run_on_a_disk_that_cannot_write_everywhere_ends_with_every_file_as_it_was() {
    for every in [1, 7, 60] {
        let volume = on_disk(512);
        longrun_ageing::age(&volume.mount_point(), longrun_ageing::Recipe::Server, 5, &mut |_| {
            std::ops::ControlFlow::Continue(())
        })
        .unwrap();
        volume.remount().unwrap();
        let before = dump(&volume.mount_point()).unwrap();
        let mut failing = Failing { inner: open(&volume), volume: &volume, exchanges: 0, every, bad: Vec::new() };
        let error = optimize(&mut failing, &Settings::default(), &mut Unobserved).unwrap_err();
        assert!(failing.exchanges >= every, "{error}");
        drop(failing);
        is_unharmed(&volume, &before);
    }
}
