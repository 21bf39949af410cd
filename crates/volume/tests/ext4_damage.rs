//! Damaged ext4 volumes: every one gets an answer, quickly, and never a wrong one where checksums can tell.
// Helpers of tests fail loudly, as tests do.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use longrun_engine::{NoProgress, VolumeError};
use longrun_layout::VolumeLayout;
use longrun_volume::ext4::scan::{Access, AreaKind, Ext4Reader, Ext4Scan, FreeSpace, ScanOptions, Source};
use proptest::prelude::*;
use std::fs;
use std::io;
use std::path::Path;
use std::process::Command;
use std::sync::LazyLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// A tree with a file of many extents, a directory of several blocks, and a long link.
fn make_image(arguments: &[&str]) -> Vec<u8> {
    let directory = tempfile::tempdir().unwrap();
    let tree = directory.path().join("tree");
    fs::create_dir_all(tree.join("a/b")).unwrap();
    for index in 0..60 {
        let name = format!("a name that is long enough to fill the blocks of a directory {index}");
        fs::write(tree.join("a").join(name), index.to_string()).unwrap();
    }
    let sparse = fs::File::create(tree.join("sparse")).unwrap();
    for index in 0..12 {
        std::os::unix::fs::FileExt::write_all_at(&sparse, b"x", index * 20_000).unwrap();
    }
    std::os::unix::fs::symlink("x".repeat(100), tree.join("a/b/link")).unwrap();
    let image = directory.path().join("image");
    let mut command = Command::new("mkfs.ext4");
    command.args(["-q", "-F", "-N", "256", "-d"]).arg(&tree).args(arguments).arg(&image).arg("2M");
    let output = command.output().expect("mkfs.ext4 (package e2fsprogs) is needed");
    assert!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
    fs::read(&image).unwrap()
}

static CHECKED: LazyLock<Vec<u8>> = LazyLock::new(|| make_image(&["-b", "1024", "-O", "^has_journal,metadata_csum"]));

static UNCHECKED: LazyLock<[Vec<u8>; 4]> = LazyLock::new(|| {
    [
        make_image(&["-b", "1024", "-O", "^has_journal,^metadata_csum"]),
        make_image(&["-b", "1024", "-O", "^has_journal,^metadata_csum,^extent,^64bit"]),
        make_image(&["-b", "4096", "-O", "^has_journal,^metadata_csum,inline_data", "-I", "256"]),
        make_image(&["-b", "1024", "-O", "^has_journal,^metadata_csum,meta_bg,^resize_inode,^flex_bg", "-g", "512"]),
    ]
});

fn scan(source: impl Source + 'static, access: Access) -> Result<Ext4Scan, VolumeError> {
    let mut reader = Ext4Reader::from_source(Path::new("image"), Box::new(source), access)?;
    let scan =
        reader.scan(ScanOptions { free_space: FreeSpace::Bitmaps, directories: true, offline: false }, &NoProgress)?;
    let inodes: Vec<_> = scan.layout.files().map(|f| f.record.inode).collect();
    reader.paths_of(&scan, &inodes)?;
    Ok(scan)
}

/// Where the metadata of a sound image lies, in bytes.
fn metadata_bytes(image: &[u8]) -> Vec<usize> {
    let scan = scan(image.to_vec(), Access::Still).unwrap();
    let size = scan.layout.block_size().bytes() as usize;
    let directories = scan.layout.files().filter(|f| f.record.is_directory).flat_map(|f| f.runs().map(|r| r.extent()));
    let areas = scan.areas.all().iter().map(|a| a.extent);
    areas.chain(directories).flat_map(|e| e.start.0 as usize * size..e.end().0 as usize * size).collect()
}

/// Runs with an upper bound of time: what loops or explodes fails here.
fn promptly<T>(act: impl FnOnce() -> T) -> T {
    let start = Instant::now();
    let result = act();
    assert!(start.elapsed() < Duration::from_secs(20), "took {:?}", start.elapsed());
    result
}

fn is_clean_refusal(error: &VolumeError) -> bool {
    matches!(error, VolumeError::NotAVolume { .. } | VolumeError::Damaged { .. } | VolumeError::Unsupported { .. })
}

/// The layout without what names hint at: directories are not worth refusing a volume for.
fn essence(layout: &VolumeLayout) -> impl PartialEq + std::fmt::Debug {
    let files: Vec<_> = layout.files().map(|f| (f.id(), f.record.pin, f.runs().collect::<Vec<_>>())).collect();
    (files, layout.free().to_vec())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn any_damage_gets_an_answer(which in 0usize..4, changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..40)) {
        static PLACES: LazyLock<Vec<Vec<usize>>> = LazyLock::new(|| UNCHECKED.iter().map(|i| metadata_bytes(i)).collect());
        let mut image = UNCHECKED[which].clone();
        for (place, value) in changes {
            image[PLACES[which][place.index(PLACES[which].len())]] = value;
        }
        if let Err(error) = promptly(|| scan(image, Access::Still)) {
            prop_assert!(is_clean_refusal(&error), "{error}");
        }
    }

    #[test]
    fn with_checksums_damage_is_found_or_does_not_matter(place in any::<prop::sample::Index>(), change in 1u8..) {
        static PLACES: LazyLock<Vec<usize>> = LazyLock::new(|| metadata_bytes(&CHECKED));
        let mut image = CHECKED.clone();
        image[PLACES[place.index(PLACES.len())]] ^= change;
        match scan(image, Access::Still) {
            Ok(seen) => {
                let sound = scan(CHECKED.clone(), Access::Still).unwrap();
                prop_assert_eq!(essence(&seen.layout), essence(&sound.layout));
            }
            Err(error) => prop_assert!(is_clean_refusal(&error), "{error}"),
        }
    }

    #[test]
    fn a_truncated_image_is_refused(length in 0usize..2 << 20) {
        let mut image = UNCHECKED[0].clone();
        image.truncate(length);
        let error = scan(image, Access::Still).unwrap_err();
        prop_assert!(is_clean_refusal(&error), "{error}");
    }
}

#[test]
fn absurd_numbers_in_the_superblock_are_refused_or_harmless() {
    for image in UNCHECKED.iter() {
        for field in (1024..2048).step_by(2) {
            for value in [0u16, 1, 2, 7, 0x7FFF, 0x8000, 0xFFFF] {
                let mut image = image.clone();
                image[field..field + 2].copy_from_slice(&value.to_le_bytes());
                if let Err(error) = promptly(|| scan(image, Access::Still)) {
                    assert!(is_clean_refusal(&error), "offset {} = {value:#x}: {error}", field - 1024);
                }
            }
        }
    }
}

#[test]
fn an_extent_tree_that_leads_back_to_itself_is_damage() {
    let mut image = UNCHECKED[0].clone();
    let sound = scan(image.clone(), Access::Still).unwrap();
    let node = sound.areas.all().iter().find(|a| matches!(a.kind, AreaKind::FileMap { .. })).unwrap().extent.start.0;
    let at = node as usize * 1024;
    // One index record, of depth 1, that names this very block.
    image[at + 2..at + 8].copy_from_slice(&[1, 0, 84, 0, 1, 0]);
    image[at + 12..at + 24].copy_from_slice(&[0; 12]);
    image[at + 16..at + 20].copy_from_slice(&(node as u32).to_le_bytes());
    assert!(matches!(scan(image, Access::Still), Err(VolumeError::Damaged { .. })));
}

#[test]
fn an_unclean_volume_is_not_read_before_its_journal_was_replayed() {
    let mut image = UNCHECKED[0].clone();
    image[1024 + 96] |= 4;
    let error = scan(image.clone(), Access::Still).unwrap_err().to_string();
    assert!(error.contains("a journal that was not replayed"), "{error}");
    assert!(scan(image, Access::Live).is_ok(), "mounted, the mark is always there");
}

/// Shows one piece of an image wrongly the first time that it is read.
struct Torn {
    image: Vec<u8>,
    at: u64,
    times_left: AtomicU64,
}

impl Source for Torn {
    fn read_exact_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<()> {
        self.image.read_exact_at(buffer, offset)?;
        let inside = self.at.checked_sub(offset).and_then(|at| buffer.get_mut(at as usize));
        if let Some(byte) = inside
            && self.times_left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(1)).is_ok()
        {
            *byte ^= 0x55;
        }
        Ok(())
    }

    fn length(&self) -> u64 {
        self.image.len() as u64
    }
}

#[test]
fn what_is_seen_half_written_on_a_mounted_volume_is_read_again() {
    let sound = scan(CHECKED.clone(), Access::Still).unwrap();
    let mut places: Vec<u64> = metadata_bytes(&CHECKED).into_iter().step_by(1000).map(|at| at as u64).collect();
    // The root inode, and the head of a node of an extent tree.
    let table = sound.areas.all().iter().find(|a| a.kind == AreaKind::InodeTable).unwrap().extent.start.0;
    let node = sound.areas.all().iter().find(|a| matches!(a.kind, AreaKind::FileMap { .. })).unwrap().extent.start.0;
    places.extend([1024 + 4, table * 1024 + 256 + 41, node * 1024 + 2]);
    for at in places {
        let torn = Torn { image: CHECKED.clone(), at, times_left: AtomicU64::new(2) };
        let seen = scan(torn, Access::Live).unwrap_or_else(|e| panic!("byte {at}: {e}"));
        assert_eq!(seen.layout, sound.layout, "byte {at}");
        assert_eq!(seen.unreadable_directory_blocks, 0);
    }
}
