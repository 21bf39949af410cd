//! Story: a program on XFS has its file mapped while parts of the file get other blocks. It never sees a page of zeros, and
//! what lies beside the parts stays as it is.

#![allow(clippy::unwrap_used, reason = "helpers of tests may fail loudly")]

use longrun_lab::{LoopVolume, VolumeSpec};
use longrun_layout::Bytes;
use longrun_sys::{
    ByteRange, Mapping, Shared, SharedMapping, drop_cache, has_large_folios, map_file, share_if_same, temporary_file,
};
use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

const PAGE: u64 = 4096;
/// The file does not end with a page.
const SIZE: u64 = 6 * (1 << 20) + 100;

fn pages(start: u64, end: u64) -> ByteRange {
    ByteRange { start: Bytes(start * PAGE), length: Bytes((end - start) * PAGE) }
}

/// A volume that reads ahead as far as Linux does by itself: then folios grow to 128 KiB while a file is read.
fn volume() -> LoopVolume {
    let volume = LoopVolume::create(&VolumeSpec::xfs(512)).unwrap();
    let device = volume.device();
    let name = device.file_name().unwrap().to_str().unwrap();
    fs::write(format!("/sys/block/{name}/queue/read_ahead_kb"), "128").unwrap();
    volume
}

/// A file of bytes none of which is zero, and they.
fn file(path: &Path) -> (File, Vec<u8>) {
    let mut rng = fastrand::Rng::with_seed(7);
    let content: Vec<u8> = (0..SIZE).map(|_| rng.u8(1..)).collect();
    fs::write(path, &content).unwrap();
    let file = File::options().read(true).write(true).open(path).unwrap();
    file.sync_all().unwrap();
    (file, content)
}

/// Reads the file into large folios and maps it, so that they stay.
fn mapped(file: &File, content: &[u8]) -> SharedMapping {
    drop_cache(file, ByteRange::ALL).unwrap();
    let mut read = vec![0; content.len()];
    file.read_exact_at(&mut read, 0).unwrap();
    assert!(read == content);
    let mapping = SharedMapping::new(file, content.len()).unwrap();
    mapping.read(0, &mut read).unwrap();
    assert!(read == content);
    mapping
}

/// A file without a name that holds the same as `range`.
fn copy(root: &File, content: &[u8], range: ByteRange) -> File {
    let copy = File::from(temporary_file(root).unwrap());
    let start = range.start.0 as usize;
    copy.write_all_at(&content[start..start + range.length.0 as usize], 0).unwrap();
    copy.sync_all().unwrap();
    copy
}

/// Where each page lies, and whether it was never written.
fn places(file: &File) -> Vec<Option<(u64, bool)>> {
    let mut places = vec![None; SIZE.div_ceil(PAGE) as usize];
    for extent in map_file(file, ByteRange::ALL, Mapping::Synced).unwrap() {
        for page in 0..extent.length.0 / PAGE {
            let at = (extent.logical.0 / PAGE + page) as usize;
            places[at] = Some((extent.physical.0 + page * PAGE, extent.flags.is_unwritten()));
        }
    }
    places
}

#[test]
fn loop_a_part_of_a_mapped_folio_gets_other_blocks_and_nothing_beside_it_changes() {
    let volume = volume();
    let root = File::open(volume.mount_point()).unwrap();
    let (file, mut content) = file(&volume.mount_point().join("file"));
    // Beside the parts lie holes, and blocks that were allocated and never written.
    for (hole, unwritten) in [(pages(296, 298), pages(290, 292)), (pages(338, 339), pages(333, 335))] {
        longrun_sys::punch(&file, hole).unwrap();
        longrun_sys::punch(&file, unwritten).unwrap();
        longrun_sys::allocate(&file, unwritten).unwrap();
        for zeros in [hole, unwritten] {
            content[zeros.start.0 as usize..(zeros.start.0 + zeros.length.0) as usize].fill(0);
        }
    }
    file.sync_all().unwrap();
    // A folio of several pages begins with an even page: it has what is before an odd one, and what is behind an even one.
    let to_the_end = ByteRange { start: Bytes(1401 * PAGE), length: Bytes(SIZE - 1401 * PAGE) };
    for part in [pages(301, 331), to_the_end] {
        let mapping = mapped(&file, &content);
        let first = ByteRange { length: Bytes(PAGE), ..part };
        assert!(has_large_folios(&file, first).unwrap(), "no folio is divided: this proves nothing");
        let (before, copy) = (places(&file), copy(&root, &content, part));
        assert_eq!(share_if_same(&root, &copy, Bytes(0), &file, part).unwrap(), Shared::Same(part.length));
        let (after, copied) = (places(&file), places(&copy));
        let (start, length) = ((part.start.0 / PAGE) as usize, part.length.0.div_ceil(PAGE) as usize);
        assert_eq!(after[start..start + length], copied[..length]);
        assert_ne!(after[start], before[start]);
        assert_eq!(after[..start], before[..start]);
        assert_eq!(after[start + length..], before[start + length..]);
        let mut seen = vec![0; content.len()];
        mapping.read(0, &mut seen).unwrap();
        assert!(seen == content);
    }
    drop((root, file));
    volume.check().unwrap();
}

#[test]
fn loop_who_looks_at_a_mapped_file_all_the_time_never_sees_zeros_that_are_not_in_it() {
    let volume = volume();
    let root = File::open(volume.mount_point()).unwrap();
    let (file, content) = file(&volume.mount_point().join("file"));
    let (stop, zeros, looks) = (AtomicBool::new(false), AtomicUsize::new(0), AtomicUsize::new(0));
    for round in 0..20 {
        let mapping = mapped(&file, &content);
        stop.store(false, Ordering::Relaxed);
        std::thread::scope(|scope| {
            let (stop, zeros, looks) = (&stop, &zeros, &looks);
            scope.spawn(move || {
                let mut seen = [1];
                while !stop.load(Ordering::Relaxed) {
                    for page in 0..SIZE.div_ceil(PAGE) {
                        mapping.read((page * PAGE) as usize, &mut seen).unwrap();
                        zeros.fetch_add(usize::from(seen == [0]), Ordering::Relaxed);
                    }
                    looks.fetch_add(1, Ordering::Relaxed);
                }
            });
            for part in (0..10).map(|number| pages(number * 150 + 1 + round, number * 150 + 100 + round)) {
                let copy = copy(&root, &content, part);
                assert_eq!(share_if_same(&root, &copy, Bytes(0), &file, part).unwrap(), Shared::Same(part.length));
                let now = looks.load(Ordering::Relaxed);
                while looks.load(Ordering::Relaxed) < now + 2 {
                    std::thread::yield_now();
                }
            }
            stop.store(true, Ordering::Relaxed);
        });
    }
    assert_eq!(zeros.load(Ordering::Relaxed), 0, "pages that showed zeros");
    drop((root, file));
    volume.check().unwrap();
}
