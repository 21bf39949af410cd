//! The form of a refusal.

use axum::Json;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use longrun_api::model::Problem;

/// An error answer: what failed, and what to do.
#[derive(Debug)]
pub struct Failure(StatusCode, Problem);

impl Failure {
    /// With its status.
    pub fn new(status: StatusCode, error: impl Into<String>, hint: impl Into<String>) -> Self {
        Self(status, Problem { error: error.into(), hint: hint.into() })
    }
}

impl IntoResponse for Failure {
    fn into_response(self) -> Response {
        (self.0, Json(self.1)).into_response()
    }
}
