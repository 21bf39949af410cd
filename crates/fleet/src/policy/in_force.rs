//! The agent's part of policy: reads which version is for this host, and gives the service its settings.
//!
//! Owns which version was given. A broker that has nothing takes nothing back: it may have lost its data.

use super::{Document, Rollout};
use crate::broker::Broker;
use crate::daemon::{Daemon, DaemonError};
use crate::host_config::HostConfig;
use crate::names::{POLICY, ROLLOUT_KEY, document_key};
use longrun_api::fleet::{Fleet, Policy};

/// The policy of this host.
#[derive(Debug, Default)]
pub struct InForce {
    given: Option<u64>,
    /// Why the version that is for this host is not in force.
    pub trouble: Option<String>,
}

impl InForce {
    /// Looks which version is for this host, and gives it to the service where that has another one.
    pub async fn bring(&mut self, broker: &Broker, daemon: &Daemon, config: &HostConfig, fleet: Option<&Fleet>) {
        let Some(fleet) = fleet else { return };
        if fleet.mode == "off" {
            self.trouble = None;
            return;
        }
        match self.compare(broker, daemon, config, fleet).await {
            Ok(()) => self.trouble = None,
            Err(None) => {}
            Err(Some(trouble)) => {
                if self.trouble.as_ref() != Some(&trouble) {
                    tracing::warn!("the policy is not in force: {trouble}");
                }
                self.trouble = Some(trouble);
            }
        }
    }

    /// Without a text, the error is one of the moment.
    async fn compare(
        &mut self,
        broker: &Broker,
        daemon: &Daemon,
        config: &HostConfig,
        fleet: &Fleet,
    ) -> Result<(), Option<String>> {
        let found = broker.get(POLICY, ROLLOUT_KEY).await.map_err(|_| None)?;
        let rollout: Option<Rollout> =
            found.read().map_err(|error| Some(format!("the record of the roll-out is not understood: {error}")))?;
        let Some(rollout) = rollout else { return Ok(()) };
        let in_force = fleet.policy.as_ref().map(|policy| policy.version);
        let Some(version) = rollout.version_for(&config.host) else {
            if in_force.is_some() {
                daemon.delete("/v1/fleet/policy").await.map_err(permanent)?;
                tracing::info!("no policy any more");
            }
            self.given = None;
            return Ok(());
        };
        if in_force == Some(version) && self.given == Some(version) {
            return Ok(());
        }
        let policy = Policy { version, settings: settings(broker, version, config).await? };
        daemon.put("/v1/fleet/policy", &policy).await.map_err(permanent)?;
        tracing::info!("policy {version} is in force");
        self.given = Some(version);
        Ok(())
    }
}

async fn settings(broker: &Broker, version: u64, config: &HostConfig) -> Result<String, Option<String>> {
    let found = broker.get(POLICY, &document_key(version)).await.map_err(|_| None)?;
    let text = std::str::from_utf8(&found.value).ok().filter(|text| !text.is_empty());
    let text = text.ok_or_else(|| Some(format!("there is no document of version {version}")))?;
    let settings = Document::parse(text).and_then(|document| document.settings_for(&config.labels));
    settings.map_err(|problems| {
        let first = problems.first().map(ToString::to_string).unwrap_or_default();
        Some(format!("version {version}: {first}"))
    })
}

/// What the service refuses is told; what did not reach it is tried again.
fn permanent(error: DaemonError) -> Option<String> {
    matches!(error, DaemonError::Refused { .. }).then(|| error.to_string())
}
