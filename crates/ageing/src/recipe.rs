//! The recipes by name, and the function that executes one.

use crate::AgeError;
use crate::recipes;
use crate::tree::Tree;
use serde::Serialize;
use std::fmt;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::str::FromStr;

/// A way to age a volume. Numbers of files and bytes scale with the size of the volume; the figures here are for 4 GiB.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Recipe {
    /// Mixed files, filled, thinned, refilled, beside two dozen logs that grow at the same time: 85 % full.
    Aged,
    /// A server's: logs, databases and small files, 60 % full, the free space in thousands of pieces.
    Server,
    /// An office's: 25 000 documents, rewritten again and again at 96.5 % full.
    Office,
    /// A media library: 1000 files, most of them large, 80 % full.
    Media,
    /// Working trees and loose objects rewritten over many rounds, now and then packed: 70 % full.
    Git,
    /// Files that grow side by side, written in several ways, while older ones go: 88 % full.
    Churn,
    /// The same, 93 % full.
    Crowded,
    /// Documents saved again and files that grow side by side, one of them in about 900 fragments: 96.5 % full.
    Tight,
}

impl Recipe {
    /// Every recipe.
    pub const ALL: [Self; 8] =
        [Self::Aged, Self::Server, Self::Office, Self::Media, Self::Git, Self::Churn, Self::Crowded, Self::Tight];

    /// Its name on the command line.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Aged => "aged",
            Self::Server => "server",
            Self::Office => "office",
            Self::Media => "media",
            Self::Git => "git",
            Self::Churn => "churn",
            Self::Crowded => "crowded",
            Self::Tight => "tight",
        }
    }
}

impl fmt::Display for Recipe {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// No recipe has that name.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("'{0}' is not a recipe; use aged, server, office, media, git, churn, crowded or tight")]
pub struct ParseRecipeError(String);

impl FromStr for Recipe {
    type Err = ParseRecipeError;

    fn from_str(name: &str) -> Result<Self, Self::Err> {
        Self::ALL.into_iter().find(|r| r.name() == name).ok_or_else(|| ParseRecipeError(name.to_owned()))
    }
}

/// The progress of ageing.
#[derive(Clone, Copy, Debug)]
pub struct Progress {
    /// The current step.
    pub phase: &'static str,
    /// How much of the whole recipe is done, 0 to 1; an estimate.
    pub done: f64,
    /// Bytes written so far.
    pub bytes_written: u64,
    /// Files there now.
    pub files: u64,
    /// The used share of the volume, 0 to 1.
    pub fill: f64,
}

/// The result of ageing.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Summary {
    /// Where the files are.
    pub directory: PathBuf,
    /// Files there now.
    pub files: u64,
    /// Bytes in them.
    pub bytes: u64,
    /// Bytes written on the way.
    pub bytes_written: u64,
    /// The used share of the volume, 0 to 1.
    pub fill: f64,
}

/// Ages the volume that holds `directory`: makes and deletes files in a new directory `aged-RECIPE-SEED` there, until
/// the volume is as full and as fragmented as the recipe says. The same seed does the same operations; the file system
/// chooses the places of the blocks. `progress` is called often and stops the work by `Break`.
///
/// # Errors
/// [`AgeError`]; the files made so far stay.
pub fn age(
    directory: &Path,
    recipe: Recipe,
    seed: u64,
    progress: &mut dyn FnMut(&Progress) -> ControlFlow<()>,
) -> Result<Summary, AgeError> {
    let root = directory.join(format!("aged-{recipe}-{seed}"));
    let mut tree = Tree::create(root, seed, progress)?;
    match recipe {
        Recipe::Aged => recipes::aged(&mut tree)?,
        Recipe::Server => recipes::server(&mut tree)?,
        Recipe::Office => recipes::office(&mut tree)?,
        Recipe::Media => recipes::media(&mut tree)?,
        Recipe::Git => recipes::git(&mut tree)?,
        Recipe::Churn => recipes::churn(&mut tree, 0.88)?,
        Recipe::Crowded => recipes::churn(&mut tree, 0.93)?,
        Recipe::Tight => recipes::tight(&mut tree)?,
    }
    tree.finish()
}
