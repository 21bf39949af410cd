//! Decides whether an XFS volume may be optimized, and takes the lock.
//!
//! Owns the refusals that only XFS has; the others, and the lock, are in [`crate::mounted::admission`]. Never writes to
//! the volume.

use crate::Target;
use crate::mounted::admission::{Candidate, Terms, is_dax, is_on_device};
use crate::mounted::io;
use crate::mounted::lock_place::VolumeLock;
use crate::mounted::others::Tool;
use longrun_engine::VolumeError;
use longrun_sys::Mount;
use longrun_sys::{XfsGeometry, xfs_geometry};
use std::fs::File;

const TERMS: Terms = Terms {
    filesystem: "xfs",
    title: "XFS",
    whole: true,
    is_unsafe,
    is_root: is_on_device,
    other_optimizer: Tool { name: "xfs_fsr", verb: None },
};

/// A volume that was admitted.
pub(super) struct Admitted {
    /// Its root directory.
    pub(super) root: File,
    pub(super) lock: VolumeLock,
    pub(super) geometry: XfsGeometry,
    pub(super) mount: Mount,
}

/// Checks everything that can be known before anything is touched, and takes the lock.
pub(super) fn admit(target: &Target) -> Result<Admitted, VolumeError> {
    let candidate = Candidate::of(target, TERMS)?;
    let root = candidate.open_root()?;
    let point = &candidate.mount.point;
    let geometry = xfs_geometry(&root).map_err(io(point, "reading the geometry"))?;
    if let Some(what) = unfit(&geometry) {
        return Err(VolumeError::Unsupported { path: target.given.clone(), what });
    }
    let lock = candidate.lock(&root)?;
    Ok(Admitted { root, lock, geometry, mount: candidate.mount.clone() })
}

/// Quotas: blocks that are allocated for a move would count for root, and a file's owner could be refused meanwhile.
/// norecovery: what the log holds is missing. DAX: no cached pages that the kernel could compare.
fn is_unsafe(option: &str) -> bool {
    let counts_space = [
        "quota",
        "usrquota",
        "uquota",
        "uqnoenforce",
        "qnoenforce",
        "grpquota",
        "gquota",
        "gqnoenforce",
        "prjquota",
        "pquota",
        "pqnoenforce",
    ];
    counts_space.contains(&option) || option == "norecovery" || is_dax(option)
}

/// Why no file of a volume that is made like this can be moved.
///
/// Where blocks cannot be shared, the kernel can only swap all blocks of two files (XFS_IOC_SWAPEXT). After a crash the log of
/// a volume without rmapbt then often cannot be replayed, and the volume not be mounted (docs/hazards.md).
pub(super) fn unfit(geometry: &XfsGeometry) -> Option<String> {
    (!geometry.shares_blocks).then(|| {
        "XFS made without reflink (the one call that could move its files can leave it unmountable after a crash)"
            .into()
    })
}

/// Why on a volume that is made like this no place can be chosen for a file, if so.
pub(super) fn only_files(geometry: &XfsGeometry) -> Option<&'static str> {
    let of_a_page = geometry.block_size.bytes() as usize == longrun_sys::page_size();
    (!of_a_page).then_some("with blocks that are no memory pages XFS puts files where it likes")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn volumes_with_quotas_or_direct_access_are_refused() {
        for option in ["usrquota", "prjquota", "gqnoenforce", "dax=always", "norecovery"] {
            assert!(is_unsafe(option), "{option}");
        }
        for option in ["noquota", "rw", "attr2", "inode64", "logbufs=8", "dax=never", "dax=inode"] {
            assert!(!is_unsafe(option), "{option}");
        }
    }
}
