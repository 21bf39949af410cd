//! `policy apply`, `show`, `resume` and `rollback`: what administrators write at the broker.
//!
//! Owns the order: the document is written before the record that names it, and the record changes by compare-and-set, so that
//! two administrators do not roll out at the same time. An interrupted roll-out stays with its canaries.

use super::watch::Before;
use super::{Document, Look, Rollout, Stage, Verdict, Watch};
use crate::broker::{Broker, BrokerError, Kept, Put};
use crate::lease::{Found, Moment, Revision};
use crate::names::{Name, POLICY, ROLLOUT_KEY, STATE, WATCH_KEY, document_key};
use crate::state::HostState;
use longrun_config::Problem;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// More versions than this in a row without a roll-out are not looked through.
const MOST_UNUSED: u64 = 1000;

/// Why a policy is taken back, where nothing else is said.
pub const NO_REASON: &str = "by an administrator";

/// Why a policy was not rolled out.
#[derive(Debug, thiserror::Error)]
pub enum PolicyError {
    /// About the broker.
    #[error(transparent)]
    Broker(#[from] BrokerError),
    /// The document is wrong.
    #[error("the policy is refused:\n{}", .0.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n"))]
    Wrong(Vec<Problem>),
    /// There is a roll-out that has not ended.
    #[error(
        "version {0} is being rolled out; go on with `longrun fleet policy resume`, or take it back with `policy rollback`"
    )]
    UnderWay(u64),
    /// There is none.
    #[error("no roll-out is under way")]
    NotUnderWay,
    /// There is nothing to take back.
    #[error("no policy is rolled out")]
    NoPolicy,
    /// There is no such version.
    #[error("there is no document of version {0}")]
    NoDocument(u64),
    /// Another administrator was faster.
    #[error("another administrator changed the roll-out at the same moment; look at `longrun fleet policy show`")]
    Outdated,
    /// There are no hosts to try it.
    #[error(
        "no host takes a policy: none tells its state with `[service] fleet` set to rest or go-on; --all-at-once rolls out without a trial"
    )]
    NoHosts,
    /// It was taken back.
    #[error("version {version} was taken back: {why}")]
    TakenBack {
        /// The version.
        version: u64,
        /// Why.
        why: String,
    },
}

/// How a roll-out goes.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    /// The share of hosts that try it, in per cent.
    pub share: u8,
    /// For how long.
    pub watch: Duration,
    /// Within which canaries must confirm it, and never be silent for longer.
    pub patience: Duration,
    /// Between looks.
    pub pause: Duration,
}

/// The record of the roll-out, if there is one, and its revision, which a change replaces.
pub type Current = (Option<Rollout>, Revision);

/// A roll-out that has begun.
#[derive(Clone, Debug)]
pub struct Begun {
    rollout: Rollout,
    revision: Revision,
    known: Before,
}

impl Begun {
    /// The version that is rolled out.
    #[must_use]
    pub const fn version(&self) -> u64 {
        self.rollout.version
    }
}

/// The record of the roll-out, if there is one.
///
/// # Errors
/// [`PolicyError`].
pub async fn rollout(broker: &Broker) -> Result<Current, PolicyError> {
    let found = broker.get(POLICY, ROLLOUT_KEY).await?;
    let rollout = found
        .read()
        .map_err(|error| BrokerError::Refused(format!("the record of the roll-out is not understood: {error}")))?;
    Ok((rollout, found.revision))
}

/// The text of the document of a version.
///
/// # Errors
/// [`PolicyError`].
pub async fn source(broker: &Broker, version: u64) -> Result<String, PolicyError> {
    let found = broker.get(POLICY, &document_key(version)).await?;
    if found.value.is_empty() {
        return Err(PolicyError::NoDocument(version));
    }
    Ok(String::from_utf8_lossy(&found.value).into_owned())
}

/// What all hosts told last.
///
/// # Errors
/// [`PolicyError`].
pub async fn states(broker: &Broker) -> Result<BTreeMap<Name, (HostState, Revision)>, PolicyError> {
    let all = broker.list(STATE).await?.into_iter();
    Ok(all
        .filter_map(|Kept { key, found, .. }| {
            let state = serde_json::from_slice(&found.value).ok()?;
            Some((key.parse().ok()?, (state, found.revision)))
        })
        .collect())
}

/// Writes a document and begins its roll-out; with `plan`, canaries try it first and are watched until it is for all.
///
/// # Errors
/// [`PolicyError`].
pub async fn apply(broker: &Broker, text: &str, plan: Option<&Plan>) -> Result<u64, PolicyError> {
    let begun = begin(broker, rollout(broker).await?, text, plan).await?;
    match plan {
        Some(plan) => watch(broker, begun, plan).await,
        None => Ok(begun.version()),
    }
}

/// Writes a document and begins its roll-out instead of the current one; what has canaries is then to be watched.
///
/// # Errors
/// [`PolicyError`].
pub async fn begin(
    broker: &Broker,
    (before, revision): Current,
    text: &str,
    plan: Option<&Plan>,
) -> Result<Begun, PolicyError> {
    Document::parse(text).map_err(PolicyError::Wrong)?;
    if let Some(Rollout { stage: Stage::Canary, version, .. }) = before {
        return Err(PolicyError::UnderWay(version));
    }
    let states = states(broker).await?;
    let hosts: BTreeSet<Name> =
        states.iter().filter(|(_, (state, _))| takes_policy(state)).map(|(host, _)| host.clone()).collect();
    if plan.is_some() && hosts.is_empty() {
        return Err(PolicyError::NoHosts);
    }
    let version = new_document(broker, text, before.as_ref().map_or(0, |rollout| rollout.version)).await?;
    let stage = if plan.is_some() { Stage::Canary } else { Stage::All };
    let share = plan.map_or(100, |plan| plan.share);
    let previous = before.as_ref().and_then(Rollout::settled);
    let mut rollout = Rollout { version, previous, stage, share, canaries: BTreeSet::new(), reason: None };
    let mut known = Before::default();
    if plan.is_some() {
        rollout.choose(&hosts);
        let canaries = hosts.into_iter().filter(|host| rollout.is_canary(host));
        let alerts = |host: &Name| states.get(host).map(|(state, _)| state.alerts.clone()).unwrap_or_default();
        known = Before(canaries.map(|host| (host.clone(), alerts(&host))).collect());
        let value = serde_json::to_vec(&known).map_err(|error| BrokerError::Refused(error.to_string()))?;
        broker.put_anyhow(POLICY, WATCH_KEY, value).await?;
    }
    let revision = write(broker, &rollout, revision).await?;
    Ok(Begun { rollout, revision, known })
}

/// Goes on with the roll-out that was interrupted.
///
/// # Errors
/// [`PolicyError`].
pub async fn resume(broker: &Broker, plan: &Plan) -> Result<u64, PolicyError> {
    watch(broker, interrupted(broker, rollout(broker).await?).await?, plan).await
}

/// The current roll-out, as far as it was watched.
///
/// # Errors
/// [`PolicyError`].
pub async fn interrupted(broker: &Broker, (rollout, revision): Current) -> Result<Begun, PolicyError> {
    let Some(rollout) = rollout.filter(|rollout| rollout.stage == Stage::Canary) else {
        return Err(PolicyError::NotUnderWay);
    };
    let found = broker.get(POLICY, WATCH_KEY).await?;
    let known = serde_json::from_slice(&found.value)
        .map_err(|error| BrokerError::Refused(format!("what canaries told before is not understood: {error}")))?;
    Ok(Begun { rollout, revision, known })
}

/// All hosts return to the version before the current one.
///
/// # Errors
/// [`PolicyError`].
pub async fn rollback(broker: &Broker, (rollout, revision): Current, why: &str) -> Result<Rollout, PolicyError> {
    let Some(rollout) = rollout.filter(|rollout| rollout.stage != Stage::Stopped) else {
        return Err(PolicyError::NoPolicy);
    };
    let rollout = Rollout { stage: Stage::Stopped, reason: Some(why.to_owned()), ..rollout };
    write(broker, &rollout, revision).await?;
    Ok(rollout)
}

/// Watches the canaries until the version is for all.
///
/// # Errors
/// [`PolicyError`].
pub async fn watch(broker: &Broker, begun: Begun, plan: &Plan) -> Result<u64, PolicyError> {
    let Begun { mut rollout, revision, known } = begun;
    let begin = Moment::now();
    let version = rollout.version;
    tracing::info!("version {version} is tried by {} hosts", known.0.len());
    let canaries: Vec<Name> = known.0.keys().cloned().collect();
    let mut watch = Watch::new(version, known, plan.watch, plan.patience);
    loop {
        // A broker that does not answer for a moment stops nothing; canaries that are silent do.
        if let Ok(looks) = looks(broker, &canaries).await {
            match watch.look(Moment::now().since(begin), &looks) {
                Verdict::Wait => {}
                Verdict::Spread => {
                    rollout.stage = Stage::All;
                    write(broker, &rollout, revision).await?;
                    return Ok(version);
                }
                Verdict::Stop(why) => {
                    rollout.stage = Stage::Stopped;
                    rollout.reason = Some(why.clone());
                    write(broker, &rollout, revision).await?;
                    return Err(PolicyError::TakenBack { version, why });
                }
            }
        }
        tokio::time::sleep(plan.pause).await;
    }
}

/// What the canaries told last.
async fn looks(broker: &Broker, canaries: &[Name]) -> Result<BTreeMap<Name, Look>, BrokerError> {
    let keys: Vec<&str> = canaries.iter().map(Name::as_str).collect();
    let told = broker.get_all(STATE, &keys).await?;
    let look = |found: &Found| {
        let state: HostState = serde_json::from_slice(&found.value).unwrap_or_default();
        let HostState { policy: version, policy_trouble: refused, alerts, .. } = state;
        Look { revision: found.revision.0, version, refused, alerts }
    };
    Ok(canaries.iter().cloned().zip(told.iter().map(|kept| look(&kept.found))).collect())
}

fn takes_policy(state: &HostState) -> bool {
    !state.mode.is_empty() && state.mode != "off"
}

/// Writes the document under the next version that was never used.
async fn new_document(broker: &Broker, text: &str, last: u64) -> Result<u64, PolicyError> {
    for version in last + 1..last + MOST_UNUSED {
        if let Put::Written(_) =
            broker.put(POLICY, &document_key(version), Revision(0), text.as_bytes().to_vec()).await?
        {
            return Ok(version);
        }
    }
    Err(PolicyError::Outdated)
}

async fn write(broker: &Broker, rollout: &Rollout, revision: Revision) -> Result<Revision, PolicyError> {
    let value = serde_json::to_vec(rollout).map_err(|error| BrokerError::Refused(error.to_string()))?;
    match broker.put(POLICY, ROLLOUT_KEY, revision, value).await? {
        Put::Written(revision) => Ok(revision),
        Put::Outdated => Err(PolicyError::Outdated),
    }
}
