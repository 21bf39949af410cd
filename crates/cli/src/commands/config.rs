//! `config check` and `config show`.

use crate::args::service::Config;
use crate::exit::{Failure, Status};
use crate::report::print;
use crate::text::printable_path;
use longrun_service::config::{self, DEFAULT_PATH};
use std::path::Path;

/// Checks or shows.
pub fn run(what: &Config) -> Result<(), Failure> {
    let (Config::Check { file } | Config::Show { file }) = what;
    let read = config::load(file.as_deref()).map_err(|error| Failure::new(Status::Usage, error.to_string()))?;
    match what {
        Config::Show { .. } => print(&config::show(&read)),
        Config::Check { .. } => {
            let path = file.as_deref().unwrap_or(Path::new(DEFAULT_PATH));
            let there = if path.exists() { "is valid" } else { "does not exist; the defaults apply" };
            print(&format!("{} {there}\n", printable_path(path)))
        }
    }
}
