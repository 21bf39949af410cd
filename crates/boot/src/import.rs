//! A list from elsewhere: only what is the same on this volume is taken.

use crate::model::{List, Part, Place, file_of, sums};
use crate::volume::Volume;
use longrun_layout::{Bytes, FileId};
use longrun_sys::FileSystem;
use std::collections::BTreeSet;

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
    let files = list.files();
    let here: BTreeSet<FileId> = files.iter().copied().filter(|file| is_here(volume, *file, list)).collect();
    let gone = (files.len() - here.len()) as u64;
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

/// Whether a file is here, and as long as its parts need.
fn is_here(volume: &Volume, file: FileId, list: &List) -> bool {
    let needs = list.parts().iter().filter(|part| part.place == Place::File(file)).map(|part| part.range.start.0).max();
    let length = volume.file(file).ok().and_then(|file| file.metadata().ok()).map(|meta| meta.len());
    length.zip(needs).is_some_and(|(length, needs)| length > needs)
}
