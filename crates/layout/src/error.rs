//! Why no layout came about.

use crate::Extent;

/// A layout that contradicts itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LayoutError {
    /// More runs or files than 32-bit indices can name.
    TooMany,
    /// Free space or a run lies beyond the end of the volume.
    BeyondEnd(Extent),
}

impl std::fmt::Display for LayoutError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::TooMany => f.write_str("the volume has more than 4 billion files or runs"),
            Self::BeyondEnd(e) => {
                write!(f, "blocks {} to {} lie beyond the end of the volume", e.start, e.end())
            }
        }
    }
}

impl std::error::Error for LayoutError {}
