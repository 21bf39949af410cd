//! Makes fragmentation on purpose, to demonstrate and test what repairs it.
//!
//! Owns the ageing recipes (a directory tree that is written, rewritten and deleted until the volume looks years old),
//! the simulated use of a volume day by day, and the fragmentation of one existing file. Never touches a file that it
//! did not make itself, except the one file that [`fragment_file`] is asked to fragment, and never changes the content
//! of that file.

mod content;
mod error;
mod fragment;
mod life;
mod precautions;
mod recipe;
mod recipes;
mod tree;

pub use content::fill_block;
pub use error::AgeError;
pub use fragment::{Fragmented, Order, fragment_file, fragment_file_in};
pub use life::{Day, Life, LifePlan};
pub use recipe::{ParseRecipeError, Progress, Recipe, Summary, age};
