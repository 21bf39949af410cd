//! Rewrites an image without the space that it has for nothing, and puts the result in its place.
//!
//! Owns the order in which that happens. At each moment a complete image has the name: the original, or the new one after it was
//! compared with the original and is durable. Never changes the original.

mod attributes;
mod error;
mod identity;
mod kept;
mod place;
mod program;

pub use error::CompactError;

use crate::format::{Description, Format, identify};
use crate::{Access, Disk as _, FileDisk, ImageError};
use longrun_layout::Bytes;
use place::Place;
use program::Program;
use std::fs::Metadata;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

/// What is being done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// The content is written to a new image.
    Rewrite,
    /// The new image is compared with the original.
    Compare,
}

/// Told how much of a step is done, from 0 to 1. False ends the work, and the original stays.
pub type Watcher<'a> = dyn FnMut(Step, f64) -> bool + 'a;

/// What came of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Compacted {
    /// What the image took on its storage.
    pub before: Bytes,
    /// What it takes now.
    pub after: Bytes,
    /// False when the new one was not smaller, so that the original stayed.
    pub is_replaced: bool,
    /// What an interrupted run had left, and what was removed.
    pub removed: Option<PathBuf>,
}

/// Whether [`compact`] would work on an image, as far as can be seen without changing anything or locking it.
///
/// # Errors
/// As [`compact`].
pub fn check_compactable(path: &Path) -> Result<(), CompactError> {
    let image = FileDisk::open(path, Access::Read)?;
    kept::options(&image, &description(&image)?)?;
    only_name(&image, path).map(drop)
}

/// Rewrites the image at `path`, which has to be free of what was deleted: zeros and what was discarded are left out. At most `rate`
/// bytes are written in a second. Format, owner, permissions, attributes and identity stay as they are. Nobody else can open the
/// image for writing meanwhile.
///
/// # Errors
/// [`CompactError`]: the original is still there, unchanged.
pub fn compact(path: &Path, rate: Option<Bytes>, watcher: &mut Watcher<'_>) -> Result<Compacted, CompactError> {
    let old = FileDisk::open(path, Access::Write)?;
    let found = description(&old)?;
    let options = kept::options(&old, &found)?;
    let before = allocated(&only_name(&old, path)?);
    let io = |act| move |source| CompactError::Io { path: path.to_owned(), act, source };
    let mut place = Place::beside(&old.origin()?.path).map_err(io("looking at the directory"))?;
    if !place.leads_to(old.file()).map_err(io("looking at the directory"))? {
        return Err(ImageError::Replaced { path: path.to_owned() }.into());
    }
    let removed = place.sweep(old.file()).map_err(io("removing what an interrupted run left"))?;
    let free = place.available().map_err(io("reading the free space"))?;
    if free < before {
        return Err(CompactError::NoRoom { path: path.to_owned(), needed: before, free });
    }
    // Where a container forbids it, it goes on as other programs do.
    _ = longrun_sys::yield_io_to_others();
    let program = Program::new(path, found.format, &old)?;
    program.check_original(watcher)?;
    let made = place.make().map_err(io("making a file beside it"))?;
    attributes::prepare(old.file(), &made).map_err(io("setting the attributes of the new image"))?;
    program.convert(&made, &options, rate, watcher)?;
    let new = FileDisk::open_as(&longrun_sys::descriptor_path(&made), path, Access::Write)?;
    identity::keep(&old, &new, found.format)?;
    program.verify(&new, watcher)?;
    // Last: from here on the users who can open the original can open the copy.
    attributes::keep(old.file(), &made).map_err(io("giving the new image owner, permissions and attributes"))?;
    made.sync_all().map_err(io("writing the new image"))?;
    let after = allocated(&made.metadata().map_err(io("examining the new image"))?);
    if after >= before {
        return Ok(Compacted { before, after: before, is_replaced: false, removed });
    }
    // Who opened the image before this moment and will lock it only after it is found by the second look; who opens it later gets
    // the new one, which is locked, too.
    place.exchange(old.file()).map_err(io("exchanging the two"))?;
    if let Some(user) = old.in_use() {
        place.exchange(new.file()).map_err(io("exchanging the two back"))?;
        return Err(ImageError::InUse { path: path.to_owned(), user }.into());
    }
    place.remove().map_err(io("removing the original"))?;
    Ok(Compacted { before, after, is_replaced: true, removed })
}

/// What the image says of itself, provided that all it needs is in it.
fn description(image: &FileDisk) -> Result<Description, CompactError> {
    let unsupported = |what| CompactError::Unsupported { path: image.path().to_owned(), what };
    if image.is_device() {
        return Err(unsupported("it is a block device"));
    }
    let found = identify(image)?;
    if found.backing.is_some() {
        return Err(unsupported("it holds only what differs from another image"));
    }
    if found.snapshots > 0 {
        return Err(unsupported("it has snapshots inside, which would be lost"));
    }
    if found.read_only.is_some() {
        return Err(unsupported("it is compressed"));
    }
    if found.format == Format::Vhd && found.plain.is_some() {
        return Err(unsupported("it is of fixed size"));
    }
    Ok(found)
}

/// What is known of the file, provided that no other name leads to it: that would keep the old one.
fn only_name(image: &FileDisk, path: &Path) -> Result<Metadata, CompactError> {
    let meta = image.file().metadata().map_err(|source| ImageError::Examine { path: path.to_owned(), source })?;
    if meta.nlink() != 1 {
        let what = "it has several names (hard links), of which the others would keep the old file";
        return Err(CompactError::Unsupported { path: path.to_owned(), what });
    }
    Ok(meta)
}

fn allocated(meta: &Metadata) -> Bytes {
    Bytes(meta.blocks() * 512)
}
