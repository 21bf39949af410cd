//! Whether a volume can be mounted without a change to it that nobody asked for, by its superblock.
//!
//! Owns the refusals. Reads a few kilobytes, and never trusts a number in them. The log of XFS is looked at in [`super::log`].

use super::error::Objection;
use crate::bytes::{le16, le32, le64};
use longrun_image::Access;
use longrun_sys::FileSystem;

/// Where the superblock lies in the volume, and how much of it is looked at.
pub(super) fn superblock(filesystem: FileSystem) -> (u64, usize) {
    match filesystem {
        FileSystem::Ext4 => (1024, 1024),
        FileSystem::Xfs => (0, 512),
        FileSystem::Btrfs => (0x10000, 4096),
    }
}

/// What speaks against mounting the volume with this superblock.
pub(super) fn check(filesystem: FileSystem, raw: &[u8], access: Access) -> Result<(), Objection> {
    match filesystem {
        FileSystem::Ext4 => ext4(raw),
        FileSystem::Xfs => xfs(raw, access),
        FileSystem::Btrfs => btrfs(raw),
    }
}

fn ext4(raw: &[u8]) -> Result<(), Objection> {
    const MAGIC: u16 = 0xef53;
    const UNMOUNTED: u16 = 1;
    const HAS_ERRORS: u16 = 2;
    const HAS_ORPHANS: u16 = 4;
    const COMPAT_JOURNAL: u32 = 0x4;
    const INCOMPAT_RECOVER: u32 = 0x4;
    const INCOMPAT_JOURNAL_DEVICE: u32 = 0x8;
    const RO_COMPAT_ORPHANS: u32 = 0x10000;
    if le16(raw, 56) != MAGIC {
        return Err(Objection::Missing);
    }
    let is_dynamic = le32(raw, 76) > 0;
    let features = |at| if is_dynamic { le32(raw, at) } else { 0 };
    let (compat, incompat, ro_compat) = (features(92), features(96), features(100));
    let state = le16(raw, 58);
    if incompat & INCOMPAT_JOURNAL_DEVICE != 0 {
        return Err(Objection::Unsupported("that is the external journal of another volume"));
    }
    if state & HAS_ERRORS != 0 {
        return Err(Objection::Damaged("its own system found errors"));
    }
    if incompat & INCOMPAT_RECOVER != 0 {
        return Err(Objection::Unclean("its journal has to be replayed"));
    }
    if state & UNMOUNTED == 0 {
        return Err(Objection::Unclean("its superblock says that it is mounted"));
    }
    if state & HAS_ORPHANS != 0 || le32(raw, 232) != 0 || ro_compat & RO_COMPAT_ORPHANS != 0 {
        return Err(Objection::Unclean("files that were deleted while they were open have to be removed"));
    }
    // The superblock names the device by a number, and who can write to the image could name any of this machine.
    let journal = (le32(raw, 224), le32(raw, 228));
    if journal.1 != 0 || (compat & COMPAT_JOURNAL != 0 && journal.0 == 0) {
        return Err(Objection::Unsupported("with its journal on another device"));
    }
    let options = raw.get(512..576).unwrap_or_default();
    if options.windows(7).any(|part| part.eq_ignore_ascii_case(b"journal")) {
        return Err(Objection::Unsupported("with a mount option for its journal in the superblock"));
    }
    Ok(())
}

fn xfs(raw: &[u8], access: Access) -> Result<(), Objection> {
    let be16 = |at: usize| raw.get(at..).and_then(|r| r.first_chunk()).map_or(0, |b| u16::from_be_bytes(*b));
    let be64 = |at: usize| raw.get(at..).and_then(|r| r.first_chunk()).map_or(0, |b| u64::from_be_bytes(*b));
    if !raw.starts_with(b"XFSB") {
        return Err(Objection::Missing);
    }
    if raw.get(126) != Some(&0) {
        return Err(Objection::Unclean("mkfs.xfs or xfs_growfs did not finish"));
    }
    if be64(48) == 0 {
        return Err(Objection::Unsupported("with its log on another device"));
    }
    if be64(16) != 0 {
        return Err(Objection::Unsupported("with a realtime device"));
    }
    // Mounted without them, what was counted is thrown away; and the engine refuses a mount with them.
    if access == Access::Write && be16(176) != 0 {
        return Err(Objection::Unsupported("with quotas"));
    }
    Ok(())
}

fn btrfs(raw: &[u8]) -> Result<(), Objection> {
    /// A copy of the metadata alone, and a change of the UUID that did not finish.
    const UNFINISHED: u64 = 0b1111 << 33;
    if raw.get(64..72) != Some(b"_BHRfS_M") {
        return Err(Objection::Missing);
    }
    if le64(raw, 96) != 0 {
        return Err(Objection::Unclean("its log has to be replayed"));
    }
    if le64(raw, 136) != 1 {
        return Err(Objection::Unsupported("of several devices"));
    }
    if le64(raw, 56) & UNFINISHED != 0 {
        return Err(Objection::Unsupported("that is a dump of metadata, or whose UUID is being changed"));
    }
    Ok(())
}

/// The UUID by which the kernel knows a btrfs.
pub(super) fn btrfs_uuid(raw: &[u8]) -> Option<[u8; 16]> {
    raw.get(32..).and_then(|rest| rest.first_chunk()).copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn judged(filesystem: FileSystem, change: impl Fn(&mut [u8])) -> Result<(), Objection> {
        let mut raw = vec![0; superblock(filesystem).1];
        match filesystem {
            FileSystem::Ext4 => {
                raw[56..60].copy_from_slice(&[0x53, 0xef, 1, 0]);
                raw[76] = 1;
                raw[92] = 4;
                raw[224] = 8;
            }
            FileSystem::Xfs => {
                raw[..4].copy_from_slice(b"XFSB");
                raw[55] = 1;
            }
            FileSystem::Btrfs => {
                raw[64..72].copy_from_slice(b"_BHRfS_M");
                raw[136] = 1;
            }
        }
        change(&mut raw);
        check(filesystem, &raw, Access::Write)
    }

    #[test]
    fn what_was_not_unmounted_or_reaches_beyond_the_image_is_refused() {
        use FileSystem::{Btrfs, Ext4, Xfs};
        for filesystem in [Ext4, Xfs, Btrfs] {
            assert_eq!(judged(filesystem, |_| {}), Ok(()), "{filesystem}");
            assert_eq!(judged(filesystem, |raw| raw.fill(0)), Err(Objection::Missing), "{filesystem}");
            assert!(judged(filesystem, |raw| raw.fill(0xff)).is_err(), "{filesystem}");
            assert_eq!(check(filesystem, &[], Access::Read), Err(Objection::Missing), "{filesystem}");
        }
        type Change = fn(&mut [u8]);
        let unclean: [(FileSystem, Change); 7] = [
            (Ext4, |raw| raw[96] |= 0x4),
            (Ext4, |raw| raw[58] = 0),
            (Ext4, |raw| raw[58] = 5),
            (Ext4, |raw| raw[232] = 12),
            (Ext4, |raw| raw[102] = 1),
            (Btrfs, |raw| raw[96] = 1),
            (Xfs, |raw| raw[126] = 1),
        ];
        for (number, (filesystem, change)) in unclean.into_iter().enumerate() {
            let found = judged(filesystem, change);
            assert!(matches!(found, Err(Objection::Unclean(_))), "{number}: {found:?}");
        }
        let unsupported: [(FileSystem, Change); 9] = [
            (Ext4, |raw| raw[96] |= 0x8),
            (Ext4, |raw| raw[228] = 1),
            (Ext4, |raw| raw[224] = 0),
            (Ext4, |raw| raw[512..532].copy_from_slice(b"journal_path=/dev/sd")),
            (Xfs, |raw| raw[55] = 0),
            (Xfs, |raw| raw[23] = 1),
            (Xfs, |raw| raw[177] = 1),
            (Btrfs, |raw| raw[136] = 2),
            (Btrfs, |raw| raw[60] = 8),
        ];
        for (number, (filesystem, change)) in unsupported.into_iter().enumerate() {
            let found = judged(filesystem, change);
            assert!(matches!(found, Err(Objection::Unsupported(_))), "{number}: {found:?}");
        }
        assert!(matches!(judged(Ext4, |raw| raw[58] = 3), Err(Objection::Damaged(_))));
    }
}
