//! The requests about jobs: start, follow, cancel.

use super::routes::{Failure, Sender, admit, no_volume};
use crate::hub::{Hub, NoJob};
use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::routing::get;
use axum::{Json, Router};
use longrun_api::jobs::{Job, JobReport, JobRequest};
use longrun_api::model::{Problem, Role};
use std::sync::Arc;

/// The routes.
pub fn router() -> Router<Arc<Hub>> {
    Router::new()
        .route("/v1/jobs", get(list).post(start))
        .route("/v1/jobs/{id}", get(one).delete(cancel))
        .route("/v1/jobs/{id}/report", get(report))
}

fn no_job() -> Failure {
    Failure::new(StatusCode::NOT_FOUND, "no such job", "GET /v1/jobs lists them")
}

/// The jobs that have not ended, oldest first, then the last 50 that have, latest first.
#[utoipa::path(get, path = "/v1/jobs", responses((status = 200, body = [Job]), (status = 403, body = Problem)))]
pub async fn list(State(hub): State<Arc<Hub>>, sender: Sender) -> Result<Json<Vec<Job>>, Failure> {
    admit(&hub, &sender, Role::Viewer)?;
    Ok(Json(hub.jobs.list()))
}

/// One job.
#[utoipa::path(get, path = "/v1/jobs/{id}", params(("id" = u64, Path, description = "number of the job")),
    responses((status = 200, body = Job), (status = 403, body = Problem), (status = 404, body = Problem)))]
pub async fn one(State(hub): State<Arc<Hub>>, sender: Sender, Path(id): Path<String>) -> Result<Json<Job>, Failure> {
    admit(&hub, &sender, Role::Viewer)?;
    id.parse().ok().and_then(|id| hub.jobs.get(id)).map(Json).ok_or_else(no_job)
}

/// What a job has to report: the same as the command of its name prints. There is none before its first run has ended.
#[utoipa::path(get, path = "/v1/jobs/{id}/report", params(("id" = u64, Path, description = "number of the job")),
    responses((status = 200, body = JobReport), (status = 403, body = Problem), (status = 404, body = Problem)))]
pub async fn report(
    State(hub): State<Arc<Hub>>,
    sender: Sender,
    Path(id): Path<String>,
) -> Result<Json<JobReport>, Failure> {
    admit(&hub, &sender, Role::Viewer)?;
    let none = || Failure::new(StatusCode::NOT_FOUND, "no such job, or no report of it yet", "GET /v1/jobs lists them");
    id.parse().ok().and_then(|id| hub.jobs.report(id)).map(Json).ok_or_else(none)
}

/// Starts a job. It begins at once, or waits until a scan or another job has ended.
#[utoipa::path(post, path = "/v1/jobs", request_body = JobRequest,
    responses((status = 202, body = Job), (status = 400, body = Problem), (status = 403, body = Problem),
        (status = 404, body = Problem), (status = 409, body = Problem)))]
pub async fn start(
    State(hub): State<Arc<Hub>>,
    sender: Sender,
    body: axum::body::Bytes,
) -> Result<(StatusCode, Json<Job>), Failure> {
    admit(&hub, &sender, Role::Operator)?;
    let wrong = |error: String| {
        Failure::new(
            StatusCode::BAD_REQUEST,
            error,
            "send {\"volume\": ID, \"task\": \"analyze\", \"optimize\" or \"reclaim\"}",
        )
    };
    let request: JobRequest =
        serde_json::from_slice(&body).map_err(|error| wrong(format!("the body is not valid: {error}")))?;
    let accepted = hub.ask_for(request).map_err(|no| match no {
        NoJob::Unknown => no_volume(),
        NoJob::Wrong(why) => wrong(why),
        NoJob::Conflict(why, hint) => Failure::new(StatusCode::CONFLICT, why, hint),
    })?;
    Ok((StatusCode::ACCEPTED, Json(accepted)))
}

/// Cancels a job. The current move is completed, and all space that is held is given back; what was done stays done.
#[utoipa::path(delete, path = "/v1/jobs/{id}", params(("id" = u64, Path, description = "number of the job")),
    responses((status = 202, body = Job), (status = 403, body = Problem), (status = 404, body = Problem),
        (status = 409, body = Problem)))]
pub async fn cancel(
    State(hub): State<Arc<Hub>>,
    sender: Sender,
    Path(id): Path<String>,
) -> Result<(StatusCode, Json<Job>), Failure> {
    admit(&hub, &sender, Role::Operator)?;
    let id = id.parse().map_err(|_| no_job())?;
    let job = hub.cancel_job(id).map_err(|no| match no {
        NoJob::Conflict(why, hint) => Failure::new(StatusCode::CONFLICT, why, hint),
        NoJob::Unknown | NoJob::Wrong(_) => no_job(),
    })?;
    Ok((StatusCode::ACCEPTED, Json(job)))
}
