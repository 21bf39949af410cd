//! One range that takes the donor's blocks by one call, and what that makes of a file. Pure.

use crate::engine::file_map::FileMap;
use longrun_layout::{Blocks, Extent, LogicalBlock};

/// One range that is moved by one call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Call {
    /// Where in the file.
    pub(crate) logical: LogicalBlock,
    /// Where in the donor.
    pub(crate) donor: LogicalBlock,
    /// How much.
    pub(crate) length: Blocks,
}

/// Notes in `map` that `call` was carried out, with the donor's blocks as `donor` tells them.
pub(crate) fn carry_out(map: &mut FileMap, call: &Call, donor: &FileMap) {
    for run in donor.within(Extent::new(call.donor.0, call.length.0)) {
        map.put(call.logical + (run.logical - call.donor), run.physical, run.length);
    }
}
