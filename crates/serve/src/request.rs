//! A request as handlers get it: with a whole body, and with what its sender gives up.

use crate::{Failure, Peer};
use axum::Extension;
use axum::body::Body;
use axum::extract::Request;
use axum::http::StatusCode;
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use longrun_api::ROLE_HEADER;
use longrun_api::model::Role;

/// The highest role that the sender wants to have.
#[derive(Clone, Copy, Debug)]
pub struct Highest(pub Role);

impl Highest {
    /// Whether the sender gives up permissions.
    #[must_use]
    pub fn is_lowered(self) -> bool {
        self.0 < Role::Operator
    }
}

/// Who sends a request.
pub type Sender = (Extension<Peer>, Extension<Highest>);

/// Reads the body of every request to its end, of at most `largest` bytes, on routes that have no use for it too: a connection that is closed on an unread
/// body makes clients lose the answer.
pub async fn whole(largest: usize, request: Request, next: Next) -> Response {
    let (mut parts, body) = request.into_parts();
    let Ok(body) = axum::body::to_bytes(body, largest).await else {
        let error = format!("the body is incomplete, or longer than {largest} bytes");
        return Failure::new(StatusCode::PAYLOAD_TOO_LARGE, error, "send less").into_response();
    };
    // A sender that passes on the requests of others gives up permissions by this header.
    let lowered = parts.headers.get(ROLE_HEADER).is_some_and(|role| role == "viewer");
    parts.extensions.insert(if lowered { Highest(Role::Viewer) } else { Highest(Role::Operator) });
    next.run(Request::from_parts(parts, Body::from(body))).await
}
