//! NTFS in the laboratory: volumes that ntfs-3g made, what a user can notice of them, and cuts of power.
//!
//! Owns images that it made and copies of them. Never uses Longrun's own reader: everything is read through ntfs-3g and
//! its tools, or by the small scan in [`Census`], which shares no code with it.

mod census;
mod contents;
mod cuts;
mod failing;
mod faults;
mod fixture;
mod inventory;
mod kinds;
mod mount;
mod plant;
mod recipes;
mod stage;
mod watched;
pub mod windows;

pub(crate) use census::fragments_of;
pub use census::{AttributeKind, AttributeName, Census, Record, StoredAttribute, StoredRun};
pub use contents::Contents;
pub use cuts::{Cut, Cuts, Lands, Tally};
pub use failing::{Failing, Failure, FailureTally, Failures};
pub(crate) use faults::check as check_records;
pub use fixture::{Fixture, Recipe, Spec, places};
pub use inventory::{Inventory, Item};
pub use mount::{Access, Mounted};
pub use plant::leak;
pub use stage::Stage;
pub use watched::Watched;
