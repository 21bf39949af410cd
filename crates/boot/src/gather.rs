//! Which files should lie side by side on the disk, so that reading them ahead is one sweep without a seek, and whether that pays. Pure.

use crate::model::{List, Part, file_of};
use crate::plan::{Lies, Order, Plan};
use longrun_layout::{Bytes, FileId};
use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::time::Duration;

/// A file comes along when at least this part of it is read: the rest is passed over in the sweep.
const LEAST_SHARE: u64 = 4;
/// Reading must become faster by at least this, and by this part: less is not felt, and would move files again after each upgrade.
const LEAST_GAIN: Duration = Duration::from_millis(300);
const LEAST_PART: u32 = 10;

/// The files of what is read at boot that should lie side by side, and what that gains.
#[derive(Clone, Debug)]
pub struct Together {
    gathered: Vec<FileId>,
    now: Duration,
    side_by_side: Duration,
}

impl Together {
    /// Of a list, with the places of its files on the volume; a file that has none is gone. What cannot move stays where it is: counted on, it
    /// would have the others come together again and again.
    #[must_use]
    pub fn of(list: &List, places: impl Fn(FileId) -> Option<Vec<Lies>>, can_move: impl Fn(FileId) -> bool) -> Self {
        let mut files: BTreeMap<FileId, Vec<Lies>> = BTreeMap::new();
        let mut read: BTreeMap<FileId, (u32, u64)> = BTreeMap::new();
        for (file, part) in list.wanted().into_iter().filter_map(|part: Part| Some((file_of(part.place)?, part))) {
            if let Entry::Vacant(entry) = files.entry(file) {
                let Some(lies) = places(file) else { continue };
                entry.insert(lies);
            }
            let (first, bytes) = read.entry(file).or_insert((part.first, 0));
            (*first, *bytes) = ((*first).min(part.first), bytes.saturating_add(part.range.length.0));
        }
        let size = |file: &FileId| files.get(file).map_or(0, |lies| length(lies));
        let mut gathered: Vec<(u32, FileId)> = read
            .into_iter()
            .filter(|(file, (_, bytes))| bytes.saturating_mul(LEAST_SHARE) >= size(file) && size(file) > 0)
            .filter(|(file, _)| can_move(*file))
            .map(|(file, (first, _))| (first, file))
            .collect();
        gathered.sort_unstable();
        let gathered: Vec<FileId> = gathered.into_iter().map(|(_, file)| file).collect();
        let now = Plan::compile(list, Order::Disk, |file| files.get(&file).cloned()).expected;
        let places = one_after_the_other(&gathered, &files);
        let place = |file: FileId| places.get(&file).or_else(|| files.get(&file)).cloned();
        let side_by_side = Plan::compile(list, Order::Disk, place).expected;
        Self { gathered, now, side_by_side }
    }

    /// The files that should lie side by side, in the order in which they are needed.
    #[must_use]
    pub fn files(&self) -> &[FileId] {
        &self.gathered
    }

    /// How long reading everything ahead takes on a slow disk that rotates, as it lies.
    #[must_use]
    pub fn now(&self) -> Duration {
        self.now
    }

    /// The same when the files lie side by side.
    #[must_use]
    pub fn side_by_side(&self) -> Duration {
        self.side_by_side
    }

    /// Whether it pays that the files are moved for it.
    #[must_use]
    pub fn pays(&self) -> bool {
        let gain = self.now.saturating_sub(self.side_by_side);
        gain >= LEAST_GAIN && gain >= self.now / LEAST_PART
    }
}

/// Where these files lie when each follows the one before, from the beginning of the device.
fn one_after_the_other(gathered: &[FileId], files: &BTreeMap<FileId, Vec<Lies>>) -> BTreeMap<FileId, Vec<Lies>> {
    let mut at = 0u64;
    let mut next = |piece: &Lies| {
        let begin = at;
        at = at.saturating_add(piece.range.length.0);
        Lies { at: Bytes(begin), ..*piece }
    };
    let known = gathered.iter().filter_map(|file| Some((*file, files.get(file)?)));
    known.map(|(file, lies)| (file, lies.iter().map(&mut next).collect())).collect()
}

fn length(lies: &[Lies]) -> u64 {
    lies.iter().map(|piece| piece.range.length.0).fold(0, u64::saturating_add)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{Place, Touch, range};
    use longrun_layout::InodeNumber;

    fn id(inode: u64) -> FileId {
        FileId { inode: InodeNumber(inode), generation: 1 }
    }

    /// So many files of 64 KiB, read in the order of falling numbers, and one of 16 MiB of which 64 KiB are read.
    fn list(count: u64) -> List {
        let touch = |inode| Touch { place: Place::File(id(inode)), range: range(0, 65536) };
        let touches: Vec<Touch> = (1..=count).rev().map(touch).chain([touch(1000)]).collect();
        List::recorded([1; 16], &touches)
    }

    /// Every file so far behind the one before.
    fn every(distance: u64) -> impl Fn(FileId) -> Option<Vec<Lies>> {
        move |file| {
            let length = if file == id(1000) { 16 << 20 } else { 65536 };
            Some(vec![Lies { range: range(0, length), at: Bytes(file.inode.0 * distance) }])
        }
    }

    fn of(list: &List, places: impl Fn(FileId) -> Option<Vec<Lies>>) -> Together {
        Together::of(list, places, |_| true)
    }

    /// Where the files are once those of `together` lie side by side.
    fn gathered(together: &Together) -> impl Fn(FileId) -> Option<Vec<Lies>> {
        let order = together.files().to_vec();
        move |file| match order.iter().position(|other| *other == file) {
            Some(nth) => Some(vec![Lies { range: range(0, 65536), at: Bytes(nth as u64 * 65536) }]),
            None => every(8 << 20)(file),
        }
    }

    #[test]
    fn what_cannot_move_does_not_make_the_others_come_together_again() {
        let movable = |file: FileId| file.inode.0.is_multiple_of(2);
        let together = Together::of(&list(200), every(8 << 20), movable);
        assert!(together.pays() && together.files().len() == 100, "{together:?}");
        let placed = gathered(&together);
        assert!(!Together::of(&list(200), &placed, movable).pays());
        assert!(of(&list(200), &placed).pays(), "a hundred seeks are left");
    }

    #[test]
    fn what_is_read_for_the_most_part_comes_together_in_the_order_of_need() {
        let together = of(&list(3), every(8 << 20));
        assert_eq!(together.files(), [id(3), id(2), id(1)], "and the large one stays");
        let gone = |file: FileId| (file != id(2)).then(|| every(1 << 20)(file)).flatten();
        assert_eq!(of(&list(3), gone).files(), [id(3), id(1)]);
    }

    #[test]
    fn it_pays_where_the_disk_seeks_often_and_not_where_they_lie_together() {
        assert!(of(&list(200), every(8 << 20)).pays());
        assert!(!of(&list(20), every(8 << 20)).pays(), "120 ms are not felt");
        assert!(!of(&list(200), every(65536)).pays());
    }

    #[test]
    fn what_has_come_together_is_as_fast_as_was_expected() {
        let together = of(&list(200), every(8 << 20));
        let placed = gathered(&together);
        let then = of(&list(200), placed);
        assert_eq!(then.now(), together.side_by_side());
        assert!(!then.pays());
        assert!(together.now() > then.now() * 3, "{:?} {:?}", together.now(), then.now());
    }
}
