//! The requests about heat, and their answers.

use super::routes::{Failure, Sender, admit, no_volume, wrong_query};
use crate::heats::Known;
use crate::hub::Hub;
use axum::extract::rejection::QueryRejection;
use axum::extract::{Path, Query, State};
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse as _, Response};
use axum::routing::get;
use axum::{Json, Router};
use jiff::Timestamp;
use longrun_api::heat::{HotFile, MOST_HOTTEST, VolumeHeat};
use longrun_api::model::{Problem, Role};
use longrun_heat::{Heat, Minute};
use longrun_layout::FileId;
use serde::Deserialize;
use std::sync::Arc;

/// The routes.
pub fn router() -> Router<Arc<Hub>> {
    Router::new().route("/v1/volumes/{id}/heat", get(heat)).route("/v1/volumes/{id}/heat/table", get(table))
}

/// How many files.
#[derive(Debug, Deserialize)]
pub struct HeatQuery {
    top: Option<usize>,
}

/// How often the device of a volume is read for which file, with a half-life of seven days.
#[utoipa::path(get, path = "/v1/volumes/{id}/heat",
    params(("id" = String, Path, description = "Id of the volume"),
        ("top" = Option<usize>, Query, description = "so many of the hottest files (default 50, at most 1000)")),
    responses((status = 200, body = VolumeHeat), (status = 400, body = Problem), (status = 403, body = Problem),
        (status = 404, body = Problem)))]
pub async fn heat(
    State(hub): State<Arc<Hub>>,
    sender: Sender,
    Path(id): Path<String>,
    query: Result<Query<HeatQuery>, QueryRejection>,
) -> Result<Json<VolumeHeat>, Failure> {
    let known = known(hub, &sender, id).await?;
    let Query(query) = query.map_err(|error| wrong_query(&error))?;
    Ok(Json(answer(&known, query.top.unwrap_or(50).min(MOST_HOTTEST))))
}

/// The same of all files, in the form of the file in the state directory.
#[utoipa::path(get, path = "/v1/volumes/{id}/heat/table",
    params(("id" = String, Path, description = "Id of the volume")),
    responses((status = 200, body = Vec<u8>, content_type = "application/octet-stream"), (status = 403, body = Problem),
        (status = 404, body = Problem)))]
pub async fn table(State(hub): State<Arc<Hub>>, sender: Sender, Path(id): Path<String>) -> Result<Response, Failure> {
    let known = known(hub, &sender, id).await?;
    let bytes = known.table.to_bytes(known.uuid);
    Ok(([(header::CONTENT_TYPE, "application/octet-stream")], bytes).into_response())
}

/// Taking the counts of thousands of files takes milliseconds, which other requests do not wait.
async fn known(hub: Arc<Hub>, sender: &Sender, id: String) -> Result<Known, Failure> {
    admit(&hub, sender, Role::Viewer)?;
    if !hub.has_volume(&id) {
        return Err(no_volume());
    }
    let found = tokio::task::spawn_blocking(move || hub.heats.of(&id)).await.map_err(|error| error.to_string());
    found
        .and_then(|found| found)
        .map_err(|why| Failure::new(StatusCode::NOT_FOUND, why, "GET /v1/config shows the settings of each volume"))
}

fn answer(known: &Known, top: usize) -> VolumeHeat {
    let (table, now) = (&known.table, known.now);
    let totals = table.totals(now);
    VolumeHeat {
        began: time(table.began()),
        minutes: table.recorded(),
        direct: known.tells_direct,
        reads: totals.reads,
        read_bytes: totals.bytes,
        files: table.len() as u64,
        hottest: table.hottest(top, now).into_iter().map(hot_file).collect(),
    }
}

fn hot_file((file, heat): (FileId, Heat)) -> HotFile {
    HotFile {
        inode: file.inode.0,
        generation: file.generation,
        reads: heat.reads.into(),
        read_bytes: heat.bytes.into(),
        changes: heat.changes.into(),
        last: time(heat.last),
    }
}

fn time(minute: Minute) -> String {
    Timestamp::from_second(minute.seconds()).unwrap_or_default().to_string()
}
