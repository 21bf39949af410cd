//! Why a device cannot be measured.

use std::io;

/// Why a device cannot be measured, or its profile not be kept.
#[derive(Debug, thiserror::Error)]
pub enum ProfileError {
    /// The device is too small: between two of sixteen places there must be room for what is read at one of them.
    #[error("{device}: too small to be measured ({bytes} bytes; at least {least} are needed)")]
    TooSmall {
        /// The kernel's name of the device.
        device: String,
        /// Its size.
        bytes: u64,
        /// The smallest size that can be measured.
        least: u64,
    },
    /// Reading the device failed.
    #[error("{device}: reading it at byte {at} failed: {source}")]
    Read {
        /// The kernel's name of the device.
        device: String,
        /// Where, in bytes.
        at: u64,
        /// The kernel's error.
        source: io::Error,
    },
    /// The device cannot be opened for direct reads.
    #[error("{device}: opening it for reading past the page cache failed: {source}")]
    Open {
        /// The path of the device.
        device: String,
        /// The kernel's error.
        source: io::Error,
    },
    /// It was asked to stop.
    #[error("{device}: stopped by a signal before it was measured")]
    Interrupted {
        /// The kernel's name of the device.
        device: String,
    },
    /// The profile cannot be kept or read.
    #[error("{path}: {act} the profile failed: {source}")]
    Keep {
        /// The file.
        path: String,
        /// Reading or writing.
        act: &'static str,
        /// The kernel's error.
        source: io::Error,
    },
}
