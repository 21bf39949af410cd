//! The same bytes, laid in several ways.

use super::ReadsSettings;
use crate::{BenchError, lay, layout_of};
use longrun_layout::Bytes;
use serde::Serialize;
use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// How a file lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Lie {
    /// In as few pieces as the file system makes of it.
    Whole,
    /// In fragments of this size, on the device in the order of the file.
    Fragments(Bytes),
    /// In fragments of this size, on the device in any order.
    Shuffled(Bytes),
    /// In fragments of this size in any order, and then optimized.
    Optimized(Bytes),
}

impl Lie {
    /// What is compared.
    pub const ALL: [Self; 6] = [
        Self::Whole,
        Self::Fragments(Bytes(64 << 10)),
        Self::Fragments(Bytes(16 << 10)),
        Self::Shuffled(Bytes(16 << 10)),
        Self::Fragments(Bytes(4 << 10)),
        Self::Optimized(Bytes(16 << 10)),
    ];

    fn piece(self) -> Option<(Bytes, bool)> {
        match self {
            Self::Whole => None,
            Self::Fragments(piece) => Some((piece, false)),
            Self::Shuffled(piece) | Self::Optimized(piece) => Some((piece, true)),
        }
    }
}

impl fmt::Display for Lie {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Whole => write!(f, "whole"),
            Self::Fragments(piece) => write!(f, "{} KiB fragments", piece.0 >> 10),
            Self::Shuffled(piece) => write!(f, "{} KiB fragments, shuffled", piece.0 >> 10),
            Self::Optimized(piece) => write!(f, "{} KiB fragments, shuffled, optimized", piece.0 >> 10),
        }
    }
}

/// A file that lies in a way.
#[derive(Debug)]
pub(super) struct Laid {
    pub lie: Lie,
    pub path: PathBuf,
    pub fragments: u64,
}

impl Laid {
    /// Makes it in a directory of its own in `parent`; none where the file system cannot be brought to lay it so.
    pub(super) fn make(parent: &Path, lie: Lie, settings: &ReadsSettings) -> Result<Option<Self>, BenchError> {
        let directory = parent.join(lie.to_string().replace([' ', ','], "-"));
        fs::create_dir(&directory).map_err(|e| BenchError::io("making a directory", &directory, e))?;
        let path = directory.join("file");
        lay::whole(&path, settings.bytes, settings.seed)?;
        if let Some((piece, shuffled)) = lie.piece()
            && !lay::in_pieces(&path, settings.bytes, piece, shuffled, settings.seed)?
        {
            return Ok(None);
        }
        if matches!(lie, Lie::Optimized(_)) {
            optimize(&settings.program, &path)?;
        }
        let (layout, _) = layout_of(&directory, &[])?;
        Ok(Some(Self { lie, path, fragments: layout.fragments }))
    }
}

fn optimize(program: &Path, path: &Path) -> Result<(), BenchError> {
    let mut command = Command::new(program);
    command.args(["optimize", "--mode", "files", "--json"]).arg(path).stdin(Stdio::null());
    let output = command.output().map_err(|e| BenchError::io("running it", program, e))?;
    if output.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&output.stderr).trim().to_owned();
    Err(BenchError::Unsuitable { path: path.to_owned(), problem: format!("it could not be optimized: {said}") })
}
