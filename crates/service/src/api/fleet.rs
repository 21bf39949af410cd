//! The requests of the fleet's agent, and their answers.
//!
//! Owns who may permit work and set the policy: the members of the group `longrun-fleet`, and operators.

use super::routes::{Failure, Sender, admit, groups, role};
use crate::hub::{Hub, PolicyError};
use axum::extract::State;
use axum::http::StatusCode;
use axum::routing::{get, put};
use axum::{Json, Router};
use longrun_api::fleet::{Fleet, Permission, Policy};
use longrun_api::model::{Accepted, Problem, Role};
use std::sync::Arc;

/// So many storage groups may be named: no machine has more.
const MOST_GROUPS: usize = 1000;

/// The routes.
pub fn router() -> Router<Arc<Hub>> {
    Router::new()
        .route("/v1/fleet", get(read))
        .route("/v1/fleet/permission", put(permit))
        .route("/v1/fleet/policy", put(set_policy).delete(drop_policy))
}

/// Lets in operators and the agent of the fleet.
fn admit_agent(hub: &Hub, sender: &Sender) -> Result<(), Failure> {
    match role(hub, sender) {
        Role::Operator => Ok(()),
        Role::Viewer if sender.0.0.is_agent(groups(hub)) && !sender.1.0.is_lowered() => Ok(()),
        _ => Err(Failure::new(
            StatusCode::FORBIDDEN,
            "permission denied",
            "only operators and members of the group longrun-fleet may do this",
        )),
    }
}

/// This machine's part in a fleet: the storage that it shares, what waits there for permission, and the policy that holds.
#[utoipa::path(get, path = "/v1/fleet", responses((status = 200, body = Fleet), (status = 403, body = Problem)))]
pub async fn read(State(hub): State<Arc<Hub>>, sender: Sender) -> Result<Json<Fleet>, Failure> {
    admit(&hub, &sender, Role::Viewer)?;
    // It looks at sysfs.
    let part = tokio::task::spawn_blocking(move || hub.part_in_fleet()).await;
    part.map(Json)
        .map_err(|error| Failure::new(StatusCode::SERVICE_UNAVAILABLE, error.to_string(), "see the log of the service"))
}

/// Permits work on shared storage, until a moment of the machine's clock. It replaces what was permitted before. The answer comes when no job
/// works any more where work is not permitted.
#[utoipa::path(put, path = "/v1/fleet/permission", request_body = Permission,
    responses((status = 202, body = Accepted), (status = 400, body = Problem), (status = 403, body = Problem), (status = 503, body = Problem)))]
pub async fn permit(
    State(hub): State<Arc<Hub>>,
    sender: Sender,
    body: axum::body::Bytes,
) -> Result<(StatusCode, Json<Accepted>), Failure> {
    admit_agent(&hub, &sender)?;
    let permission: Permission = read_body(&body)?;
    if permission.groups.len() > MOST_GROUPS {
        let error = format!("there must be at most {MOST_GROUPS} storage groups");
        return Err(Failure::new(StatusCode::BAD_REQUEST, error, "name those of this machine only"));
    }
    let stopped = tokio::task::spawn_blocking(move || hub.permit(permission)).await;
    if !stopped.unwrap_or(false) {
        let error = "a job has not stopped yet where work is not permitted any more; it is told to";
        return Err(Failure::new(StatusCode::SERVICE_UNAVAILABLE, error, "say it again"));
    }
    Ok((StatusCode::ACCEPTED, Json(Accepted { accepted: "what is permitted now has replaced what was".to_owned() })))
}

/// Puts settings of the fleet's policy into effect, where the configuration file says nothing else. They hold over restarts.
#[utoipa::path(put, path = "/v1/fleet/policy", request_body = Policy,
    responses((status = 200, body = Fleet), (status = 400, body = Problem), (status = 403, body = Problem), (status = 409, body = Problem),
        (status = 422, body = Problem), (status = 503, body = Problem)))]
pub async fn set_policy(
    State(hub): State<Arc<Hub>>,
    sender: Sender,
    body: axum::body::Bytes,
) -> Result<Json<Fleet>, Failure> {
    admit_agent(&hub, &sender)?;
    let policy: Policy = read_body(&body)?;
    change_policy(hub, Some(policy)).await
}

/// Ends the policy of the fleet on this machine.
#[utoipa::path(delete, path = "/v1/fleet/policy",
    responses((status = 200, body = Fleet), (status = 403, body = Problem), (status = 409, body = Problem), (status = 503, body = Problem)))]
pub async fn drop_policy(State(hub): State<Arc<Hub>>, sender: Sender) -> Result<Json<Fleet>, Failure> {
    admit_agent(&hub, &sender)?;
    change_policy(hub, None).await
}

async fn change_policy(hub: Arc<Hub>, policy: Option<Policy>) -> Result<Json<Fleet>, Failure> {
    let change = move || hub.set_policy(policy.as_ref()).map(|()| hub.part_in_fleet());
    let failed = |error: String| Failure::new(StatusCode::SERVICE_UNAVAILABLE, error, "see the log of the service");
    let changed = tokio::task::spawn_blocking(change).await.map_err(|error| failed(error.to_string()))?;
    changed.map(Json).map_err(|error| {
        let (status, hint) = match error {
            PolicyError::Off => (StatusCode::CONFLICT, "change the configuration file"),
            PolicyError::Wrong(_) => {
                (StatusCode::UNPROCESSABLE_ENTITY, "check the policy with `longrun fleet policy check`")
            }
            PolicyError::Place { .. } => (StatusCode::SERVICE_UNAVAILABLE, "see the log of the service"),
        };
        Failure::new(status, error.to_string(), hint)
    })
}

fn read_body<T: serde::de::DeserializeOwned>(body: &[u8]) -> Result<T, Failure> {
    serde_json::from_slice(body).map_err(|error| {
        let error = format!("the body is not valid: {error}");
        Failure::new(StatusCode::BAD_REQUEST, error, "see GET /v1/openapi.json")
    })
}
