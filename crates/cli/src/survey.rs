//! The layout of a whole volume together with what it takes to put names to it.
//!
//! Owns the choice of how a volume is read. Never changes anything.

use crate::exit::Failure;
use crate::report::analysis::{Findings, Method};
use longrun_layout::{Bytes, FileId, InodeNumber, VolumeLayout};
use longrun_volume::ext4::scan::{Access, Ext4Reader, Ext4Scan, FreeSpace, ScanOptions};
use longrun_volume::target::Subject;
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
    pub scan: Ext4Scan,
    reader: Ext4Reader,
    time: Duration,
}

/// Whether the target is a volume as a whole, and of a kind that can be read as such.
pub fn is_readable_volume(target: &Target) -> bool {
    matches!(target.subject, Subject::Volume | Subject::Image) && is_readable(target)
}

fn is_readable(target: &Target) -> bool {
    matches!(filesystem(target), "ext2" | "ext3" | "ext4")
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
        Ok(Self { target: target.clone(), scan, reader, time: started.elapsed() })
    }

    /// The layout.
    pub fn layout(&self) -> &VolumeLayout {
        &self.scan.layout
    }

    /// The figures, and the `top` most fragmented files by name.
    pub fn findings(&self, top: usize) -> Result<Findings, Failure> {
        let started = Instant::now();
        let layout = self.layout();
        let worst = layout.most_fragmented(top);
        let files: Vec<FileId> = worst.iter().filter_map(|w| layout.file(w.file).map(|f| f.id())).collect();
        let names = self.names(&files)?;
        let size = |blocks| layout.block_size().to_bytes(blocks);
        let named = worst.iter().zip(&names).map(|(w, name)| (name.clone(), w.fragments, size(w.size))).collect();
        Ok(Findings {
            info: self.info(),
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
    pub fn names(&self, files: &[FileId]) -> Result<Vec<PathBuf>, Failure> {
        let inodes: Vec<InodeNumber> = files.iter().map(|f| f.inode).collect();
        let mut paths: BTreeMap<InodeNumber, Vec<u8>> = self.reader.paths_of(&self.scan, &inodes)?;
        let root = self.target.mount.as_ref().map_or(Path::new("/"), |m| m.point.as_path());
        Ok(inodes
            .iter()
            .map(|inode| match paths.remove(inode) {
                Some(path) => root.join(PathBuf::from(OsString::from_vec(path))),
                None => PathBuf::from(format!("<inode {inode}>")),
            })
            .collect())
    }

    /// The size of the volume.
    pub fn bytes(&self) -> Bytes {
        self.layout().block_size().to_bytes(self.layout().total_blocks())
    }
}
