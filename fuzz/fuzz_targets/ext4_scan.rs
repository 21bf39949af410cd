//! The ext4 scan on arbitrary bytes: it may refuse them, but neither panic, nor run long, nor allocate by their word.
//!
//! The input is an image cut into records of changed bytes over a small valid volume: plain mutation of megabytes would
//! seldom leave the magic number alone. The first byte chooses the volume, then each record is a 32-bit offset, a length
//! byte and that many bytes.
#![no_main]

use libfuzzer_sys::fuzz_target;
use longrun_volume::NoProgress;
use longrun_volume::ext4::scan::{Access, Ext4Reader, FreeSpace, ScanOptions};
use std::path::{Path, PathBuf};
use std::sync::LazyLock;

/// Made by `make-seeds`; see README.md.
static VOLUMES: LazyLock<Vec<Vec<u8>>> = LazyLock::new(|| {
    let directory = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("seeds");
    let mut names: Vec<PathBuf> = std::fs::read_dir(&directory)
        .unwrap_or_else(|e| panic!("{}: {e}; run fuzz/make-seeds first", directory.display()))
        .map(|entry| entry.expect("a directory entry").path())
        .collect();
    names.sort();
    names.iter().map(|name| std::fs::read(name).expect("a seed volume")).collect()
});

fuzz_target!(|input: &[u8]| {
    let Some((choice, mut records)) = input.split_first() else { return };
    let mut image = VOLUMES[usize::from(*choice) % VOLUMES.len()].clone();
    while let Some(([a, b, c, d, length], rest)) = records.split_first_chunk() {
        let at = u32::from_le_bytes([*a, *b, *c, *d]) as usize % image.len();
        let end = (at + usize::from(*length)).min(image.len());
        let bytes = &rest[..(end - at).min(rest.len())];
        image[at..at + bytes.len()].copy_from_slice(bytes);
        records = &rest[bytes.len()..];
    }
    let Ok(mut reader) = Ext4Reader::from_source(Path::new("fuzz"), Box::new(image), Access::Still) else { return };
    let options = ScanOptions { free_space: FreeSpace::Bitmaps, directories: true };
    let Ok(scan) = reader.scan(options, &NoProgress) else { return };
    let figures = scan.layout.fragmentation();
    assert!(figures.used_bytes.0 <= scan.layout.block_size().to_bytes(scan.layout.total_blocks()).0);
    let inodes: Vec<_> = scan.layout.files().take(64).map(|f| f.record.inode).collect();
    // Names may be damaged; looking them up may say so.
    let _ = reader.paths_of(&scan, &inodes);
    let _ = scan.owner_of(longrun_layout::PhysicalBlock(figures.files));
});
