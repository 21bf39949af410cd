//! Whether a btrfs may be optimized at all, and by us alone.
//!
//! Owns what btrfs alone refuses, and where its lock is. Never writes to the volume.

use super::gather::in_use;
use super::{balance, scan};
use crate::live::Named;
use crate::live::admission::{Candidate, Terms};
use crate::target::Mount;
use crate::{Target, VolumeError};
use longrun_layout::InodeNumber;
use longrun_sys::{BalanceState, FileHandle, OFlags, TreeId, TreeKey, Visit};
use std::fs::{self, File};
use std::path::Path;

/// The tool that balances and defragments.
const OTHER_OPTIMIZER: &str = "btrfs";

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
    /// Its lock.
    pub(super) lock: File,
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
    let lock = lock_file(&root).map_or_else(|| root.try_clone(), Ok);
    let lock = lock.map_err(crate::live::io(&target.given, "opening the directory that is locked"))?;
    candidate.lock(&lock)?;
    if let Some(holder) = other_work(&name, &root)? {
        return Err(in_use(&name, holder));
    }
    Ok(Admitted { root, lock, mount: candidate.mount.clone() })
}

/// The directory whose lock is the volume's: the top of the top subvolume, whichever subvolumes are mounted where.
pub(crate) fn lock_file(root: &File) -> Option<File> {
    const TOP_DIRECTORY: u64 = 256;
    const INODE: u8 = 1;
    let mut generation = None;
    let key = TreeKey { object: TOP_DIRECTORY, kind: INODE, offset: 0 };
    let top = TreeId(super::SubvolumeId::TOP.0);
    let mut reader = longrun_sys::TreeReader::default();
    let visited = reader.for_each_item(root, top, key, key, |item| {
        // Behind no other field.
        generation = item.bytes.first_chunk().map(|bytes| u64::from_le_bytes(*bytes));
        Visit::Stop
    });
    visited.ok()?;
    let handle = FileHandle::on_btrfs(top, InodeNumber(TOP_DIRECTORY), generation? as u32)?;
    handle.open(root, OFlags::RDONLY | OFlags::DIRECTORY).ok().map(File::from)
}

/// Somebody else who moves data on it: a balance, a replacement or resizing of a device, a defragmentation.
fn other_work(name: &Named, root: &File) -> Result<Option<String>, VolumeError> {
    match longrun_sys::balance_state(root).map_err(name.failed("asking for a balance"))? {
        BalanceState::Running => return Ok(Some("a balance of btrfs".to_owned())),
        BalanceState::Paused => {
            return Ok(Some("a paused balance of btrfs (resume or cancel it: btrfs balance)".to_owned()));
        }
        BalanceState::None => {}
    }
    let info = longrun_sys::btrfs_info(root).map_err(name.failed("asking for the parameters of the volume"))?;
    if let Some(operation) = balance::exclusive_operation(info.uuid) {
        return Ok(Some(format!("btrfs ({operation})")));
    }
    Ok(defragmentation(info.uuid))
}

/// A process of the tool that was told to defragment a file of this volume.
fn defragmentation(uuid: [u8; 16]) -> Option<String> {
    for process in fs::read_dir("/proc").ok()?.flatten() {
        let directory = process.path();
        let running = fs::read_to_string(directory.join("comm")).unwrap_or_default();
        let command = fs::read(directory.join("cmdline")).unwrap_or_default();
        let words: Vec<&str> =
            command.split(|byte| *byte == 0).filter_map(|word| std::str::from_utf8(word).ok()).collect();
        if running.trim() != OTHER_OPTIMIZER || !words.iter().any(|word| word.starts_with("defrag")) {
            continue;
        }
        let is_ours = |word: &&str| is_on(&directory.join("cwd").join(word), uuid);
        if words.iter().skip(2).filter(|word| !word.is_empty()).any(is_ours) {
            return Some(format!("btrfs filesystem defragment (process {})", process.file_name().to_string_lossy()));
        }
    }
    None
}

fn is_on(path: &Path, uuid: [u8; 16]) -> bool {
    File::open(path).is_ok_and(|file| longrun_sys::btrfs_info(&file).is_ok_and(|info| info.uuid == uuid))
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
