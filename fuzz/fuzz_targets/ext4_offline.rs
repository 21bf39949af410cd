//! Unmounted ext4 volumes of arbitrary bytes: opening one may refuse it, but neither panic, nor run long, nor allocate by its word. What
//! is accepted is optimized.
#![no_main]

mod damage;

use libfuzzer_sys::fuzz_target;
use longrun_engine::{Settings, Unobserved};
use longrun_image::MemoryDisk;
use longrun_volume::ext4::OfflineExt4;
use std::path::Path;
use std::sync::Arc;

fuzz_target!(|input: &[u8]| {
    let Some(image) = damage::damaged(input) else { return };
    let journal = std::env::temp_dir().join(format!("longrun-fuzz-{}", std::process::id()));
    if let Ok(mut volume) = OfflineExt4::open(Path::new("fuzz"), Arc::new(MemoryDisk::new(image)), &journal) {
        let _ = longrun_engine::placed::optimize(&mut volume, &Settings::default(), &mut Unobserved);
    }
    // A run that fails leaves it.
    let _ = std::fs::remove_file(&journal);
});
