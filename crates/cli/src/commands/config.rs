//! `config check` and `config show`.

use crate::args::service::Config;
use crate::exit::{Failure, Status};
use crate::report::print;
use crate::text::printable_path;
use longrun_service::config::{self, DEFAULT_PATH, InForce};
use std::path::Path;

/// Checks or shows.
pub fn run(what: &Config) -> Result<(), Failure> {
    let (Config::Check { file } | Config::Show { file }) = what;
    let wrong = |error: config::ConfigError| Failure::new(Status::Usage, error.to_string());
    match what {
        Config::Show { .. } => print(&shown(&config::load_in_force(file.as_deref(), None).map_err(wrong)?)),
        Config::Check { .. } => {
            config::load(file.as_deref()).map_err(wrong)?;
            let path = file.as_deref().unwrap_or(Path::new(DEFAULT_PATH));
            let there = if path.exists() { "is valid" } else { "does not exist; the defaults apply" };
            print(&format!("{} {there}\n", printable_path(path)))
        }
    }
}

/// The settings, and for each of the defaults whether it comes from the file or from the policy of the fleet.
fn shown(read: &InForce) -> String {
    let mut text = String::new();
    if let Some(trouble) = &read.trouble {
        text.push_str(&format!("# {}\n", trouble.escape_debug()));
    }
    let in_file = config::keys_of_defaults(&read.file);
    let in_policy = read.policy.as_ref().map(|policy| config::keys_of_defaults(&policy.settings)).unwrap_or_default();
    let version = read.policy.as_ref().map_or(0, |policy| policy.version);
    if read.policy.is_some() {
        text.push_str(&format!("# Version {version} of the fleet's policy is in force.\n"));
    }
    let mut in_defaults = false;
    for line in config::show(&read.config).lines() {
        if line.starts_with('[') {
            in_defaults = line == "[defaults]";
        }
        text.push_str(line);
        if let Some((key, _)) = line.split_once(" = ").filter(|_| in_defaults) {
            let has = |keys: &[String]| keys.iter().any(|known| known == key);
            match (has(&in_file), has(&in_policy)) {
                (true, true) => text.push_str("  # from the file, which pins it: the policy has it, too"),
                (true, false) => text.push_str("  # from the file"),
                (false, true) => text.push_str(&format!("  # from version {version} of the fleet's policy")),
                (false, false) => {}
            }
        }
        text.push('\n');
    }
    text
}
