//! What can be wrong with a map.

use std::io;

/// Why a map cannot be written or read.
#[derive(Debug, thiserror::Error)]
pub enum AtlasError {
    /// The system refused.
    #[error("{act} failed: {source}")]
    Io {
        /// What was attempted.
        act: &'static str,
        /// Why it failed.
        source: io::Error,
    },
    /// The file is not a map, or not all of one.
    #[error("the map is damaged ({0}); the next scan replaces it")]
    Damaged(&'static str),
    /// Another version of the program has written it.
    #[error("the map has version {0} of the format, which this program does not read; the next scan replaces it")]
    Version(u32),
}

impl AtlasError {
    /// For `map_err`: the system refused `act`.
    pub(crate) fn io(act: &'static str) -> impl FnOnce(io::Error) -> Self {
        move |source| Self::Io { act, source }
    }
}
