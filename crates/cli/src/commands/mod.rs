//! The commands: each takes its arguments and does its work with the other modules.

pub mod fragment;
pub mod papers;
