//! Where on a volume its hot files lie: the counts of reads, brought to the places of a map.
//!
//! Owns the form of a cell, and how much is looked at for one answer. No I/O but by the map.

use super::answers::{levels, time};
use crate::heats::Known;
use longrun_api::map::MapHeat;
use longrun_atlas::{Atlas, AtlasError, Source};
use longrun_heat::Heat;
use longrun_layout::{Blocks, FileId, PhysicalBlock, Run};
use std::collections::{BTreeMap, BTreeSet};

/// The hottest files have nearly all reads, and each can take the reading of two groups of records.
const MOST_FILES: usize = 16_384;
/// So many runs of them are read at most.
const MOST_RUNS: u64 = 1 << 20;

/// Cells of equal size, side by side.
#[derive(Clone, Copy, Debug)]
pub struct Cells {
    /// Where the first one begins.
    pub from: PhysicalBlock,
    /// The size of each; not 0.
    pub each: Blocks,
    /// How many.
    pub count: u32,
}

impl Cells {
    /// Spreads reads evenly over the blocks of a run, as far as it lies in the cells.
    fn spread(self, sums: &mut [f64], run: Run, reads_per_block: f64) {
        let end = self.from.0.saturating_add(self.each.0.saturating_mul(u64::from(self.count)));
        let (mut at, end) = (run.physical.0.max(self.from.0), run.extent().end().0.min(end));
        while at < end {
            let cell = (at - self.from.0) / self.each.0;
            let next = self.from.0.saturating_add(self.each.0.saturating_mul(cell + 1)).min(end);
            if let Some(sum) = usize::try_from(cell).ok().and_then(|cell| sums.get_mut(cell)) {
                *sum += reads_per_block * (next - at) as f64;
            }
            at = next;
        }
    }
}

/// The reads in each of `cells`, or why nothing is known of them.
///
/// # Errors
/// [`AtlasError`].
pub fn heat(atlas: &Atlas<impl Source>, known: Result<Known, String>, cells: Cells) -> Result<MapHeat, AtlasError> {
    let mut found = MapHeat { scan: levels(atlas).scan, ..MapHeat::default() };
    let Known { table, now, .. } = match known {
        Ok(known) => known,
        Err(why) => return Ok(MapHeat { no_heat: Some(why), ..found }),
    };
    let began = time(table.began().seconds());
    found.reads = table.files(now).map(|(_, heat)| f64::from(heat.reads)).sum();
    let hottest: BTreeMap<FileId, Heat> = table.hottest(MOST_FILES, now).into_iter().collect();
    let wanted: BTreeSet<FileId> = hottest.keys().copied().collect();
    let mut sums = vec![0.0; cells.count as usize];
    let mut last = None;
    atlas.visit(&wanted, MOST_RUNS, |file, runs| {
        let reads = hottest.get(&file.id).map_or(0.0, |heat| f64::from(heat.reads));
        // A file comes again while there are more runs of it.
        if last.replace(file.id) != Some(file.id) {
            found.reads_on_map += reads;
        }
        runs.iter().for_each(|run| cells.spread(&mut sums, *run, reads / file.blocks.0.max(1) as f64));
    })?;
    if found.reads_on_map > 0.0 {
        found.cells = sums.into_iter().map(byte).collect();
    } else if wanted.is_empty() {
        found.no_heat = Some(format!("since {began}, when counting began, the device was read for no file"));
    } else {
        found.no_heat = Some("the files that were read are younger than the last scan".to_owned());
    }
    found.began = Some(began);
    Ok(found)
}

/// A cell: 0 only when nothing was read there.
fn byte(reads: f64) -> u8 {
    if reads > 0.0 { (8.0 * (1.0 + 256.0 * reads).log2()).round().clamp(1.0, 255.0) as u8 } else { 0 }
}

#[cfg(test)]
mod tests {
    use super::*;
    use longrun_atlas::{Subject, encode};
    use longrun_heat::{Counted, Harvested, HeatTable, Minute};
    use longrun_layout::{BlockSize, InodeNumber, LayoutBuilder, NO_DIRECTORY};
    use std::io::Cursor;

    const NOW: Minute = Minute(100);

    fn id(inode: u64) -> FileId {
        FileId { inode: InodeNumber(inode), generation: 5 }
    }

    /// 1000 blocks; file 12 has 40 of them in two places, file 13 ten.
    fn map() -> Vec<u8> {
        let mut builder = LayoutBuilder::new(BlockSize::new(4096).unwrap(), Blocks(1000));
        builder.push_file(id(12), NO_DIRECTORY, false, None, &mut vec![Run::new(0, 95, 10), Run::new(10, 500, 30)]);
        builder.push_file(id(13), NO_DIRECTORY, false, None, &mut vec![Run::new(0, 990, 10)]);
        let (layout, areas, mut bytes) = (builder.build().unwrap(), std::iter::empty(), Cursor::new(Vec::new()));
        let subject = Subject { layout: &layout, areas: Box::new(areas), uuid: [0; 16], number: 1, at: 0 };
        encode(subject, &mut bytes).unwrap();
        bytes.into_inner()
    }

    fn answer(reads: &[(u64, u64)], cells: Cells) -> MapHeat {
        let mut table = HeatTable::beginning(NOW);
        let files = reads.iter().map(|(inode, reads)| (id(*inode), Counted { reads: *reads, ..Counted::default() }));
        table.add(&Harvested { files: files.collect(), ..Harvested::default() }, NOW, 100);
        let bytes = map();
        let known = Known { table, uuid: [0; 16], tells_direct: true, now: NOW };
        heat(&Atlas::open(&bytes[..]).unwrap(), Ok(known), cells).unwrap()
    }

    fn cells(from: u64, each: u64, count: u32) -> Cells {
        Cells { from: PhysicalBlock(from), each: Blocks(each), count }
    }

    #[test]
    fn reads_lie_where_the_blocks_of_their_files_lie() {
        // 80 reads of 40 blocks: two a block.
        let found = answer(&[(12, 80), (13, 0), (99, 7)], cells(0, 100, 10));
        // 10, 10 and 60 reads.
        assert_eq!(found.cells, [91, 91, 0, 0, 0, 111, 0, 0, 0, 0]);
        assert_eq!((found.reads, found.reads_on_map, found.no_heat), (87.0, 80.0, None));
        // Single blocks, from within an extent on, and beyond the end of the volume.
        let found = answer(&[(12, 80)], cells(528, 1, 4));
        assert_eq!(found.cells, [byte(2.0), byte(2.0), 0, 0]);
        assert_eq!(answer(&[(13, 10)], cells(980, u64::MAX, 3)).cells, [byte(10.0), 0, 0]);
        assert_eq!([byte(0.0), byte(1e-9), byte(1e30)], [0, 1, 255]);
    }

    #[test]
    fn where_nothing_is_known_the_reason_is_told() {
        let nothing = answer(&[], cells(0, 1, 4));
        assert!(nothing.no_heat.unwrap().ends_with("the device was read for no file"));
        assert!(nothing.cells.is_empty());
        assert!(answer(&[(99, 7)], cells(0, 1, 4)).no_heat.unwrap().contains("younger than the last scan"));
        let bytes = map();
        let off = heat(&Atlas::open(&bytes[..]).unwrap(), Err("off".to_owned()), cells(0, 1, 4)).unwrap();
        assert_eq!((off.no_heat.as_deref(), off.began), (Some("off"), None));
    }

    #[test]
    fn the_largest_answer_is_smaller_than_256_kibibytes() {
        let found = MapHeat {
            cells: vec![255; longrun_api::map::MOST_HEAT_CELLS as usize],
            no_heat: Some("x".repeat(1000)),
            ..answer(&[(12, u64::MAX)], cells(0, 1, 1))
        };
        assert!(serde_json::to_vec(&found).unwrap().len() < 256 << 10);
    }
}
