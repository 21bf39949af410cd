//! The free space according to e2freefrag.

use crate::tool;
use anyhow::{Context, Result};
use serde::Serialize;
use std::path::Path;

/// The free space of a volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct FreeFragments {
    /// Free blocks.
    pub free_blocks: u64,
    /// Contiguous pieces.
    pub pieces: u64,
    /// The largest piece in bytes.
    pub largest_bytes: u64,
}

/// Asks e2freefrag about `device`. What was freed since the last commit does not show: sync the volume first.
///
/// # Errors
/// When the tool fails or says something unexpected.
pub fn e2freefrag(device: &Path) -> Result<FreeFragments> {
    parse(&tool::run("e2freefrag", [device])?)
}

fn parse(text: &str) -> Result<FreeFragments> {
    let figure = |label: &str| {
        text.lines()
            .find_map(|line| line.strip_prefix(label)?.split_whitespace().next()?.parse::<u64>().ok())
            .with_context(|| format!("e2freefrag does not tell {label:?}:\n{text}"))
    };
    Ok(FreeFragments {
        free_blocks: figure("Free blocks:")?,
        pieces: figure("Num. free extent:")?,
        largest_bytes: figure("Max. free extent:")? << 10,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_figures_are_found() {
        let text = "Device: /dev/x\nBlocksize: 4096 bytes\nTotal blocks: 9\nFree blocks: 153624 (14.7%)\n\n\
                    Min. free extent: 4 KB \nMax. free extent: 10496 KB\nAvg. free extent: 448 KB\nNum. free extent: 1367\n";
        let wanted = FreeFragments { free_blocks: 153_624, pieces: 1367, largest_bytes: 10496 << 10 };
        assert_eq!(parse(text).unwrap(), wanted);
        assert!(parse("nonsense").is_err());
    }
}
