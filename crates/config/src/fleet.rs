//! What a fleet has to do with this machine: how far the service obeys it, and settings from its policy.
//!
//! Owns the order of the sources of a setting: the configuration file pins what it says; what it does not say comes from the policy;
//! what that does not say is the default. The policy lies in the state directory, so that it outlives the service.

use super::load::read;
use super::table::{Problems, Table};
use super::{Config, ConfigError, Problem, Section, VolumeChange, VolumeSettings, parse};
use longrun_api::config::ConfigSection;
use longrun_api::fleet::{Policy, PolicyInForce};
use std::fmt;
use std::path::{Path, PathBuf};
use std::str::FromStr;

/// How far the service obeys a fleet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum FleetMode {
    /// Not at all.
    #[default]
    Off,
    /// On storage that hosts share it works only with permission.
    Rest,
    /// The same while the agent keeps in touch; when the agent is silent it works as if alone.
    GoOn,
}

impl FleetMode {
    /// As it is written.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Off => "off",
            Self::Rest => "rest",
            Self::GoOn => "go-on",
        }
    }
}

impl fmt::Display for FleetMode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for FleetMode {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        [Self::Off, Self::Rest, Self::GoOn].into_iter().find(|mode| mode.name() == text).ok_or(())
    }
}

/// Whether `text` can be part of a name at the fleet's broker: 1 to 128 letters, digits, "-" and "_".
#[must_use]
pub fn is_group_name(text: &str) -> bool {
    let good = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_';
    (1..=128).contains(&text.len()) && text.bytes().all(good)
}

/// The settings of a policy: the section `[defaults]` and nothing else. Where storage belongs to says the machine itself, not a policy.
///
/// # Errors
/// Everything that is wrong with it, by line; never empty.
pub fn parse_policy(text: &str) -> Result<VolumeChange, Vec<Problem>> {
    let mut problems = Problems::of(text);
    let Some(mut root) = Table::of(text, &mut problems) else { return Err(problems.into_found()) };
    let mut table = root.table(&mut problems, "defaults", "[defaults]");
    let place = table.place.clone();
    table.refuse(
        &mut problems,
        "storage_group",
        "the configuration file of each machine says where its storage belongs",
    );
    let change = parse::change(&mut table, &mut problems);
    table.finish(&mut problems);
    root.finish(&mut problems);
    parse::check_fit(&change.applied_to(VolumeSettings::default()), &place, &mut problems);
    let found = problems.into_found();
    if found.is_empty() { Ok(change) } else { Err(found) }
}

/// Where the policy lies.
#[must_use]
pub fn policy_path(state_directory: &Path) -> PathBuf {
    state_directory.join("fleet-policy.json")
}

/// The configuration that holds, and the policy that is part of it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct InForce {
    /// The text of the configuration file.
    pub file: String,
    /// All settings.
    pub config: Config,
    /// The policy, unless there is none.
    pub policy: Option<PolicyInForce>,
    /// Why there is a policy that does not hold.
    pub trouble: Option<String>,
}

/// The configuration in the file `path` ([`super::load`]) over the policy in the state directory that it names, or that is named here.
/// A policy that does not fit the file is left out: the file has the last word.
///
/// # Errors
/// [`ConfigError`] about the file.
pub fn load_in_force(path: Option<&Path>, state_directory: Option<&Path>) -> Result<InForce, ConfigError> {
    in_force(read(path)?, path, state_directory)
}

/// As [`load_in_force`], with the text that the file has, or had.
///
/// # Errors
/// [`ConfigError::Wrong`].
pub fn in_force(text: String, path: Option<&Path>, state_directory: Option<&Path>) -> Result<InForce, ConfigError> {
    let named = path.unwrap_or(Path::new(super::DEFAULT_PATH));
    let config = parse(&text).map_err(|problems| ConfigError::Wrong { path: named.to_owned(), problems })?;
    let place = policy_path(state_directory.unwrap_or(&config.service.state_directory));
    let alone = InForce { file: text.clone(), config, ..InForce::default() };
    if alone.config.service.fleet == FleetMode::Off {
        return Ok(alone);
    }
    let policy = match std::fs::read(&place) {
        Ok(bytes) => serde_json::from_slice::<Policy>(&bytes).map_err(|error| error.to_string()),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(alone),
        Err(error) => Err(error.to_string()),
    };
    Ok(match policy.and_then(|policy| combined(&text, &policy)) {
        Ok(whole) => whole,
        Err(why) => InForce {
            trouble: Some(format!("{}: the policy of the fleet does not hold: {why}", place.display())),
            ..alone
        },
    })
}

/// The configuration file's `text` over `policy`.
///
/// # Errors
/// Why they do not go together, in a sentence.
pub fn combined(text: &str, policy: &Policy) -> Result<InForce, String> {
    let listed = |problems: &[Problem]| problems.iter().map(Problem::to_string).collect::<Vec<_>>().join("; ");
    let change = parse_policy(&policy.settings).map_err(|problems| listed(&problems))?;
    let base = change.applied_to(VolumeSettings::default());
    let config = parse::parse_over(text, &base)
        .map_err(|problems| format!("with it, the configuration file has errors: {}", listed(&problems)))?;
    let local = keys_of_defaults(text);
    let pinned = keys_of_defaults(&policy.settings).into_iter().filter(|key| local.contains(key)).collect();
    let policy = PolicyInForce { version: policy.version, settings: policy.settings.clone(), pinned };
    Ok(InForce { file: text.to_owned(), config, policy: Some(policy), trouble: None })
}

/// The keys that the section `[defaults]` of a text has.
#[must_use]
pub fn keys_of_defaults(text: &str) -> Vec<String> {
    let defaults = |section: &ConfigSection| Section::read(&section.section) == Some(Section::Defaults);
    super::sections(text).into_iter().filter(defaults).flat_map(|section| section.values.into_keys()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::PassMode;
    use longrun_governor::Pace;

    fn policy(settings: &str) -> Policy {
        Policy { version: 7, settings: settings.to_owned() }
    }

    #[test]
    fn the_file_pins_what_it_says_and_the_policy_says_the_rest() {
        let text =
            "[service]\nfleet = \"rest\"\n[defaults]\npace = \"fast\"\n[[volume]]\nlabel = \"x\"\npass = \"off\"\n";
        let whole = combined(text, &policy("[defaults]\npace = \"balanced\"\npass = \"full\"\n")).unwrap();
        assert_eq!((whole.config.defaults.pace, whole.config.defaults.pass), (Pace::Fast, PassMode::Full));
        assert_eq!(whole.config.rules[0].change.pass, Some(PassMode::Off));
        let PolicyInForce { version, pinned, .. } = whole.policy.unwrap();
        assert_eq!((version, pinned), (7, vec!["pace".to_owned()]));
    }

    #[test]
    fn a_policy_says_nothing_but_defaults_and_not_where_storage_belongs() {
        for (settings, word) in [
            ("[service]\nsocket = \"/tmp/x\"\n", "line 1: unknown key \"service\""),
            ("[defaults]\nstorage_group = \"x\"\n", "line 2: storage_group in [defaults] is refused"),
            ("[[volume]]\nlabel = \"x\"\n", "line 1: unknown key \"volume\""),
            ("[defaults]\npace = \"hasty\"\n", "line 2: pace"),
            ("[defaults]\nfirst_runway = \"256MiB\"\n", "must not decrease"),
            ("no toml", "not valid TOML"),
        ] {
            let error = combined("", &policy(settings)).unwrap_err();
            assert!(error.contains(word), "{settings}: {error}");
        }
        let against =
            combined("[defaults]\nfirst_runway = \"64MiB\"\n", &policy("[defaults]\nlongest_runway = \"32MiB\"\n"));
        assert!(against.unwrap_err().contains("with it, the configuration file has errors: line 1"));
    }

    #[test]
    fn a_policy_holds_from_the_state_directory_unless_the_machine_obeys_no_fleet() {
        let directory = tempfile::tempdir().unwrap();
        let (path, state) = (directory.path().join("longrun.toml"), directory.path());
        let put = |text: &str| std::fs::write(policy_path(state), text).unwrap();
        std::fs::write(&path, "[service]\nfleet = \"go-on\"\n").unwrap();
        let load = || load_in_force(Some(&path), Some(state)).unwrap();
        assert_eq!((load().policy, load().trouble), (None, None));
        put(&serde_json::to_string(&policy("[defaults]\npass = \"efficient\"\n")).unwrap());
        assert_eq!((load().config.defaults.pass, load().policy.unwrap().version), (PassMode::Efficient, 7));
        put("{");
        assert!(load().trouble.unwrap().contains("does not hold"));
        assert_eq!(load().config.defaults.pass, PassMode::Off);
        std::fs::write(&path, "").unwrap();
        assert_eq!(load(), InForce::default(), "what lies there is not even looked at");
    }
}
