//! What the agent of a fleet and the service tell each other over the socket of the service.
//!
//! Owns these types. Times are of CLOCK_BOOTTIME, which all processes of a machine share and which no clock setting moves:
//! a permission that arrives late, or from a process that was stopped meanwhile, ends when it was meant to end.

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use utoipa::ToSchema;

/// `GET /v1/fleet`: this machine's part in a fleet.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Fleet {
    /// `off`: the service works as alone. `rest`: it rests without permission. `go-on`: it rests without permission while the
    /// agent keeps in touch, and works as alone when the agent is silent.
    pub mode: String,
    /// Whether the agent keeps in touch.
    pub in_touch: bool,
    /// The storage groups of this machine's volumes.
    pub groups: Vec<StorageGroup>,
    /// The policy in force.
    #[serde(default)]
    pub policy: Option<PolicyInForce>,
}

/// Storage that hosts share, as this machine sees it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct StorageGroup {
    /// Its name: letters, digits, `-` and `_`.
    pub name: String,
    /// Where the name is from: `configured`, `fc`, `iscsi` or `nvme`.
    pub source: String,
    /// Whether its disks rotate.
    pub rotational: bool,
    /// The mount points of its volumes.
    pub volumes: Vec<String>,
    /// Whether there is work that needs permission: files to mend, a pass or a job.
    pub wants: bool,
    /// Whether it is permitted now.
    pub permitted: bool,
    /// Bytes that were moved since the service started.
    pub moved_bytes: u64,
    /// The latency of its device's requests lately, in microseconds, where it is known.
    #[serde(default)]
    pub latency_us: Option<f64>,
}

/// `PUT /v1/fleet/permission`: what is permitted, and until when. It replaces what was said before.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Permission {
    /// Until when the agent is not silent, even if it says nothing more (CLOCK_BOOTTIME, ns).
    pub in_touch_until: u64,
    /// For each storage group, until when work on it is permitted (CLOCK_BOOTTIME, ns).
    #[serde(default)]
    pub groups: BTreeMap<String, u64>,
}

/// `PUT /v1/fleet/policy`: settings that hold where the configuration file of this machine says nothing else.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Policy {
    /// The version of the document that they are from.
    pub version: u64,
    /// Settings in the form of the configuration file: the section `[defaults]`.
    pub settings: String,
}

/// The policy in force.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct PolicyInForce {
    /// The version of the document.
    pub version: u64,
    /// Its settings, in the form of the configuration file.
    pub settings: String,
    /// Keys that this machine's configuration file pins: they are as that file says.
    pub pinned: Vec<String>,
}
