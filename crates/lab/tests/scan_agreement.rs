//! The raw scan against filefrag and e2freefrag, block by block, on every variant of ext4 that the kernel mounts.
//!
//! filefrag differs from our vocabulary in two points, both checked here: it takes two extents for one where a hole
//! between them is as long in the file as on the volume (we count fragments by adjacency alone), and it looks behind the
//! end of files (we count that apart, since nothing there moves).
// Helpers of tests fail loudly, as tests do.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

#[path = "scan/oracle.rs"]
mod oracle;
#[path = "scan/tree.rs"]
mod tree;

use longrun_engine::NoProgress;
use longrun_lab::oracle::e2freefrag;
use longrun_lab::{LoopVolume, VolumeSpec, tool};
use longrun_layout::{Extent, FileView, InodeNumber, count_fragments};
use longrun_volume::ext4::scan::{Access, AreaKind, Ext4Reader, Ext4Scan, FreeSpace, Owner, Refusal, ScanOptions};
use oracle::Seen;
use std::collections::BTreeMap;
use std::fs::{self, File};
use std::os::fd::AsFd;
use std::path::Path;
use std::thread::sleep;
use std::time::Duration;

fn scan_live(volume: &LoopVolume) -> Ext4Scan {
    let root = File::open(volume.mount_point()).unwrap();
    rustix::fs::syncfs(&root).unwrap();
    let mut reader = Ext4Reader::open(volume.device(), Access::Live).unwrap();
    let options = ScanOptions { free_space: FreeSpace::Kernel(root.as_fd()), directories: true, offline: false };
    let scan = reader.scan(options, &NoProgress).unwrap();
    check_paths(&reader, &scan, &volume.mount_point());
    scan
}

/// What was freed comes to the kernel's allocator at the very end of a commit. `syncfs` does not wait for that when another `sync` began the
/// commit, while the bitmaps on the device, which e2freefrag reads, have it already.
fn scan_settled(volume: &LoopVolume) -> Ext4Scan {
    let block_size = |scan: &Ext4Scan| u64::from(scan.layout.block_size().bytes());
    for _ in 0..50 {
        let scan = scan_live(volume);
        let on_device = e2freefrag(volume.device()).unwrap().free_blocks * block_size(&scan);
        if scan.layout.fragmentation().free_space.bytes.0 == on_device {
            return scan;
        }
        sleep(Duration::from_millis(100));
    }
    scan_live(volume)
}

fn scan_still(path: &Path) -> Ext4Scan {
    let mut reader = Ext4Reader::open(path, Access::Still).unwrap();
    reader.scan(ScanOptions { free_space: FreeSpace::Bitmaps, directories: true, offline: false }, &NoProgress).unwrap()
}

/// All blocks of a file, those behind its end included.
fn all_runs(scan: &Ext4Scan, file: &FileView<'_>) -> u64 {
    let inode = file.record.inode.0 as u32;
    let behind = scan.areas.all().iter().filter(|a| a.kind == AreaKind::BeyondEnd { inode });
    file.size().0 + behind.map(|a| a.extent.length.0).sum::<u64>()
}

fn check_files(scan: &Ext4Scan, seen: &BTreeMap<u64, Seen>) {
    let mut expected_excess = 0;
    for (inode, seen) in seen {
        let file = scan.file_by_inode(InodeNumber(*inode)).unwrap_or_else(|| panic!("{seen:?} is not in the scan"));
        assert_eq!(file.record.is_directory, seen.is_directory, "{seen:?}");
        assert_eq!(all_runs(scan, &file), seen.runs.iter().map(|r| r.2).sum::<u64>(), "{seen:?}");
        let runs: Vec<_> = file.runs().map(|r| (r.logical.0, r.physical.0, r.length.0)).collect();
        let blocks = (fs::metadata(&seen.path).unwrap().len()).div_ceil(u64::from(scan.layout.block_size().bytes()));
        let clipped: Vec<_> =
            seen.runs.iter().filter(|r| r.0 < blocks).map(|r| (r.0, r.1, r.2.min(blocks - r.0))).collect();
        assert_eq!(runs, clipped, "{}", seen.path.display());
        // The number that filefrag prints, but for its own way with holes.
        let fragments = count_fragments(seen.runs.iter().map(|r| longrun_layout::Run::new(r.0, r.1, r.2)));
        let in_step = seen
            .runs
            .windows(2)
            .filter(|w| w[1].1 > w[0].1 && w[1].1 != w[0].1 + w[0].2 && w[1].1 - w[0].1 == w[1].0 - w[0].0);
        assert_eq!(fragments.max(seen.extents.min(1)), seen.extents + in_step.count() as u64, "{seen:?}");
        expected_excess += fragments.saturating_sub(1);
    }
    let figures = scan.layout.fragmentation();
    let symlinks = scan.layout.files().filter(|f| f.record.pin == Some(longrun_layout::Pin::Symlink)).count() as u64;
    assert_eq!(figures.files + figures.directories, seen.len() as u64 + symlinks);
    assert_eq!(figures.directories, seen.values().filter(|s| s.is_directory).count() as u64);
    assert!(expected_excess > 20, "the tree is not fragmented");
    let behind = scan.layout.files().filter(|f| all_runs(scan, f) > f.size().0).count() as u64;
    assert_eq!(behind, scan.beyond_end.files);
    let excess = figures.excess_fragments + figures.directory_excess_fragments;
    assert!((excess..=excess + scan.beyond_end.fragments).contains(&expected_excess));
}

fn check_free_space(scan: &Ext4Scan, device: &Path) {
    let free = e2freefrag(device).unwrap();
    let figures = scan.layout.fragmentation().free_space;
    assert_eq!(figures.bytes.0, free.free_blocks * u64::from(scan.layout.block_size().bytes()));
    assert_eq!((figures.pieces, figures.largest_bytes.0), (free.pieces, free.largest_bytes));
}

/// Off line, dumpe2fs lists every free piece (e2freefrag does not see all of them with bigalloc).
fn check_free_extents(scan: &Ext4Scan, device: &Path) {
    let text = tool::run("dumpe2fs", [device]).unwrap();
    let ranges = text.lines().filter_map(|l| l.strip_prefix("  Free blocks: ")).flat_map(|l| l.split(", "));
    let mut free: Vec<Extent> = Vec::new();
    for range in ranges.filter(|r| !r.trim().is_empty()) {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        let [first, last]: [u64; 2] = [first, last].map(|n| n.trim().parse().unwrap());
        // A range ends with the first block of its last cluster.
        let end = (last + scan.cluster.0).min(scan.layout.total_blocks().0);
        match free.last_mut() {
            Some(before) if before.end().0 == first => before.length.0 += end - first,
            _ => free.push(Extent::new(first, end - first)),
        }
    }
    assert_eq!(scan.layout.free(), free);
    if scan.cluster.0 == 1 {
        check_free_space(scan, device);
    }
}

/// Every file's directory is the one that names it; every path leads to the file.
fn check_paths(reader: &Ext4Reader, scan: &Ext4Scan, root: &Path) {
    use std::os::unix::ffi::OsStrExt;
    use std::os::unix::fs::MetadataExt;
    assert_eq!(scan.unreadable_directory_blocks, 0);
    let inodes: Vec<InodeNumber> = scan.layout.files().map(|f| f.record.inode).collect();
    let paths = reader.paths_of(scan, &inodes).unwrap();
    assert_eq!(paths.len(), inodes.len());
    for file in scan.layout.files() {
        let path = root.join(std::ffi::OsStr::from_bytes(&paths[&file.record.inode]));
        assert_eq!(fs::symlink_metadata(&path).unwrap().ino(), file.record.inode.0, "{}", path.display());
        let directory = fs::metadata(path.parent().unwrap()).unwrap().ino();
        assert!(path == root || u64::from(file.record.directory) == directory, "{}", path.display());
    }
}

/// Every block has exactly one owner: nothing is unknown, and areas overlap neither files nor free space.
fn check_areas(scan: &Ext4Scan) {
    let claimed: u64 = scan.areas.all().iter().map(|a| a.extent.length.0).sum::<u64>()
        + scan.layout.files().map(|f| f.size().0).sum::<u64>()
        + scan.layout.free_blocks().0;
    if scan.cluster.0 == 1 {
        assert_eq!(claimed, scan.layout.total_blocks().0, "blocks without an owner, or with two");
    }
    for area in scan.areas.all() {
        assert!(matches!(scan.owner_of(area.extent.start), Some(Owner::Area(a)) if a == *area), "{area:?}");
    }
}

/// The files lie the same. The free space need not: the kernel gives up small preallocations only when it unmounts.
fn check_same_files(live: &Ext4Scan, still: &Ext4Scan) {
    assert_eq!(live.layout.file_count(), still.layout.file_count());
    for (live, still) in live.layout.files().zip(still.layout.files()) {
        assert_eq!(
            (live.id(), live.record.directory, live.record.pin),
            (still.id(), still.record.directory, still.record.pin)
        );
        assert!(live.runs().eq(still.runs()), "inode {}", live.record.inode);
    }
    assert!(live.layout.free_blocks() <= still.layout.free_blocks());
}

fn check_variant(mkfs: &[&str], mebibytes: u64) -> Ext4Scan {
    let volume = LoopVolume::create(&VolumeSpec::ext4(mebibytes).mkfs(mkfs)).unwrap();
    tree::grow(&volume.mount_point(), 42, 50 << 20);
    let live = scan_settled(&volume);
    let seen = oracle::look(&volume.mount_point());
    check_free_space(&live, volume.device());
    check_files(&live, &seen);
    volume.unmount().unwrap();
    let still = scan_still(volume.device());
    check_free_extents(&still, volume.device());
    check_areas(&still);
    check_same_files(&live, &still);
    still
}

macro_rules! variants {
    ($($name:ident: $mebibytes:literal $arguments:expr;)*) => {
        $(#[test]
        fn $name() {
            let scan = check_variant(&$arguments, $mebibytes);
            assert_eq!(scan.refusals, []);
        })*
    };
}

variants! {
    loop_default: 160 [];
    loop_1k_blocks: 160 ["-b", "1024"];
    loop_2k_blocks: 160 ["-b", "2048"];
    loop_meta_bg: 400 ["-b", "1024", "-O", "meta_bg,^resize_inode"];
    loop_meta_bg_32_bit: 600 ["-b", "1024", "-O", "meta_bg,^resize_inode,^64bit"];
    loop_no_flex_bg: 400 ["-O", "^flex_bg"];
    loop_no_flex_bg_1k: 160 ["-b", "1024", "-O", "^flex_bg"];
    loop_no_64bit: 160 ["-O", "^64bit"];
    loop_sparse_super2: 400 ["-O", "sparse_super2"];
    loop_packed_meta_blocks: 400 ["-O", "sparse_super2", "-E", "packed_meta_blocks=1"];
    loop_inline_data: 160 ["-O", "inline_data", "-I", "512"];
    loop_small_inodes: 160 ["-I", "128"];
    loop_large_inodes: 160 ["-I", "1024"];
    loop_many_inodes: 400 ["-N", "200000"];
    loop_crc16_descriptors: 400 ["-O", "^metadata_csum,uninit_bg"];
    loop_no_checksums: 160 ["-O", "^metadata_csum,^uninit_bg,^flex_bg"];
    loop_checksum_seed: 160 ["-O", "metadata_csum_seed"];
    loop_no_journal: 160 ["-O", "^has_journal"];
    loop_orphan_file: 160 ["-O", "orphan_file"];
    loop_attribute_inodes: 160 ["-O", "ea_inode"];
    loop_mount_protection: 160 ["-O", "mmp"];
    loop_large_directories: 160 ["-O", "large_dir"];
    loop_no_sparse_super: 160 ["-b", "1024", "-O", "^sparse_super,^resize_inode"];
}

#[test]
fn loop_indirect_files() {
    for block_size in ["1024", "4096"] {
        let scan = check_variant(&["-b", block_size, "-O", "^extent,^64bit"], 160);
        assert_eq!(scan.refusals, [Refusal::NoExtents]);
        assert!(
            scan.layout.files().filter(|f| f.size().0 > 0 && !f.record.is_directory).all(|f| f.record.pin.is_some())
        );
        assert!(scan.areas.all().iter().any(|a| matches!(a.kind, AreaKind::FileMap { .. })));
    }
}

#[test]
fn loop_bigalloc() {
    for arguments in [["-O", "bigalloc", "-C", "16384", "-b", "4096"], ["-O", "bigalloc", "-C", "8192", "-b", "1024"]] {
        let scan = check_variant(&arguments, 400);
        assert_eq!(scan.refusals, [Refusal::Bigalloc]);
        assert!(scan.cluster.0 > 1);
    }
}

#[test]
fn loop_what_an_older_file_system_left_in_uninitialised_tables_is_not_seen() {
    let spec = VolumeSpec::ext4(400).mkfs(&["-O", "^metadata_csum,uninit_bg"]);
    let volume = LoopVolume::create(&spec).unwrap();
    for directory in 0..40 {
        let directory = volume.mount_point().join(format!("old {directory}"));
        fs::create_dir(&directory).unwrap();
        for file in 0..100 {
            fs::write(directory.join(format!("{file}")), [3; 2000]).unwrap();
        }
    }
    volume.unmount().unwrap();
    let lazily =
        ["-q", "-F", "-O", "^metadata_csum,uninit_bg", "-E", "nodiscard,lazy_itable_init=1,lazy_journal_init=1"];
    tool::run("mkfs.ext4", lazily.map(AsRef::as_ref).into_iter().chain([volume.device().as_os_str()])).unwrap();
    tool::run(
        "mount",
        ["-o".as_ref(), "noinit_itable".as_ref(), volume.device().as_os_str(), volume.mount_point().as_os_str()],
    )
    .unwrap();
    tree::grow(&volume.mount_point(), 1, 50 << 20);
    let live = scan_settled(&volume);
    check_files(&live, &oracle::look(&volume.mount_point()));
    check_free_space(&live, volume.device());
    volume.unmount().unwrap();
    check_same_files(&live, &scan_still(volume.device()));
}

/// Features that some kernels cannot mount: mkfs itself fills the volume.
#[test]
fn loop_images_that_this_kernel_may_not_mount() {
    let volume = LoopVolume::create(&VolumeSpec::ext4(64)).unwrap();
    tree::grow(&volume.mount_point(), 7, 20 << 20);
    let image = volume.image().with_file_name("image of the tree");
    let variants: [&[&str]; 5] = [
        &["-b", "65536"],
        &["-O", "quota,project"],
        &["-O", "casefold"],
        &["-O", "encrypt,verity"],
        &["-O", "bigalloc,quota", "-C", "65536"],
    ];
    for variant in variants {
        let source = volume.mount_point();
        let arguments = ["-q", "-F", "-d"].map(AsRef::as_ref).into_iter().chain([source.as_os_str()]);
        let target = [image.as_os_str(), "256M".as_ref()];
        tool::run("mkfs.ext4", arguments.chain(variant.iter().map(AsRef::as_ref)).chain(target)).unwrap();
        let scan = scan_still(&image);
        check_free_extents(&scan, &image);
        check_areas(&scan);
        assert!(scan.layout.file_count() > 900, "{variant:?}");
        fs::remove_file(&image).unwrap();
    }
}

#[test]
fn loop_a_file_deleted_while_open_is_an_area_and_no_file() {
    let volume = LoopVolume::create(&VolumeSpec::ext4(64).mkfs(&["-b", "4096"])).unwrap();
    let path = volume.mount_point().join("open");
    fs::write(&path, vec![1; 100_000]).unwrap();
    let open = File::open(&path).unwrap();
    let files = scan_live(&volume).layout.file_count();
    fs::remove_file(&path).unwrap();
    let scan = scan_live(&volume);
    assert_eq!((scan.deleted.files, scan.deleted.blocks.0), (1, 25));
    assert_eq!(scan.layout.file_count(), files - 1);
    drop(open);
}
