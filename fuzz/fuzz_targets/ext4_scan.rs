//! The ext4 scan on arbitrary bytes: it may refuse them, but neither panic, nor run long, nor allocate by their word.
#![no_main]

mod damage;

use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: &[u8]| {
    let Some(image) = damage::damaged(input) else { return };
    let Ok((reader, scan)) = damage::scan(image) else { return };
    let figures = scan.layout.fragmentation();
    assert!(figures.used_bytes.0 <= scan.layout.block_size().to_bytes(scan.layout.total_blocks()).0);
    let inodes: Vec<_> = scan.layout.files().take(64).map(|f| f.record.inode).collect();
    // Names may be damaged; looking them up may say so.
    let _ = reader.paths_of(&scan, &inodes);
    let _ = scan.owner_of(longrun_layout::PhysicalBlock(figures.files));
});
