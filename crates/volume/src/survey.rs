//! A volume that was read as a whole: for its figures, its map, and the plan of a dry run.
//!
//! Owns the common interface of all file systems. Never changes anything.

use crate::target::Inside;
use longrun_engine::{CompactedDirectories, Progress, Scan, VolumeError};
use longrun_layout::{Bytes, Extent, FileId, FileIndex, LogicalBlock, PhysicalBlock, VolumeLayout};
use longrun_sys::Mount;
use std::fs::File;
use std::path::{Path, PathBuf};

/// The volume to read.
#[derive(Debug)]
pub struct Source<'a> {
    /// What errors call it.
    pub path: &'a Path,
    /// The block device, or the image.
    pub device: &'a Path,
    /// Where it is mounted, and an open directory of that mount, if it is.
    pub mounted: Option<(&'a Mount, File)>,
    /// What to read instead of the device, when the volume is on a disk image that is open.
    pub inside: Option<&'a Inside>,
    /// As [`crate::Target::spoils_shadow_copies`].
    pub spoils_shadow_copies: bool,
}

impl<'a> Source<'a> {
    /// The mount and its directory, where there must be one.
    pub(crate) fn mount(self) -> Result<(&'a Mount, File), VolumeError> {
        let state = "not mounted".to_owned();
        self.mounted.ok_or_else(|| VolumeError::NotWritable { path: self.path.to_owned(), state })
    }
}

/// The state of a volume at one moment.
pub trait Survey {
    /// Everything on it.
    fn layout(&self) -> &VolumeLayout;

    /// Why its files must not be moved, if there is a reason that lies in how the volume was made.
    fn refusal(&self) -> Option<String> {
        None
    }

    /// What rewriting its directories in fewer blocks would do, where a run of `optimize` does that. Reads all directories.
    ///
    /// # Errors
    /// [`VolumeError`]: stopped, or the volume cannot be read.
    fn compactable(&self, progress: &dyn Progress) -> Result<Option<CompactedDirectories>, VolumeError> {
        let _ = progress;
        Ok(None)
    }

    /// The devices of a volume that has several.
    fn devices(&self) -> &[DeviceSpace] {
        &[]
    }

    /// Who has `block`, which lies on the volume.
    fn owner(&self, block: PhysicalBlock) -> Owner;

    /// Where the file system's own blocks lie, ascending, and what each area is, in the words of [`Owner::Metadata`]. What lies in
    /// several areas is in the first one; what is in a file or free is not metadata, whatever is said here.
    fn areas(&self) -> Box<dyn Iterator<Item = (Extent, &'static str)> + '_> {
        Box::new(std::iter::empty())
    }

    /// The paths of files.
    fn names(&self) -> &dyn Names;

    /// What a plan is made from, and what tells names afterwards.
    fn into_scan(self: Box<Self>) -> (Scan, Box<dyn Names>);
}

/// A device of a volume that has several.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeviceSpace {
    /// The number that the file system gave it.
    pub id: u64,
    /// Its size.
    pub bytes: Bytes,
    /// What of it the file system has not allocated to any kind of content.
    pub unallocated: Bytes,
}

/// Finds the paths of files.
pub trait Names {
    /// The paths of `files` of `layout`, in that order: below the mount point, or from the volume's root when it is not mounted.
    /// A file without a name is called by its inode number.
    ///
    /// # Errors
    /// [`VolumeError`]: the directories cannot be read.
    fn of(&self, layout: &VolumeLayout, files: &[FileId], progress: &dyn Progress)
    -> Result<Vec<PathBuf>, VolumeError>;
}

/// The owner of a block.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Owner {
    /// No one.
    Free {
        /// The piece of free space that it lies in.
        piece: Extent,
        /// What is to be said of that piece besides.
        note: Option<&'static str>,
    },
    /// A file or directory of the layout.
    File {
        /// Which.
        file: FileIndex,
        /// Which part of it.
        part: Part,
        /// The subvolume that it lies in, where there are such.
        subvolume: Option<u64>,
        /// How many other files have the block too.
        sharers: u64,
    },
    /// The file system itself, or a file in another way than by content.
    Metadata {
        /// What it is.
        what: String,
        /// The file that it is of, if it is.
        of: Option<FileId>,
        /// Where it lies.
        extent: Option<Extent>,
    },
    /// In use, by whom is not known.
    Unknown {
        /// What it can be.
        note: Option<&'static str>,
    },
}

/// A part of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// A block.
    Block(LogicalBlock),
    /// A range of bytes, stored as a whole.
    Extent {
        /// The first byte in the file.
        start: Bytes,
        /// How much of the file.
        length: Bytes,
        /// How much it takes on the device, when it is compressed.
        compressed: Option<Bytes>,
        /// It was never written.
        preallocated: bool,
        /// The byte of the file that the block begins with; of no meaning when it is compressed.
        at: Bytes,
    },
    /// Not known.
    Unknown,
}

/// The piece of free space that holds `block`.
pub(crate) fn free_piece(layout: &VolumeLayout, block: PhysicalBlock) -> Option<Extent> {
    let free = layout.free();
    free.get(free.partition_point(|piece| piece.end() <= block)).filter(|piece| piece.start <= block).copied()
}

/// The file that has `block`, where a file's blocks are its own.
pub(crate) fn file_with(layout: &VolumeLayout, block: PhysicalBlock) -> Option<Owner> {
    let (file, run) = layout.owner_of(block)?;
    let part = Part::Block(run.logical + (block - run.physical));
    Some(Owner::File { file, part, subvolume: None, sharers: 0 })
}
