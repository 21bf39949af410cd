//! The recipes: each combines the operations of the tree (create, append, rewrite, delete) into the history of a kind
//! of volume.

mod aged;
mod churn;
mod git;
mod media;
mod office;
mod server;
mod tight;

pub(crate) use aged::aged;
pub(crate) use churn::churn;
pub(crate) use git::git;
pub(crate) use media::media;
pub(crate) use office::office;
pub(crate) use server::server;
pub(crate) use tight::tight;

/// One KiB in bytes.
const KIB: u64 = 1 << 10;
/// One MiB in bytes.
const MIB: u64 = 1 << 20;
