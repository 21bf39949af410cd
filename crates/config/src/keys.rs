//! What the program knows of each key, and settings as values. Pure.
//!
//! Says nothing twice: types and limits are what the parser asks for, defaults are those of the settings, meanings their documentation.

use super::show::{show, show_volume};
use super::table::Asked;
use super::{Config, ServiceSettings, VolumeChange, VolumeSettings, parse};
use longrun_api::config::{ConfigKey, ConfigValue, ConfigValues};
use toml::{Table, Value};

/// Settings that hold from the start to the end of a service.
pub const NEED_RESTART: [&str; 3] = ["socket", "state_directory", "settle_after"];
/// Settings that decide who may do what, and where root writes: an operator who could change them would be root.
const ROOT_ONLY: [&str; 5] = ["socket", "state_directory", "group", "viewers", "readable_by_all"];

/// The keys of `[service]`, and those of `[defaults]` and `[[volume]]`, as `by_root` or another operator may change them.
#[must_use]
pub fn keys(may_change: bool, by_root: bool) -> (Vec<ConfigKey>, Vec<ConfigKey>) {
    let (service, volume) = parse::keys();
    let config = Config::default();
    let described = |asked: Asked, defaults: &ConfigValues, meanings: &[(&str, &str)]| {
        let about = meanings.iter().find(|(name, _)| *name == asked.key).map_or("", |(_, about)| about);
        ConfigKey {
            kind: asked.kind.name().to_owned(),
            default: defaults.get(asked.key).cloned(),
            meaning: about.trim().replace('`', ""),
            choices: asked.choices.iter().map(|choice| (*choice).to_owned()).collect(),
            needs_restart: NEED_RESTART.contains(&asked.key),
            may_change: may_change && (by_root || !is_for_root(asked.key)),
            key: asked.key.to_owned(),
            allowed: asked.allowed,
        }
    };
    let of = |asked: Vec<Asked>, defaults: &ConfigValues, meanings: &[(&str, &str)]| {
        asked.into_iter().map(|asked| described(asked, defaults, meanings)).collect()
    };
    let service = of(service, &values_of_service(&config), ServiceSettings::MEANINGS);
    let volume = of(volume, &values_of_volume(&config.defaults), VolumeSettings::MEANINGS);
    (service, volume)
}

/// Whether only root may change `key`.
#[must_use]
pub fn is_for_root(key: &str) -> bool {
    ROOT_ONLY.contains(&key)
}

/// What `[service]` of a configuration says, defaults included.
#[must_use]
pub fn values_of_service(config: &Config) -> ConfigValues {
    let shown: Table = toml::from_str(&show(config)).unwrap_or_default();
    shown.get("service").and_then(Value::as_table).map(values_of).unwrap_or_default()
}

/// The settings of a volume.
#[must_use]
pub fn values_of_volume(settings: &VolumeSettings) -> ConfigValues {
    values_of(&toml::from_str(&show_volume(&VolumeChange::from(settings))).unwrap_or_default())
}

/// The values of a table; those of types that no setting has are left out.
pub fn values_of(table: &Table) -> ConfigValues {
    table.iter().filter_map(|(key, value)| Some((key.clone(), value_of(value)?))).collect()
}

fn value_of(value: &Value) -> Option<ConfigValue> {
    match value {
        Value::Boolean(truth) => Some(ConfigValue::Truth(*truth)),
        Value::Integer(number) => Some(ConfigValue::Number(*number)),
        Value::String(text) => Some(ConfigValue::Text(text.clone())),
        Value::Array(items) => {
            let texts = items.iter().map(|item| item.as_str().map(str::to_owned));
            texts.collect::<Option<_>>().map(ConfigValue::Texts)
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_key_has_a_meaning_and_a_default_that_may_be_written_again() {
        let (service, volume) = keys(true, true);
        assert_eq!(service.len(), ServiceSettings::MEANINGS.len());
        assert_eq!(volume.len(), VolumeSettings::MEANINGS.len());
        for key in service.iter().chain(&volume) {
            assert!(!key.meaning.is_empty() && !key.allowed.is_empty(), "{key:?}");
            assert_eq!(key.default.is_none(), key.key == "group", "{key:?}");
            assert_eq!(key.choices.is_empty(), key.kind != "choice", "{key:?}");
            assert!(key.may_change);
            for choice in &key.choices {
                let section = if service.contains(key) { "service" } else { "defaults" };
                super::super::parse(&format!("[{section}]\n{} = {choice:?}\n", key.key)).unwrap();
            }
        }
        let kind = |name: &str| volume.iter().find(|key| key.key == name).map(|key| key.kind.clone()).unwrap();
        let kinds =
            ["enabled", "xfs_hint_files", "mending_budget", "mending_quiet", "max_duty", "pace", "exclude"].map(kind);
        assert_eq!(kinds, ["boolean", "number", "size", "duration", "share", "choice", "texts"]);
        assert_eq!(kind("mending_rests"), "windows");
    }

    #[test]
    fn only_root_may_change_who_has_access_and_where_root_writes() {
        let (service, volume) = keys(true, false);
        let closed: Vec<&str> = service.iter().filter(|key| !key.may_change).map(|key| key.key.as_str()).collect();
        assert_eq!(closed, ROOT_ONLY);
        assert!(volume.iter().all(|key| key.may_change));
        let (service, volume) = keys(false, false);
        assert!(service.iter().chain(&volume).all(|key| !key.may_change));
    }
}
