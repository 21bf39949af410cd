//! Opens an image of any format.
//!
//! Owns the choice of the way to its content, and what must be said of an image before it is worked on.

use crate::export::{Export, Layer};
use crate::format::{Description, Format, identify};
use crate::qemu_img::check_before_writing;
use crate::{Access, Disk, FailStop, FileDisk, ImageError, Origin, Part};
use std::fs::File;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// An open image, and what is to be said of it.
pub struct OpenImage {
    /// Its content, as the virtual machine has it, under the law of [`FailStop`]. What it needs to be read ends with it.
    pub disk: Arc<dyn Disk>,
    /// How it is stored.
    pub format: Format,
    /// Snapshots inside the image. They keep the space that is discarded.
    pub snapshots: u32,
    /// The image that this one holds the differences from.
    pub backing: Option<PathBuf>,
    /// The file of the image.
    pub origin: Origin,
    /// For a raw image, a duplicate of its descriptor. Its locks end when [`Self::disk`] is dropped.
    pub raw: Option<File>,
    /// Who may write to it while it is read: see [`FileDisk::in_use`].
    pub in_use: Option<String>,
}

/// Opens a disk image or a block device, whatever its format. To write, nobody else may use it: see [`FileDisk::open`].
///
/// An image that others have as their backing file does not say so, and they are spoiled by any change to it: do not
/// open one for writing.
///
/// # Errors
/// [`ImageError`], each with the act that failed. Nothing was written then.
pub fn open_image(path: &Path, access: Access) -> Result<OpenImage, ImageError> {
    let file = FileDisk::open(path, access)?;
    let origin = file.origin()?;
    let found = identify(&file)?;
    let below = match (&found.backing, access) {
        // Parts of the other file would be copied to this one: who can write to this one could name any file.
        (Some(backing), Access::Write) => {
            return Err(ImageError::Overlay { path: path.to_owned(), backing: backing.clone() });
        }
        (Some(_), Access::Read) => chain(&origin.path, &found)?,
        (None, _) => Vec::new(),
    };
    if let (Access::Write, Some(what)) = (access, found.read_only) {
        return Err(ImageError::Unsupported { path: path.to_owned(), what });
    }
    let in_use = if access == Access::Read { file.in_use() } else { None };
    let raw = (found.format == Format::Raw).then(|| file.file().try_clone()).transpose();
    let raw = raw.map_err(|source| ImageError::Examine { path: path.to_owned(), source })?;
    let disk: Arc<dyn Disk> = match found.plain {
        Some(length) if length == file.length() => Arc::new(file),
        Some(length) => part(file, length)?,
        None => {
            if access == Access::Write {
                check_before_writing(&file, found.format)?;
            }
            Arc::new(Export::open(Layer { file, format: found.format }, below)?)
        }
    };
    let disk = FailStop::over(disk);
    Ok(OpenImage {
        disk,
        format: found.format,
        snapshots: found.snapshots,
        backing: found.backing,
        origin,
        raw,
        in_use,
    })
}

/// The first bytes of a file.
fn part(file: FileDisk, length: longrun_layout::Bytes) -> Result<Arc<dyn Disk>, ImageError> {
    let damaged = ImageError::Header { path: file.path().to_owned(), format: Format::Vhd.driver() };
    let part = Part::new(Arc::new(file), longrun_layout::Bytes(0), length).ok_or(damaged)?;
    Ok(Arc::new(part))
}

/// Opens what an image holds the differences from, and what that does. Only files and devices of this machine are opened; what QEMU
/// takes for the name of a protocol is none. A name is looked for beside the image: `path` has no links.
fn chain(path: &Path, image: &Description) -> Result<Vec<Layer>, ImageError> {
    const LONGEST: usize = 32;
    let (mut path, mut image) = (path.to_owned(), image.clone());
    let mut layers = Vec::new();
    while let Some(backing) = image.backing {
        let elsewhere = || ImageError::Backing { path: path.clone(), backing: backing.clone() };
        let first = backing.as_os_str().as_bytes().split(|byte| *byte == b'/').next().unwrap_or_default();
        if first.contains(&b':') || layers.len() == LONGEST {
            return Err(elsewhere());
        }
        let next = path.parent().unwrap_or(Path::new("/")).join(&backing);
        let file = FileDisk::open(&next, Access::Read).map_err(|error| match error {
            ImageError::NotADisk { .. } | ImageError::Examine { .. } => elsewhere(),
            other => other,
        })?;
        image = if image.is_backing_raw { Description::of(Format::Raw) } else { identify(&file)? };
        path = next;
        layers.push(Layer { file, format: image.format });
    }
    Ok(layers)
}
