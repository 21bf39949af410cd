//! What a slot's key at the broker holds.

use super::{Moment, Term};
use crate::names::Name;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// The longest term that a record of another host is believed to have.
const LONGEST_TERM: Duration = Duration::from_secs(3600);

/// The number that the broker gave to a writing of a key; 0: there is none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Revision(pub u64);

/// What was found under a key. The same revision can be given twice, by a broker that lost its data: the value tells.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Found {
    /// Its revision; 0 when there is nothing.
    pub revision: Revision,
    /// Its value; empty when there is none, or when it was deleted.
    pub value: Vec<u8>,
}

impl Found {
    /// The value, which is JSON; none where there is no value.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn read<T: DeserializeOwned>(&self) -> Result<Option<T>, serde_json::Error> {
        if self.value.is_empty() { Ok(None) } else { serde_json::from_slice(&self.value).map(Some) }
    }

    /// The record, where it is one.
    #[must_use]
    pub fn record(&self) -> Option<Record> {
        serde_json::from_slice(&self.value).ok()
    }
}

/// One start of the agent on a host.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Owner {
    /// The host.
    pub host: Name,
    /// The start: no two are called the same.
    pub instance: String,
}

/// Who holds a slot, or held it last.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Record {
    /// Who wrote it.
    #[serde(flatten)]
    pub owner: Owner,
    /// The owner's count of writings, so that no two are the same.
    pub serial: u64,
    /// Whether the slot is held; else it was given back.
    pub held: bool,
    /// The term that the owner goes by.
    pub term_ms: u64,
}

impl Record {
    /// In the form of the broker.
    #[must_use]
    pub fn to_value(&self) -> Vec<u8> {
        serde_json::to_vec(self).unwrap_or_default()
    }

    /// How long it must be seen unchanged: hosts with different terms are an error, which costs time and not safety.
    #[must_use]
    pub fn patience(&self, own: Term) -> Duration {
        Duration::from_millis(self.term_ms).min(LONGEST_TERM).max(own.full())
    }
}

/// A thing that was found, and since when it has been the same.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Seen {
    pub(super) found: Found,
    pub(super) since: Moment,
}
