//! The commands: each takes its arguments and does its work with the other modules.

pub mod analyze;
pub mod bench;
pub mod boot;
pub mod config;
pub mod daemon;
pub mod disk;
pub mod fleet;
pub mod fragment;
pub mod generated;
pub mod heat;
pub mod images;
pub mod job;
pub mod map;
pub mod optimize;
pub mod prevent;
pub mod profile;
pub mod reclaim;
pub mod report;
pub mod status;
pub mod trace;
