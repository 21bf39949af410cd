//! The requests about traces of what the device of a volume is asked for.

use super::routes::{Failure, Sender, admit, no_volume};
use crate::hub::{Hub, NoTrace};
use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::routing::get;
use axum::{Json, Router};
use longrun_api::model::{Problem, Role};
use longrun_api::trace::{LONGEST_TRACE, TraceRequest, VolumeTrace};
use std::sync::Arc;

/// The routes.
pub fn router() -> Router<Arc<Hub>> {
    Router::new().route("/v1/volumes/{id}/trace", get(read).post(begin).delete(end))
}

/// The trace of a volume that goes on, or the last one since the service started.
#[utoipa::path(get, path = "/v1/volumes/{id}/trace", params(("id" = String, Path, description = "Id of the volume")),
    responses((status = 200, body = VolumeTrace), (status = 403, body = Problem), (status = 404, body = Problem)))]
pub async fn read(
    State(hub): State<Arc<Hub>>,
    sender: Sender,
    Path(id): Path<String>,
) -> Result<Json<VolumeTrace>, Failure> {
    admit(&hub, &sender, Role::Viewer)?;
    hub.trace(&id).map(Json).ok_or_else(no_volume)
}

/// Counts what the device of a volume is asked for, by all processes: sizes, latency, distances, queue depths. One at a time.
#[utoipa::path(post, path = "/v1/volumes/{id}/trace", params(("id" = String, Path, description = "Id of the volume")),
    request_body = TraceRequest,
    responses((status = 202, body = VolumeTrace), (status = 400, body = Problem), (status = 403, body = Problem),
        (status = 404, body = Problem), (status = 409, body = Problem)))]
pub async fn begin(
    State(hub): State<Arc<Hub>>,
    sender: Sender,
    Path(id): Path<String>,
    body: axum::body::Bytes,
) -> Result<(StatusCode, Json<VolumeTrace>), Failure> {
    admit(&hub, &sender, Role::Operator)?;
    let wrong = |why: String| Failure::new(StatusCode::BAD_REQUEST, why, "send {\"seconds\": 1 to 3600}");
    let request: TraceRequest =
        serde_json::from_slice(&body).map_err(|error| wrong(format!("the body is not valid: {error}")))?;
    if !(1..=LONGEST_TRACE).contains(&request.seconds) {
        return Err(wrong(format!("{} seconds are not permitted", request.seconds)));
    }
    let begun = hub.begin_trace(&id, request.seconds).map_err(|no| match no {
        NoTrace::Unknown => no_volume(),
        NoTrace::Busy(why) => Failure::new(StatusCode::CONFLICT, why, "wait until it has ended, or end it"),
    })?;
    Ok((StatusCode::ACCEPTED, Json(begun)))
}

/// Ends the trace of a volume within a second; what was counted stays. Nothing happens where none goes on.
#[utoipa::path(delete, path = "/v1/volumes/{id}/trace", params(("id" = String, Path, description = "Id of the volume")),
    responses((status = 202, body = VolumeTrace), (status = 403, body = Problem), (status = 404, body = Problem)))]
pub async fn end(
    State(hub): State<Arc<Hub>>,
    sender: Sender,
    Path(id): Path<String>,
) -> Result<(StatusCode, Json<VolumeTrace>), Failure> {
    admit(&hub, &sender, Role::Operator)?;
    hub.end_trace(&id).map(|trace| (StatusCode::ACCEPTED, Json(trace))).ok_or_else(no_volume)
}
