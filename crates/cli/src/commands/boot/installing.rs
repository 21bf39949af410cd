//! `boot enable` and `boot disable`: units of systemd, and hooks of the initramfs.

use crate::args::boot::InstallArgs;
use crate::exit::{Failure, Status};

/// Installs.
pub fn enable(_: &InstallArgs) -> Result<(), Failure> {
    Err(Failure::new(Status::Refused, "not yet"))
}

/// Removes.
pub fn disable(_: &InstallArgs) -> Result<(), Failure> {
    Err(Failure::new(Status::Refused, "not yet"))
}
