//! The types of traces: what the device of a volume is asked for, counted in the kernel.
//!
//! Owns the names and types of the fields. They are a contract: fields are added, never renamed or removed. No I/O.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// The longest trace, in seconds: its BPF programs cost processor time with each request.
pub const LONGEST_TRACE: u64 = 3600;

/// A request for a trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct TraceRequest {
    /// How long to count, 1 to 3600 seconds.
    pub seconds: u64,
}

/// The trace of a volume that goes on, or the last one.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct VolumeTrace {
    /// Whether it goes on.
    pub running: bool,
    /// When it ends by itself (RFC 3339), while it goes on.
    pub ends: Option<String>,
    /// Why there is no recording, or not of all the time.
    pub trouble: Option<String>,
    /// What was counted so far: the same as `longrun trace --json` prints, with the service as "ours". Null before there is any.
    pub recording: serde_json::Value,
}
