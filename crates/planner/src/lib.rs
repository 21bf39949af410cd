//! Turns a volume layout and a policy into an ordered plan of moves.
//!
//! Owns every decision about what goes where, and in which order. Never does I/O, never reads a clock, never uses
//! randomness or hash-ordered iteration: the same layout and policy give the same plan.

mod agenda;
mod board;
pub mod chunks;
mod cut;
mod efficient;
mod files;
mod full;
mod gathering;
mod homes;
mod keep;
mod nothing;
mod placement;
mod plan;
mod planner;
mod policy;
mod pool;
mod regions;
mod schedule;
mod target;
mod traveller;
mod unit;
mod window;
mod worth;
mod zone;
mod zones;

pub use agenda::WindowSize;
pub use gathering::{Gathering, plan_gathering};
pub use nothing::{Gain, NoPlan, Nothing, Room, why_nothing};
pub use placement::plan_whole;
pub use plan::{Batch, PlannedMove, Step, Why};
pub use planner::Planner;
pub use policy::{Goal, Mode, Policy};
pub use worth::{Worth, Worths, leaves_most, pays, worth, worthwhile_mode};
pub use zones::{FastEnd, FileUse, Placement, ZonePlan, plan_zones};
