//! Fragments files while they are in use, so that an optimizer has work to do.

use anyhow::Result;
use longrun_ageing::AgeError;
use longrun_layout::Bytes;
use longrun_sys::{ByteRange, Errno, FileSystem, share_if_same};
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;

/// Divides a file into about this many pieces, and leaves files alone that change too fast. The content stays.
pub(super) fn cut(path: &Path, pieces: u64) -> Result<()> {
    let file = match File::open(path) {
        // Replaced by another since the directory was read.
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        opened => opened?,
    };
    if FileSystem::of(&file)? != Some(FileSystem::Ext4) {
        return cut_by_sharing(&file, path, pieces);
    }
    match longrun_ageing::fragment_file(path, pieces) {
        Ok(_) | Err(AgeError::Unsuitable { .. } | AgeError::TooManyFragments { .. } | AgeError::Io { .. }) => Ok(()),
        Err(other) => Err(other.into()),
    }
}

/// Piece by piece a copy is made, apart from the one before, and the kernel has the file take its blocks if they hold the
/// same.
fn cut_by_sharing(file: &File, path: &Path, pieces: u64) -> Result<()> {
    const BLOCK: u64 = 4096;
    let directory = File::open(path.parent().unwrap_or(Path::new(".")))?;
    let blocks = file.metadata()?.len() / BLOCK;
    let length = (blocks / pieces).max(1) * BLOCK;
    // Something between the pieces; it is gone when they have been made.
    let between = longrun_sys::temporary_file(&directory)?;
    for (number, start) in (0..).zip((0..blocks * BLOCK).step_by(length as usize)) {
        let bytes = length.min(blocks * BLOCK - start);
        let copy = File::from(longrun_sys::temporary_file(&directory)?);
        let range = |start, length| ByteRange { start: Bytes(start), length: Bytes(length) };
        let made = longrun_sys::allocate(&copy, range(0, bytes))
            .and_then(|()| longrun_sys::allocate(&between, range(number * 2 * BLOCK, BLOCK)));
        match made {
            Err(Errno::NOSPC) => return Ok(()),
            other => other?,
        }
        let mut content = vec![0; usize::try_from(bytes)?];
        if file.read_exact_at(&mut content, start).is_err() {
            return Ok(());
        }
        copy.write_all_at(&content, 0)?;
        match share_if_same(&directory, &copy, Bytes(0), file, range(start, bytes)) {
            // Other bytes, or fewer: it is being used.
            Ok(_) | Err(Errno::INVAL | Errno::NOSPC) => {}
            Err(errno) => return Err(errno.into()),
        }
    }
    Ok(())
}
