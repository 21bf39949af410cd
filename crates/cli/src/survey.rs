//! The layout of a whole volume together with what it takes to put names to it.
//!
//! Owns the choice of how a volume is read. Never changes anything.

use crate::exit::Failure;
use crate::report::analysis::{Findings, Method};
use crate::subvolumes;
use longrun_governor::Disks;
use longrun_layout::{Bytes, FileId, InodeNumber, VolumeLayout};
use longrun_volume::btrfs::{self, BtrfsScan};
use longrun_volume::ext4::scan::{Access, Ext4Reader, Ext4Scan, FreeSpace, ScanOptions};
use longrun_volume::target::Subject;
use longrun_volume::xfs::{self, scan::XfsScan};
use longrun_volume::{Progress, Target, VolumeError, VolumeInfo, probe};
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs::File;
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// A volume that has been read.
pub struct Survey {
    /// Which.
    pub target: Target,
    /// Everything on it.
    pub picture: Picture,
    time: Duration,
}

/// What was read, as each file system tells it.
pub enum Picture {
    /// From the device.
    Ext4(Box<Ext4Scan>, Ext4Reader),
    /// From the kernel.
    Xfs(XfsScan),
    /// From the kernel; with the root directory, through which it is asked for names.
    Btrfs(Box<BtrfsScan>, File),
}

/// Whether the target is a volume as a whole, and of a kind that can be read as such.
pub fn is_readable_volume(target: &Target) -> bool {
    matches!(target.subject, Subject::Volume | Subject::Image) && is_readable(target) && !is_spread(target)
}

fn is_readable(target: &Target) -> bool {
    matches!(filesystem(target), "ext2" | "ext3" | "ext4" | "xfs" | "btrfs")
}

/// A btrfs of several devices or with zones: only its files can be asked.
fn is_spread(target: &Target) -> bool {
    let Some(mount) = target.mount.as_ref().filter(|mount| mount.filesystem == "btrfs") else { return false };
    let refusal = File::open(&mount.point).ok().and_then(|root| btrfs::scan::refusal(&root, &mount.point).ok());
    refusal.is_none_or(|refusal| refusal.is_some())
}

/// The file system by the kernel's name; of an unmounted device the reader finds out.
fn filesystem(target: &Target) -> &str {
    target.mount.as_ref().map_or(probe::EXT4, |mount| &mount.filesystem)
}

impl Survey {
    /// Reads the volume from its device or image.
    pub fn read(target: &Target, progress: &dyn Progress) -> Result<Self, Failure> {
        if !is_readable(target) {
            let (path, what) = (target.given.clone(), filesystem(target).to_owned());
            return Err(VolumeError::Unsupported { path, what }.into());
        }
        let started = Instant::now();
        let picture = match filesystem(target) {
            "xfs" => read_xfs(target, progress)?,
            "btrfs" => read_btrfs(target, progress)?,
            _ => read_ext4(target, progress)?,
        };
        Ok(Self { target: target.clone(), picture, time: started.elapsed() })
    }

    /// The layout.
    pub fn layout(&self) -> &VolumeLayout {
        match &self.picture {
            Picture::Ext4(scan, _) => &scan.layout,
            Picture::Xfs(scan) => &scan.layout,
            Picture::Btrfs(scan, _) => &scan.layout,
        }
    }

    /// Why its files must not be moved, if there is a reason that lies in how the volume was made.
    pub fn refusal(&self) -> Option<String> {
        match &self.picture {
            Picture::Ext4(scan, _) => scan.refusals.first().map(ToString::to_string),
            Picture::Xfs(scan) => xfs::unfit(&scan.geometry),
            Picture::Btrfs(scan, _) => btrfs::unfit(scan),
        }
    }

    /// The figures, and the `top` most fragmented files by name.
    pub fn findings(&self, top: usize, progress: &dyn Progress) -> Result<Findings, Failure> {
        let started = Instant::now();
        let layout = self.layout();
        let worst = layout.most_fragmented(top);
        let files: Vec<FileId> = worst.iter().filter_map(|w| layout.file(w.file).map(|f| f.id())).collect();
        let names = self.names(&files, progress)?;
        let size = |blocks| layout.block_size().to_bytes(blocks);
        let named = worst.iter().zip(&names).map(|(w, name)| (name.clone(), w.fragments, size(w.size))).collect();
        Ok(Findings {
            info: self.info(),
            disks: self.target.device_number.and_then(Disks::below),
            method: Method::Scan,
            figures: layout.fragmentation(),
            most_fragmented: named,
            unreadable: 0,
            time: self.time + started.elapsed(),
        })
    }

    /// What the volume is.
    pub fn info(&self) -> VolumeInfo {
        VolumeInfo {
            target: self.target.given.clone(),
            device: self.target.device.clone(),
            filesystem: filesystem(&self.target).to_owned(),
        }
    }

    /// The paths of files, in their order: below the mount point, or from the volume's root when it is not mounted.
    /// A file without a name is called by its inode number.
    pub fn names(&self, files: &[FileId], progress: &dyn Progress) -> Result<Vec<PathBuf>, Failure> {
        if let Picture::Btrfs(scan, root) = &self.picture {
            return subvolumes::names(scan, root, &self.target, files);
        }
        let inodes: Vec<InodeNumber> = files.iter().map(|f| f.inode).collect();
        let root = self.target.mount.as_ref().map_or(Path::new("/"), |m| m.point.as_path());
        let mut paths: BTreeMap<InodeNumber, PathBuf> = match &self.picture {
            Picture::Xfs(_) | Picture::Btrfs(..) => xfs::paths_of(root, &inodes, progress)?,
            Picture::Ext4(scan, reader) => {
                let below = |(inode, path)| (inode, root.join(PathBuf::from(OsString::from_vec(path))));
                reader.paths_of(scan, &inodes)?.into_iter().map(below).collect()
            }
        };
        let unnamed = |inode: &InodeNumber| PathBuf::from(format!("<inode {inode}>"));
        Ok(inodes.iter().map(|inode| paths.remove(inode).unwrap_or_else(|| unnamed(inode))).collect())
    }

    /// The size of the volume.
    pub fn bytes(&self) -> Bytes {
        self.layout().block_size().to_bytes(self.layout().total_blocks())
    }
}

/// ext4 is read from its device or image.
fn read_ext4(target: &Target, progress: &dyn Progress) -> Result<Picture, Failure> {
    let (access, mounted) = match &target.mount {
        None => (Access::Still, None),
        Some(mount) => {
            let opened = File::open(&mount.point).map_err(|e| Failure::io(&mount.point, "opening", &e))?;
            // What has no blocks yet would be missing, and what was freed since the last commit would not be free.
            longrun_sys::sync_volume(&opened)
                .map_err(|e| Failure::io(&mount.point, "syncing the volume", &e.into()))?;
            (Access::Live, Some(opened))
        }
    };
    let free_space = mounted.as_ref().map_or(FreeSpace::Bitmaps, |file| FreeSpace::Kernel(file.as_fd()));
    let mut reader = Ext4Reader::open(&target.device, access)?;
    let scan = reader.scan(ScanOptions { free_space, directories: true }, progress)?;
    Ok(Picture::Ext4(Box::new(scan), reader))
}

/// XFS is asked of the kernel.
fn read_xfs(target: &Target, progress: &dyn Progress) -> Result<Picture, Failure> {
    let (point, root) = open_root(target)?;
    Ok(Picture::Xfs(xfs::scan::scan(&root, point, progress)?))
}

/// So is btrfs.
fn read_btrfs(target: &Target, progress: &dyn Progress) -> Result<Picture, Failure> {
    let (point, root) = open_root(target)?;
    let scan = btrfs::scan::scan(&root, point, progress)?;
    Ok(Picture::Btrfs(Box::new(scan), root))
}

fn open_root(target: &Target) -> Result<(&Path, File), Failure> {
    let point = target.mount.as_ref().map_or(target.given.as_path(), |mount| mount.point.as_path());
    let root = File::open(point).map_err(|e| Failure::io(point, "opening", &e))?;
    Ok((point, root))
}
