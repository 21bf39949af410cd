//! The requests about policy: showing, checking, rolling out, taking back.
//!
//! Owns the task that watches canaries. It ends with this process, and the roll-out then stays with its canaries: `resume`.

use super::Desk;
use super::routes::{Answer, admit, in_time};
use crate::policy::apply::{self, Begun, Current, Plan};
use crate::policy::{Checked, Document, DocumentShown, MOST_BYTES, PolicyShown, Trial};
use axum::Json;
use axum::body::Bytes;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use longrun_api::model::{Accepted, Role};
use longrun_serve::{Failure, Sender};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use std::sync::{Arc, PoisonError};
use tokio::task::JoinHandle;

/// A document as text in JSON is at most a few times as long; quotes and line ends double.
pub(super) const LARGEST_BODY: usize = 4 * MOST_BYTES;
/// The longest reason, in characters.
const LONGEST_REASON: usize = 300;

/// The version whose canaries are watched, and the task that does.
pub(super) type Watching = Option<(u64, JoinHandle<()>)>;

/// A document to be checked.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Check {
    source: String,
}

/// A document to be rolled out.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Begin {
    source: String,
    /// The version that it replaces, as it was shown; null where there was none.
    replaces: Option<u64>,
    #[serde(default)]
    trial: Trial,
    /// Without a trial.
    #[serde(default)]
    all_at_once: bool,
}

/// A roll-out to be gone on with.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Resume {
    version: u64,
    #[serde(default)]
    trial: Trial,
}

/// A version to be taken back.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Rollback {
    version: u64,
    #[serde(default)]
    reason: Option<String>,
}

/// The version whose canaries are watched.
pub(super) fn watching(desk: &Desk) -> Option<u64> {
    let watching = desk.watching.lock().unwrap_or_else(PoisonError::into_inner);
    watching.as_ref().filter(|(_, task)| !task.is_finished()).map(|(version, _)| *version)
}

pub(super) async fn show(State(desk): State<Arc<Desk>>, sender: Sender) -> Answer<Option<PolicyShown>> {
    admit(&desk, &sender, Role::Viewer)?;
    in_time(&desk, PolicyShown::read(&desk.broker)).await.map(Json)
}

pub(super) async fn document(
    State(desk): State<Arc<Desk>>,
    sender: Sender,
    Path(version): Path<String>,
) -> Answer<DocumentShown> {
    admit(&desk, &sender, Role::Viewer)?;
    let version = version.parse().map_err(|_| {
        Failure::new(StatusCode::NOT_FOUND, "no such version", "GET /fleet/v1/policy says which there are")
    })?;
    in_time(&desk, DocumentShown::read(&desk.broker, version)).await.map(Json)
}

pub(super) async fn check(State(desk): State<Arc<Desk>>, sender: Sender, body: Bytes) -> Answer<Checked> {
    admit(&desk, &sender, Role::Operator)?;
    let Check { source } = read(&body, r#"{"source": "name = \"…\""}"#)?;
    Ok(Json(Checked::of(&Document::parse(&source))))
}

pub(super) async fn begin(
    State(desk): State<Arc<Desk>>,
    sender: Sender,
    body: Bytes,
) -> Result<(StatusCode, Json<Accepted>), Failure> {
    admit(&desk, &sender, Role::Operator)?;
    let Begin { source, replaces, trial, all_at_once } =
        read(&body, r#"{"source": "name = \"…\"", "replaces": 3, "trial": {"canary": "10%", "watch": "1h"}}"#)?;
    let plan = (!all_at_once).then(|| trial.plan());
    let current = current(&desk, replaces).await?;
    let begun = in_time(&desk, apply::begin(&desk.broker, current, &source, plan.as_ref())).await?;
    let version = begun.version();
    let to = match plan {
        Some(plan) => {
            watch(&desk, begun, plan);
            "tried by its canaries"
        }
        None => "for all hosts",
    };
    Ok(accepted(format!("version {version} is {to}")))
}

pub(super) async fn resume(
    State(desk): State<Arc<Desk>>,
    sender: Sender,
    body: Bytes,
) -> Result<(StatusCode, Json<Accepted>), Failure> {
    admit(&desk, &sender, Role::Operator)?;
    let Resume { version, trial } = read(&body, r#"{"version": 3}"#)?;
    if watching(&desk) == Some(version) {
        let error = format!("the canaries of version {version} are watched already");
        return Err(Failure::new(StatusCode::CONFLICT, error, "wait until it is for all, or take it back"));
    }
    let current = current(&desk, Some(version)).await?;
    let begun = in_time(&desk, apply::interrupted(&desk.broker, current)).await?;
    watch(&desk, begun, trial.plan());
    Ok(accepted(format!("the canaries of version {version} are watched")))
}

pub(super) async fn rollback(
    State(desk): State<Arc<Desk>>,
    sender: Sender,
    body: Bytes,
) -> Result<(StatusCode, Json<Accepted>), Failure> {
    admit(&desk, &sender, Role::Operator)?;
    let Rollback { version, reason } = read(&body, r#"{"version": 3, "reason": "…"}"#)?;
    let reason = reason.filter(|reason| !reason.trim().is_empty()).unwrap_or_else(|| apply::NO_REASON.to_owned());
    if reason.chars().count() > LONGEST_REASON {
        let error = format!("the reason is longer than {LONGEST_REASON} characters");
        return Err(Failure::new(StatusCode::BAD_REQUEST, error, "make it shorter"));
    }
    let current = current(&desk, Some(version)).await?;
    in_time(&desk, apply::rollback(&desk.broker, current, &reason)).await?;
    stop_watching(&desk);
    tracing::info!("version {version} was taken back by the console");
    Ok(accepted(format!("version {version} is taken back: all hosts return to the version before")))
}

/// The current roll-out, where it is of the version that the sender has seen.
async fn current(desk: &Desk, seen: Option<u64>) -> Result<Current, Failure> {
    let current = in_time(desk, apply::rollout(&desk.broker)).await?;
    let version = current.0.as_ref().map(|rollout| rollout.version);
    if version == seen {
        return Ok(current);
    }
    let told = |version: Option<u64>| version.map_or_else(|| "none".to_owned(), |version| version.to_string());
    let error = format!("the policy is version {} now, not {}", told(version), told(seen));
    Err(Failure::new(StatusCode::CONFLICT, error, "nothing was changed; look at the policy again"))
}

/// Watches in the background, instead of what was watched before: that roll-out has ended.
fn watch(desk: &Arc<Desk>, begun: Begun, plan: Plan) {
    let version = begun.version();
    let for_task = Arc::clone(desk);
    let task = tokio::spawn(async move {
        match apply::watch(&for_task.broker, begun, &plan).await {
            Ok(version) => tracing::info!("version {version} is for all hosts"),
            Err(error) => tracing::warn!("{error}"),
        }
    });
    stop_watching(desk);
    *desk.watching.lock().unwrap_or_else(PoisonError::into_inner) = Some((version, task));
}

fn stop_watching(desk: &Desk) {
    if let Some((_, task)) = desk.watching.lock().unwrap_or_else(PoisonError::into_inner).take() {
        task.abort();
    }
}

fn read<T: DeserializeOwned>(body: &[u8], example: &str) -> Result<T, Failure> {
    serde_json::from_slice(body).map_err(|error| {
        Failure::new(StatusCode::BAD_REQUEST, format!("the body is not valid: {error}"), format!("send {example}"))
    })
}

fn accepted(what: String) -> (StatusCode, Json<Accepted>) {
    (StatusCode::ACCEPTED, Json(Accepted { accepted: what }))
}
