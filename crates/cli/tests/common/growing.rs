//! Files that fragment as they are written.

use std::fs::File;
use std::os::unix::fs::{FileExt as _, OpenOptionsExt as _};
use std::path::Path;

/// Files that grow in turn past the cache: the worst case, and the same each time.
pub fn grow_beside_each_other(mount: &Path, name: &str) -> Vec<File> {
    const CHUNK: usize = 64 << 10;
    let mut options = File::options();
    // O_DIRECT.
    options.create(true).write(true).truncate(true).custom_flags(0o40000);
    let files: Vec<File> = (0..8).map(|number| options.open(mount.join(format!("{name}-{number}"))).unwrap()).collect();
    let mut space = vec![0u8; CHUNK + 4096];
    let shift = space.as_ptr().align_offset(4096);
    for round in 0..256u64 {
        for (number, file) in (0..).zip(&files) {
            let block = &mut space[shift..shift + CHUNK];
            block.fill(u8::try_from(round % 31).unwrap() + number);
            file.write_all_at(block, round * CHUNK as u64).unwrap();
        }
    }
    files
}
