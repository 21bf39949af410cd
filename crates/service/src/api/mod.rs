//! The HTTP API on a Unix socket. What serves it over TCP is a process of its own, `longrun-web`.
//!
//! Owns which role each request needs; who has it, and the limits on connections, are in `longrun-serve`. One thread serves all connections and answers from memory; reports
//! and scans get threads of their own.

mod config;
mod exposition;
mod fleet;
mod heat;
mod jobs;
mod maps;
mod metrics;
mod openapi;
mod routes;
mod server;
mod traces;

pub use openapi::document;
pub use server::Server;
