//! The engine's view of a scan: the chunks, and the units of files that can be written again.
//!
//! Owns which files must stay, and why. Pure.

use super::{BtrfsScan, Chunk, ChunkKind, Owner, Profile};
use longrun_engine::SkipReason;
use longrun_engine::relocated::{ChunkKey, DataChunk, Picture, UnitOfFiles};
use longrun_layout::{Blocks, Bytes, FileIndex, FileView, Pin};
use std::cmp::Reverse;
use std::collections::BTreeSet;

/// A chunk for data is at most this long, and at most a tenth of all devices.
const LONGEST_CHUNK: Bytes = Bytes(1 << 30);
/// More files than these are not moved together: each of them is held open meanwhile.
const MOST_SHARERS: usize = 512;

/// The picture of a scan, and what else there is in it.
pub(super) fn taken_apart(scan: BtrfsScan) -> (Picture, Remainder) {
    let block_size = scan.geometry.block_size;
    let (units, staying) = units(&scan);
    let data = scan.chunks.iter().filter(|chunk| chunk.kind == ChunkKind::Data);
    let chunks = data
        .map(|chunk| DataChunk {
            key: ChunkKey(chunk.start.0),
            extent: chunk.extent(block_size),
            free: chunk.free.clone(),
        })
        .collect();
    let longest = Bytes(LONGEST_CHUNK.0.min(scan.geometry.device_bytes().0 / 10));
    let room: Vec<Bytes> = scan.geometry.devices.iter().map(|device| device.unallocated).collect();
    let unallocated = Blocks(scan.geometry.data_profile.room_in(&room).0 / u64::from(block_size.bytes()));
    let chunk_length = Blocks(longest.0 / u64::from(block_size.bytes()));
    let picture = Picture { layout: scan.layout, chunks, unallocated, chunk_length, units, staying, only_files: None };
    let remainder =
        Remainder { chunks: scan.chunks, owners: scan.owners, extents: scan.extents, subvolumes: scan.subvolumes };
    (picture, remainder)
}

/// What else there is in a scan.
#[derive(Debug)]
pub struct Remainder {
    pub(super) chunks: Vec<Chunk>,
    pub(super) owners: Vec<Owner>,
    pub(super) extents: super::DataExtents,
    pub(super) subvolumes: Vec<super::Subvolume>,
}

fn units(scan: &BtrfsScan) -> (Vec<UnitOfFiles>, Vec<(FileIndex, SkipReason)>) {
    let (mut units, mut staying) = (Vec::new(), Vec::new());
    let mut seen = vec![false; scan.owners.len()];
    for file in scan.layout.files().filter(|file| !file.record.is_directory && file.runs().len() > 0) {
        let leader = scan.sets.leader(file.index);
        if std::mem::replace(seen.get_mut(leader.0 as usize).unwrap_or(&mut false), true) {
            continue;
        }
        let mut members: Vec<FileIndex> = scan.sets.sharers_of(file.index).collect();
        if members.is_empty() {
            members.push(file.index);
        }
        if let Some(reason) = reason_to_stay(scan, &members) {
            let in_pieces = |member: &FileIndex| scan.layout.file(*member).is_some_and(|file| in_pieces(&file));
            staying.extend(members.into_iter().filter(in_pieces).map(|member| (member, reason)));
            continue;
        }
        // The file in use comes before its snapshots, the latest snapshot first: the first one gets the best place.
        members.sort_by_key(|member| {
            let owner = scan.owner(*member);
            let read_only = owner.is_some_and(|owner| owner.traits.is_in_read_only_subvolume());
            (read_only, Reverse(owner.map(|owner| owner.subvolume)), *member)
        });
        let alone = members.len() == 1;
        let parts =
            scan.owner(file.index).is_some_and(|owner| owner.traits.refers_to_parts() || owner.traits.is_shared());
        let sizes = members.iter().filter_map(|member| Some((*member, scan.owner(*member)?.size)));
        units.push(UnitOfFiles { members: sizes.collect(), divisible: alone && !parts });
    }
    (units, staying)
}

fn in_pieces(file: &FileView<'_>) -> bool {
    !file.record.is_directory && file.fragments() > 1
}

/// Why files that share blocks all stay where they are.
fn reason_to_stay(scan: &BtrfsScan, members: &[FileIndex]) -> Option<SkipReason> {
    if members.len() > MOST_SHARERS {
        return Some(SkipReason::Pinned(Pin::Shared));
    }
    members.iter().find_map(|member| {
        let traits = scan.owner(*member)?.traits;
        let pin = scan.layout.file(*member)?.record.pin;
        let reasons = [
            // A copy would be stored as it is read, and take more space.
            (traits.is_compressed(), SkipReason::Compressed),
            // What was never written has no content to compare; and an extent is given back as a whole only.
            (traits.is_preallocated() || traits.reaches_beyond_end(), SkipReason::Pinned(Pin::Preallocated)),
        ];
        let by_traits = reasons.into_iter().find_map(|(applies, reason)| applies.then_some(reason));
        pin.map(SkipReason::from).or(by_traits)
    })
}

/// Why the chunk-wise engine cannot work on a volume that can be read.
#[must_use]
pub fn unfit(scan: &BtrfsScan) -> Option<String> {
    let refused = scan.chunks.iter().find_map(|chunk| match (chunk.kind, chunk.profile) {
        (ChunkKind::Mixed, _) => {
            Some("btrfs with data and metadata in the same chunks (mkfs.btrfs --mixed)".to_owned())
        }
        // A crash amid a write leaves data and parity that do not fit: what lay there before is then lost with a device.
        (_, profile @ Profile::Parity(_)) => {
            Some(format!("btrfs with {}, which a crash can leave torn", profile.name()))
        }
        _ => None,
    });
    refused.or_else(|| half_converted(&scan.chunks))
}

/// What is rewritten goes into chunks of the profile that btrfs prefers: copies of what had one would take more space.
fn half_converted(chunks: &[Chunk]) -> Option<String> {
    let in_use = chunks.iter().filter(|chunk| chunk.kind == ChunkKind::Data && chunk.used.0 > 0);
    let profiles: BTreeSet<&str> = in_use.map(|chunk| chunk.profile.name()).collect();
    (profiles.len() > 1).then(|| {
        let names: Vec<&str> = profiles.into_iter().collect();
        format!("btrfs whose data is converted only in part ({}; end it with btrfs balance)", names.join(", "))
    })
}
