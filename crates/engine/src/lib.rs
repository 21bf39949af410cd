//! Executes plans: the traits that a volume provides, the passes above them, and simulated volumes that implement them.
//!
//! Owns order and safety: what is captured when, which vacated blocks may be reused, barriers, retries, verification,
//! limits, and giving everything back on every exit. Never decides where data goes (the planner does). Works on a
//! volume only through its traits: makes no system call.

mod directories;
mod error;
mod file_map;
mod job;
mod observer;
mod pacer;
pub mod placed;
mod range_map;
pub mod relocated;
mod report;
mod round;
mod scope;
mod settings;
pub mod share;
pub mod sim;
mod traits;
mod turns;

pub use directories::{CompactedDirectories, WhyLeft};
pub use error::{MoveError, Rescued, SkipReason, VolumeError, checker};
pub use file_map::FileMap;
pub use job::{Opened, Plan, Scan, carry_out, place, plan, plan_gathering, plan_placement, plan_what_pays};
pub use observer::{Observer, Permission, Phase, ScanProgress, Status, Turn, Unobserved, until_permitted};
pub use pacer::Halt;
pub(crate) use pacer::Pacer;
pub(crate) use placed::most_improved;
pub use placed::{Expected, ExpectedFile, ExpectedMoves, MOST_IMPROVED, PlanError};
pub use range_map::{RangeMap, Slide};
pub(crate) use report::Tally;
pub use report::{PassError, Report, Skipped, Stop};
pub use round::{Left, PassEnd, Round, RoundEnd, Work};
pub use scope::{Scope, Scoped};
pub use settings::Settings;
pub use traits::{Exchanged, Leaked, NoProgress, Part, Placed, Progress, Volume, VolumeInfo, unnamed};
pub use turns::{Act, in_turns};
