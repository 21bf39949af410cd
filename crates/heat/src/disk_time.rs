//! What a read takes on a disk with a head, by a model: the head moves to the place, waits half a turn, and reads at the speed that was
//! measured there. Pure.
//!
//! Seeks of 0.8 to 16 ms and 7200 turns a minute are assumed: disks with a gradient differ little in that. The figure is for comparing
//! two layouts of the same volume under the same reads, one after the other; nothing else is promised by it.

use crate::{HeatTable, Minute};
use longrun_layout::VolumeLayout;
use longrun_profile::{Place, Profile};

/// The volume is looked at in so many parts.
const PARTS: usize = 128;
/// Half a turn, in seconds.
const HALF_TURN: f64 = 0.5 * 60.0 / 7200.0;
const SHORTEST_SEEK: f64 = 0.0008;
const AVERAGE_SEEK: f64 = 0.0085;
const LONGEST_SEEK: f64 = 0.016;

/// The mean time of a read of a file, in seconds, when reads come as they were counted and are independent of each other. `None` when
/// none was counted, or nothing was measured.
#[must_use]
pub fn seconds_per_read(layout: &VolumeLayout, table: &HeatTable, now: Minute, profile: &Profile) -> Option<f64> {
    let total = layout.total_blocks().0.max(1);
    let (mut parts, mut reads, mut transfer) = (vec![0.0; PARTS], 0.0, 0.0);
    for file in layout.files().filter(|file| !file.record.is_directory) {
        let Some(heat) = table.of(file.id(), now).filter(|heat| heat.reads > 0.0) else { continue };
        let blocks = file.size().0.max(1) as f64;
        for run in file.runs() {
            // Reads are taken to be spread over the file.
            let share = run.length.0 as f64 / blocks;
            let at = (run.physical.0 + run.length.0 / 2) as f64 / total as f64;
            let of_run = f64::from(heat.reads) * share;
            let part = ((at * PARTS as f64) as usize).min(PARTS - 1);
            if let Some(sum) = parts.get_mut(part) {
                *sum += of_run;
            }
            reads += of_run;
            transfer += f64::from(heat.bytes) * share / speed(&profile.places, at)?;
        }
    }
    if reads <= 0.0 {
        return None;
    }
    // From each part to each other, as often as both are read.
    let mut seeks = 0.0;
    for (from, of_from) in parts.iter().enumerate().filter(|(_, sum)| **sum > 0.0) {
        for (to, of_to) in parts.iter().enumerate() {
            seeks += of_from * of_to * seek(from.abs_diff(to));
        }
    }
    Some(seeks / (reads * reads) + HALF_TURN + transfer / reads)
}

/// A seek over so many parts. Within one it is a third of its length on average.
fn seek(parts: usize) -> f64 {
    let way = if parts == 0 { 1.0 / 3.0 } else { parts as f64 } / PARTS as f64;
    if way * 3.0 <= 1.0 {
        SHORTEST_SEEK + (AVERAGE_SEEK - SHORTEST_SEEK) * (way * 3.0).sqrt()
    } else {
        AVERAGE_SEEK + (LONGEST_SEEK - AVERAGE_SEEK) * (way - 1.0 / 3.0) * 1.5
    }
}

/// What was measured nearest to a share of the way through the volume, in bytes a second.
fn speed(places: &[Place], at: f64) -> Option<f64> {
    let place = places.get(((at * places.len() as f64) as usize).min(places.len().checked_sub(1)?))?;
    Some(place.speed()).filter(|speed| *speed > 0.0)
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests may fail loudly")]
mod tests {
    use super::*;
    use crate::{Counted, Harvested};
    use longrun_layout::{BlockSize, Blocks, Bytes, FileId, InodeNumber, LayoutBuilder, Run};
    use longrun_profile::Verdict;

    fn time(places: [u64; 2]) -> Option<f64> {
        let id = |inode| FileId { inode: InodeNumber(inode), generation: 1 };
        let mut builder = LayoutBuilder::new(BlockSize::new(4096).unwrap(), Blocks(100_000));
        for (inode, at) in (12..).zip(places) {
            builder.push_file(id(inode), 2, false, None, &mut vec![Run::new(0, at, 100)]);
        }
        let counted = Counted { reads: 50, read_bytes: 50 << 14, ..Counted::default() };
        let files = vec![(id(12), counted), (id(13), counted)];
        let mut table = HeatTable::beginning(Minute(1));
        table.add(&Harvested { reads: 100, files, ..Harvested::default() }, Minute(1), 10);
        let speeds = [160e6, 120e6, 80e6];
        let places = speeds.map(|speed| Place { at: Bytes(0), speeds: vec![speed, speed] }).to_vec();
        let verdict = Verdict::of(&places);
        let measured = "2026-11-25T04:00:00Z".parse().unwrap();
        let profile = Profile { device: "d".into(), bytes: Bytes(1), measured, seconds: 1.0, places, verdict };
        seconds_per_read(&builder.build().unwrap(), &table, Minute(1), &profile)
    }

    #[test]
    fn near_each_other_and_at_the_fast_end_is_faster() {
        let (apart, slow, fast) =
            (time([10, 99_000]).unwrap(), time([99_000, 99_200]).unwrap(), time([10, 200]).unwrap());
        assert!(fast < slow && slow < apart, "{fast} {slow} {apart}");
        assert!((0.004..0.006).contains(&fast) && (0.010..0.015).contains(&apart), "{fast} {apart}");
    }
}
