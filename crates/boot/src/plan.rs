//! From a list to the order in which it is read. Pure.
//!
//! Metadata comes first, in the order of the device: opening the files then reads nothing. Then the data: on a disk that rotates in the
//! order of the disk, elsewhere in the order in which it is needed.

use crate::model::{List, Part, Place, file_of, joined, range, sums};
use longrun_layout::{Bytes, FileId};
use longrun_sys::ByteRange;
use std::collections::BTreeMap;
use std::time::Duration;

/// The largest list that is read, whatever the memory.
pub const MOST: Bytes = Bytes(512 << 20);
/// The longest that reading a list may take.
pub const LONGEST: Duration = Duration::from_secs(10);
/// On a disk that rotates, gaps up to this between metadata, in bytes, are read with it: passing over them takes longer than reading them.
const METADATA_GAP: u64 = 128 << 10;
/// Below this it is not worth being exact.
const SHORTEST: Duration = Duration::from_millis(500);

/// In which order data is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// Of the disk: for disks that rotate.
    Disk,
    /// Of the first use.
    FirstUse,
}

/// Where a part of a file lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lies {
    /// Which part, in bytes.
    pub range: ByteRange,
    /// Where on the device, in bytes.
    pub at: Bytes,
}

/// What is read ahead, in this order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    /// The UUID of the volume.
    pub uuid: [u8; 16],
    /// How long that should take.
    pub expected: Duration,
    /// The parts.
    pub parts: Vec<Part>,
}

impl Plan {
    /// Compiles what is wanted of a list. `places` is asked for each file where it lies; a file that it does not know drops out.
    #[must_use]
    pub fn compile(list: &List, order: Order, places: impl Fn(FileId) -> Option<Vec<Lies>>) -> Self {
        let wanted = within(list.wanted(), MOST);
        let mut known: BTreeMap<FileId, Option<Vec<Lies>>> = BTreeMap::new();
        // Where each begins on the device.
        let mut placed: Vec<(u64, Part)> = Vec::new();
        let mut metadata: Vec<Part> = Vec::new();
        for part in wanted {
            let Some(file) = file_of(part.place) else {
                metadata.push(part);
                continue;
            };
            let Some(lies) = known.entry(file).or_insert_with(|| places(file)) else { continue };
            placed.extend(lies.iter().filter_map(|lies| cut(&part, lies)));
        }
        metadata.sort_by_key(|part| part.range.start);
        if order == Order::Disk {
            metadata = joined(&metadata, METADATA_GAP);
        }
        match order {
            Order::Disk => placed.sort_by_key(|(at, part)| (*at, part.place, part.range.start)),
            Order::FirstUse => placed.sort_by_key(|(_, part)| (part.first, part.place, part.range.start)),
        }
        let expected = estimate(&metadata, &placed, order);
        let parts = metadata.into_iter().chain(follow_on(placed)).collect();
        Self { uuid: list.uuid, expected, parts }
    }

    /// After this time it is given up.
    #[must_use]
    pub fn deadline(&self) -> Duration {
        self.expected.max(SHORTEST).saturating_mul(2).min(LONGEST)
    }

    /// How many bytes of files and of metadata.
    #[must_use]
    pub fn bytes(&self) -> (Bytes, Bytes) {
        sums(&self.parts)
    }

    /// The files, in the order of their inodes.
    #[must_use]
    pub fn files(&self) -> Vec<FileId> {
        let mut files: Vec<FileId> = self.parts.iter().filter_map(|part| file_of(part.place)).collect();
        files.sort_unstable();
        files.dedup();
        files
    }

    /// The same with at most so many bytes: what is needed first.
    #[must_use]
    pub fn at_most(&self, most: Bytes) -> Self {
        Self { parts: within(self.parts.clone(), most), ..*self }
    }
}

/// At most so many bytes, in the same order: metadata, then what is needed first.
fn within(parts: Vec<Part>, most: Bytes) -> Vec<Part> {
    let mut by_need: Vec<(usize, &Part)> = parts.iter().enumerate().collect();
    by_need.sort_by_key(|(nth, part)| (part.place != Place::Device, part.first, *nth));
    let mut sum = 0u64;
    let fits = |(nth, part): (usize, &Part)| {
        sum = sum.saturating_add(part.range.length.0);
        (sum <= most.0).then_some(nth)
    };
    let mut kept: Vec<usize> = by_need.into_iter().map_while(fits).collect();
    kept.sort_unstable();
    kept.into_iter().filter_map(|nth| parts.get(nth)).copied().collect()
}

/// What a part and a piece of its file have in common, and where that begins on the device.
fn cut(part: &Part, lies: &Lies) -> Option<(u64, Part)> {
    let start = part.range.start.0.max(lies.range.start.0);
    let end = part.end().min(lies.range.start.0.saturating_add(lies.range.length.0));
    (start < end).then(|| (lies.at.0.saturating_add(start - lies.range.start.0), part.within(start, end)))
}

/// Pieces of one file that follow each other in it are one again.
fn follow_on(placed: Vec<(u64, Part)>) -> Vec<Part> {
    let mut parts: Vec<Part> = Vec::new();
    for (_, part) in placed {
        match parts.last_mut() {
            Some(last) if last.place == part.place && last.end() == part.range.start.0 => {
                last.first = last.first.min(part.first);
                last.range = range(last.range.start.0, part.end());
            }
            _ => parts.push(part),
        }
    }
    parts
}

/// How long reading takes on a slow disk of its kind: a rotating one that passes over what is near, and seeks to what is far; elsewhere a
/// rented volume. On a faster one the time only ends what has gone wrong later.
fn estimate(metadata: &[Part], placed: &[(u64, Part)], order: Order) -> Duration {
    const NEAR: u64 = 1 << 20;
    const BYTES_A_MILLISECOND: u64 = 80_000;
    let stretches = metadata.iter().map(|part| (part.range.start.0, part.end()));
    let stretches = stretches.chain(placed.iter().map(|(at, part)| (*at, at.saturating_add(part.range.length.0))));
    let (mut end, mut micros) = (0u64, 0u64);
    for (from, to) in stretches {
        let way = match (order, from.abs_diff(end)) {
            (_, 0) => 0,
            (Order::Disk, distance) if distance <= NEAR => 1000 + distance * 1000 / BYTES_A_MILLISECOND,
            (Order::Disk, _) => 6000,
            (Order::FirstUse, _) => 1500,
        };
        micros = micros.saturating_add(way).saturating_add((to - from) * 1000 / BYTES_A_MILLISECOND);
        end = to;
    }
    Duration::from_micros(micros)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{Seen, Touch};
    use longrun_layout::InodeNumber;

    fn file(inode: u64) -> FileId {
        FileId { inode: InodeNumber(inode), generation: 1 }
    }

    fn touch(place: Place, start: u64, length: u64) -> Touch {
        Touch { place, range: ByteRange { start: Bytes(start), length: Bytes(length) } }
    }

    fn lies(start: u64, length: u64, at: u64) -> Lies {
        Lies { range: ByteRange { start: Bytes(start), length: Bytes(length) }, at: Bytes(at) }
    }

    /// File 1 lies in two pieces around file 2; file 3 is gone.
    fn places(asked: FileId) -> Option<Vec<Lies>> {
        match asked.inode.0 {
            1 => Some(vec![lies(0, 65536, 1 << 20), lies(65536, 65536, 3 << 20)]),
            2 => Some(vec![lies(0, 1 << 20, 2 << 20)]),
            _ => None,
        }
    }

    fn list() -> List {
        let of = |inode| Place::File(file(inode));
        List::recorded(
            [1; 16],
            &[
                touch(of(2), 0, 8192),
                touch(Place::Device, 1 << 30, 4096),
                touch(of(1), 0, 131_072),
                touch(of(3), 0, 4096),
                touch(Place::Device, 4096, 4096),
            ],
        )
    }

    fn shown(plan: &Plan) -> Vec<(u64, u64, u64)> {
        let inode = |part: &Part| file_of(part.place).map_or(0, |file| file.inode.0);
        plan.parts.iter().map(|part| (inode(part), part.range.start.0, part.range.length.0)).collect()
    }

    #[test]
    fn metadata_comes_first_and_data_follows_the_disk_or_the_first_use() {
        let metadata = [(0, 4096, 4096), (0, 1 << 30, 4096)];
        let disk = Plan::compile(&list(), Order::Disk, places);
        assert_eq!(shown(&disk), [&metadata[..], &[(1, 0, 65536), (2, 0, 8192), (1, 65536, 65536)]].concat());
        let use_ = Plan::compile(&list(), Order::FirstUse, places);
        assert_eq!(shown(&use_), [&metadata[..], &[(2, 0, 8192), (1, 0, 131_072)]].concat());
        assert!(disk.expected > Duration::from_millis(4) && disk.deadline() >= Duration::from_secs(1));
        assert_eq!(disk.files(), [file(1), file(2)]);
    }

    #[test]
    fn what_is_too_much_is_left_out_by_need_and_never_the_metadata_before_the_data() {
        let plan = Plan::compile(&list(), Order::Disk, places);
        assert_eq!(shown(&plan.at_most(Bytes(16384))), [(0, 4096, 4096), (0, 1 << 30, 4096), (2, 0, 8192)]);
        assert_eq!(shown(&plan.at_most(Bytes(4096))), [(0, 4096, 4096)]);
        assert!(plan.at_most(Bytes(0)).parts.is_empty());
        assert_eq!(plan.at_most(MOST), plan);
    }

    #[test]
    fn what_is_not_wanted_any_more_is_not_read() {
        let parts = list().parts().iter().map(|part| Part { seen: Seen(0b100), ..*part }).collect();
        let old = List::of_parts([1; 16], 5, parts).unwrap();
        assert!(Plan::compile(&old, Order::Disk, places).parts.is_empty());
    }

    #[test]
    fn it_is_given_up_in_ten_seconds_at_most() {
        let plan = Plan { uuid: [0; 16], expected: Duration::from_secs(3600), parts: Vec::new() };
        assert_eq!(plan.deadline(), LONGEST);
    }
}
