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
#[must_use]
pub fn unfit(geometry: &XfsGeometry) -> Option<String> {
    if !geometry.shares_blocks {
        return Some(
            "XFS made without reflink (the kernel cannot compare and share blocks there; make the volume again with \
             mkfs.xfs -m reflink=1)"
                .into(),
        );
    }
    let bytes = geometry.block_size.bytes();
    (bytes as usize != longrun_sys::page_size()).then(|| format!("optimizing XFS with blocks of {bytes} bytes"))
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
