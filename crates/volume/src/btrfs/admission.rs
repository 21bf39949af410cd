//! Decides whether a btrfs volume may be optimized, and takes the lock.
//!
//! Owns the refusals that only btrfs has. Never writes to the volume.

use super::gather::in_use;
use super::{balance, scan};
use crate::Target;
use crate::mounted::Named;
use crate::mounted::admission::{Candidate, Terms};
use crate::mounted::lock_place::VolumeLock;
use crate::mounted::others::Tool;
use longrun_engine::VolumeError;
use longrun_sys::{BalanceState, Mount};
use std::fs::File;

/// `btrfs filesystem defragment`; what else it does to the blocks of files the kernel tells.
const OTHER_OPTIMIZER: Tool = Tool { name: "btrfs", verb: Some("defrag") };

const TERMS: Terms = Terms {
    filesystem: "btrfs",
    title: "btrfs",
    // Rarely is its top mounted; whatever is, all of it can be reached.
    whole: false,
    is_unsafe,
    is_root,
    other_optimizer: OTHER_OPTIMIZER,
};

/// degraded: copies are missing. rescue and nologreplay: what was written last is missing.
fn is_unsafe(option: &str) -> bool {
    option == "degraded" || option == "nologreplay" || option == "norecovery" || option.starts_with("rescue=")
}

fn is_root(root: &File, mount: &Mount) -> std::io::Result<bool> {
    Ok(longrun_sys::mount_of_file(root)? == mount.id)
}

/// A volume that was admitted.
pub(super) struct Admitted {
    /// The root directory of what is mounted of it.
    pub(super) root: File,
    pub(super) lock: VolumeLock,
    pub(super) mount: Mount,
}

/// Checks everything that can be known before anything is touched, and takes the lock.
pub(super) fn admit(target: &Target) -> Result<Admitted, VolumeError> {
    let candidate = Candidate::of(target, TERMS)?;
    let root = candidate.open_root()?;
    if let Some(what) = scan::refusal(&root, &target.given)? {
        return Err(VolumeError::Unsupported { path: target.given.clone(), what });
    }
    let name = Named(target.given.clone());
    let lock = candidate.lock(&root)?;
    if let Some(holder) = other_work(&name, &root)? {
        return Err(in_use(&name, holder));
    }
    Ok(Admitted { root, lock, mount: candidate.mount.clone() })
}

/// Another process who moves data on it, by the kernel's own word: a balance, a replacement or resizing of a device.
fn other_work(name: &Named, root: &File) -> Result<Option<String>, VolumeError> {
    match longrun_sys::balance_state(root).map_err(name.failed("reading the state of the balance"))? {
        BalanceState::Running => return Ok(Some("a balance of btrfs".to_owned())),
        BalanceState::Paused => {
            return Ok(Some("a paused balance of btrfs (resume or cancel it: btrfs balance)".to_owned()));
        }
        BalanceState::None => {}
    }
    let info = longrun_sys::btrfs_info(root).map_err(name.failed("reading the parameters of the volume"))?;
    Ok(balance::exclusive_operation(info.uuid).map(|operation| format!("btrfs ({operation})")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn volumes_of_which_something_is_missing_are_refused() {
        for option in ["degraded", "rescue=usebackuproot", "nologreplay"] {
            assert!(is_unsafe(option), "{option}");
        }
        for option in ["rw", "ssd", "compress=zstd:3", "subvolid=5", "subvol=/", "discard=async", "space_cache=v2"] {
            assert!(!is_unsafe(option), "{option}");
        }
    }
}
