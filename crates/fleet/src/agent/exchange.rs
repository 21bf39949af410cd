//! Policy and state, beside the leases: what waits here for the service or the broker delays no renewal.

use crate::broker::Broker;
use crate::daemon::Daemon;
use crate::host_config::HostConfig;
use crate::policy::in_force::InForce;
use crate::tell::Teller;
use std::time::Duration;

/// Brings policy to the service, and tells of this host; never ends.
pub(super) async fn exchange(broker: &Broker, daemon: &Daemon, config: &HostConfig, pause: Duration) {
    let (mut policy, mut teller) = (InForce::default(), Teller::default());
    loop {
        let fleet = daemon.fleet().await.ok();
        policy.bring(broker, daemon, config, fleet.as_ref()).await;
        // What the service makes of it, not what it was told.
        let fleet = daemon.fleet().await.ok();
        teller.tell(broker, daemon, config, fleet.as_ref(), policy.trouble.as_ref()).await;
        tokio::time::sleep(pause).await;
    }
}
