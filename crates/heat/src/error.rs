//! Why heat is not recorded, or cannot be kept.

use std::io;
use std::path::PathBuf;

/// Why heat is not recorded, or cannot be kept.
#[derive(Debug, thiserror::Error)]
pub enum HeatError {
    /// Loading BPF programs needs privilege.
    #[error("recording which files are read needs root; run it with sudo")]
    NotPermitted,
    /// The kernel lacks a feature.
    #[error(
        "this kernel cannot tell which files are read: {detail}; it needs Linux 5.15 or later with BPF and its type information (BTF)"
    )]
    Unsupported {
        /// The error of libbpf.
        detail: String,
    },
    /// A table of the kernel did not do what was asked.
    #[error("the kernel's counts of reads: {act} failed: {detail}; restart the service")]
    Broken {
        /// What was asked.
        act: &'static str,
        /// The error of libbpf.
        detail: String,
    },
    /// The table cannot be read or written.
    #[error("{path}: {act} failed: {source}", path = path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// What failed.
        act: &'static str,
        /// The kernel's error.
        source: io::Error,
    },
    /// The file is no table of this volume, or damaged.
    #[error("not a table of this volume's reads: {what}")]
    Damaged {
        /// What does not fit.
        what: &'static str,
    },
}
