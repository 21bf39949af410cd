//! A file in memory for the tools that judge an image: thousands of states of one disk, of which each is written only
//! where it differs from the one before.
//!
//! Owns a file system in memory (tmpfs) and the file on it.

use crate::{cleanup, tool};
use anyhow::{Context, Result};
use longrun_image::{MemoryDisk, MemoryImage};
use std::fs::{self, File};
use std::os::unix::fs::{FileExt, symlink};
use std::path::{Path, PathBuf};

/// A place where the states of a [`MemoryDisk`] are shown as a file.
pub struct Stage {
    directory: PathBuf,
    path: PathBuf,
    /// What the file holds; nothing is known when others have written to it.
    shown: Option<MemoryImage>,
}

impl Stage {
    /// An empty one.
    ///
    /// # Errors
    /// When the file system cannot be mounted; needs root.
    pub fn new() -> Result<Self> {
        let directory = cleanup::fresh_directory()?;
        let made = Self::mount(&directory).inspect_err(|_| cleanup::take_down(&directory));
        let path = made.context("cannot mount a file system in memory")?;
        Ok(Self { directory, path, shown: None })
    }

    fn mount(directory: &Path) -> Result<PathBuf> {
        let mount_point = directory.join(cleanup::DISK);
        fs::create_dir(&mount_point)?;
        let arguments = ["-t", "tmpfs", "-o", "size=90%,mode=700", "longrun-lab"].map(AsRef::as_ref);
        tool::run("mount", arguments.into_iter().chain([mount_point.as_os_str()]))?;
        let path = mount_point.join("image");
        File::create_new(&path)?;
        // As for a modelled disk: volumes whose image lies here are taken down before it is.
        symlink(&path, directory.join(format!("{}0", cleanup::BACKING)))?;
        Ok(path)
    }

    /// Shows the present content of a disk, and tells where. Tools that only read may use it until the next call; before
    /// others do, see [`Self::give_away`].
    ///
    /// # Errors
    /// When the memory does not suffice.
    pub fn show(&mut self, disk: &MemoryDisk) -> Result<&Path> {
        let image = disk.image();
        // Not kept open: a busy file system cannot be unmounted.
        let file = File::options().write(true).open(&self.path)?;
        let mut written = Ok(());
        let known = self.shown.take().is_some_and(|shown| {
            image.differences(&shown, |at, page| {
                if written.is_ok() {
                    written = file.write_all_at(page, at.0);
                }
            })
        });
        if !known {
            file.set_len(0)?;
            let content = image.content();
            file.set_len(content.len() as u64)?;
            written = write_used(&file, &content);
        }
        written.with_context(|| format!("cannot write {}", self.path.display()))?;
        self.shown = Some(image);
        Ok(&self.path)
    }

    /// As [`Self::show`], for a tool that writes to the file: the next call writes everything again.
    ///
    /// # Errors
    /// As [`Self::show`].
    pub fn give_away(&mut self, disk: &MemoryDisk) -> Result<&Path> {
        self.show(disk)?;
        self.shown = None;
        Ok(&self.path)
    }
}

impl Drop for Stage {
    fn drop(&mut self) {
        cleanup::take_down(&self.directory);
    }
}

/// Writes what is not zero to an empty file.
fn write_used(file: &File, content: &[u8]) -> std::io::Result<()> {
    const PIECE: usize = 1 << 16;
    for (number, piece) in content.chunks(PIECE).enumerate() {
        if piece.iter().any(|byte| *byte != 0) {
            file.write_all_at(piece, (number * PIECE) as u64)?;
        }
    }
    Ok(())
}
