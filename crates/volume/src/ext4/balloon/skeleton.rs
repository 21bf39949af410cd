//! Generated from the BPF program: its object, and the types of what it is told. Nothing here is written by hand.
#![allow(unsafe_code, clippy::all, clippy::pedantic, clippy::undocumented_unsafe_blocks)]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
#![allow(missing_docs, rust_2018_idioms, unreachable_pub, dead_code, unused_imports)]

include!(concat!(env!("OUT_DIR"), "/commits.skel.rs"));
