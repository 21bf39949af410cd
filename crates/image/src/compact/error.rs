//! Why an image was not compacted.

use crate::ImageError;
use longrun_layout::Bytes;
use std::io;
use std::path::PathBuf;

/// Why an image was not compacted. The original has its name, and is as it was.
#[derive(Debug, thiserror::Error)]
pub enum CompactError {
    /// It cannot be used alone, or its header cannot be read.
    #[error(transparent)]
    Image(#[from] ImageError),
    /// A copy would not be the same image.
    #[error("cannot compact {path}: {what}; nothing was changed")]
    Unsupported {
        /// The image.
        path: PathBuf,
        /// What of it cannot be kept.
        what: &'static str,
    },
    /// The copy might not fit beside the original.
    #[error(
        "cannot compact {path}: the new image may need {} MiB beside it, and {} MiB are free; free some space, or move the \
         image to another file system",
        needed.0 >> 20, free.0 >> 20
    )]
    NoRoom {
        /// The image.
        path: PathBuf,
        /// What the original takes.
        needed: Bytes,
        /// What is free on its file system.
        free: Bytes,
    },
    /// The program that writes the format failed.
    #[error("compacting {path}: {act} failed, qemu-img said: {message}; the original was kept")]
    Program {
        /// The image.
        path: PathBuf,
        /// What it was to do.
        act: &'static str,
        /// What it wrote to its standard error.
        message: String,
    },
    /// The new image does not have the content of the original.
    #[error("compacting {path}: the new image differs from the original, which was kept; please report it ({message})")]
    Differs {
        /// The image.
        path: PathBuf,
        /// Where.
        message: String,
    },
    /// A system call failed.
    #[error("compacting {path}: {act} failed: {source}; the original was kept")]
    Io {
        /// The image.
        path: PathBuf,
        /// What was done.
        act: &'static str,
        /// The kernel's answer.
        source: io::Error,
    },
    /// It was to end.
    #[error("compacting {path} was stopped; the original was kept")]
    Stopped {
        /// The image.
        path: PathBuf,
    },
}
