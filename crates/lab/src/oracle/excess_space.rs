//! The content of a file beyond its end, which cannot be read normally.

use anyhow::{Context, Result};
use longrun_sys::{ByteRange, Mapping};
use std::fs::File;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// Bytes allocated behind the end of a file, its last block excepted, after write-back.
///
/// # Errors
/// When the file cannot be opened or mapped.
pub fn bytes_beyond_end(path: &Path) -> Result<u64> {
    let file = File::open(path).with_context(|| format!("cannot open {}", path.display()))?;
    let block = u64::from(longrun_sys::capacity(&file)?.block_size.bytes());
    let (mut beyond, end) = (0, file.metadata()?.size().next_multiple_of(block));
    longrun_sys::for_each_extent(&file, ByteRange::ALL, Mapping::Synced, |extent| {
        let stop = extent.logical.0 + extent.length.0;
        beyond += stop.saturating_sub(extent.logical.0.max(end));
        true
    })?;
    Ok(beyond)
}
