//! The requests about the configuration, and their answers.
//!
//! Owns who may change which setting. The file is read and written on threads of their own, since it lies on a disk.

use super::routes::{Failure, Sender, admit, is_root, role};
use crate::config::{Change, EditError, Section, StoreError, is_for_root};
use crate::hub::{ChangeError, Hub};
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use axum::{Json, Router};
use longrun_api::config::{ConfigChange, ConfigChanges, ConfigFile};
use longrun_api::model::{Problem, Role};
use std::sync::Arc;

/// So many changes may be made at a time.
const MOST_CHANGES: usize = 200;

/// The routes.
pub fn router() -> Router<Arc<Hub>> {
    Router::new().route("/v1/config", get(read).put(change))
}

/// The configuration file, the keys that it may have, and what holds for each volume. The state of the file is the `ETag`.
#[utoipa::path(get, path = "/v1/config", responses((status = 200, body = ConfigFile), (status = 403, body = Problem), (status = 503, body = Problem)))]
pub async fn read(State(hub): State<Arc<Hub>>, sender: Sender) -> Result<Response, Failure> {
    admit(&hub, &sender, Role::Viewer)?;
    let (may_change, by_root) = (role(&hub, &sender) == Role::Operator, is_root(&hub, &sender));
    let read = tokio::task::spawn_blocking(move || hub.configured(may_change, by_root)).await;
    let unreadable =
        |error: String| Failure::new(StatusCode::SERVICE_UNAVAILABLE, error, "check the file and its permissions");
    let (file, tag) =
        read.map_err(|error| unreadable(error.to_string()))?.map_err(|error| unreadable(error.to_string()))?;
    Ok(tagged(file, tag))
}

/// Changes settings in the configuration file, all or none, and puts them into effect. Comments in the file stay. Who has access and where files
/// are, only root may change.
#[utoipa::path(put, path = "/v1/config", request_body = ConfigChanges,
    params(("If-Match" = String, Header, description = "the ETag of GET /v1/config")),
    responses((status = 200, body = ConfigFile), (status = 400, body = Problem), (status = 403, body = Problem),
        (status = 409, body = Problem), (status = 412, body = Problem), (status = 422, body = Problem), (status = 428, body = Problem),
        (status = 503, body = Problem)))]
pub async fn change(
    State(hub): State<Arc<Hub>>,
    sender: Sender,
    headers: HeaderMap,
    body: axum::body::Bytes,
) -> Result<Response, Failure> {
    admit(&hub, &sender, Role::Operator)?;
    let by_root = is_root(&hub, &sender);
    let wrong = |error: String| {
        let hint = "send {\"changes\": [{\"section\": \"defaults\", \"key\": \"pace\", \"value\": \"balanced\"}]}";
        Failure::new(StatusCode::BAD_REQUEST, error, hint)
    };
    let ConfigChanges { changes } =
        serde_json::from_slice(&body).map_err(|error| wrong(format!("the body is not valid: {error}")))?;
    if changes.is_empty() || changes.len() > MOST_CHANGES {
        return Err(wrong(format!("there must be from 1 to {MOST_CHANGES} changes")));
    }
    if let Some(change) = changes.iter().find(|change| !by_root && is_for_root(&change.key)) {
        let error = format!("permission denied: only root may change {}", change.key);
        return Err(Failure::new(
            StatusCode::FORBIDDEN,
            error,
            "change the file as root, or use Cockpit with administrative access",
        ));
    }
    let read = |ConfigChange { section, key, value }| match Section::read(&section) {
        Some(section) => Ok(Change { section, key, value }),
        None => {
            Err(wrong(format!("{section:?} is no section: service, defaults, mount=…, uuid=…, label=… or device=…")))
        }
    };
    let changes: Vec<Change> = changes.into_iter().map(read).collect::<Result<_, _>>()?;
    let tag = headers.get(header::IF_MATCH).and_then(|tag| tag.to_str().ok()).map(str::to_owned);
    let tag = tag.ok_or_else(|| {
        Failure::new(
            StatusCode::PRECONDITION_REQUIRED,
            "the header If-Match is missing",
            "send the ETag of GET /v1/config",
        )
    })?;
    let changed = tokio::task::spawn_blocking(move || hub.change_config(&changes, &tag, by_root)).await;
    let failed = |error: String| Failure::new(StatusCode::SERVICE_UNAVAILABLE, error, "see the log of the service");
    let (file, tag) = changed.map_err(|error| failed(error.to_string()))?.map_err(|error| refused(&error))?;
    Ok(tagged(file, tag))
}

fn refused(error: &ChangeError) -> Failure {
    let (status, hint) = match error {
        ChangeError::Stale { .. } | ChangeError::Store(StoreError::Changed { .. }) => {
            (StatusCode::PRECONDITION_FAILED, "read GET /v1/config again, and repeat the change")
        }
        ChangeError::Edit(EditError::Wrong(_) | EditError::Unknown { .. }) => {
            (StatusCode::UNPROCESSABLE_ENTITY, "nothing was changed; GET /v1/config says what is allowed")
        }
        ChangeError::Edit(EditError::Broken(_) | EditError::Form { .. }) => {
            (StatusCode::CONFLICT, "nothing was changed; edit the file, and check it with `longrun config check`")
        }
        ChangeError::Store(_) => (
            StatusCode::CONFLICT,
            "nothing was changed; make the file and its directory writable for the service, or edit it by hand",
        ),
    };
    Failure::new(status, error.to_string(), hint)
}

fn tagged(file: ConfigFile, tag: String) -> Response {
    ([(header::ETAG, tag)], Json(file)).into_response()
}
