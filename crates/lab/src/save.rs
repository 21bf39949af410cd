//! Saves results as files for programs.

use anyhow::{Context, Result};
use serde_json::Value;
use std::fs;
use std::path::Path;

/// Writes a result into `directory`, which is made if need be, as `NAME.json`.
///
/// # Errors
/// When it cannot be written.
pub fn save_json(directory: &Path, name: &str, result: &Value) -> Result<()> {
    fs::create_dir_all(directory)?;
    let path = directory.join(format!("{name}.json"));
    fs::write(&path, serde_json::to_vec_pretty(result)?).with_context(|| format!("cannot write {}", path.display()))
}
