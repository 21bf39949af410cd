//! Whether a volume may be optimized at all, and by us alone.
//!
//! Owns the refusals. Never writes to the volume.

use crate::live::backing::growing;
use crate::live::io;
use crate::live::lock::{lock, other_optimizer};
use crate::target::Mount;
use crate::{Target, VolumeError};
use longrun_sys::{DeviceNumber, XfsGeometry, xfs_geometry};
use std::fs::File;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// A tool that moves blocks of files too.
const OTHER_OPTIMIZER: &str = "xfs_fsr";

/// A volume that was admitted.
pub(super) struct Admitted {
    /// Its root directory, locked while it is open.
    pub(super) root: File,
    pub(super) geometry: XfsGeometry,
    pub(super) mount: Mount,
}

/// Checks everything that can be known before anything is touched, and takes the lock.
pub(super) fn admit(target: &Target) -> Result<Admitted, VolumeError> {
    let path = || target.given.clone();
    let not_writable = |state: &str| VolumeError::NotWritable { path: path(), state: state.to_owned() };
    let unsupported = |what: String| VolumeError::Unsupported { path: path(), what };
    let (Some(mount), Some(device)) = (&target.mount, target.device_number) else {
        return Err(not_writable("not mounted"));
    };
    if mount.filesystem != "xfs" {
        return Err(unsupported(mount.filesystem.clone()));
    }
    if !mount.writable {
        return Err(not_writable("mounted read-only"));
    }
    if !mount.is_whole() {
        return Err(unsupported(format!("a bind mount of {} without the whole volume", mount.root.display())));
    }
    if !longrun_sys::is_root() {
        return Err(VolumeError::NotPermitted { path: path(), act: "optimizing a volume".into() });
    }
    if let Some(option) = mount.options.iter().find(|option| is_unsafe(option)) {
        return Err(unsupported(format!("XFS mounted with {option}")));
    }
    if let Some(growing) = growing(Path::new("/sys"), device) {
        return Err(unsupported(growing.to_string()));
    }
    let root = File::open(&mount.point).map_err(io(&mount.point, "opening the root directory"))?;
    let meta = root.metadata().map_err(io(&mount.point, "looking at the root directory"))?;
    if DeviceNumber::from_stat(meta.dev()) != device {
        return Err(VolumeError::NotAVolume { path: path(), problem: "hidden by another mount".into() });
    }
    let geometry = xfs_geometry(&root).map_err(|errno| io(&mount.point, "asking for the geometry")(errno.into()))?;
    if let Some(reason) = unfit(&geometry) {
        return Err(unsupported(reason));
    }
    lock(&root, target)?;
    if let Some(holder) = other_optimizer(OTHER_OPTIMIZER, device) {
        return Err(VolumeError::InUse { path: path(), holder });
    }
    Ok(Admitted { root, geometry, mount: mount.clone() })
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
    counts_space.contains(&option) || option == "norecovery" || option == "dax" || option == "dax=always"
}

/// Why no file of a volume that is made like this can be moved.
#[must_use]
pub fn unfit(geometry: &XfsGeometry) -> Option<String> {
    if !geometry.shares_blocks {
        return Some(
            "XFS made without reflink (no file of it can be moved so that the kernel compares the content; \
             make the volume anew with mkfs.xfs -m reflink=1)"
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
