//! The service of this machine, asked over its socket.
//!
//! Owns the requests and their time limit. What is said to it ends when it says that it ends: this process may be gone by then.

use http_body_util::Full;
use hyper::body::Bytes;
use hyper::{Method, Request, Response};
use longrun_api::fleet::{Fleet, Permission};
use longrun_api::model::Problem;
use longrun_api::{ExchangeError, exchange};
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// The longest answer that is accepted, in bytes.
const LARGEST: usize = 4 << 20;

/// Why the service gave no answer.
#[derive(Debug, thiserror::Error)]
pub enum DaemonError {
    /// No service listens on the socket, or this user may not ask it.
    #[error("the service cannot be reached ({path}: {source}); start it with `systemctl start longrun`", path = path.display())]
    NotRunning {
        /// The socket.
        path: PathBuf,
        /// The kernel's answer.
        source: io::Error,
    },
    /// The service refused the request.
    #[error("{error}; {hint}")]
    Refused {
        /// The reason.
        error: String,
        /// The advice of the service.
        hint: String,
    },
    /// The answer is invalid or too late: the request may have been carried out, or may be yet.
    #[error("the service gave no valid answer: {0}")]
    Garbled(String),
}

/// The service.
#[derive(Clone, Debug)]
pub struct Daemon {
    socket: PathBuf,
    patience: Duration,
}

impl Daemon {
    /// That which listens on `socket`, waited for so long.
    #[must_use]
    pub fn new(socket: &Path, patience: Duration) -> Self {
        Self { socket: socket.to_owned(), patience }
    }

    /// This machine's part in the fleet.
    ///
    /// # Errors
    /// [`DaemonError`].
    pub async fn fleet(&self) -> Result<Fleet, DaemonError> {
        self.get("/v1/fleet").await
    }

    /// Tells it what is permitted.
    ///
    /// # Errors
    /// [`DaemonError`]. The permission may have been taken, or may be yet, unless it was refused.
    pub async fn permit(&self, permission: &Permission) -> Result<(), DaemonError> {
        self.put("/v1/fleet/permission", permission).await
    }

    /// GET `path`.
    ///
    /// # Errors
    /// [`DaemonError`].
    pub async fn get<T: DeserializeOwned>(&self, path: &str) -> Result<T, DaemonError> {
        let answer = self.ask(Method::GET, path, Bytes::new()).await?;
        serde_json::from_slice(&answer).map_err(|error| DaemonError::Garbled(error.to_string()))
    }

    /// PUT `path`.
    ///
    /// # Errors
    /// [`DaemonError`].
    pub async fn put<T: Serialize + Sync>(&self, path: &str, body: &T) -> Result<(), DaemonError> {
        let body = serde_json::to_vec(body).map_err(|error| DaemonError::Garbled(error.to_string()))?;
        self.ask(Method::PUT, path, body.into()).await.map(drop)
    }

    /// DELETE `path`.
    ///
    /// # Errors
    /// [`DaemonError`].
    pub async fn delete(&self, path: &str) -> Result<(), DaemonError> {
        self.ask(Method::DELETE, path, Bytes::new()).await.map(drop)
    }

    async fn ask(&self, method: Method, path: &str, body: Bytes) -> Result<Bytes, DaemonError> {
        let answer = tokio::time::timeout(self.patience, self.exchange(method, path, body)).await;
        let answer = answer.map_err(|_| DaemonError::Garbled("it took too long".to_owned()))??;
        if answer.status().is_success() {
            return Ok(answer.into_body());
        }
        Err(match serde_json::from_slice::<Problem>(answer.body()) {
            Ok(Problem { error, hint }) => DaemonError::Refused { error, hint },
            Err(_) => DaemonError::Garbled(format!("status {}", answer.status())),
        })
    }

    async fn exchange(&self, method: Method, path: &str, body: Bytes) -> Result<Response<Bytes>, DaemonError> {
        let request = Request::builder().method(method).uri(path).header("host", "longrun");
        let request = request.header("content-type", "application/json").body(Full::new(body));
        let request = request.map_err(|error| DaemonError::Garbled(error.to_string()))?;
        exchange(&self.socket, request, LARGEST).await.map_err(|error| match error {
            ExchangeError::NotRunning(source) => DaemonError::NotRunning { path: self.socket.clone(), source },
            ExchangeError::Garbled(detail) => DaemonError::Garbled(detail),
        })
    }
}
