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

/// The settings, and which of them come from the policy of the fleet.
fn shown(read: &InForce) -> String {
    let mut text = String::new();
    if let Some(trouble) = &read.trouble {
        text.push_str(&format!("# {}\n", trouble.escape_debug()));
    }
    if let Some(policy) = &read.policy {
        let keys = config::keys_of_defaults(&policy.settings);
        let (pinned, from): (Vec<_>, Vec<_>) = keys.into_iter().partition(|key| policy.pinned.contains(key));
        let list = |keys: &[String]| if keys.is_empty() { "nothing".to_owned() } else { keys.join(", ") };
        text.push_str(&format!(
            "# From version {} of the fleet's policy, in [defaults]: {}.\n# In the policy, but pinned by the file: {}.\n",
            policy.version,
            list(&from),
            list(&pinned)
        ));
    }
    text + &config::show(&read.config)
}
