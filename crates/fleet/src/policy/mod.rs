//! Policy: documents of settings, which hosts they are for, and their roll-out.
//!
//! Owns the form of a document ([`Document`]), which version of it is for which host ([`Rollout`]), and when a roll-out goes on
//! or stops ([`Watch`]): these are pure. [`apply`] and [`in_force`] read and write at the broker, for administrators and hosts.

pub mod apply;
mod document;
pub mod in_force;
mod rollout;
mod show;
mod trial;
mod watch;

pub use document::{Document, MOST_BYTES, MOST_LABELS, MOST_PATTERNS, MOST_RULES, Rule};
pub use rollout::{Rollout, Stage};
pub use show::{Checked, DocumentShown, PolicyShown, ProblemShown, document_text, rollout_text};
pub use trial::Trial;
pub use watch::{Before, Look, Verdict, Watch};
