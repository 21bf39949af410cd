//! NTFS volumes of arbitrary bytes: opening one may refuse it, but neither panic, nor run long, nor allocate by its word. What is
//! accepted is optimized.
//!
//! The input is a list of changes to a small valid volume: each is a 32-bit place among its boot sector, records and bitmaps, a
//! length byte and that many bytes.
#![no_main]

use libfuzzer_sys::fuzz_target;
use longrun_engine::{Settings, Unobserved};
use longrun_image::MemoryDisk;
use longrun_volume::ntfs::NtfsVolume;
use std::path::{Path, PathBuf};
use std::sync::{Arc, LazyLock};

/// What says something of a volume that `make-seeds` makes: its first clusters, with $MFT, and its middle, with $MFTMirr.
const INTERESTING: usize = 256 << 10;

/// Made by `make-seeds`; see README.md.
static VOLUME: LazyLock<Vec<u8>> = LazyLock::new(|| {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("seeds-ntfs/volume");
    std::fs::read(&path).unwrap_or_else(|e| panic!("{}: {e}; run fuzz/make-seeds first", path.display()))
});

fuzz_target!(|input: &[u8]| {
    let (mut image, mut changes) = (VOLUME.clone(), input);
    let middle = image.len() / 2;
    while let Some(([a, b, c, d, length], rest)) = changes.split_first_chunk() {
        let place = u32::from_le_bytes([*a, *b, *c, *d]) as usize;
        let at = place % INTERESTING + if place & 1 << 31 == 0 { 0 } else { middle };
        let end = (at + usize::from(*length)).min(image.len());
        let bytes = &rest[..(end - at).min(rest.len())];
        image[at..at + bytes.len()].copy_from_slice(bytes);
        changes = &rest[bytes.len()..];
    }
    let journal = std::env::temp_dir().join(format!("longrun-fuzz-{}", std::process::id()));
    if let Ok(mut volume) = NtfsVolume::open(Path::new("fuzz"), Arc::new(MemoryDisk::new(image)), &journal) {
        let _ = longrun_engine::placed::optimize(&mut volume, &Settings::default(), &mut Unobserved);
    }
    // A run that fails leaves it.
    let _ = std::fs::remove_file(&journal);
});
