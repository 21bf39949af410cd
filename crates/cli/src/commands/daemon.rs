//! `daemon`: runs the service.

use crate::args::service::DaemonArgs;
use crate::exit::Failure;
use longrun_service::DaemonOptions;

/// Runs the service until a signal ends it.
pub fn run(args: &DaemonArgs) -> Result<(), Failure> {
    longrun_sys::forgo_resource_privilege().map_err(Failure::privilege)?;
    longrun_service::run(DaemonOptions {
        config: args.config.clone(),
        socket: args.socket.clone(),
        state_directory: args.state_directory.clone(),
        sensor: args.sensor.into(),
    })?;
    Ok(())
}
