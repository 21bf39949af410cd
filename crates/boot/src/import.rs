//! A list from elsewhere: only what is the same on this volume is taken.

use crate::model::{List, Part, file_of, sums};
use crate::volume::Volume;
use longrun_layout::{Bytes, FileId};
use longrun_sys::FileSystem;
use std::collections::{BTreeMap, BTreeSet};

/// Less than this share of the bytes still there: it is of another system.
const LEAST: f64 = 0.6;

/// What of a list is on a volume.
#[derive(Clone, Debug, PartialEq)]
pub struct Imported {
    /// As a list of this volume.
    pub list: List,
    /// Files that are not here, or are others.
    pub gone: u64,
    /// Which share of the bytes of files is here.
    pub share: f64,
}

impl Imported {
    /// Whether enough of it is here for it to be worth anything.
    #[must_use]
    pub fn is_enough(&self) -> bool {
        self.share >= LEAST
    }
}

/// Looks for the files of a list by inode and generation. A volume that was copied to another disk, and got another UUID there, has the
/// same; a volume that was made anew has others.
#[must_use]
pub fn import(list: &List, volume: &Volume) -> Imported {
    // Where the last part of each begins: so long a file must be at least.
    let mut needs: BTreeMap<FileId, u64> = BTreeMap::new();
    for (file, part) in list.parts().iter().filter_map(|part| Some((file_of(part.place)?, part))) {
        let start = needs.entry(file).or_default();
        *start = part.range.start.0.max(*start);
    }
    let is_here = |(file, needs): (&FileId, &u64)| is_here(volume, *file, *needs).then_some(*file);
    let here: BTreeSet<FileId> = needs.iter().filter_map(is_here).collect();
    let gone = (needs.len() - here.len()) as u64;
    let kept: Vec<Part> = list
        .parts()
        .iter()
        // Of another file system's metadata nothing is known.
        .filter(|part| file_of(part.place).map_or(volume.filesystem == FileSystem::Ext4, |file| here.contains(&file)))
        .copied()
        .collect();
    let data = |parts: &[Part]| sums(parts).0;
    let (kept_data, all): (Bytes, Bytes) = (data(&kept), data(list.parts()));
    let share = if all.0 == 0 { 0.0 } else { kept_data.0 as f64 / all.0 as f64 };
    let list = List::of_parts(volume.uuid, list.boots, kept).unwrap_or_else(|| List::empty(volume.uuid));
    Imported { list, gone, share }
}

/// Whether a file is here, and longer than its parts need.
fn is_here(volume: &Volume, file: FileId, needs: u64) -> bool {
    volume.file(file).ok().and_then(|file| file.metadata().ok()).is_some_and(|meta| meta.len() > needs)
}
