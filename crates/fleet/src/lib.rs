//! Many hosts, one policy, and storage that they share.
//!
//! Owns the agent that runs on each host, as a user without privilege, the administrator's commands, and what serves the fleet to
//! the console. Hosts meet at a NATS server with JetStream; the root daemon never talks to it: the agent tells it, over its socket,
//! what is permitted and until when.

pub mod accounts;
pub mod agent;
pub mod broker;
pub mod console;
pub mod daemon;
pub mod enroll;
pub mod host_config;
pub mod lease;
pub mod names;
pub mod policy;
pub mod report;
pub mod show;
pub mod state;
pub mod tell;
pub mod text;
