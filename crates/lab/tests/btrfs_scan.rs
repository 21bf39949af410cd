//! The btrfs scan beside judges that we did not write: btrfs' own tools, filefrag, and the bytes on the device.
#![allow(clippy::unwrap_used, clippy::panic, reason = "helpers of tests may fail loudly")]

#[path = "btrfs_scan/judges.rs"]
mod judges;
#[path = "common/several_devices.rs"]
mod several_devices;
#[path = "btrfs_scan/tree.rs"]
mod tree;

use judges::Item;
use longrun_engine::{NoProgress, Progress, VolumeError};
use longrun_lab::oracle::filefrag;
use longrun_lab::{LoopVolume, VolumeSpec, tool};
use longrun_layout::{FileIndex, InodeNumber, Pin};
use longrun_volume::btrfs::{BtrfsScan, Chunk, FreeSpaceSource, Names, Profile, SubvolumeId, scan};
use several_devices::SeveralDevices;
use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

const SUPERBLOCK_BYTES: u64 = 64 << 10;

fn read(volume: &LoopVolume) -> Result<BtrfsScan, VolumeError> {
    let top = volume.mount_point();
    scan::scan(&File::open(&top).unwrap(), &top, &NoProgress)
}

/// All files and directories below `top`, subvolumes included, by who they are.
fn walk(top: &Path) -> BTreeMap<(SubvolumeId, InodeNumber), PathBuf> {
    let (mut found, mut open) = (BTreeMap::new(), vec![top.to_owned()]);
    while let Some(path) = open.pop() {
        let meta = fs::symlink_metadata(&path).unwrap();
        // What stands for a subvolume in a snapshot of what it lay in is number 2, empty, and not on the medium.
        if meta.ino() == 2 {
            continue;
        }
        let subvolume = SubvolumeId(longrun_sys::subvolume_of_file(File::open(&path).unwrap()).unwrap().0);
        if meta.is_dir() {
            open.extend(fs::read_dir(&path).unwrap().map(|entry| entry.unwrap().path()));
        }
        found.insert((subvolume, InodeNumber(meta.ino())), path);
    }
    found
}

fn index_of(scan: &BtrfsScan, who: (SubvolumeId, InodeNumber)) -> FileIndex {
    let at = scan.owners.iter().position(|owner| (owner.subvolume, owner.inode) == who).unwrap();
    FileIndex(at as u32)
}

fn fragments(scan: &BtrfsScan, index: FileIndex) -> u64 {
    scan.layout.file(index).unwrap().fragments()
}

/// Whether an extent of the file lies at the border of a chunk: there neighbours by address may lie apart on the device.
fn touches_border(scan: &BtrfsScan, index: FileIndex) -> bool {
    let borders: BTreeSet<_> = scan.chunks.iter().flat_map(|chunk| [chunk.start, chunk.end()]).collect();
    scan.extents.of(index).any(|e| borders.contains(&e.disk) || borders.contains(&e.disk.plus(e.disk_length)))
}

/// Reads the volume when btrfs has removed the chunks that are empty: until then its tools tell now more, now less. With it the
/// pieces of free space in each chunk, of which the tree still has those of chunks that mkfs made and took back.
fn read_settled(volume: &LoopVolume) -> (BtrfsScan, BTreeMap<u64, u64>) {
    for _ in 0..100 {
        let scan = read(volume).unwrap();
        let (mut pieces, _) = judges::free_pieces(volume.device());
        pieces.retain(|start, _| scan.chunks.iter().any(|chunk| chunk.start.0 == *start));
        let devices = scan.geometry.devices.len() as u64;
        let unallocated: u64 = scan.geometry.devices.iter().map(|device| device.unallocated.0).sum();
        // The first MiB of each is not to be had, and neither is what superblocks take.
        let kept = judges::usage(&volume.mount_point(), "Device unallocated:").checked_sub(unallocated);
        if kept.is_some_and(|kept| (devices << 20..=devices * ((1 << 20) + 2 * SUPERBLOCK_BYTES)).contains(&kept)) {
            return (scan, pieces);
        }
        std::thread::sleep(Duration::from_millis(100));
    }
    panic!("the unallocated space is not what btrfs' tool says");
}

fn check_against_judges(volume: &LoopVolume) {
    let (scan, paths) = check_all_but_places(volume);
    check_places(volume, &scan, &paths);
}

fn check_all_but_places(volume: &LoopVolume) -> (BtrfsScan, BTreeMap<(SubvolumeId, InodeNumber), PathBuf>) {
    let top = volume.mount_point();
    let (scan, pieces) = read_settled(volume);
    let paths = walk(&top);
    let found: BTreeSet<_> = scan.owners.iter().map(|owner| (owner.subvolume, owner.inode)).collect();
    assert_eq!(found, paths.keys().copied().collect(), "who is there");
    check_names(&scan, &top, &paths);
    check_extents(volume, &scan);
    check_fragments(&scan, &top, &paths);
    check_sharing(&scan, &top, &paths);
    check_space(&scan, &pieces);
    (scan, paths)
}

fn check_names(scan: &BtrfsScan, top: &Path, paths: &BTreeMap<(SubvolumeId, InodeNumber), PathBuf>) {
    let root = File::open(top).unwrap();
    let mut names = Names::new(&root, top, &scan.subvolumes);
    for ((subvolume, inode), path) in paths {
        let name = names.of(*subvolume, *inode).unwrap().unwrap().from_top();
        assert_eq!(name, Path::new("/").join(path.strip_prefix(top).unwrap()));
    }
}

/// Item by item what btrfs' own tool prints of the trees.
fn check_extents(volume: &LoopVolume, scan: &BtrfsScan) {
    for subvolume in &scan.subvolumes {
        let mut expected = judges::extents(volume.device(), subvolume.id.0);
        for (index, owner) in
            (0..).map(FileIndex).zip(&scan.owners).filter(|(_, owner)| owner.subvolume == subvolume.id)
        {
            let of_file: Vec<Item> = scan
                .extents
                .of(index)
                .map(|e| Item {
                    logical: e.logical.0,
                    disk: e.disk.0,
                    disk_length: e.disk_length.0,
                    offset: e.offset.0,
                    length: e.length.0,
                    is_compressed: e.is_compressed,
                    is_preallocated: e.is_preallocated,
                })
                .collect();
            assert_eq!(of_file, expected.remove(&owner.inode.0).unwrap_or_default(), "{owner:?}");
        }
        assert_eq!(expected, BTreeMap::new(), "files of subvolume {} that were not found", subvolume.id);
    }
}

/// Files without compression: as filefrag sees them, but at the borders of chunks. Compressed ones: by where they are stored.
fn check_fragments(scan: &BtrfsScan, top: &Path, paths: &BTreeMap<(SubvolumeId, InodeNumber), PathBuf>) {
    let mut seen = BTreeMap::new();
    let subvolumes = paths.iter().filter(|((_, inode), _)| *inode == InodeNumber(256)).map(|(_, path)| path);
    for subvolume in subvolumes {
        // filefrag stays on the device that stat tells, which is that of one subvolume.
        seen.extend(filefrag(subvolume).unwrap().worst);
    }
    let (mut compressed, mut fragmented) = (0, 0);
    for (who, path) in paths {
        let index = index_of(scan, *who);
        let owner = scan.owner(index).unwrap();
        if owner.traits.is_directory() {
            continue;
        }
        if owner.traits.is_compressed() {
            compressed += 1;
            let (mut count, mut end, mut last) = (0, None, None);
            for extent in scan.extents.of(index).filter(|extent| extent.logical < owner.size) {
                let (start, length) = extent.read();
                count += u64::from(end != Some(start) && last != Some(extent.disk));
                (end, last) = (Some(start.plus(length)), extent.is_compressed.then_some(extent.disk));
            }
            assert_eq!(fragments(scan, index), count, "{}", path.display());
            continue;
        }
        // What lies behind the end is filefrag's, but not ours.
        let expected = seen.get(path).copied();
        if owner.traits.reaches_beyond_end() || touches_border(scan, index) {
            continue;
        }
        fragmented += u64::from(expected.is_some());
        let ours = Some(fragments(scan, index)).filter(|count| *count > 1);
        assert_eq!(ours, expected, "{}", path.strip_prefix(top).unwrap().display());
    }
    assert!(compressed >= 4 && fragmented >= 10, "{compressed} compressed, {fragmented} fragmented");
}

/// What nobody else has of each file, as btrfs' own tool counts it.
fn check_sharing(scan: &BtrfsScan, top: &Path, paths: &BTreeMap<(SubvolumeId, InodeNumber), PathBuf>) {
    let exclusive = judges::exclusive(top);
    let mut holders: BTreeMap<_, BTreeSet<FileIndex>> = BTreeMap::new();
    for index in (0..scan.owners.len() as u32).map(FileIndex) {
        scan.extents.of(index).for_each(|extent| {
            holders.entry(extent.disk).or_default().insert(index);
        });
    }
    let mut units = 0;
    for (who, path) in paths {
        let index = index_of(scan, *who);
        if scan.owner(index).unwrap().traits.is_directory() {
            continue;
        }
        let shares = |extent: &longrun_volume::btrfs::DataExtent| holders[&extent.disk].len() > 1;
        let own: u64 = scan.extents.of(index).filter(|extent| !shares(extent)).map(|extent| extent.length.0).sum();
        assert_eq!(exclusive.get(path).copied(), Some(own), "{}", path.display());
        let is_shared = scan.extents.of(index).any(|extent| shares(&extent));
        assert_eq!(scan.sets.sharers_of(index).len() > 0, is_shared, "{}", path.display());
        for extent in scan.extents.of(index) {
            let leaders: BTreeSet<_> = holders[&extent.disk].iter().map(|holder| scan.sets.leader(*holder)).collect();
            assert_eq!(leaders.len(), 1, "whoever has an extent is in one unit");
        }
        units += u64::from(is_shared && scan.sets.leader(index) == index);
    }
    assert!(units > 10, "{units}");
}

/// Bytes of a chunk where superblocks lie: that they are right shows in the sum with what is used and free.
fn superblocks(chunk: &Chunk, scan: &BtrfsScan) -> u64 {
    chunk.superblocks.iter().map(|extent| scan.geometry.block_size.to_bytes(extent.length).0).sum()
}

/// Free space: the number of pieces in each chunk, their sum, and what no chunk has.
fn check_space(scan: &BtrfsScan, pieces: &BTreeMap<u64, u64>) {
    for chunk in &scan.chunks {
        // The tree calls free what superblocks take.
        let (ours, theirs) = (chunk.free.len() as u64, pieces[&chunk.start.0]);
        let superblocks = superblocks(chunk, scan) / SUPERBLOCK_BYTES;
        assert!(ours.abs_diff(theirs) <= superblocks, "{ours} pieces, {theirs} in the tree: {chunk:?}");
    }
    let size = scan.geometry.block_size;
    for chunk in &scan.chunks {
        let free = size.to_bytes(chunk.free_blocks()).0;
        assert_eq!(chunk.used.0 + free + superblocks(chunk, scan), chunk.length.0, "{chunk:?}");
    }
    let unallocated: u64 = scan.unallocated.iter().map(|extent| size.to_bytes(extent.length).0).sum();
    let data = scan.chunks.iter().filter(|chunk| chunk.kind.holds_data());
    let free: u64 = data.map(|chunk| size.to_bytes(chunk.free_blocks()).0).sum();
    assert_eq!(size.to_bytes(scan.layout.free_blocks()).0, free + unallocated);
}

/// What lies on the device where the scan says is what the files hold.
fn check_places(volume: &LoopVolume, scan: &BtrfsScan, paths: &BTreeMap<(SubvolumeId, InodeNumber), PathBuf>) {
    let device = File::open(volume.image()).unwrap();
    let mut compared = 0;
    for (who, path) in paths {
        let index = index_of(scan, *who);
        let owner = scan.owner(index).unwrap();
        let file = scan.layout.file(index).unwrap();
        let pin = owner.traits.is_immutable().then_some(Pin::Immutable);
        let pin = pin.or(owner.traits.is_directory().then_some(Pin::Directory));
        assert_eq!(file.record.pin, pin, "{}", path.display());
        if owner.traits.is_compressed() || owner.traits.is_preallocated() || owner.traits.is_directory() {
            continue;
        }
        let content = File::open(path).unwrap();
        for run in file.runs() {
            let size = u64::from(scan.geometry.block_size.bytes());
            let start = run.logical.0 * size;
            let length = (run.length.0 * size).min(owner.size.0 - start) as usize;
            let (mut theirs, mut ours) = (vec![0; length], vec![0; length]);
            content.read_exact_at(&mut theirs, start).unwrap();
            device.read_exact_at(&mut ours, run.physical.0 * size).unwrap();
            assert!(theirs == ours, "{} from {start}", path.display());
            compared += 1;
        }
    }
    assert!(compared > 500, "{compared} runs were compared");
}

#[test]
fn loop_btrfs_scan_agrees_with_btrfs_tools_and_filefrag() {
    let volume = LoopVolume::create(&VolumeSpec::btrfs(1024)).unwrap();
    tree::grow(&volume.mount_point(), 1);
    volume.remount().unwrap();
    check_against_judges(&volume);
    let (_, bitmaps) = judges::free_pieces(volume.device());
    assert!(bitmaps > 0, "no chunk has its free space in bitmaps");
    let scan = read(&volume).unwrap();
    assert_eq!(scan.geometry.free_space, FreeSpaceSource::Tree);
    assert!(scan.subvolumes.iter().any(|s| s.tree_bytes.0 > 1 << 20), "no tree was read in parts");
    assert_eq!(scan.subvolumes.iter().filter(|s| s.read_only).count(), 2);
    assert_eq!(scan.subvolumes.iter().filter(|s| s.is_snapshot).count(), 3);
    tool::run("chattr", ["-i".as_ref(), volume.mount_point().join("home/immutable").as_os_str()]).unwrap();
    volume.check().unwrap();
}

#[test]
fn loop_btrfs_scan_agrees_where_data_is_doubled_or_mixed_with_trees() {
    for (arguments, profile) in [(&["-d", "dup"][..], Profile::Dup), (&["--mixed"], Profile::Single)] {
        let volume = LoopVolume::create(&VolumeSpec::btrfs(1024).mkfs(arguments)).unwrap();
        tree::grow(&volume.mount_point(), 2);
        volume.remount().unwrap();
        check_against_judges(&volume);
        let scan = read(&volume).unwrap();
        assert!(scan.chunks.iter().any(|chunk| chunk.kind.holds_data() && chunk.profile == profile));
        assert_eq!(scan.geometry.data_profile, profile);
    }
}

#[test]
fn loop_btrfs_free_space_is_the_same_without_a_tree_of_it() {
    let volume = LoopVolume::create(&VolumeSpec::btrfs(1024)).unwrap();
    tree::grow(&volume.mount_point(), 3);
    volume.remount().unwrap();
    let with = read(&volume).unwrap();
    volume.unmount().unwrap();
    let device = volume.device().as_os_str();
    tool::run("btrfs", ["check", "--clear-space-cache", "v2"].map(AsRef::as_ref).into_iter().chain([device])).unwrap();
    let point = volume.mount_point();
    tool::run("mount", ["-o".as_ref(), "nospace_cache".as_ref(), device, point.as_os_str()]).unwrap();
    let without = read(&volume).unwrap();
    assert_eq!((with.geometry.free_space, without.geometry.free_space), (FreeSpaceSource::Tree, FreeSpaceSource::Gaps));
    let data = |scan: &BtrfsScan| {
        let chunks = scan.chunks.iter().filter(|chunk| chunk.kind.holds_data());
        chunks.flat_map(|chunk| chunk.free.clone()).collect::<Vec<_>>()
    };
    assert!(data(&with).len() > 100, "{}", data(&with).len());
    assert_eq!(data(&with), data(&without));
}

#[test]
fn loop_btrfs_scan_agrees_on_several_devices() {
    let all = [
        ("single", 3, Profile::Single),
        ("raid1", 2, Profile::Mirrored(2)),
        ("raid0", 2, Profile::Raid0),
        ("raid10", 4, Profile::Raid10),
        ("raid5", 3, Profile::Parity(1)),
    ];
    for (name, count, profile) in all {
        let volume = SeveralDevices::create(name, count, 640);
        tree::grow(&volume.first.mount_point(), 4);
        volume.first.remount().unwrap();
        let (scan, _) = check_all_but_places(&volume.first);
        assert_eq!((scan.geometry.devices.len(), scan.geometry.data_profile), (count, profile), "{name}");
        // Superblocks at 64 MiB of each device, some of them in chunks.
        assert!(scan.chunks.iter().any(|chunk| !chunk.superblocks.is_empty()), "{name}");
        let size = scan.geometry.block_size;
        let unallocated: u64 = scan.unallocated.iter().map(|extent| size.to_bytes(extent.length).0).sum();
        let ours = unallocated
            + scan.chunks.iter().filter(|c| c.kind.holds_data()).map(|c| size.to_bytes(c.free_blocks()).0).sum::<u64>();
        // What is left over on one device is no room for two copies, and the tool's estimate leaves less than a chunk out.
        let theirs = judges::usage(&volume.first.mount_point(), "Free (estimated):");
        assert!(ours.abs_diff(theirs) < 256 << 20, "{name}: {ours} B are free, {theirs} by btrfs");
    }
}

/// Asks to stop as soon as it is asked.
struct Stopped;

impl Progress for Stopped {
    fn at(&self, _done: u64, _total: u64) {}
    fn cancelled(&self) -> bool {
        true
    }
}

/// Writes, deletes, makes and deletes snapshots, and has chunks moved, until told to stop.
fn disturb(top: &Path, stop: &AtomicBool) {
    let mut random = fastrand::Rng::with_seed(4);
    let snapshot = top.join("snapshots/brief");
    let paths = [top.join("home"), snapshot.clone()].map(|path| path.to_str().unwrap().to_owned());
    for round in 0.. {
        if stop.load(Ordering::Relaxed) {
            return;
        }
        for _ in 0..30 {
            let path = top.join(format!("home/brief {}", random.u32(..60)));
            if random.bool() {
                fs::write(&path, vec![round as u8; random.usize(..200_000)]).unwrap();
            } else {
                let _ = fs::remove_file(&path);
            }
        }
        if round % 3 == 0 {
            tool::run("btrfs", ["subvolume", "snapshot", paths[0].as_str(), paths[1].as_str()]).unwrap();
            tool::run("btrfs", ["balance", "start", "-dusage=90,limit=1", top.to_str().unwrap()]).unwrap();
            tool::run("btrfs", ["subvolume", "delete", paths[1].as_str()]).unwrap();
        }
    }
}

#[test]
fn loop_a_busy_btrfs_is_never_called_damaged_and_a_scan_can_be_stopped() {
    let volume = LoopVolume::create(&VolumeSpec::btrfs(1024)).unwrap();
    let top = volume.mount_point();
    tree::grow(&top, 4);
    let stop = AtomicBool::new(false);
    std::thread::scope(|threads| {
        let disturber = threads.spawn(|| disturb(&top, &stop));
        let scans: Vec<_> = (0..40).map(|_| read(&volume)).collect();
        stop.store(true, Ordering::Relaxed);
        disturber.join().unwrap();
        for scan in scans {
            let scan = scan.unwrap();
            assert_eq!(scan.layout.file_count(), scan.owners.len());
            assert_eq!(scan.layout.contradicting().count(), 0, "what changes is not damaged");
        }
    });
    let quiet = read(&volume).unwrap();
    let is_pinned = |pin| matches!(pin, Some(Pin::DamagedMap | Pin::Changed));
    let pinned = quiet.layout.files().filter(|file| is_pinned(file.record.pin)).count();
    assert_eq!(pinned, 0, "now that nobody writes");
    let stopped = scan::scan(&File::open(&top).unwrap(), &top, &Stopped);
    assert!(matches!(stopped, Err(VolumeError::Interrupted)), "{stopped:?}");
}
