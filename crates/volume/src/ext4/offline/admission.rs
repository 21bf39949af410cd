//! The conditions that a volume must meet to be changed while it is not mounted.
//!
//! Owns the refusals. Each is made before anything is written, but for the replay of our own journal.

use super::state::{STATE, VALID};
use crate::bytes::{le16, le32, le64};
use crate::ext4::scan::fault::{Read, damaged};
use crate::ext4::scan::superblock::{OFFSET_BYTES, SIZE_BYTES, Superblock, incompat, ro_compat};
use crate::ext4::scan::{Ext4Scan, OnDisk, Source};
use crate::offline::{AFTER_A_RUN, Kind};
use crate::probe::EXT4;
use longrun_engine::checker;
use longrun_image::Disk;
use longrun_layout::{Bytes, Extent, Pin};
use std::sync::Arc;

const MAGIC: u16 = 0xef53;
/// The revision with features, which is the last one. The kernel mounts later ones read-only.
const LAST_REVISION: u32 = 1;
/// Files that were deleted while they were open wait to be removed; or the kernel has noted an error.
const ORPHANS: u16 = 4;
const ERRORS: u16 = 2;

/// What the journal needs to know of it: the UUID, which no write of ours touches.
pub(in crate::ext4) static KIND: Kind =
    Kind { name: EXT4, serial, mark: |disk| raw_superblock(&OnDisk(Arc::clone(disk))).ok() };

fn serial(disk: &dyn Disk) -> Option<u64> {
    let mut raw = [0; SIZE_BYTES / 2];
    disk.read(Bytes(OFFSET_BYTES), &mut raw).ok()?;
    (le16(&raw, 56) == MAGIC).then(|| le64(&raw, 104) ^ le64(&raw, 112).rotate_left(1))
}

/// The superblock as it lies on the disk.
pub(super) fn raw_superblock(source: &dyn Source) -> Read<Vec<u8>> {
    let mut raw = vec![0; SIZE_BYTES];
    source.read_exact_at(&mut raw, OFFSET_BYTES)?;
    Ok(raw)
}

/// Why the volume must not be changed; `None` when nothing speaks against it. `is_ours`: it was marked as not checked by a run of
/// ours that was interrupted.
pub(in crate::ext4) fn refusal(source: &dyn Source, sb: &Superblock, is_ours: bool) -> Read<Option<String>> {
    let raw = raw_superblock(source)?;
    let state = le16(&raw, STATE);
    let has = |features: u32, feature: u32| features & feature != 0;
    let checked = |what: &str| format!("{what} (run {} on it)", checker(EXT4));
    let orphans = state & ORPHANS != 0 || le32(&raw, 232) != 0 || has(sb.ro_compat, ro_compat::ORPHANS);
    let reasons = [
        (le32(&raw, 76) > LAST_REVISION, "ext4 of a later revision than 1".to_owned()),
        (has(sb.incompat, incompat::RECOVER), "ext4 with a journal that was not replayed (mount it once)".to_owned()),
        (state & ERRORS != 0, checked("a file system with recorded errors")),
        (
            state & VALID == 0 && !is_ours,
            format!("ext4 that was not unmounted in order (run {} on it{AFTER_A_RUN})", checker(EXT4)),
        ),
        (orphans, "ext4 with files that were deleted while they were open (mount it once)".to_owned()),
        (has(sb.incompat, incompat::MOUNT_PROTECTION), "ext4 with multiple mount protection, unmounted".to_owned()),
        (!has(sb.incompat, incompat::EXTENTS), "ext2 or ext3 (no extents)".to_owned()),
        (sb.external_journal || le32(&raw, 228) != 0, "ext4 with an external journal".to_owned()),
        (sb.has_bigalloc(), "ext4 with bigalloc".to_owned()),
        (
            has(sb.ro_compat, ro_compat::QUOTA),
            "ext4 with quotas, unmounted (mount it, and optimize it then)".to_owned(),
        ),
        (has(sb.ro_compat, ro_compat::READ_ONLY), "a file system marked read-only".to_owned()),
        (has(sb.ro_compat, ro_compat::SHARED_BLOCKS), "ext4 with shared blocks".to_owned()),
        (has(sb.ro_compat, !ro_compat::KNOWN), format!("an ext4 feature ({:#x})", sb.ro_compat & !ro_compat::KNOWN)),
    ];
    Ok(reasons.into_iter().find_map(|(applies, reason)| applies.then_some(reason)))
}

/// Finds contradictions that an exchange of blocks would make worse: two owners of a block, and a block that has an owner and is
/// marked as free.
pub(in crate::ext4) fn check_claims(scan: &Ext4Scan) -> Read<()> {
    if scan.layout.files().any(|file| file.record.pin == Some(Pin::DamagedMap)) {
        return damaged("a file has blocks that others have, too, or that are not on the volume");
    }
    let mut claims: Vec<Extent> = scan.areas.all().iter().map(|area| area.extent).collect();
    claims.extend(scan.layout.files().flat_map(|file| file.runs().map(|run| run.extent()).collect::<Vec<_>>()));
    claims.sort_unstable_by_key(|claim| claim.start);
    for pair in claims.windows(2) {
        if let [first, second] = pair
            && first.end() > second.start
        {
            return damaged(format!("block {} has two owners", second.start));
        }
    }
    let mut free = scan.layout.free().iter().peekable();
    for claim in &claims {
        while free.next_if(|piece| piece.end() <= claim.start).is_some() {}
        if let Some(piece) = free.peek().filter(|piece| piece.start < claim.end()) {
            return damaged(format!("block {} is in use and marked as free", piece.start.max(claim.start)));
        }
    }
    Ok(())
}
