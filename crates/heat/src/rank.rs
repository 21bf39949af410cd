//! The hottest files and directories of a volume, and what share of its reads they take. Pure.

use crate::{Heat, HeatTable, Minute};
use longrun_layout::{Bytes, FileId, FileIndex, NO_DIRECTORY, VolumeLayout};
use std::collections::BTreeMap;

/// A file that the device is read for.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct HotFile {
    /// Where it is in the layout.
    pub index: FileIndex,
    /// Which file.
    pub id: FileId,
    /// Its place on the volume.
    pub size: Bytes,
    /// How often.
    pub heat: Heat,
}

impl HotFile {
    /// Reads for each MiB that the file takes on the volume: what a place on the fast side of the disk gains by its size.
    #[must_use]
    pub fn density(&self) -> f64 {
        density(self.heat.reads, self.size)
    }
}

/// Reads for each MiB; of what takes less than a block, as if it took 4 KiB.
#[must_use]
pub fn density(reads: f32, size: Bytes) -> f64 {
    f64::from(reads) / (size.0.max(4096) as f64 / f64::from(1 << 20))
}

/// A directory, with the files directly in it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct HotDirectory {
    /// Which, when the scan has seen it.
    pub id: Option<FileId>,
    /// How many of its files the device was read for.
    pub files: u64,
    /// What these take on the volume.
    pub size: Bytes,
    /// Their reads.
    pub reads: f64,
    /// Their bytes that were read.
    pub bytes: f64,
}

/// The files and directories of a volume by their reads.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Ranking {
    /// The hottest first.
    pub files: Vec<HotFile>,
    /// The same of directories.
    pub directories: Vec<HotDirectory>,
    /// Reads of files that are not on the volume any more.
    pub gone_reads: f64,
}

impl Ranking {
    /// Of a volume that was scanned at `now`. `numbers_by_subvolume` says that inodes are numbered anew in each subvolume (btrfs).
    #[must_use]
    pub fn of(layout: &VolumeLayout, table: &HeatTable, now: Minute, numbers_by_subvolume: bool) -> Self {
        let mut files = Vec::new();
        let mut directories: BTreeMap<(u32, u32), HotDirectory> = BTreeMap::new();
        let (mut known_reads, mut all_reads) = (0.0, 0.0);
        table.files(now).for_each(|(_, heat)| all_reads += f64::from(heat.reads));
        for file in layout.files().filter(|file| !file.record.is_directory) {
            let Some(heat) = table.of(file.id(), now).filter(|heat| heat.reads > 0.0) else { continue };
            let size = layout.block_size().to_bytes(file.size());
            known_reads += f64::from(heat.reads);
            files.push(HotFile { index: file.index, id: file.id(), size, heat });
            if file.record.directory != NO_DIRECTORY {
                let root = if numbers_by_subvolume { file.id().generation } else { 0 };
                let of = directories.entry((root, file.record.directory)).or_default();
                of.files += 1;
                of.size += size;
                of.reads += f64::from(heat.reads);
                of.bytes += f64::from(heat.bytes);
            }
        }
        for directory in layout.files().filter(|file| file.record.is_directory) {
            let id = directory.id();
            let root = if numbers_by_subvolume { id.generation } else { 0 };
            if let Some(of) = directories.get_mut(&(root, id.inode.0 as u32)) {
                of.id = Some(id);
            }
        }
        files.sort_unstable_by(|a, b| b.heat.reads.total_cmp(&a.heat.reads).then(a.id.cmp(&b.id)));
        let mut directories: Vec<HotDirectory> = directories.into_values().collect();
        directories.sort_by(|a, b| b.reads.total_cmp(&a.reads).then(a.id.cmp(&b.id)));
        Self { files, directories, gone_reads: f64::max(all_reads - known_reads, 0.0) }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests may fail loudly")]
mod tests {
    use super::*;
    use crate::{Counted, Harvested};
    use longrun_layout::{BlockSize, Blocks, InodeNumber, LayoutBuilder, Pin, Run};

    #[test]
    fn files_and_their_directories_are_ranked_and_deleted_ones_only_counted() {
        let id = |inode| FileId { inode: InodeNumber(inode), generation: 1 };
        let mut builder = LayoutBuilder::new(BlockSize::new(4096).unwrap(), Blocks(1000));
        builder.push_file(id(2), 2, true, Some(Pin::Directory), &mut vec![Run::new(0, 1, 1)]);
        builder.push_file(id(12), 2, false, None, &mut vec![Run::new(0, 10, 256)]);
        builder.push_file(id(13), 2, false, None, &mut vec![Run::new(0, 300, 1)]);
        builder.push_file(id(14), 99, false, None, &mut vec![Run::new(0, 400, 1)]);
        builder.push_file(id(15), 2, false, None, &mut vec![Run::new(0, 500, 1)]);
        let layout = builder.build().unwrap();
        let counted = |reads| Counted { reads, read_bytes: reads * 4096, ..Counted::default() };
        let files = vec![(id(12), counted(30)), (id(13), counted(9)), (id(14), counted(50)), (id(77), counted(4))];
        let mut table = HeatTable::beginning(Minute(1));
        table.add(&Harvested { reads: 100, files, ..Harvested::default() }, Minute(1), 100);
        let ranking = Ranking::of(&layout, &table, Minute(1), false);
        let files: Vec<u64> = ranking.files.iter().map(|file| file.id.inode.0).collect();
        assert_eq!((files, ranking.gone_reads), (vec![14, 12, 13], 4.0));
        assert_eq!((ranking.files[1].density(), ranking.files[2].density()), (30.0, 9.0 * 256.0));
        let directories: Vec<_> = ranking.directories.iter().map(|d| (d.id, d.files, d.reads)).collect();
        assert_eq!(directories, [(None, 1, 50.0), (Some(id(2)), 2, 39.0)]);
    }
}
