//! Small ext4 volumes, and changes to their metadata.
//!
//! The input is a list of changes to a small valid volume: plain mutation of megabytes would seldom leave the magic number
//! alone. The first byte chooses the volume, then each change is a 32-bit place among its metadata, a length byte and that
//! many bytes.

use longrun_engine::{NoProgress, VolumeError};
use longrun_volume::ext4::scan::{Access, Ext4Reader, Ext4Scan, FreeSpace, ScanOptions};
use std::path::{Path, PathBuf};
use std::sync::LazyLock;

/// A sound volume, and the blocks of it that say something.
struct Volume {
    image: Vec<u8>,
    block_bytes: usize,
    metadata_blocks: Vec<u64>,
}

impl Volume {
    fn read(path: &Path) -> Self {
        let image = std::fs::read(path).expect("a seed volume");
        let scan = scan(image.clone()).expect("a sound seed volume").1;
        let directories = scan.layout.files().filter(|f| f.record.is_directory).flat_map(|f| f.runs());
        let extents = scan.areas.all().iter().map(|a| a.extent).chain(directories.map(|r| r.extent()));
        let metadata_blocks = extents.flat_map(|e| e.start.0..e.end().0).collect();
        Self { block_bytes: scan.layout.block_size().bytes() as usize, image, metadata_blocks }
    }

    fn damaged(&self, mut changes: &[u8]) -> Vec<u8> {
        let mut image = self.image.clone();
        while let Some(([a, b, c, d, length], rest)) = changes.split_first_chunk() {
            let place = u32::from_le_bytes([*a, *b, *c, *d]) as usize;
            let block = self.metadata_blocks[place / self.block_bytes % self.metadata_blocks.len()] as usize;
            let at = block * self.block_bytes + place % self.block_bytes;
            let end = (at + usize::from(*length)).min(image.len());
            let bytes = &rest[..(end - at).min(rest.len())];
            image[at..at + bytes.len()].copy_from_slice(bytes);
            changes = &rest[bytes.len()..];
        }
        image
    }
}

/// Made by `make-seeds`; see README.md.
static VOLUMES: LazyLock<Vec<Volume>> = LazyLock::new(|| {
    let directory = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("seeds");
    let mut names: Vec<PathBuf> = std::fs::read_dir(&directory)
        .unwrap_or_else(|e| panic!("{}: {e}; run fuzz/make-seeds first", directory.display()))
        .map(|entry| entry.expect("a directory entry").path())
        .collect();
    names.sort();
    names.iter().map(|name| Volume::read(name)).collect()
});

/// Reads a volume.
pub fn scan(image: Vec<u8>) -> Result<(Ext4Reader, Ext4Scan), VolumeError> {
    let mut reader = Ext4Reader::from_source(Path::new("fuzz"), Box::new(image), Access::Still)?;
    let options = ScanOptions { free_space: FreeSpace::Bitmaps, directories: true, offline: false };
    let scan = reader.scan(options, &NoProgress)?;
    Ok((reader, scan))
}

/// The volume that the input chooses, with its changes.
pub fn damaged(input: &[u8]) -> Option<Vec<u8>> {
    let (choice, changes) = input.split_first()?;
    Some(VOLUMES[usize::from(*choice) % VOLUMES.len()].damaged(changes))
}
