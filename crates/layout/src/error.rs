//! Why a layout could not be built.

use crate::Extent;

/// A layout that contradicts itself.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LayoutError {
    /// More runs or files than 32-bit indices can name.
    #[error("the volume has more than 4 billion files or runs")]
    TooMany,
    /// Free space or a run lies beyond the end of the volume.
    #[error("blocks {} to {} lie beyond the end of the volume", .0.start, .0.end())]
    BeyondEnd(Extent),
}
