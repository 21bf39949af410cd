//! What a boot or an application reads, recorded by BPF, and read in one sweep before it is asked for.
//!
//! The way of the data: [`Recorder`] → [`List`] of one recording → [`merge`] → [`Plan`] → [`sweep`] → [`History`] judges. Model, text, merging,
//! plan and judgement are pure. Names no file by its path: files are opened by handle, so that what has changed drops out. Never
//! writes to the volume outside of its own directory, and never stops a boot: reading ahead ends by itself, and its failure stops nothing.

mod choice;
mod gather;
mod import;
mod judge;
mod learn;
mod merge;
mod model;
mod plan;
mod preload;
mod recorder;
mod store;
mod sweep;
mod system;
mod text;
mod volume;

pub use choice::Leave;
pub use gather::Together;
pub use import::{Imported, import};
pub use judge::{History, Next, Preloaded, ROUND, Run};
pub use learn::{Learned, Recorded, learn, replan};
pub use merge::{Unseen, merge};
pub use model::{GAP, GRAIN, List, Part, Place, Seen, Touch};
pub use plan::{LONGEST, Lies, MOST, Order, Plan};
pub use preload::{Outcome, Why, preload, take_outcome};
pub use recorder::{Recorder, RecorderError, Uses};
pub use store::{Names, Store, StoreError, read_list};
pub use sweep::{Ahead, End, Swept, sweep};
pub use system::{Root, is_forbidden};
pub use text::{Damage, LARGEST, parse_uuid};
pub use volume::{Unsupported, Volume};
