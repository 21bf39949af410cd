//! Benchmarks that show the benefit of Longrun, or that there is none.
//!
//! Owns the workloads ([`workload`]), the figures that are measured meanwhile ([`device`], [`layout_of`],
//! [`Service`]), and the protocol that compares a volume with the service and without it ([`protocol`]). Never writes
//! outside the directory that it makes for itself, and never prints. Where there is no benefit, the report says so.

pub mod ageing;
mod child;
pub mod copy;
pub mod device;
mod error;
mod extents;
pub mod install;
pub mod invisibility;
mod lay;
pub mod layouts;
pub mod oltp;
mod place;
pub mod protocol;
pub mod reads;
pub mod report;
mod reread;
mod scratch;
mod service;
mod space;
mod table;
mod verdict;
pub mod workload;

pub use error::BenchError;
pub use extents::{Layout, Splits, glance, layout_of};
pub use place::{Place, refuse_too_little_space};
pub use protocol::median;
pub use reread::{READ_REQUEST, Reread, reread};
pub use scratch::Scratch;
pub use service::{Service, Usage};
pub use space::SpaceState;
pub use table::{Chart, Findings, Table};
pub use verdict::{Beside, Notice, Verdict};
pub use workload::{Done, Job, Parameters, Profile};
