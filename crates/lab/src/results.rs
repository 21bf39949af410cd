//! The place of a campaign's results, and the settings that make them reproducible.

use anyhow::Result;
use clap::Args;
use longrun_lab::replace_section;
use std::io::Write;
use std::path::{Path, PathBuf};

/// What campaigns that write reports have in common.
#[derive(Args)]
pub struct Results {
    /// Seed of everything random.
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
    /// Write each result as JSON into this directory, too.
    #[arg(long)]
    pub json: Option<PathBuf>,
    /// Put the report into this document (and its picture beside that, if it has one) instead of to standard output.
    #[arg(long)]
    pub output: Option<PathBuf>,
}

impl Results {
    /// Puts a report where it was asked for.
    pub fn publish(&self, section: &str, text: &str) -> Result<()> {
        publish(self.output.as_deref(), section, text)
    }
}

/// Puts a report into its section of a document, or on standard output when there is none.
pub fn publish(output: Option<&Path>, section: &str, text: &str) -> Result<()> {
    match output {
        Some(path) => replace_section(path, section, text),
        None => Ok(std::io::stdout().write_all(text.as_bytes())?),
    }
}
