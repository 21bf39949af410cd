//! The requests of the API, and their answers.

use super::exposition::Format;
use super::{config, fleet, heat, jobs, maps, metrics, traces};
use crate::hub::{Hub, Refusal, Request};
use axum::extract::{Path, Query, State};
use axum::http::{HeaderMap, StatusCode, header};
use axum::middleware;
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Extension, Json, Router};
use jiff::Timestamp;
use longrun_api::model::{Accepted, Events, LoadSeries, Pause, Problem, Role, Session, Status, Volume};
use longrun_ledger::{LedgerError, Period, Reader};
pub use longrun_serve::{Failure, Sender};
use longrun_serve::{Groups, Highest, whole};
use serde::Deserialize;
use std::sync::Arc;

/// No request needs more.
const LARGEST_BODY: usize = 64 << 10;
/// The agent of the fleet is in this group.
const AGENTS: &str = "longrun-fleet";
/// A week, in minutes.
const LONGEST_PAUSE: u32 = 7 * 24 * 60;

/// All routes.
pub fn router(hub: Arc<Hub>) -> Router {
    Router::new()
        .route("/v1/session", get(session))
        .route("/v1/status", get(status))
        .route("/v1/volumes", get(volumes))
        .route("/v1/volumes/{id}", get(volume))
        .route("/v1/volumes/{id}/load", get(load))
        .route("/v1/volumes/{id}/analyze", post(analyze))
        .route("/v1/events", get(events))
        .route("/v1/history", get(history))
        .route("/v1/report", get(report))
        .route("/v1/pause", post(pause))
        .route("/v1/resume", post(resume))
        .route("/v1/reload", post(reload))
        .route("/v1/openapi.json", get(openapi))
        .route("/metrics", get(prometheus))
        .merge(jobs::router())
        .merge(maps::router())
        .merge(heat::router())
        .merge(traces::router())
        .merge(config::router())
        .merge(fleet::router())
        .fallback(nothing)
        .method_not_allowed_fallback(wrong_method)
        .layer(middleware::from_fn(|request, next| whole(LARGEST_BODY, request, next)))
        .with_state(hub)
}

/// Whether root itself sends the request, and has not given up what root may do.
pub(super) fn is_root(hub: &Hub, sender: &Sender) -> bool {
    role(hub, sender) == Role::Operator && sender.0.0.is_root()
}

type Answer<T> = Result<Json<T>, Failure>;

/// Who may do what.
pub(super) fn groups(hub: &Hub) -> Groups {
    let settings = &hub.config().service;
    Groups::named(settings.group.as_deref(), &settings.viewers, Some(AGENTS)).open_to_all(settings.readable_by_all)
}

pub(super) fn role(hub: &Hub, (Extension(peer), Extension(Highest(highest))): &Sender) -> Role {
    peer.role(groups(hub)).min(*highest)
}

/// Lets in who has at least the role `least`.
pub(super) fn admit(hub: &Hub, sender: &Sender, least: Role) -> Result<(), Failure> {
    let role = role(hub, sender);
    if role >= least {
        return Ok(());
    }
    let hint = match role {
        Role::Viewer => "viewers may change nothing: use sudo, or ask the administrator to set group in [service]",
        _ => {
            "use sudo, or ask the administrator to set group or viewers (for status and metrics also readable_by_all) \
             in [service]"
        }
    };
    Err(Failure::new(StatusCode::FORBIDDEN, "permission denied", hint))
}

/// What the sender of the request may do.
#[utoipa::path(get, path = "/v1/session", responses((status = 200, body = Session)))]
pub async fn session(State(hub): State<Arc<Hub>>, sender: Sender) -> Json<Session> {
    Json(Session { role: role(&hub, &sender) })
}

/// How the service stands.
#[utoipa::path(get, path = "/v1/status", responses((status = 200, body = Status), (status = 403, body = Problem)))]
pub async fn status(State(hub): State<Arc<Hub>>, sender: Sender) -> Answer<Status> {
    admit(&hub, &sender, Role::Guest)?;
    Ok(Json(hub.status()))
}

/// The volumes.
#[utoipa::path(get, path = "/v1/volumes", responses((status = 200, body = [Volume]), (status = 403, body = Problem)))]
pub async fn volumes(State(hub): State<Arc<Hub>>, sender: Sender) -> Answer<Vec<Volume>> {
    admit(&hub, &sender, Role::Guest)?;
    Ok(Json(hub.status().volumes))
}

/// One volume.
#[utoipa::path(get, path = "/v1/volumes/{id}", params(("id" = String, Path, description = "Id of the volume")),
    responses((status = 200, body = Volume), (status = 403, body = Problem), (status = 404, body = Problem)))]
pub async fn volume(State(hub): State<Arc<Hub>>, sender: Sender, Path(id): Path<String>) -> Answer<Volume> {
    admit(&hub, &sender, Role::Guest)?;
    hub.status().volumes.into_iter().find(|volume| volume.id == id).map(Json).ok_or_else(no_volume)
}

pub(super) fn no_volume() -> Failure {
    Failure::new(StatusCode::NOT_FOUND, "no such volume", "GET /v1/volumes lists them")
}

/// Which part of the load.
#[derive(Debug, Deserialize)]
pub struct LoadQuery {
    since: Option<String>,
}

/// The load of a volume's device over the last hour: that of the service, of other processes, and signs of users outside
/// this machine.
#[utoipa::path(get, path = "/v1/volumes/{id}/load",
    params(("id" = String, Path, description = "Id of the volume"),
        ("since" = Option<String>, Query, description = "return only points after this time (RFC 3339)")),
    responses((status = 200, body = LoadSeries), (status = 400, body = Problem), (status = 403, body = Problem),
        (status = 404, body = Problem)))]
pub async fn load(
    State(hub): State<Arc<Hub>>,
    sender: Sender,
    Path(id): Path<String>,
    query: Result<Query<LoadQuery>, axum::extract::rejection::QueryRejection>,
) -> Answer<LoadSeries> {
    admit(&hub, &sender, Role::Guest)?;
    let Query(query) = query.map_err(|error| wrong_query(&error))?;
    let since = query.since.as_deref().map(time).transpose()?;
    hub.loads(&id, since).map(Json).ok_or_else(no_volume)
}

/// Which events.
#[derive(Debug, Deserialize)]
pub struct EventsQuery {
    since: Option<u64>,
    limit: Option<usize>,
}

/// What happened since the service started.
#[utoipa::path(get, path = "/v1/events",
    params(("since" = Option<u64>, Query, description = "return only events after this number"),
        ("limit" = Option<usize>, Query, description = "return at most this many events (default 1000)")),
    responses((status = 200, body = Events), (status = 403, body = Problem)))]
pub async fn events(
    State(hub): State<Arc<Hub>>,
    sender: Sender,
    query: Result<Query<EventsQuery>, axum::extract::rejection::QueryRejection>,
) -> Answer<Events> {
    admit(&hub, &sender, Role::Viewer)?;
    let Query(query) = query.map_err(|error| wrong_query(&error))?;
    Ok(Json(hub.activity.events(query.since.unwrap_or(0), query.limit.unwrap_or(1000).min(1000))))
}

fn time(text: &str) -> Result<Timestamp, Failure> {
    text.parse().map_err(|_| {
        let error = format!("{} is not a valid time", text.escape_debug());
        Failure::new(StatusCode::BAD_REQUEST, error, "use RFC 3339, for example 2026-01-31T00:00:00Z")
    })
}

pub(super) fn wrong_query(error: &axum::extract::rejection::QueryRejection) -> Failure {
    Failure::new(StatusCode::BAD_REQUEST, error.body_text(), "see GET /v1/openapi.json")
}

/// Which part of the history.
#[derive(Debug, Deserialize)]
pub struct HistoryQuery {
    volume: Option<String>,
    from: Option<String>,
    to: Option<String>,
}

impl HistoryQuery {
    /// What is asked of the ledger; the last week when nothing is said.
    fn read(self, events: usize) -> Result<longrun_ledger::Query, Failure> {
        let to = self.to.as_deref().map_or(Ok(Timestamp::now()), time)?;
        let week = jiff::SignedDuration::from_hours(7 * 24);
        let from = match &self.from {
            Some(text) => time(text)?,
            None => to.checked_sub(week).unwrap_or(Timestamp::MIN),
        };
        if from >= to {
            return Err(Failure::new(StatusCode::BAD_REQUEST, "from is not before to", "swap them"));
        }
        Ok(longrun_ledger::Query { period: Period { from, to }, volume: self.volume, events })
    }
}

/// Figures over time, from the ledger.
#[utoipa::path(get, path = "/v1/history",
    params(("volume" = Option<String>, Query, description = "UUID, label, mount point or device"),
        ("from" = Option<String>, Query, description = "RFC 3339"), ("to" = Option<String>, Query, description = "RFC 3339")),
    responses((status = 200, description = "The report of the ledger, without events"), (status = 400, body = Problem),
        (status = 403, body = Problem), (status = 404, body = Problem), (status = 503, body = Problem)))]
pub async fn history(
    State(hub): State<Arc<Hub>>,
    sender: Sender,
    query: Result<Query<HistoryQuery>, axum::extract::rejection::QueryRejection>,
) -> Result<Response, Failure> {
    ask_ledger(hub, &sender, query, 0).await
}

/// What Longrun was good for, from the ledger.
#[utoipa::path(get, path = "/v1/report",
    params(("volume" = Option<String>, Query, description = "UUID, label, mount point or device"),
        ("from" = Option<String>, Query, description = "RFC 3339"), ("to" = Option<String>, Query, description = "RFC 3339")),
    responses((status = 200, description = "The report of the ledger"), (status = 400, body = Problem),
        (status = 403, body = Problem), (status = 404, body = Problem), (status = 503, body = Problem)))]
pub async fn report(
    State(hub): State<Arc<Hub>>,
    sender: Sender,
    query: Result<Query<HistoryQuery>, axum::extract::rejection::QueryRejection>,
) -> Result<Response, Failure> {
    ask_ledger(hub, &sender, query, 100).await
}

async fn ask_ledger(
    hub: Arc<Hub>,
    sender: &Sender,
    query: Result<Query<HistoryQuery>, axum::extract::rejection::QueryRejection>,
    events: usize,
) -> Result<Response, Failure> {
    admit(&hub, sender, Role::Viewer)?;
    let Query(query) = query.map_err(|error| wrong_query(&error))?;
    let query = query.read(events)?;
    let path = hub.config().service.state_directory.join("ledger.db");
    // Reading may wait for a disk; the other requests must not.
    let read = tokio::task::spawn_blocking(move || Reader::open(&path).and_then(|reader| reader.report(&query)));
    let unavailable = |error: String| {
        Failure::new(StatusCode::SERVICE_UNAVAILABLE, error, "GET /v1/status shows the state of the history")
    };
    let report = read.await.map_err(|error| unavailable(error.to_string()))?.map_err(|error| match error {
        LedgerError::UnknownVolume { .. } => {
            Failure::new(StatusCode::NOT_FOUND, error.to_string(), "GET /v1/volumes lists those of the machine")
        }
        error => unavailable(error.to_string()),
    })?;
    let text = serde_json::to_string(&report).map_err(|error| unavailable(error.to_string()))?;
    Ok(([(header::CONTENT_TYPE, "application/json")], text).into_response())
}

/// Begins a scan of the whole volume; its result is in the volume and in the ledger when it is done.
#[utoipa::path(post, path = "/v1/volumes/{id}/analyze",
    params(("id" = String, Path, description = "Id of the volume")),
    responses((status = 202, body = Accepted), (status = 403, body = Problem), (status = 404, body = Problem),
        (status = 409, body = Problem)))]
pub async fn analyze(
    State(hub): State<Arc<Hub>>,
    sender: Sender,
    Path(id): Path<String>,
) -> Result<(StatusCode, Json<Accepted>), Failure> {
    admit(&hub, &sender, Role::Operator)?;
    hub.may_scan(&id).map_err(|refusal| match refusal {
        Refusal::Unknown => no_volume(),
        Refusal::Busy(why) => Failure::new(StatusCode::CONFLICT, why, "wait until that scan has finished"),
    })?;
    let accepted = Accepted { accepted: format!("the scan of volume {id} has started") };
    hub.begin_scan(id).map_err(|error| {
        Failure::new(StatusCode::SERVICE_UNAVAILABLE, format!("starting a thread failed: {error}"), "try again later")
    })?;
    Ok((StatusCode::ACCEPTED, Json(accepted)))
}

/// Pauses mending, jobs and scheduled scans. The file that is being mended is finished first; prevention goes on.
#[utoipa::path(post, path = "/v1/pause", request_body = Pause,
    responses((status = 202, body = Accepted), (status = 400, body = Problem), (status = 403, body = Problem)))]
pub async fn pause(
    State(hub): State<Arc<Hub>>,
    sender: Sender,
    body: axum::body::Bytes,
) -> Result<(StatusCode, Json<Accepted>), Failure> {
    admit(&hub, &sender, Role::Operator)?;
    let wrong = |error: String| {
        Failure::new(
            StatusCode::BAD_REQUEST,
            error,
            "send {\"minutes\": N}, from 1 to 10080, or no body for a pause without end",
        )
    };
    let asked = if body.is_empty() { Ok(Pause::default()) } else { serde_json::from_slice(&body) };
    let Pause { minutes } = asked.map_err(|error| wrong(format!("the body is not valid: {error}")))?;
    if minutes.is_some_and(|minutes| !(1..=LONGEST_PAUSE).contains(&minutes)) {
        return Err(wrong(format!("minutes must be from 1 to {LONGEST_PAUSE}")));
    }
    let until = minutes.map_or(Timestamp::MAX, |minutes| {
        let length = jiff::SignedDuration::from_mins(i64::from(minutes));
        Timestamp::now().checked_add(length).unwrap_or(Timestamp::MAX)
    });
    hub.set_pause(Some(until));
    let accepted =
        "mending, jobs and scheduled scans are paused; the file that is being mended is finished first".to_owned();
    Ok((StatusCode::ACCEPTED, Json(Accepted { accepted })))
}

/// Ends a pause.
#[utoipa::path(post, path = "/v1/resume", responses((status = 202, body = Accepted), (status = 403, body = Problem)))]
pub async fn resume(State(hub): State<Arc<Hub>>, sender: Sender) -> Result<(StatusCode, Json<Accepted>), Failure> {
    admit(&hub, &sender, Role::Operator)?;
    hub.set_pause(None);
    let accepted = "mending, jobs and scheduled scans go on".to_owned();
    Ok((StatusCode::ACCEPTED, Json(Accepted { accepted })))
}

/// Reads the configuration again.
#[utoipa::path(post, path = "/v1/reload", responses((status = 202, body = Accepted), (status = 403, body = Problem)))]
pub async fn reload(State(hub): State<Arc<Hub>>, sender: Sender) -> Result<(StatusCode, Json<Accepted>), Failure> {
    admit(&hub, &sender, Role::Operator)?;
    hub.request(Request::Reload(None));
    let accepted = "the configuration is being reloaded; GET /v1/status lists errors in it".to_owned();
    Ok((StatusCode::ACCEPTED, Json(Accepted { accepted })))
}

/// Metrics for Prometheus.
#[utoipa::path(get, path = "/metrics", responses(
    (status = 200, description = "The text format of Prometheus 0.0.4, or OpenMetrics 1.0 where the header Accept asks for it"),
    (status = 403, body = Problem)))]
pub async fn prometheus(State(hub): State<Arc<Hub>>, sender: Sender, headers: HeaderMap) -> Result<Response, Failure> {
    admit(&hub, &sender, Role::Guest)?;
    let accept = headers.get_all(header::ACCEPT).iter().filter_map(|value| value.to_str().ok());
    let format = Format::accepted(&accept.collect::<Vec<_>>().join(","));
    // The part in a fleet looks at sysfs.
    let (status, part) = tokio::task::spawn_blocking(move || hub.status_and_part()).await.map_err(|error| {
        Failure::new(StatusCode::SERVICE_UNAVAILABLE, error.to_string(), "see the log of the service")
    })?;
    let text = metrics::encode(&status, part.as_ref(), format);
    Ok(([(header::CONTENT_TYPE, format.content_type())], text).into_response())
}

/// This document.
#[utoipa::path(get, path = "/v1/openapi.json", responses((status = 200, description = "The OpenAPI document")))]
pub async fn openapi() -> Response {
    ([(header::CONTENT_TYPE, "application/json")], super::document()).into_response()
}

async fn nothing() -> Failure {
    Failure::new(StatusCode::NOT_FOUND, "no such path", "see GET /v1/openapi.json")
}

async fn wrong_method() -> Failure {
    Failure::new(StatusCode::METHOD_NOT_ALLOWED, "this path does not support the method", "see GET /v1/openapi.json")
}
