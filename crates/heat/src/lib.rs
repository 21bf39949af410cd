//! How often the device is read for which file.
//!
//! What is read from memory needs no place on the disk, so that the requests to the device are counted, not the opens or reads of
//! programs. [`Recorder`] counts them inside the kernel, in a table of bounded size; [`HeatTable`] is what they add up to, with a
//! half-life of seven days (pure); [`Kept`] keeps it in the state directory. Never reads a file's content or name, and never decides
//! what is moved.

mod error;
mod keep;
mod placing;
mod rank;
mod recorder;
mod table;

pub use error::HeatError;
pub use keep::{Found, Kept};
pub use placing::{Below, Placing};
pub use rank::{HotDirectory, HotFile, Ranking, density};
pub use recorder::{Cost, Counted, Harvested, Recorder};
pub use table::{Heat, HeatTable, MOST_FILES, Minute, Totals};
