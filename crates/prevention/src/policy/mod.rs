//! Decides how much runway a growing file gets. Pure, and can be replayed.
//!
//! Owns all decisions of prevention: the limits that protect the free space of others, the files that are never
//! touched, the length of a runway, what is given back when a sparse file is closed, what is learned about kinds of
//! files, and how the benefit is counted. Never does I/O, never reads a clock (the caller passes the time), and uses no
//! randomness and no hash order. The same inputs in the same order give the same results, so recorded traces can be
//! replayed.

mod cut;
mod decide;
mod facts;
mod glob;
mod growth;
mod health;
mod hint;
mod history;
mod kind;
mod settings;
mod window;

pub use cut::Cut;
pub use decide::{Case, Decision, Policy};
pub use facts::{Attributes, FileFacts, Modified, SpaceFacts};
pub use growth::{Growth, Prevented};
pub use health::SpaceHealth;
pub use hint::{HintBook, SetHint};
pub use history::{Ended, Expectation, Forgotten, History, Pattern};
pub use kind::FileKind;
pub use settings::{Percent, Settings, SettingsError};
pub use window::{Stretch, StretchState, give_back};
