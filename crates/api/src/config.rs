//! The configuration of the service, as it is read and changed through the API.
//!
//! Owns the names and types of the fields, as [`crate::model`] does. No I/O.
//!
//! `GET /v1/config` answers with [`ConfigFile`], and with the state of the file as `ETag`. `PUT /v1/config` takes [`ConfigChanges`] and the header
//! `If-Match` with that state. It is answered by 412 when the file has changed since, by 422 with the message of `longrun config check` when the
//! result would not be valid, by 409 when the file cannot be written or is written in a form that is not changed automatically, and by 403 when
//! the sender may not change one of the keys. Then nothing is changed.

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use utoipa::ToSchema;

/// A value of a setting. Sizes, durations and shares are texts with units, as in the file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(untagged)]
pub enum ConfigValue {
    /// `true` or `false`.
    Truth(bool),
    /// A whole number.
    Number(i64),
    /// A text.
    Text(String),
    /// A list of texts.
    Texts(Vec<String>),
}

/// Settings and their values.
pub type ConfigValues = BTreeMap<String, ConfigValue>;

/// The configuration file, what it may contain, and what holds.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ConfigFile {
    /// Where the file is.
    pub path: String,
    /// Whether it exists. Without it the defaults hold.
    pub exists: bool,
    /// Its text.
    pub text: String,
    /// What is wrong with the text; the earlier configuration holds then.
    pub trouble: Option<String>,
    /// Whether the service has read the file again; false in the answer to a change that is still being applied.
    pub applied: bool,
    /// The keys of `[service]`.
    pub service_keys: Vec<ConfigKey>,
    /// The keys of `[defaults]` and of each `[[volume]]`.
    pub volume_keys: Vec<ConfigKey>,
    /// What the file says, by section: `service`, `defaults`, and each `[[volume]]` as it names its volume, such as `mount=/srv`.
    pub sections: Vec<ConfigSection>,
    /// What holds in `[service]`.
    #[schema(value_type = Object)]
    pub service: ConfigValues,
    /// What holds for each volume.
    pub volumes: Vec<ConfigVolume>,
}

/// A key of the file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ConfigKey {
    /// Its name.
    pub key: String,
    /// `boolean`, `number`, `size`, `duration`, `share`, `choice`, `text`, `texts` or `windows`.
    pub kind: String,
    /// Its default; none where there is none.
    pub default: Option<ConfigValue>,
    /// What it means.
    pub meaning: String,
    /// Which values are allowed, in words.
    pub allowed: String,
    /// The words of which a `choice` is one.
    pub choices: Vec<String>,
    /// A change has no effect before the service is restarted.
    pub needs_restart: bool,
    /// The sender of this request may change it. Who has access, and where files are, only root may change.
    pub may_change: bool,
}

/// A section of the file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ConfigSection {
    /// `service`, `defaults`, or how a `[[volume]]` names its volume: `mount=/srv`, `uuid=…`, `label=…`, `device=…`.
    pub section: String,
    /// What it says.
    #[schema(value_type = Object)]
    pub values: ConfigValues,
}

/// What holds for a volume.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ConfigVolume {
    /// The id of the volume.
    pub id: String,
    /// Where it is mounted.
    pub mount: String,
    /// What holds for it.
    #[schema(value_type = Object)]
    pub settings: ConfigValues,
}

/// Changes of the file, all or none.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ConfigChanges {
    /// In their order.
    pub changes: Vec<ConfigChange>,
}

/// One change.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ConfigChange {
    /// As in [`ConfigSection`]. A volume that no section names gets one at the end of the file.
    pub section: String,
    /// The key.
    pub key: String,
    /// Its value; without it the key is taken out, so that the default holds.
    #[serde(default)]
    pub value: Option<ConfigValue>,
}
