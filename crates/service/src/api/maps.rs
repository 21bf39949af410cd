//! The requests about maps, and their answers.
//!
//! Owns the checks of what is asked for. Maps are read on threads of their own, since they lie on a disk.

use super::routes::{Failure, Sender, admit, no_volume, wrong_query};
use crate::hub::Hub;
use crate::maps::{self, Wanted};
use axum::extract::rejection::QueryRejection;
use axum::extract::{Path, Query, State};
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use axum::{Json, Router};
use longrun_api::map::{
    AGE_HEADER, BlockOwner, FileExtents, MOST_CELLS, MOST_HEAT_CELLS, MapExtents, MapHeat, MapLevels,
};
use longrun_api::model::{Problem, Role};
use longrun_atlas::{Atlas, AtlasError};
use longrun_layout::{Blocks, Extent, FileIndex, PhysicalBlock};
use longrun_sys::FileSystem;
use serde::Deserialize;
use std::fs::File;
use std::path::PathBuf;
use std::sync::Arc;

/// The routes.
pub fn router() -> Router<Arc<Hub>> {
    Router::new()
        .route("/v1/volumes/{id}/map/levels", get(levels))
        .route("/v1/volumes/{id}/map", get(cells))
        .route("/v1/volumes/{id}/map/heat", get(heat))
        .route("/v1/volumes/{id}/extents", get(extents))
        .route("/v1/volumes/{id}/owner", get(owner))
        .route("/v1/volumes/{id}/file", get(file))
}

type Asked<T> = Result<Query<T>, QueryRejection>;

/// Which of the maps of a volume.
#[derive(Clone, Copy, Debug, Deserialize)]
pub struct Which {
    #[serde(default)]
    before: bool,
}

/// Everything that a request about a map has in common.
struct Request {
    hub: Arc<Hub>,
    wanted: Wanted,
    filesystem: FileSystem,
    known: Option<String>,
    before: bool,
}

impl Request {
    fn new(
        hub: Arc<Hub>,
        sender: &Sender,
        id: &str,
        headers: &HeaderMap,
        which: Asked<Which>,
    ) -> Result<Self, Failure> {
        admit(&hub, sender, Role::Viewer)?;
        let (wanted, filesystem) = hub.map_wanted(id).ok_or_else(no_volume)?;
        let known = headers.get(header::IF_NONE_MATCH).and_then(|tag| tag.to_str().ok()).map(str::to_owned);
        let Which { before } = query(which)?;
        Ok(Self { hub, wanted, filesystem, known, before })
    }

    /// What `read` finds in the map, with the number and the age of the scan; 304 where the client has it.
    async fn answer<T: IntoResponse + 'static>(
        self,
        read: impl FnOnce(&Self, &Atlas<File>) -> Result<T, Failure> + Send + 'static,
    ) -> Result<Response, Failure> {
        let work = move || {
            let maps = self.hub.maps();
            let atlas = match self.before {
                true => maps.open_before(&self.wanted).map_err(unreadable)?.ok_or_else(no_earlier_map)?,
                false => maps.open(&self.wanted).map_err(unreadable)?.ok_or_else(no_map)?,
            };
            let scan = maps::levels(&atlas).scan;
            let tag = format!("\"{}\"", scan.number);
            let is_known = self.known.as_deref().is_some_and(|known| has(known, &tag));
            let mut response =
                if is_known { StatusCode::NOT_MODIFIED.into_response() } else { read(&self, &atlas)?.into_response() };
            let headers = response.headers_mut();
            for (name, value) in [(header::ETAG.as_str(), tag), (AGE_HEADER, scan.age_seconds.to_string())] {
                if let (Ok(name), Ok(value)) = (header::HeaderName::try_from(name), HeaderValue::try_from(value)) {
                    headers.insert(name, value);
                }
            }
            Ok(response)
        };
        tokio::task::spawn_blocking(work).await.map_err(|error| {
            Failure::new(
                StatusCode::INTERNAL_SERVER_ERROR,
                format!("reading the map failed: {error}"),
                "please report it",
            )
        })?
    }
}

/// Whether the value of `If-None-Match` names the tag.
fn has(known: &str, tag: &str) -> bool {
    known.split(',').map(str::trim).any(|one| one == "*" || one.strip_prefix("W/").unwrap_or(one) == tag)
}

fn no_map() -> Failure {
    let hint = "POST /v1/volumes/ID/analyze scans it; GET /v1/volumes/ID says why the last scan left none";
    Failure::new(StatusCode::NOT_FOUND, "no scan of this volume has left a map yet", hint)
}

fn no_earlier_map() -> Failure {
    let hint =
        "the map from before a pass is kept when the service makes one (POST /v1/jobs, or pass in the configuration)";
    Failure::new(StatusCode::NOT_FOUND, "no map from before a pass of this volume is kept", hint)
}

fn unreadable(error: AtlasError) -> Failure {
    Failure::new(StatusCode::SERVICE_UNAVAILABLE, error.to_string(), "POST /v1/volumes/ID/analyze writes a new map")
}

fn wrong(error: String) -> Failure {
    Failure::new(StatusCode::BAD_REQUEST, error, "GET /v1/volumes/ID/map/levels tells what there is")
}

fn query<T>(asked: Asked<T>) -> Result<T, Failure> {
    asked.map(|Query(query)| query).map_err(|error| wrong_query(&error))
}

/// What the map of a volume consists of: its levels of detail, its blocks, and when it was made.
#[utoipa::path(get, path = "/v1/volumes/{id}/map/levels",
    params(("id" = String, Path, description = "Id of the volume"),
        ("before" = Option<bool>, Query, description = "the map from before the last pass")),
    responses((status = 200, body = MapLevels), (status = 304, description = "The client has it"),
        (status = 403, body = Problem), (status = 404, body = Problem), (status = 503, body = Problem)))]
pub async fn levels(
    State(hub): State<Arc<Hub>>,
    sender: Sender,
    Path(id): Path<String>,
    headers: HeaderMap,
    which: Asked<Which>,
) -> Result<Response, Failure> {
    Request::new(hub, &sender, &id, &headers, which)?.answer(of_levels).await
}

fn of_levels(request: &Request, atlas: &Atlas<File>) -> Result<Json<MapLevels>, Failure> {
    let now = if request.before { request.hub.maps().open(&request.wanted).map_err(unreadable)? } else { None };
    // A damaged map from before the pass is not missed where the current one is asked for.
    let pass = request.hub.map_pass(&request.wanted, now.as_ref().unwrap_or(atlas)).unwrap_or_default();
    Ok(Json(MapLevels { pass, ..maps::levels(atlas) }))
}

/// Which cells.
#[derive(Debug, Deserialize)]
pub struct CellsQuery {
    level: u32,
    from: Option<u64>,
    count: Option<u64>,
}

/// Cells of a level of the map of a volume, four bytes each: the shares of its blocks that are not free, that belong to files in
/// more than one fragment, and that cannot be moved, from 0 to 255; and `16 * log2(1 + n)` of the n pieces that begin there.
#[utoipa::path(get, path = "/v1/volumes/{id}/map",
    params(("id" = String, Path, description = "Id of the volume"),
        ("before" = Option<bool>, Query, description = "the map from before the last pass"),
        ("level" = u32, Query, description = "0 is the finest"),
        ("from" = Option<u64>, Query, description = "the first cell (default 0)"),
        ("count" = Option<u64>, Query, description = "so many cells, fewer at the end of the volume; at most 65536 (default)")),
    responses((status = 200, body = Vec<u8>, content_type = "application/octet-stream"),
        (status = 304, description = "The client has it"), (status = 400, body = Problem), (status = 403, body = Problem),
        (status = 404, body = Problem), (status = 503, body = Problem)))]
pub async fn cells(
    State(hub): State<Arc<Hub>>,
    sender: Sender,
    Path(id): Path<String>,
    headers: HeaderMap,
    which: Asked<Which>,
    asked: Asked<CellsQuery>,
) -> Result<Response, Failure> {
    let request = Request::new(hub, &sender, &id, &headers, which)?;
    let CellsQuery { level, from, count } = query(asked)?;
    let (from, count) = (from.unwrap_or(0), count.unwrap_or(u64::from(MOST_CELLS)));
    if count > u64::from(MOST_CELLS) {
        return Err(wrong(format!("{count} cells are more than the {MOST_CELLS} of one answer")));
    }
    let read = move |_: &Request, atlas: &Atlas<File>| {
        let levels = atlas.levels();
        let found = levels.get(level as usize).ok_or_else(|| {
            wrong(format!("there is no level {level}; the coarsest is {}", levels.len().saturating_sub(1)))
        })?;
        if from >= found.cells {
            return Err(wrong(format!("level {level} has only {} cells", found.cells)));
        }
        let cells = atlas.cells(level as usize, from, count).map_err(unreadable)?;
        Ok(([(header::CONTENT_TYPE, "application/octet-stream")], cells))
    };
    request.answer(read).await
}

/// Which cells, in blocks.
#[derive(Debug, Deserialize)]
pub struct HeatQuery {
    from: Option<u64>,
    cell: u64,
    count: Option<u32>,
}

/// How often the device is read for the files of a volume, by place: cells of any size. It changes with each read, so that it has no
/// ETag.
#[utoipa::path(get, path = "/v1/volumes/{id}/map/heat",
    params(("id" = String, Path, description = "Id of the volume"),
        ("before" = Option<bool>, Query, description = "the map from before the last pass"),
        ("from" = Option<u64>, Query, description = "the first block (default 0)"),
        ("cell" = u64, Query, description = "the blocks of a cell, at least 1"),
        ("count" = Option<u32>, Query, description = "so many cells, fewer at the end of the volume; at most 32768 (default)")),
    responses((status = 200, body = MapHeat), (status = 400, body = Problem), (status = 403, body = Problem),
        (status = 404, body = Problem), (status = 503, body = Problem)))]
pub async fn heat(
    State(hub): State<Arc<Hub>>,
    sender: Sender,
    Path(id): Path<String>,
    which: Asked<Which>,
    asked: Asked<HeatQuery>,
) -> Result<Response, Failure> {
    let request = Request::new(hub, &sender, &id, &HeaderMap::new(), which)?;
    let HeatQuery { from, cell, count } = query(asked)?;
    let (from, count) = (from.unwrap_or(0), count.unwrap_or(MOST_HEAT_CELLS));
    if cell == 0 || count > MOST_HEAT_CELLS {
        return Err(wrong(format!("cells have at least one block, and an answer at most {MOST_HEAT_CELLS} cells")));
    }
    let read = move |request: &Request, atlas: &Atlas<File>| {
        let rest = (on_volume(atlas, from)? - from).div_ceil(cell);
        let count = count.min(u32::try_from(rest).unwrap_or(u32::MAX));
        let cells = maps::Cells { from: PhysicalBlock(from), each: Blocks(cell), count };
        maps::heat(atlas, request.hub.heats.of(&request.wanted.id), cells).map(Json).map_err(unreadable)
    };
    let mut response = request.answer(read).await?;
    response.headers_mut().remove(header::ETAG);
    Ok(response)
}

/// Which extents.
#[derive(Debug, Deserialize)]
pub struct ExtentsQuery {
    from: u64,
    to: u64,
}

/// The pieces of a range of a volume: extents of files, areas of the file system, free space.
#[utoipa::path(get, path = "/v1/volumes/{id}/extents",
    params(("id" = String, Path, description = "Id of the volume"),
        ("before" = Option<bool>, Query, description = "the map from before the last pass"),
        ("from" = u64, Query, description = "the first block"), ("to" = u64, Query, description = "the block behind the last")),
    responses((status = 200, body = MapExtents), (status = 304, description = "The client has it"),
        (status = 400, body = Problem), (status = 403, body = Problem), (status = 404, body = Problem),
        (status = 503, body = Problem)))]
pub async fn extents(
    State(hub): State<Arc<Hub>>,
    sender: Sender,
    Path(id): Path<String>,
    headers: HeaderMap,
    which: Asked<Which>,
    asked: Asked<ExtentsQuery>,
) -> Result<Response, Failure> {
    let request = Request::new(hub, &sender, &id, &headers, which)?;
    let ExtentsQuery { from, to } = query(asked)?;
    if from >= to {
        return Err(wrong("from is not before to".to_owned()));
    }
    let read = move |_: &Request, atlas: &Atlas<File>| {
        let to = to.min(on_volume(atlas, from)?);
        let within = Extent::between(PhysicalBlock(from), PhysicalBlock(to));
        maps::extents(atlas, within).map(Json).map_err(unreadable)
    };
    request.answer(read).await
}

/// The end of the volume, where `block` lies before it.
fn on_volume(atlas: &Atlas<File>, block: u64) -> Result<u64, Failure> {
    let total = atlas.summary().total.0;
    let beyond = || wrong(format!("block {block} is beyond the end of the volume, which has {total} blocks"));
    (block < total).then_some(total).ok_or_else(beyond)
}

/// Which block.
#[derive(Debug, Deserialize)]
pub struct OwnerQuery {
    block: u64,
}

/// Who had a block at the last scan. The path of a file is looked up now.
#[utoipa::path(get, path = "/v1/volumes/{id}/owner",
    params(("id" = String, Path, description = "Id of the volume"),
        ("before" = Option<bool>, Query, description = "the map from before the last pass"),
        ("block" = u64, Query, description = "the block, counted from 0")),
    responses((status = 200, body = BlockOwner), (status = 304, description = "The client has it"),
        (status = 400, body = Problem), (status = 403, body = Problem), (status = 404, body = Problem),
        (status = 503, body = Problem)))]
pub async fn owner(
    State(hub): State<Arc<Hub>>,
    sender: Sender,
    Path(id): Path<String>,
    headers: HeaderMap,
    which: Asked<Which>,
    asked: Asked<OwnerQuery>,
) -> Result<Response, Failure> {
    let request = Request::new(hub, &sender, &id, &headers, which)?;
    let OwnerQuery { block } = query(asked)?;
    let read = move |request: &Request, atlas: &Atlas<File>| {
        on_volume(atlas, block)?;
        let (mut found, entry) = maps::block_owner(atlas, PhysicalBlock(block)).map_err(unreadable)?;
        found.file = entry.map(|(index, entry)| {
            let path = request.hub.path_of(&request.wanted.id, entry);
            maps::map_file(atlas, request.filesystem, (index, entry), path)
        });
        Ok(Json(found))
    };
    request.answer(read).await
}

/// Which file, and from which of its extents on.
#[derive(Debug, Deserialize)]
pub struct FileQuery {
    path: Option<PathBuf>,
    file: Option<u32>,
    from: Option<u64>,
}

/// The extents that a file had at the last scan, by its path or by its number in the map.
#[utoipa::path(get, path = "/v1/volumes/{id}/file",
    params(("id" = String, Path, description = "Id of the volume"),
        ("before" = Option<bool>, Query, description = "the map from before the last pass"),
        ("path" = Option<String>, Query, description = "the path of the file, without symbolic links"),
        ("file" = Option<u32>, Query, description = "or its number in this scan, from /extents or /owner"),
        ("from" = Option<u64>, Query, description = "leave out so many extents (default 0)")),
    responses((status = 200, body = FileExtents), (status = 304, description = "The client has it"),
        (status = 400, body = Problem), (status = 403, body = Problem), (status = 404, body = Problem),
        (status = 503, body = Problem)))]
pub async fn file(
    State(hub): State<Arc<Hub>>,
    sender: Sender,
    Path(id): Path<String>,
    headers: HeaderMap,
    which: Asked<Which>,
    asked: Asked<FileQuery>,
) -> Result<Response, Failure> {
    let request = Request::new(hub, &sender, &id, &headers, which)?;
    let FileQuery { path, file, from } = query(asked)?;
    let read = move |request: &Request, atlas: &Atlas<File>| {
        let id = &request.wanted.id;
        let (index, entry, path) = match (path, file) {
            (Some(path), None) => {
                if !path.is_absolute() {
                    return Err(wrong(format!("{} does not begin with /", path.to_string_lossy().escape_debug())));
                }
                let file = request.hub.file_at(id, path.clone()).map_err(|why| no_file(&why))?;
                let found = atlas.find(file.inode, |entry| file.is(entry)).map_err(unreadable)?;
                let (index, entry) = found.ok_or_else(|| no_file("the file is younger than the last scan"))?;
                (index, entry, Ok(path.to_string_lossy().into_owned()))
            }
            (None, Some(number)) => {
                let entry = atlas.file(FileIndex(number)).map_err(unreadable)?;
                let entry = entry.ok_or_else(|| wrong(format!("the map has no file {number}")))?;
                (FileIndex(number), entry, request.hub.path_of(id, entry))
            }
            _ => return Err(wrong("either path or file must be given".to_owned())),
        };
        let file = maps::map_file(atlas, request.filesystem, (index, entry), path);
        maps::file_extents(atlas, file, &entry, from.unwrap_or(0)).map(Json).map_err(unreadable)
    };
    request.answer(read).await
}

fn no_file(why: &str) -> Failure {
    Failure::new(StatusCode::NOT_FOUND, why, "POST /v1/volumes/ID/analyze makes a new map of the volume")
}

#[cfg(test)]
mod tests {
    #[test]
    fn a_client_has_an_answer_when_it_names_the_scan() {
        for (known, is) in
            [("\"5\"", true), ("W/\"5\"", true), ("\"4\", \"5\"", true), ("*", true), ("\"55\"", false), ("5", false)]
        {
            assert_eq!(super::has(known, "\"5\""), is, "{known}");
        }
    }
}
