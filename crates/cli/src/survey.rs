//! The layout of a whole volume together with its figures.
//!
//! Never changes anything.

use crate::exit::Failure;
use crate::report::analysis::{Findings, Method};
use longrun_engine::{Progress, Scan, VolumeInfo};
use longrun_governor::Disks;
use longrun_layout::{Bytes, FileId, PhysicalBlock, VolumeLayout};
use longrun_volume::survey::{Names, Owner};
use longrun_volume::target::Subject;
use longrun_volume::{Target, survey};
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// A volume that has been read.
pub struct Survey {
    /// The volume.
    pub target: Target,
    read: Box<dyn survey::Survey>,
    time: Duration,
}

/// Whether the target is a whole volume, of a file system that can be read as a whole.
pub fn is_readable_volume(target: &Target) -> bool {
    matches!(target.subject, Subject::Volume | Subject::Image) && longrun_volume::is_readable_as_a_whole(target)
}

impl Survey {
    /// Reads the volume.
    pub fn read(target: &Target, progress: &dyn Progress) -> Result<Self, Failure> {
        let started = Instant::now();
        let read = longrun_volume::survey(target, progress)?;
        Ok(Self { target: target.clone(), read, time: started.elapsed() })
    }

    /// The layout.
    pub fn layout(&self) -> &VolumeLayout {
        self.read.layout()
    }

    /// Why its files must not be moved, if the format of the volume forbids it.
    pub fn refusal(&self) -> Option<String> {
        self.read.refusal()
    }

    /// The owner of a block.
    pub fn owner(&self, block: PhysicalBlock) -> Owner {
        self.read.owner(block)
    }

    /// The figures, and the `top` most fragmented files by name.
    pub fn findings(&self, top: usize, progress: &dyn Progress) -> Result<Findings, Failure> {
        let found = findings(&self.target, self.layout(), self.time, top, |files| self.names(files, progress))?;
        let compactable = self.read.compactable(progress)?;
        Ok(Findings { devices: self.read.devices().to_vec(), compactable, ..found })
    }

    /// The paths of files, in their order: below the mount point, or from the volume's root if it is not mounted.
    /// A file without a name is represented by its inode number.
    pub fn names(&self, files: &[FileId], progress: &dyn Progress) -> Result<Vec<PathBuf>, Failure> {
        Ok(self.read.names().of(self.layout(), files, progress)?)
    }

    /// The scan that a plan is made from, and the source of names for later.
    pub fn into_scan(self) -> (Scan, Box<dyn Names>) {
        self.read.into_scan()
    }

    /// The size of the volume.
    pub fn bytes(&self) -> Bytes {
        self.layout().block_size().to_bytes(self.layout().total_blocks())
    }
}

/// The figures of `layout`, which was read in `time`, and its `top` most fragmented files by name.
pub fn findings(
    target: &Target,
    layout: &VolumeLayout,
    time: Duration,
    top: usize,
    names: impl FnOnce(&[FileId]) -> Result<Vec<PathBuf>, Failure>,
) -> Result<Findings, Failure> {
    let started = Instant::now();
    let worst = layout.most_fragmented(top);
    let files: Vec<FileId> = worst.iter().filter_map(|w| layout.file(w.file).map(|f| f.id())).collect();
    let names = names(&files)?;
    let size = |blocks| layout.block_size().to_bytes(blocks);
    let named = worst.iter().zip(&names).map(|(w, name)| (name.clone(), w.fragments, size(w.size))).collect();
    Ok(Findings {
        info: VolumeInfo {
            target: target.given.clone(),
            device: target.device.clone(),
            filesystem: longrun_volume::file_system_name(target),
        },
        disks: target.device_number.and_then(Disks::below),
        devices: Vec::new(),
        compactable: None,
        method: Method::Scan,
        figures: layout.fragmentation(),
        most_fragmented: named,
        unreadable: 0,
        time: time + started.elapsed(),
    })
}
