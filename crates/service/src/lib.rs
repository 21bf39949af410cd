//! The service: wires prevention, mending and history together for the volumes of a machine, and tells about it.
//!
//! Owns the daemon from its start to its end, its configuration, its HTTP API and metrics, and the client of that API. Never decides
//! about a runway or a move itself, and keeps nothing of a volume open: an administrator can unmount any of them at any time.

mod api;
mod books;
mod client;
pub mod config;
mod daemon;
mod gauges;
pub mod governed;
mod hub;
mod logging;
mod menders;
pub mod mending;
pub mod model;
pub mod volumes;

pub use api::document as openapi_document;
pub use client::{Client, ClientError};
pub use daemon::{DaemonError, DaemonOptions, run};
