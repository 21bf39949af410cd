//! What this process may do.

use rustix::process::{Resource, Rlimit, geteuid, getrlimit, setrlimit};

/// Whether the process runs as root.
#[must_use]
pub fn is_root() -> bool {
    geteuid().is_root()
}

/// Raises the number of files that the process may have open to the most that it may give itself.
///
/// # Errors
/// The kernel's.
pub fn raise_open_file_limit() -> Result<(), rustix::io::Errno> {
    let limit = getrlimit(Resource::Nofile);
    setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, maximum: limit.maximum })
}
