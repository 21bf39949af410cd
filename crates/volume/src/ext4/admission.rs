//! Decides whether an ext4 volume may be optimized, and takes the lock.
//!
//! Owns the refusals that only ext4 has; the others, and the lock, are in [`crate::mounted::admission`]. Never writes
//! to the volume.

use super::balloon::Withheld;
use super::scan::{Access, Ext4Reader, Refusal};
use crate::Target;
use crate::mounted::admission::{Candidate, Terms, is_dax, is_on_device};
use crate::mounted::io;
use crate::mounted::lock_place::VolumeLock;
use crate::mounted::others::Tool;
use longrun_engine::VolumeError;
use longrun_layout::Blocks;
use longrun_sys::Mount;
use std::fs::{self, File};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};

const TERMS: Terms = Terms {
    filesystem: "ext4",
    title: "ext4",
    whole: true,
    is_unsafe: |option| option == "data=journal" || is_dax(option),
    is_root: |root, mount| Ok(is_on_device(root, mount)? && root.metadata()?.ino() == ROOT_INODE),
    other_optimizer: Tool { name: "e4defrag", verb: None },
};

/// The root directory of a file system on disk.
const ROOT_INODE: u64 = 2;

/// What /sys says in place of the journal's thread where there is no journal. Without one there are no atomic exchanges
/// and no barriers.
const NO_JOURNAL: &str = "<none>";

/// A volume that was admitted.
pub(super) struct Admitted {
    /// Its root directory.
    pub(super) root: File,
    pub(super) lock: VolumeLock,
    pub(super) reader: Ext4Reader,
    pub(super) mount: Mount,
    /// What the kernel calls the device in /sys.
    pub(super) kernel_name: PathBuf,
    pub(super) withheld: Withheld,
}

/// What a volume is opened for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Purpose {
    /// A run over all of it.
    Optimizing,
    /// One file.
    Mending,
}

/// Checks everything that can be known before anything is touched, and takes the lock.
pub(super) fn admit(target: &Target, purpose: Purpose) -> Result<Admitted, VolumeError> {
    let unsupported = |what: String| VolumeError::Unsupported { path: target.given.clone(), what };
    let candidate = Candidate::of(target, TERMS)?;
    let reader = Ext4Reader::open(&target.device, Access::Live)?;
    match reader.refusals().first() {
        None => {}
        Some(errors @ Refusal::Errors) => {
            return Err(VolumeError::Damaged {
                path: target.device.clone(),
                filesystem: candidate.mount.filesystem.clone(),
                detail: errors.to_string(),
            });
        }
        Some(other) => return Err(unsupported(other.to_string())),
    }
    let block_size = reader.geometry().block_size;
    if block_size.bytes() as usize != longrun_sys::page_size() {
        // The kernel exchanges only where file and donor begin at the same place of a memory page: with several blocks to
        // the page a block could take one place in several only, and no plan knows of that.
        return Err(unsupported(format!("optimizing ext4 with blocks of {} bytes", block_size.bytes())));
    }
    let root = candidate.open_root()?;
    let kernel_name = target.kernel_name().map(PathBuf::from).unwrap_or_default();
    let settings = Path::new("/sys/fs/ext4").join(&kernel_name);
    if read_setting(&settings, "journal_task").is_none_or(|task| task == NO_JOURNAL) {
        return Err(unsupported("ext4 without a journal".into()));
    }
    let in_force = fs::read_to_string(Path::new("/proc/fs/ext4").join(&kernel_name).join("options"));
    if let Some(problem) = unsafe_mode(&in_force.unwrap_or_default()) {
        return Err(unsupported(problem));
    }
    let withheld = withheld(&target.device, &settings)?;
    let lock = match purpose {
        Purpose::Optimizing => candidate.lock(&root)?,
        Purpose::Mending => candidate.lock_for_one_file(&root)?,
    };
    Ok(Admitted { root, lock, reader, mount: candidate.mount.clone(), kernel_name, withheld })
}

/// What in `options`, those in force on the mounted volume, makes moving files unsafe.
///
/// Only with data=ordered does the kernel keep freed blocks back until their release is committed. Else what a file
/// vacated could be written by another before the journal knows that it moved.
fn unsafe_mode(options: &str) -> Option<String> {
    const SAFE: &str = "data=ordered";
    let modes: Vec<&str> = options.lines().map(str::trim).filter(|o| o.starts_with("data=")).collect();
    match modes.as_slice() {
        [SAFE] => options.lines().any(|o| o.trim() == "fast_commit").then(|| "ext4 with fast_commit".into()),
        [] => Some(format!("ext4 without {SAFE} among the mount options in force")),
        [other, ..] => Some(format!("ext4 mounted with {other} instead of {SAFE}")),
    }
}

fn read_setting(settings: &Path, name: &str) -> Option<String> {
    fs::read_to_string(settings.join(name)).ok().map(|text| text.trim().to_owned())
}

/// The free blocks that are not for everybody: from the superblock, and from what the kernel sets aside for itself.
fn withheld(device: &Path, settings: &Path) -> Result<Withheld, VolumeError> {
    const SUPERBLOCK: u64 = 1024;
    const LOW: u64 = 0x8;
    const HIGH: u64 = 0x154;
    let file = File::open(device).map_err(io(device, "opening"))?;
    let read = |at| {
        let mut raw = [0; 4];
        file.read_exact_at(&mut raw, SUPERBLOCK + at).map_err(io(device, "reading the superblock"))?;
        Ok(u64::from(u32::from_le_bytes(raw)))
    };
    let for_root = read(LOW)? | read(HIGH)? << 32;
    let for_metadata = read_setting(settings, "reserved_clusters").and_then(|n| n.parse().ok()).unwrap_or(0);
    Ok(Withheld { for_root: Blocks(for_root), for_metadata: Blocks(for_metadata) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_ordered_data_without_fast_commits_is_safe() {
        assert_eq!(unsafe_mode("rw\ndelalloc\ndata=ordered\nstripe=0\n"), None);
        let problems = [
            ("rw\ndata=writeback\n", "data=writeback"),
            ("rw\ndata=journal\n", "data=journal"),
            ("rw\ndelalloc\n", "among the mount options"),
            ("", "among the mount options"),
            ("rw\ndata=ordered\nfast_commit\n", "fast_commit"),
        ];
        for (options, words) in problems {
            let problem = unsafe_mode(options).unwrap();
            assert!(problem.contains(words), "{options}: {problem}");
        }
    }
}
