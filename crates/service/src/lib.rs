//! The service: runs prevention, mending and history for the volumes of a machine, and reports about them.
//!
//! Owns the daemon from start to stop, its configuration, its HTTP API and metrics. Never decides about a runway or a
//! move, and keeps nothing of a volume open: an administrator can unmount any volume at any time.

mod activity;
mod api;
mod daemon;
mod fleet;
mod gauges;
mod governed;
mod heats;
mod hub;
pub mod jobs;
mod loads;
mod logging;
mod maps;
mod menders;
pub mod mending;
mod patience;
mod threads;
mod traces;
pub mod volumes;

pub use longrun_config as config;

pub use api::document as openapi_document;
pub use daemon::{DaemonError, DaemonOptions, run};
