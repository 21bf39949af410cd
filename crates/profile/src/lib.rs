//! How fast a disk is at which place, and whether that is a gradient.
//!
//! A rotational disk reads its outer tracks up to twice as fast as its inner ones; solid-state and virtual disks have no such
//! places. What is assumed of a disk is often wrong, so it is measured: [`measure`] reads at sixteen places, and [`Verdict::of`]
//! says whether what it found is a gradient or chance. Owns the recipe, the verdict (pure), and the profiles that are kept.
//! Only reads, past the page cache; never writes to a device, and never decides what to do about a verdict.

mod error;
mod keep;
mod measure;
mod members;
mod places;
mod verdict;

pub use error::ProfileError;
pub use keep::{Kept, LASTS};
pub use measure::{DirectReads, Reads, measure};
pub use members::members;
pub use places::{MEASURED, PLACES, REQUEST, Tour};
pub use verdict::{Fastest, Place, Verdict};

use jiff::Timestamp;
use longrun_layout::Bytes;
use serde::{Deserialize, Serialize};

/// What was measured of one device.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Profile {
    /// The kernel's name of the device when it was measured.
    pub device: String,
    /// The size of the device.
    pub bytes: Bytes,
    /// When it was measured.
    pub measured: Timestamp,
    /// How long that took, in seconds, waiting for others included.
    pub seconds: f64,
    /// The places, from the first to the last.
    pub places: Vec<Place>,
    /// What follows from them.
    pub verdict: Verdict,
}

impl Profile {
    /// How many places could not be measured twice alike, because others used the disk meanwhile.
    #[must_use]
    pub fn unsettled(&self) -> usize {
        self.places.iter().filter(|place| !place.is_settled()).count()
    }
}
