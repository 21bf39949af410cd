//! What was generated from the BPF programs: their object, and the types of the records that cross. Nothing by hand.
#![allow(unsafe_code, clippy::all, clippy::pedantic, clippy::undocumented_unsafe_blocks)]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
#![allow(missing_docs, rust_2018_idioms, unreachable_pub, dead_code, unused_imports)]

include!(concat!(env!("OUT_DIR"), "/heat.skel.rs"));
