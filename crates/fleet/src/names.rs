//! Where things lie at the broker: buckets, keys, and the subjects that permissions name.
//!
//! Owns these names. A key's parts are separated by dots, so that a permission can name one host or one group. Pure.

use std::fmt;

/// The bucket of leases: key `GROUP.SLOT`, value: who holds it. The broker sets no time limit: hosts do, by their own clocks.
pub const LEASES: &str = "longrun_leases";
/// The bucket of what each host tells of itself: key `HOST`.
pub const STATE: &str = "longrun_state";
/// The bucket of policy: `document.VERSION`, `rollout` and `groups`. Hosts only read it.
pub const POLICY: &str = "longrun_policy";

/// In the bucket of policy: what the administrator set for the storage groups.
pub const GROUPS_KEY: &str = "groups";

/// In the bucket of policy: which version is for which host.
pub const ROLLOUT_KEY: &str = "rollout";

/// In the bucket of policy, for administrators only: what the canaries told before the roll-out.
pub const WATCH_KEY: &str = "watch";

/// The key, in the bucket of policy, of a document. It is written once.
#[must_use]
pub fn document_key(version: u64) -> String {
    format!("document.{version}")
}

/// The key of a slot in the bucket of leases.
#[must_use]
pub fn slot_key(group: &Name, slot: usize) -> String {
    format!("{group}.{slot}")
}

/// The key, in the bucket of leases, of the bytes that a group has moved on a day.
#[must_use]
pub fn budget_key(group: &Name) -> String {
    format!("{group}.budget")
}

/// A name of a host or a storage group that can be part of a key: letters, digits, `-` and `_`, at most 128.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize, serde::Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Name(String);

/// A text that cannot be a name.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is no name of a host or a storage group: use 1 to 128 letters, digits, \"-\" and \"_\"")]
pub struct NotAName(String);

impl Name {
    /// The longest name, in bytes.
    const LONGEST: usize = 128;

    /// `text`, with `_` for what cannot be part of a name, and `host` where nothing is left.
    #[must_use]
    pub fn adapted(text: &str) -> Self {
        let good = |letter: char| if letter.is_ascii_alphanumeric() || letter == '-' { letter } else { '_' };
        let name: String = text.chars().take(Self::LONGEST).map(good).collect();
        Self(if name.is_empty() { "host".to_owned() } else { name })
    }

    /// As part of a key.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl TryFrom<String> for Name {
    type Error = NotAName;

    fn try_from(text: String) -> Result<Self, NotAName> {
        let good = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_';
        if !text.is_empty() && text.len() <= Self::LONGEST && text.bytes().all(good) {
            Ok(Self(text))
        } else {
            Err(NotAName(text))
        }
    }
}

impl std::str::FromStr for Name {
    type Err = NotAName;

    fn from_str(text: &str) -> Result<Self, NotAName> {
        text.to_owned().try_into()
    }
}

impl From<Name> for String {
    fn from(name: Name) -> Self {
        name.0
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}
