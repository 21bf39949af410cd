//! Decides how much runway a growing file gets: pure, replayable.
//!
//! Owns every judgement of prevention: the bounds that protect the free space of others, what is never touched, how long a
//! runway is, what goes back at the close of a sparse file, what is remembered about kinds of files, and how the benefit
//! is counted. Never does I/O, never reads a clock (whoever asks brings the time along), uses no randomness and no order of
//! hashes: the same questions in the same order get the same answers, which is what lets recorded traces be replayed.

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

pub use decide::{Case, Decision, Policy};
pub use facts::{Attributes, FileFacts, Modified, SpaceFacts};
pub use growth::{Growth, Prevented};
pub use health::SpaceHealth;
pub use hint::{HintBook, SetHint};
pub use history::{Ended, Expectation, Forgotten, History, Pattern};
pub use kind::FileKind;
pub use settings::{Percent, Settings, SettingsError};
pub use window::{Stretch, StretchState, give_back};
