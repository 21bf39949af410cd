//! One range that takes the donor's blocks by one call, and its effect on the file's map. Pure.

use crate::file_map::FileMap;
use longrun_layout::{Blocks, LogicalBlock, LogicalRange};

/// One range that is moved by one call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Call {
    /// Where in the file.
    pub logical: LogicalBlock,
    /// Where in the donor.
    pub donor: LogicalBlock,
    /// How much.
    pub length: Blocks,
}

/// Notes in `map` that `call` was carried out, with the donor's blocks as `donor` tells them.
pub fn carry_out(map: &mut FileMap, call: &Call, donor: &FileMap) {
    for run in donor.within(LogicalRange { start: call.donor, length: call.length }) {
        map.put(call.logical + (run.logical - call.donor), run.physical, run.length);
    }
}
