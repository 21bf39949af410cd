//! Whether a volume can be mounted without a change to it that nobody asked for, by its superblock.
//!
//! Owns the refusals. Reads a few kilobytes, and never trusts a number in them. The log of XFS is looked at in [`super::log`].

use super::Kind;
use super::error::Objection;
use crate::bytes::le64;
use longrun_image::Access;

/// Where the superblock lies in the volume, and how much of it is looked at.
pub(super) fn superblock(filesystem: Kind) -> (u64, usize) {
    match filesystem {
        Kind::Xfs => (0, 512),
        Kind::Btrfs => (0x10000, 4096),
    }
}

/// What speaks against mounting the volume with this superblock.
pub(super) fn check(filesystem: Kind, raw: &[u8], access: Access) -> Result<(), Objection> {
    match filesystem {
        Kind::Xfs => xfs(raw, access),
        Kind::Btrfs => btrfs(raw),
    }
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

    fn judged(filesystem: Kind, change: impl Fn(&mut [u8])) -> Result<(), Objection> {
        let mut raw = vec![0; superblock(filesystem).1];
        match filesystem {
            Kind::Xfs => {
                raw[..4].copy_from_slice(b"XFSB");
                raw[55] = 1;
            }
            Kind::Btrfs => {
                raw[64..72].copy_from_slice(b"_BHRfS_M");
                raw[136] = 1;
            }
        }
        change(&mut raw);
        check(filesystem, &raw, Access::Write)
    }

    #[test]
    fn what_was_not_unmounted_or_reaches_beyond_the_image_is_refused() {
        use Kind::{Btrfs, Xfs};
        for filesystem in [Xfs, Btrfs] {
            assert_eq!(judged(filesystem, |_| {}), Ok(()), "{filesystem:?}");
            assert_eq!(judged(filesystem, |raw| raw.fill(0)), Err(Objection::Missing), "{filesystem:?}");
            assert!(judged(filesystem, |raw| raw.fill(0xff)).is_err(), "{filesystem:?}");
            assert_eq!(check(filesystem, &[], Access::Read), Err(Objection::Missing), "{filesystem:?}");
        }
        type Change = fn(&mut [u8]);
        let unclean: [(Kind, Change); 2] = [(Btrfs, |raw| raw[96] = 1), (Xfs, |raw| raw[126] = 1)];
        for (number, (filesystem, change)) in unclean.into_iter().enumerate() {
            let found = judged(filesystem, change);
            assert!(matches!(found, Err(Objection::Unclean(_))), "{number}: {found:?}");
        }
        let unsupported: [(Kind, Change); 5] = [
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
    }
}
